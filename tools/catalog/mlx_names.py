"""The other direction of the cross-map: names of MLX that no pair of `mlx_pairs` uses. Imports no MLX.

THERE has those with a counterpart in torch, each as two expressions with the same values. ALONE has the others, by the
reason. Tests run the pairs, and compare all names with those of the installed MLX.
"""

from __future__ import annotations

# Name of MLX → an expression of torch, and the same with MLX.
THERE = {
    "mnn.AvgPool3d": ("F.avg_pool3d(g, 2)[:, 0]", "mnn.AvgPool3d(2, 2)(g[..., None])[..., 0][:, 0]"),
    "mnn.BatchNorm": ("F.batch_norm(x, None, None, training=True)", "mnn.BatchNorm(4)(x)"),
    "mnn.InstanceNorm": ("F.instance_norm(g)", "mx.moveaxis(mnn.InstanceNorm(3)(mx.moveaxis(g, 1, -1)), -1, 1)"),
    "mnn.MaxPool3d": ("F.max_pool3d(g, 2)[:, 0]", "mnn.MaxPool3d(2, 2)(g[..., None])[..., 0][:, 0]"),
    "mnn.ReLU2": ("F.relu(x).square()", "mnn.ReLU2()(x)"),
    "mnn.Step": ("(x > 0.3).int()", "mnn.Step(0.3)(x)"),
    "mnn.gelu_approx": ("F.gelu(x, approximate='tanh')", "mnn.gelu_approx(x)"),
    "mnn.gelu_fast_approx": ("x * torch.sigmoid(1.702 * x)", "mnn.gelu_fast_approx(x)"),
    "mnn.losses.hinge_loss": ("F.relu(1 - x * y)", "mnn.losses.hinge_loss(x, y)"),
    "mnn.losses.log_cosh_loss": (
        "torch.log(torch.cosh(x - y)).mean()",
        "mnn.losses.log_cosh_loss(x, y, reduction='mean')",
    ),
    "mnn.relu2": ("F.relu(x).square()", "mnn.relu2(x)"),
    "mnn.step": ("(x > 0.3).int()", "mnn.step(x, 0.3)"),
    "mx.argpartition": ("torch.sort(v).values[2]", "v[mx.argpartition(v, 2)[2]]"),
    "mx.astype": ("x.to(torch.int32)", "mx.astype(x, mx.int32)"),
    "mx.block_masked_mm": ("p @ p", "mx.block_masked_mm(mx.pad(p, (0, 29)), mx.pad(p, (0, 29)), 32)[:3, :3]"),
    "mx.broadcast_shapes": ("list(torch.broadcast_shapes((3, 1), (4,)))", "mx.broadcast_shapes((3, 1), (4,))"),
    "mx.can_cast": ("torch.can_cast(torch.int32, torch.float32)", "mx.can_cast(mx.int32, mx.float32)"),
    "mx.checkpoint": (
        "torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)",
        "mx.checkpoint(mx.sin)(x)",
    ),
    "mx.compile": ("torch.sin(x) + 1", "mx.compile(lambda q: mx.sin(q) + 1)(x)"),
    "mx.conjugate": ("torch.conj(z)", "mx.conjugate(z)"),
    "mx.contiguous": ("x.T.contiguous()", "mx.contiguous(x.T)"),
    "mx.conv3d": (
        "F.conv3d(g[None], k[None])",
        "mx.moveaxis(mx.conv3d(mx.moveaxis(g[None], 1, -1), mx.moveaxis(k[None], 1, -1)), -1, 1)",
    ),
    "mx.conv_general": (
        "F.conv2d(g, k)",
        "mx.moveaxis(mx.conv_general(mx.moveaxis(g, 1, -1), mx.moveaxis(k, 1, -1)), -1, 1)",
    ),
    "mx.conv_transpose1d": (
        "F.conv_transpose1d(g[:, :2, 0], k1)",
        "mx.moveaxis(mx.conv_transpose1d(mx.moveaxis(g[:, :2, 0], 1, -1), mx.moveaxis(mx.swapaxes(k1, 0, 1), 1, -1)), -1, 1)",
    ),
    "mx.conv_transpose2d": (
        "F.conv_transpose2d(g[:, :2], k)",
        "mx.moveaxis(mx.conv_transpose2d(mx.moveaxis(g[:, :2], 1, -1), mx.moveaxis(mx.swapaxes(k, 0, 1), 1, -1)), -1, 1)",
    ),
    "mx.conv_transpose3d": (
        "F.conv_transpose3d(g[None, :2], k[:, :, None])",
        "mx.moveaxis(mx.conv_transpose3d(mx.moveaxis(g[None, :2], 1, -1), mx.moveaxis(mx.swapaxes(k[:, :, None], 0, 1), 1, -1)), -1, 1)",
    ),
    "mx.convolve": ("F.conv1d(v[None, None], u.flip(0)[None, None], padding=2)[0, 0]", "mx.convolve(v, u)"),
    "mx.cumulative_prod": ("torch.cumprod(x, 0)", "mx.cumulative_prod(x, 0)"),
    "mx.cumulative_sum": ("torch.cumsum(x, 0)", "mx.cumulative_sum(x, 0)"),
    "mx.divmod": ("(x // 0.3, x % 0.3)", "mx.divmod(x, 0.3)"),
    "mx.empty": ("list(torch.empty(2, 3).shape)", "mx.empty((2, 3)).shape"),
    "mx.empty_like": ("list(torch.empty_like(x).shape)", "mx.empty_like(x).shape"),
    "mx.fast.cross_entropy": ("F.cross_entropy(x, l, reduction='none')", "mx.fast.cross_entropy(x, l)"),
    "mx.fft.stft": (
        "torch.stft(mx_sorted, 4, 2, window=torch.ones(4), return_complex=True)",
        "mx.fft.stft(mx_sorted, 4, 2)",
    ),
    "mx.finfo": ("torch.finfo(torch.float32).max", "mx.finfo(mx.float32).max"),
    "mx.flip": ("torch.flip(x, [0])", "mx.flip(x, 0)"),
    "mx.from_dlpack": ("torch.from_dlpack(x)", "mx.from_dlpack(x)"),
    "mx.gather_mm": ("s[l] @ p", "mx.gather_mm(s, p[None], l, mx.zeros_like(l))"),
    "mx.hadamard_transform": (
        "v @ torch.tensor([[0.5, 0.5, 0.5, 0.5], [0.5, -0.5, 0.5, -0.5], [0.5, 0.5, -0.5, -0.5], [0.5, -0.5, -0.5, 0.5]])",
        "mx.hadamard_transform(v)",
    ),
    "mx.identity": ("torch.eye(3)", "mx.identity(3)"),
    "mx.iinfo": ("torch.iinfo(torch.int32).max", "mx.iinfo(mx.int32).max"),
    "mx.left_shift": ("torch.bitwise_left_shift(i, j)", "mx.left_shift(i, j)"),
    "mx.linalg.eig": (
        "torch.linalg.eig(p).eigenvalues.real.sort().values",
        "mx.sort(mx.real(mx.linalg.eig(p, stream=mx.cpu)[0]))",
    ),
    "mx.linalg.eigvals": (
        "torch.linalg.eigvals(p).real.sort().values",
        "mx.sort(mx.real(mx.linalg.eigvals(p, stream=mx.cpu)))",
    ),
    "mx.linalg.lu": (
        "(lambda q, l, u: (l, u))(*torch.linalg.lu(p))",
        "(lambda q, l, u: (l, u))(*mx.linalg.lu(p, stream=mx.cpu))",
    ),
    "mx.linalg.lu_factor": ("torch.linalg.lu_factor(p)[0]", "mx.linalg.lu_factor(p, stream=mx.cpu)[0]"),
    "mx.linalg.tri_inv": ("torch.linalg.inv(p.tril())", "mx.linalg.tri_inv(mx.tril(p), stream=mx.cpu)"),
    "mx.logical_xor": ("torch.logical_xor(b, c)", "mx.logical_xor(b, c)"),
    "mx.matrix_norm": ("torch.linalg.matrix_norm(x)", "mx.matrix_norm(x)"),
    "mx.matrix_transpose": ("x.mT", "mx.matrix_transpose(x)"),
    "mx.median": ("torch.median(u)", "mx.median(u)"),
    "mx.minmax": ("torch.aminmax(x)", "mx.minmax(x)"),
    "mx.result_type": ("torch.zeros(1, dtype=torch.result_type(i, x))", "mx.zeros(1, mx.result_type(i, x))"),
    "mx.right_shift": ("torch.bitwise_right_shift(i, j)", "mx.right_shift(i, j)"),
    "mx.segmented_mm": ("p[:, :2] @ p[:2]", "mx.segmented_mm(p, p, mx.array([[0, 2]], mx.uint32))[0]"),
    "mx.slice_update": ("torch.slice_scatter(x, y[:2], 0, 0, 2)", "mx.slice_update(x, y[:2], mx.array([0]), axes=[0])"),
    "mx.stop_gradient": ("x.detach()", "mx.stop_gradient(x)"),
    "mx.topk": ("torch.topk(v, 2, sorted=True).values.sort().values", "mx.sort(mx.topk(v, 2))"),
    "mx.tri": ("torch.ones(3, 4).tril()", "mx.tri(3, 4)"),
    "mx.unique": ("torch.unique(i)", "mx.unique(i, 4)"),
    "mx.value_and_grad": (
        "torch.func.grad_and_value(lambda q: q.sin().sum())(x)[::-1]",
        "mx.value_and_grad(lambda q: mx.sum(mx.sin(q)))(x)",
    ),
    "mx.view": ("x.view(torch.int32)", "mx.view(x, mx.int32)"),
}

# Why there is no counterpart that could be compared → names of MLX.
ALONE = {
    "their weights are random, so results cannot be compared; torch.nn has layers of the same names": (
        "mnn.Bilinear mnn.Conv1d mnn.Conv2d mnn.Conv3d mnn.ConvTranspose1d mnn.ConvTranspose2d "
        "mnn.ConvTranspose3d mnn.Embedding mnn.GRU mnn.LSTM mnn.Linear mnn.Module mnn.MultiHeadAttention "
        "mnn.RNN mnn.Sequential mnn.Transformer mnn.TransformerDecoder mnn.TransformerDecoderLayer "
        "mnn.TransformerEncoder mnn.TransformerEncoderLayer"
    ),
    "random numbers of another generator; torch has functions for the same distributions": (
        "mnn.Dropout mnn.Dropout2d mnn.Dropout3d mnn.init.constant mnn.init.glorot_normal "
        "mnn.init.glorot_uniform mnn.init.he_normal mnn.init.he_uniform mnn.init.identity mnn.init.normal "
        "mnn.init.orthogonal mnn.init.sparse mnn.init.uniform mx.random.bernoulli mx.random.categorical "
        "mx.random.gumbel mx.random.key mx.random.laplace mx.random.multivariate_normal mx.random.normal "
        "mx.random.permutation mx.random.randint mx.random.seed mx.random.split mx.random.truncated_normal "
        "mx.random.uniform"
    ),
    "torch has no such layer or function": (
        "mnn.ALiBi mnn.RoPE mnn.SinusoidalPositionalEncoding mx.fast.gated_delta_update mx.fast.rope "
        "mx.einsum_path mx.isdtype"
    ),
    "number formats of MLX, which torch packs differently": (
        "mnn.QQLinear mnn.QuantizedEmbedding mnn.QuantizedLinear mnn.quantize mx.dequantize mx.from_fp8 "
        "mx.gather_qmm mx.gather_qqmm mx.qqmm mx.quantize mx.quantized_matmul mx.to_fp8"
    ),
    "layers that are spread over machines": (
        "mnn.AllToShardedLinear mnn.FullyShardedModule mnn.QuantizedAllToShardedLinear "
        "mnn.QuantizedShardedToAllLinear mnn.ShardedToAllLinear mnn.average_gradients mnn.fully_shard"
    ),
    "they transform functions or models of MLX, not arrays": (
        "mnn.value_and_grad mx.custom_function mx.depends mx.disable_compile mx.enable_compile "
        "mx.export_function mx.export_to_dot mx.exporter mx.FunctionExporter mx.import_function"
    ),
    "MLX is lazy: it computes when a value is needed; torch computes immediately": (
        "mx.async_eval mx.eval mx.synchronize"
    ),
    "devices, streams and memory of MLX": (
        "mx.Device mx.DeviceType mx.Stream mx.StreamContext mx.ThreadLocalStream mx.clear_cache "
        "mx.clear_streams mx.default_device mx.default_stream mx.device_count mx.device_info "
        "mx.get_active_memory mx.get_array_buffer_size mx.get_cache_memory mx.get_memory_limit "
        "mx.get_peak_memory mx.is_available mx.new_stream mx.new_thread_local_stream "
        "mx.new_thread_unsafe_stream mx.reset_peak_memory mx.set_cache_limit mx.set_default_device "
        "mx.set_default_stream mx.set_memory_limit mx.set_wired_limit mx.stream"
    ),
    "sources of kernels for one kind of GPU": (
        "mx.fast.cuda_kernel mx.fast.metal_kernel mx.fast.precompiled_cuda_kernel"
    ),
    "files in MLX's formats": ("mx.load mx.save mx.save_gguf mx.save_safetensors mx.savez mx.savez_compressed"),
    "types, and settings of how arrays are printed": (
        "mnn.losses.Reduction mx.ArrayAt mx.ArrayIterator mx.ArrayLike mx.Dtype mx.DtypeCategory "
        "mx.PrintOptions mx.get_printoptions mx.printoptions mx.set_printoptions"
    ),
    "the inverse of `mx.fft.stft`, which takes no length and no centering": ("mx.fft.istft"),
}
