"""How to call operators of torch that no sample of torch's databases fits: name → expression over the names of `bench`."""

from __future__ import annotations

_CONVOLUTION = "T(1, 3, 4, 4), T(2, 3, 2, 2)"
_PLACES = "[0, 0], [1, 1], [1, 1], 1"
_CELL = "torch.fbgemm_pack_quantized_matrix(q[0])"

OPERATORS: dict[str, str] = {
    "torch.where": "torch.where(B(3, 3), T(3, 3), T(3, 3) * 0)",
    "torch.is_nonzero": "torch.is_nonzero(T(1))",
    "torch.grid_sampler": "torch.grid_sampler(T(1, 1, 3, 3), T(1, 2, 2, 2), 0, 0, False)",
    "torch.max_pool3d": "torch.max_pool3d(T(1, 2, 4, 4, 4), 2)",
    "torch.view_as_complex_copy": "torch.view_as_complex_copy(T(3, 2))",
    "torch.view_as_real_copy": "torch.view_as_real_copy(T(3, dtype=torch.complex64))",
    "torch.sparse_coo_tensor": "torch.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 2.0], (2, 2), device=D)",
    "torch.Tensor.random_": "T(3, 3).random_(0, 5)",
    # Recurrent layers and cells, whose weights hold as many gates as the kind has.
    **{
        f"torch.{name}": (
            f"torch.{name}(T(2, 1, 3), {state}, [T({rows}, 3), T({rows}, 3), T({rows}), T({rows})], "
            "True, 1, 0.0, False, False, False)"
        )
        for name, state, rows in (
            ("rnn_relu", "T(1, 1, 3)", 3),
            ("rnn_tanh", "T(1, 1, 3)", 3),
            ("gru", "T(1, 1, 3)", 9),
            ("lstm", "[T(1, 1, 3), T(1, 1, 3)]", 12),
        )
    },
    "torch.gru_cell": "torch.gru_cell(T(2, 3), T(2, 3), T(9, 3), T(9, 3))",
    "torch.lstm_cell": "torch.lstm_cell(T(2, 3), [T(2, 3), T(2, 3)], T(12, 3), T(12, 3))",
    "torch.mkldnn_rnn_layer": (
        "torch.mkldnn_rnn_layer(H(2, 1, 3), H(12, 3), H(12, 3), H(12), H(12), H(1, 1, 3), H(1, 1, 3), "
        "False, [], 2, 3, 1, True, False, False, False)"
    ),
    # Quantization. Packed weights are an object of the CPU's library.
    "torch.quantize_per_tensor": "torch.quantize_per_tensor(T(3, 3), 0.1, 0, torch.quint8)",
    "torch.quantize_per_tensor_dynamic": "torch.quantize_per_tensor_dynamic(T(3, 3), torch.quint8, False)",
    "torch.quantize_per_channel": (
        "torch.quantize_per_channel(T(3, 3), T(3) + 0.1, torch.zeros(3, dtype=torch.int64, device=D), 0, torch.quint8)"
    ),
    "torch.empty_quantized": "torch.empty_quantized([3, 3], quantized(3, 3)).shape",
    **{f"torch.{name}": f"torch.{name}(quantized(3, 3))" for name in ("int_repr", "q_scale", "q_zero_point")},
    **{
        f"torch.{name}": (
            f"torch.{name}(torch.quantize_per_channel(H(2, 2), H(2) + 0.1, H(2).to(torch.int64) * 0, 0, torch.quint8))"
        )
        for name in ("q_per_channel_axis", "q_per_channel_scales", "q_per_channel_zero_points")
    },
    "torch.quantized_max_pool1d": "torch.quantized_max_pool1d(quantized(1, 4, 4), [2], [2])",
    "torch.quantized_max_pool2d": "torch.quantized_max_pool2d(quantized(1, 1, 4, 4), [2, 2], [2, 2])",
    "torch.quantized_max_pool3d": "torch.quantized_max_pool3d(quantized(1, 1, 4, 4, 4), [2, 2, 2], [2, 2, 2])",
    "torch.quantized_batch_norm": (
        "torch.quantized_batch_norm(quantized(1, 2, 3, 3), H(2), H(2), H(2), H(2) + 1, 1e-5, 0.1, 0)"
    ),
    **{
        f"torch.quantized_{name}_cell": (
            f"(lambda q: torch.quantized_{name}_cell(H(2, 3), {state}, q[0], q[0], H({rows}), H({rows}), "
            f"{_CELL}, {_CELL}, q[1], q[1], q[2], q[2], q[3], q[3]))(torch.fbgemm_linear_quantize_weight(H({rows}, 3)))"
        )
        for name, state, rows in (
            ("rnn_relu", "H(2, 3)", 3),
            ("rnn_tanh", "H(2, 3)", 3),
            ("gru", "H(2, 3)", 9),
            ("lstm", "[H(2, 3), H(2, 3)]", 12),
        )
    },
    "torch.fbgemm_pack_quantized_matrix": (
        "torch.fbgemm_pack_quantized_matrix(torch.fbgemm_linear_quantize_weight(H(3, 3))[0]).shape"
    ),
    **{
        f"torch.fbgemm_linear_{name}": (
            f"torch.fbgemm_linear_{name}(H(3, 3), torch.fbgemm_pack_gemm_matrix_fp16(H(3, 3)), H(3))"
        )
        for name in ("fp16_weight", "fp16_weight_fp32_activation")
    },
    **{
        f"torch.fbgemm_linear_{name}": (
            f"(lambda q: torch.fbgemm_linear_{name}("
            "H(3, 3), q[0], torch.fbgemm_pack_quantized_matrix(q[0]), q[1], q[2], q[3], H(3)))"
            "(torch.fbgemm_linear_quantize_weight(H(3, 3)))"
        )
        for name in ("int8_weight", "int8_weight_fp32_activation")
    },
    "torch.fused_moving_avg_obs_fake_quant": (
        "torch.fused_moving_avg_obs_fake_quant(T(3, 3), torch.ones(1, dtype=torch.int64, device=D), "
        "torch.ones(1, dtype=torch.int64, device=D), T(1) * 0, T(1), T(1), "
        "torch.zeros(1, dtype=torch.int32, device=D), 0.01, 0, 255, 0)"
    ),
    # Tensors of other layouts.
    "torch.hspmm": "torch.hspmm(sparse(), P()).to_dense()",
    "torch.native_norm": "torch.native_norm(sparse())",
    "torch.indices_copy": "torch.indices_copy(sparse().coalesce())",
    "torch.values_copy": "torch.values_copy(sparse().coalesce())",
    "torch.resize_as_sparse_": "torch.resize_as_sparse_(sparse(), sparse())",
    "torch.mkldnn_adaptive_avg_pool2d": "torch.mkldnn_adaptive_avg_pool2d(H(1, 1, 4, 4).to_mkldnn(), [2, 2]).to_dense()",
    "torch.mkldnn_max_pool2d": "torch.mkldnn_max_pool2d(H(1, 1, 4, 4).to_mkldnn(), [2, 2]).to_dense()",
    "torch.mkldnn_max_pool3d": "torch.mkldnn_max_pool3d(H(1, 1, 4, 4, 4).to_mkldnn(), [2, 2, 2]).to_dense()",
    "torch.mkldnn_linear_backward_weights": (
        "[x.to_dense() for x in torch.mkldnn_linear_backward_weights("
        "H(2, 3).to_mkldnn(), H(2, 3).to_mkldnn(), H(3, 3), True)]"
    ),
    # Kernels of vendors' libraries.
    "torch.mkldnn_convolution": f"torch.mkldnn_convolution(H(1, 3, 4, 4), H(2, 3, 2, 2), H(2), {_PLACES})",
    "torch.cudnn_convolution": f"torch.cudnn_convolution({_CONVOLUTION}, {_PLACES}, False, False, False)",
    "torch.cudnn_convolution_relu": (f"torch.cudnn_convolution_relu({_CONVOLUTION}, T(2), [1, 1], [0, 0], [1, 1], 1)"),
    "torch.cudnn_convolution_add_relu": (
        f"torch.cudnn_convolution_add_relu({_CONVOLUTION}, T(1, 2, 3, 3), 0.5, T(2), [1, 1], [0, 0], [1, 1], 1)"
    ),
    "torch.cudnn_convolution_transpose": (
        "torch.cudnn_convolution_transpose(T(1, 2, 3, 3), T(2, 3, 2, 2), [0, 0], [0, 0], [1, 1], [1, 1], 1, "
        "False, False, False)"
    ),
    "torch.batch_norm_elemt": "torch.batch_norm_elemt(T(2, 3), T(3), T(3), T(3), T(3), 1e-5)",
    "torch.batch_norm_backward_elemt": (
        "torch.batch_norm_backward_elemt("
        "T(2, 3), T(2, 3), T(3), T(3), T(3), T(3), T(3), torch.ones(1, dtype=torch.int32, device=D))"
    ),
    "torch.batch_norm_backward_reduce": (
        "torch.batch_norm_backward_reduce(T(2, 3), T(2, 3), T(3), T(3), T(3), True, True, True)"
    ),
    "torch.batch_norm_gather_stats": "torch.batch_norm_gather_stats(T(2, 3), T(1, 3), T(1, 3), T(3), T(3), 0.1, 1e-5, 2)",
    "torch.batch_norm_gather_stats_with_counts": (
        "torch.batch_norm_gather_stats_with_counts(T(2, 3), T(1, 3), T(1, 3), T(3), T(3), 0.1, 1e-5, T(1) + 1)"
    ),
    "torch.nn.functional.grouped_mm": (
        "torch.nn.functional.grouped_mm(T(2, 16, 16, dtype=torch.bfloat16), T(2, 16, 16, dtype=torch.bfloat16))"
    ),
    "torch.nn.functional.scaled_mm": (
        "torch.nn.functional.scaled_mm(T(16, 16).to(torch.float8_e4m3fn), T(16, 16).to(torch.float8_e4m3fn).t(), "
        "T(1), torch.nn.functional.ScalingType.TensorWise, T(1), torch.nn.functional.ScalingType.TensorWise)"
    ),
    "torch.nn.attention.activate_flash_attention_impl": "torch.nn.attention.activate_flash_attention_impl('FA3')",
    **{
        f"torch.nn.attention.varlen.{name}": (
            f"torch.nn.attention.varlen.{name}({out}T(4, 2, 16, dtype=torch.float16), T(4, 2, 16, dtype=torch.float16), "
            "T(4, 2, 16, dtype=torch.float16), torch.tensor([0, 4], dtype=torch.int32, device=D), "
            "torch.tensor([0, 4], dtype=torch.int32, device=D), 4, 4)"
        )
        for name, out in (("varlen_attn", ""), ("varlen_attn_out", "T(4, 2, 16, dtype=torch.float16), "))
    },
    **{
        f"torch.sparse.{name}": f"torch.sparse.{name}(halves()).to_dense()"
        for name in (
            "to_sparse_semi_structured",
            "SparseSemiStructuredTensorCUSPARSELT.from_dense",
            "SparseSemiStructuredTensorCUTLASS.from_dense",
        )
    },
    "torch.sparse.SparseSemiStructuredTensorCUTLASS.to_dense": (
        "torch.sparse.SparseSemiStructuredTensorCUTLASS.from_dense(halves()).to_dense()"
    ),
    # Settings of the process.
    "torch.set_anomaly_enabled": "torch.set_anomaly_enabled(False)",
    "torch.set_autocast_cache_enabled": "torch.set_autocast_cache_enabled(True)",
    "torch.set_autocast_gpu_dtype": "torch.set_autocast_gpu_dtype(torch.float16)",
    **{
        f"torch.set_autocast_{kind}_enabled": f"torch.set_autocast_{kind}_enabled(False)"
        for kind in ("cpu", "ipu", "xla")
    },
    **{
        f"torch.set_autocast_{kind}_dtype": f"torch.set_autocast_{kind}_dtype(torch.bfloat16)"
        for kind in ("cpu", "ipu", "xla")
    },
    "torch.set_num_threads": "run(torch.set_num_threads(1), torch.get_num_threads())",
    "torch.set_num_interop_threads": "torch.set_num_interop_threads(1)",
    # Numbers, storages and the parser of TorchScript.
    "torch.sym_ite": "torch.sym_ite(True, 1, 2)",
    "torch.TypedStorage.from_buffer": "torch.FloatStorage.from_buffer(bytearray(8), byte_order='native').tolist()",
    "torch.TypedStorage.from_file": "torch.FloatStorage.from_file(file(T(300)), False, 2).nbytes()",
    "torch.import_ir_module": "torch.import_ir_module(torch._C.CompilationUnit(), script(), None, {}, False)",
    "torch.import_ir_module_from_buffer": (
        "torch.import_ir_module_from_buffer(torch._C.CompilationUnit(), open(script(), 'rb').read(), None, {}, False)"
    ),
    "torch.parse_ir": ("str(torch.parse_ir('graph(%x : Tensor):\\n  %y : Tensor = aten::sin(%x)\\n  return (%y)'))"),
    "torch.parse_schema": "str(torch.parse_schema('aten::f(Tensor x) -> Tensor'))",
    "torch.parse_type_comment": "torch.parse_type_comment('# type: (Tensor) -> Tensor')",
    "torch.merge_type_from_type_comment": (
        "torch.merge_type_from_type_comment(torch.parse_type_comment('# type: (Tensor) -> Tensor'), "
        "torch.parse_type_comment('# type: (Tensor) -> Tensor'), False)"
    ),
    "torch.unify_type_list": "str(torch.unify_type_list([torch._C.IntType.get(), torch._C.IntType.get()]))",
    "torch.wait": "torch.wait(torch.jit.fork(torch.sin, T(3)))",
}
