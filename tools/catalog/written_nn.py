"""How to call modules, process groups and their neighbours: name → expression over the names of `bench`."""

from __future__ import annotations

MODULES: dict[str, str] = {
    "torch.nn.Module.forward": "net().forward(T(2, 3))",
    "torch.nn.Module.get_submodule": "deep().get_submodule('0')",
    "torch.nn.Module.get_buffer": "deep().get_buffer('1.running_mean')",
    "torch.nn.Module.set_submodule": "deep().set_submodule('0', net())",
    "torch.nn.BatchNorm3d.forward": "torch.nn.BatchNorm3d(3, device=D).forward(T(2, 3, 2, 2, 2))",
    "torch.nn.Conv3d.forward": "torch.nn.Conv3d(3, 2, 2, device=D).forward(T(1, 3, 3, 3, 3)).shape",
    "torch.nn.ConvTranspose3d.forward": "torch.nn.ConvTranspose3d(3, 2, 2, device=D).forward(T(1, 3, 3, 3, 3)).shape",
    "torch.nn.CTCLoss.forward": (
        "torch.nn.CTCLoss().forward(T(5, 2, 4).log_softmax(2), torch.tensor([[1, 2], [2, 3]], device=D), "
        "torch.tensor([5, 5]), torch.tensor([2, 2]))"
    ),
    "torch.nn.ModuleDict.update": "torch.nn.ModuleDict().update({'a': net()})",
    "torch.nn.ParameterDict.update": "torch.nn.ParameterDict().update({'a': T(3)})",
    "torch.nn.Sequential.extend": "torch.nn.Sequential(net()).extend([net()])",
    "torch.nn.MultiLabelMarginLoss.forward": "torch.nn.MultiLabelMarginLoss().forward(T(3, 3), I(3, 3))",
    "torch.nn.DataParallel.forward": "torch.nn.DataParallel(net()).forward(T(2, 3))",
    "torch.nn.MultiheadAttention.forward": (
        "torch.nn.MultiheadAttention(4, 2, device=D).forward(T(2, 3, 4), T(2, 3, 4), T(2, 3, 4))[0].shape"
    ),
    "torch.nn.Fold.forward": "torch.nn.Fold((3, 3), (2, 2)).forward(T(1, 4, 4))",
    "torch.nn.GroupNorm.forward": "torch.nn.GroupNorm(2, 4, device=D).forward(T(2, 4, 3))",
    "torch.nn.LSTM.permute_hidden": "torch.nn.LSTM(3, 3, device=D).permute_hidden((T(1, 2, 3), T(1, 2, 3)), I(2))",
    "torch.nn.LSTM.forward": "torch.nn.LSTM(3, 3, device=D).forward(T(2, 1, 3))[0].shape",
    "torch.nn.GRU.forward": "torch.nn.GRU(3, 3, device=D).forward(T(2, 1, 3))[0].shape",
    "torch.nn.RNN.forward": "torch.nn.RNN(3, 3, device=D).forward(T(2, 1, 3))[0].shape",
    "torch.nn.Transformer.forward": (
        "torch.nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, device=D).forward(T(2, 1, 4), T(2, 1, 4)).shape"
    ),
    "torch.nn.TransformerDecoder.forward": (
        "torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(4, 2, 8, 0.0, device=D), 1)"
        ".forward(T(2, 1, 4), T(2, 1, 4)).shape"
    ),
    "torch.nn.TransformerDecoderLayer.forward": (
        "torch.nn.TransformerDecoderLayer(4, 2, 8, 0.0, device=D).forward(T(2, 1, 4), T(2, 1, 4)).shape"
    ),
    "torch.nn.TransformerEncoder.forward": (
        "torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0, device=D), 1).forward(T(2, 1, 4)).shape"
    ),
    "torch.nn.TransformerEncoderLayer.forward": (
        "torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0, device=D).forward(T(2, 1, 4)).shape"
    ),
    **{
        f"torch.nn.Lazy{name}": f"torch.nn.Lazy{name}(device=D)({given}).shape"
        for name, given in {
            "BatchNorm1d": "T(2, 3)",
            "BatchNorm2d": "T(2, 3, 4, 4)",
            "BatchNorm3d": "T(2, 3, 2, 2, 2)",
            "InstanceNorm1d": "T(2, 3, 4)",
            "InstanceNorm2d": "T(2, 3, 4, 4)",
            "InstanceNorm3d": "T(2, 3, 2, 2, 2)",
        }.items()
    },
    "torch.nn.LazyLinear": "torch.nn.LazyLinear(2, device=D)(T(2, 3)).shape",
    "torch.nn.UninitializedBuffer": "torch.nn.UninitializedBuffer(device=D).device.type != 'meta'",
    "torch.nn.UninitializedParameter": "torch.nn.UninitializedParameter(device=D).device.type != 'meta'",
    "torch.nn.MaxUnpool2d.forward": "torch.nn.MaxUnpool2d(2).forward(*torch.nn.MaxPool2d(2, return_indices=True)(T(1, 1, 4, 4)))",
    "torch.nn.MaxUnpool3d.forward": (
        "torch.nn.MaxUnpool3d(2).forward(*torch.nn.MaxPool3d(2, return_indices=True)(T(1, 1, 4, 4, 4)))"
    ),
    "torch.nn.attention.bias.causal_lower_right": "torch.nn.attention.bias.causal_lower_right(2, 3)",
    "torch.nn.attention.bias.causal_upper_left": "torch.nn.attention.bias.causal_upper_left(2, 3)",
    "torch.nn.functional.affine_grid": "torch.nn.functional.affine_grid(T(1, 2, 3), [1, 3, 4, 4], align_corners=False)",
    "torch.nn.functional.fold": "torch.nn.functional.fold(T(1, 4, 4), (3, 3), (2, 2))",
    "torch.nn.functional.fractional_max_pool2d_with_indices": (
        "torch.nn.functional.fractional_max_pool2d_with_indices(T(1, 3, 4, 4), 2, output_size=2)"
    ),
    "torch.nn.functional.fractional_max_pool3d_with_indices": (
        "torch.nn.functional.fractional_max_pool3d_with_indices(T(1, 3, 4, 4, 4), 2, output_size=2)"
    ),
    "torch.nn.functional.has_torch_function_unary": "torch.nn.functional.has_torch_function_unary(T(3))",
    "torch.nn.functional.upsample": "torch.nn.functional.upsample(T(1, 1, 3, 3), scale_factor=2)",
    "torch.nn.grad.conv1d_input": "torch.nn.grad.conv1d_input((1, 3, 5), T(2, 3, 2), T(1, 2, 4))",
    "torch.nn.grad.conv1d_weight": "torch.nn.grad.conv1d_weight(T(1, 3, 5), (2, 3, 2), T(1, 2, 4))",
    "torch.nn.grad.conv2d_input": "torch.nn.grad.conv2d_input((1, 3, 5, 5), T(2, 3, 2, 2), T(1, 2, 4, 4))",
    "torch.nn.grad.conv2d_weight": "torch.nn.grad.conv2d_weight(T(1, 3, 5, 5), (2, 3, 2, 2), T(1, 2, 4, 4))",
    "torch.nn.grad.conv3d_input": "torch.nn.grad.conv3d_input((1, 1, 3, 3, 3), T(1, 1, 2, 2, 2), T(1, 1, 2, 2, 2))",
    "torch.nn.grad.conv3d_weight": "torch.nn.grad.conv3d_weight(T(1, 1, 3, 3, 3), (1, 1, 2, 2, 2), T(1, 1, 2, 2, 2))",
    "torch.nn.init.calculate_gain": "torch.nn.init.calculate_gain('relu')",
    "torch.nn.init.constant": "torch.nn.init.constant(T(3, 3), 0.5)",
    "torch.nn.init.sparse": "torch.nn.init.sparse(T(3, 3), 0.5).shape",
    "torch.nn.init.dirac": "torch.nn.init.dirac(T(3, 3, 3))",
    **{
        f"torch.nn.init.{name}": f"torch.nn.init.{name}(T(3, 3)).shape"
        for name in [
            "eye",
            "kaiming_normal",
            "kaiming_uniform",
            "normal",
            "orthogonal",
            "uniform",
            "xavier_normal",
            "xavier_uniform",
        ]
    },
    "torch.nn.utils.rnn.pack_padded_sequence": (
        "torch.nn.utils.rnn.pack_padded_sequence(T(3, 2, 2), torch.tensor([3, 2], device='cpu')).data"
    ),
    "torch.nn.utils.rnn.pad_packed_sequence": (
        "torch.nn.utils.rnn.pad_packed_sequence(torch.nn.utils.rnn.pack_sequence([T(3, 2), T(2, 2)]))[0]"
    ),
    "torch.nn.utils.rnn.unpack_sequence": (
        "torch.nn.utils.rnn.unpack_sequence(torch.nn.utils.rnn.pack_sequence([T(3, 2), T(2, 2)]))"
    ),
    "torch.nn.utils.rnn.unpad_sequence": "torch.nn.utils.rnn.unpad_sequence(T(3, 2), torch.tensor([3, 2]))",
    "torch.nn.utils.skip_init": "torch.nn.utils.skip_init(torch.nn.Linear, 2, 2, device=D).weight.shape",
    "torch.nn.utils.stateless.functional_call": (
        "torch.nn.utils.stateless.functional_call(net(), dict(net().named_parameters()), (T(2, 3),))"
    ),
    "torch.nn.parallel.DistributedDataParallel": (
        "run(group(), torch.nn.parallel.DistributedDataParallel(net(), device_ids=None if D == 'cpu' else [0]))(T(2, 3))"
    ),
    "torch.nn.parallel.DistributedDataParallel.forward": (
        "run(group(), torch.nn.parallel.DistributedDataParallel(net())).forward(T(2, 3))"
    ),
    "torch.nn.parallel.parallel_apply": "torch.nn.parallel.parallel_apply([net()], [(T(2, 3),)], devices=[torch.device(D)])",
    "torch.nn.parallel.gather": "torch.nn.parallel.gather([T(2, 3)], torch.device(D))",
    "torch.autograd.functional.hvp": "torch.autograd.functional.hvp(lambda x: (x ** 2).sum(), T(3), T(3))",
    "torch.autograd.functional.vhp": "torch.autograd.functional.vhp(lambda x: (x ** 2).sum(), T(3), T(3))",
    "torch.autograd.functional.jvp": "torch.autograd.functional.jvp(torch.sin, T(3), T(3))",
    "torch.autograd.functional.vjp": "torch.autograd.functional.vjp(torch.sin, T(3), T(3))",
    "torch.autograd.forward_ad.make_dual": (
        "entered(torch.autograd.forward_ad.dual_level(), lambda: torch.autograd.forward_ad.make_dual(T(3), T(3)).sin())"
    ),
    "torch.autograd.graph.get_gradient_edge": "torch.autograd.graph.get_gradient_edge(T(3, grad=True).sin())",
    "torch.autograd.graph.register_multi_grad_hook": (
        "torch.autograd.graph.register_multi_grad_hook([T(3, grad=True).sin()], lambda grads: None)"
    ),
    "torch.distributed.Store.get": "(lambda s: run(s.set('a', 'b'), s.get('a')))(torch.distributed.HashStore())",
    "torch.distributed.Store.check": "torch.distributed.HashStore().check(['a'])",
    "torch.distributed.Store.multi_set": "torch.distributed.HashStore().multi_set(['a'], ['b'])",
    "torch.distributed.Store.multi_get": "(lambda s: run(s.set('a', 'b'), s.multi_get(['a'])))(torch.distributed.HashStore())",
    "torch.distributed.Store.wait": "(lambda s: run(s.set('a', 'b'), s.wait(['a'])))(torch.distributed.HashStore())",
    "torch.distributed.Store.queue_pop": (
        "(lambda s: run(s.queue_push('a', 'b'), s.queue_pop('a')))(torch.distributed.HashStore())"
    ),
    **{
        f"torch.distributed.ProcessGroup.{name}": f"run((x := {made}), group().{name}({given}).wait(), x)"
        for name, made, given in (
            ("allreduce", "T(3)", "[x]"),
            ("broadcast", "T(3)", "[x]"),
            ("reduce", "T(3)", "x, 0"),
            ("allgather", "[[T(3)]]", "x, [T(3)]"),
            ("gather", "[[T(3)]]", "x, [T(3)]"),
            ("scatter", "[T(3)]", "x, [[T(3)]]"),
            ("reduce_scatter", "[T(3)]", "x, [[T(3)]]"),
            ("alltoall_base", "T(3)", "x, T(3), [], []"),
            ("all_to_all_single", "T(3)", "x, T(3), [], []"),
        )
    },
    **{
        f"torch.distributed.ProcessGroupGloo.{name}": (
            f"run((x := {made}), group()._get_backend(torch.device('cpu')).{name}({given}).wait(), x)"
        )
        for name, made, given in (
            ("allreduce", "H(3)", "[x]"),
            ("allreduce_coalesced", "H(3)", "[x]"),
            ("broadcast", "H(3)", "[x]"),
            ("reduce", "H(3)", "[x]"),
            ("allgather", "[[H(3)]]", "x, [H(3)]"),
            ("gather", "[[H(3)]]", "x, [H(3)]"),
            ("scatter", "[H(3)]", "x, [[H(3)]]"),
            ("reduce_scatter", "[H(3)]", "x, [[H(3)]]"),
            ("alltoall_base", "H(3)", "x, H(3), [], []"),
        )
    },
    **{
        f"torch.distributed.{name}": f"run(group(), (x := {made}), torch.distributed.{name}({given}), x)"
        for name, made, given in (
            ("all_reduce", "T(3)", "x"),
            ("broadcast", "T(3)", "x, 0"),
            ("reduce", "T(3)", "x, 0"),
            ("all_gather", "[T(3) * 0]", "x, T(3)"),
            ("all_gather_into_tensor", "T(3) * 0", "x, T(3)"),
            ("gather", "[T(3) * 0]", "T(3), x"),
            ("scatter", "T(3) * 0", "x, [T(3)]"),
            ("reduce_scatter", "T(3) * 0", "x, [T(3)]"),
            ("reduce_scatter_tensor", "T(3) * 0", "x, T(3)"),
            ("all_to_all_single", "T(3) * 0", "x, T(3)"),
            ("all_to_all", "[T(3) * 0]", "x, [T(3)]"),
            ("barrier", "None", "device_ids=None if D == 'cpu' else [0]"),
            ("all_gather_object", "[None]", "x, {'a': 1}"),
            ("broadcast_object_list", "[{'a': 1}]", "x, 0, device=torch.device(D)"),
            ("gather_object", "[None]", "{'a': 1}, x, 0"),
            ("scatter_object_list", "[None]", "x, [{'a': 1}], 0"),
        )
    },
    "torch.distributed.checkpoint.save": "run(group(), torch.distributed.checkpoint.save({'a': T(3)}, checkpoint_id=folder + '/s'))",
    "torch.distributed.checkpoint.load": (
        "run(group(), torch.distributed.checkpoint.save({'a': T(3)}, checkpoint_id=folder + '/l'), (x := {'a': T(3) * 0}), "
        "torch.distributed.checkpoint.load(x, checkpoint_id=folder + '/l'), x)"
    ),
    "torch.distributed.checkpoint.state_dict.get_model_state_dict": (
        "run(group(), torch.distributed.checkpoint.state_dict.get_model_state_dict(net()))"
    ),
    "torch.distributed.checkpoint.state_dict.set_model_state_dict": (
        "torch.distributed.checkpoint.state_dict.set_model_state_dict(net(), net().state_dict()).missing_keys"
    ),
    "torch.distributed.checkpoint.state_dict.get_optimizer_state_dict": (
        "(lambda m: torch.distributed.checkpoint.state_dict.get_optimizer_state_dict(m, torch.optim.SGD(m.parameters())))(net())"
    ),
    "torch.distributed.checkpoint.state_dict.get_state_dict": (
        "(lambda m: torch.distributed.checkpoint.state_dict.get_state_dict(m, torch.optim.SGD(m.parameters())))(net())"
    ),
    "torch.distributed.fsdp.fully_shard": ("torch.distributed.fsdp.fully_shard(net(), mesh=mesh())(T(2, 3)).shape"),
    "torch.distributed.tensor.distribute_tensor": (
        "torch.distributed.tensor.distribute_tensor(T(4, 3), mesh(), [torch.distributed.tensor.Shard(0)]).full_tensor()"
    ),
    "torch.distributed.tensor.DTensor.redistribute": (
        "torch.distributed.tensor.distribute_tensor(T(4, 3), mesh(), [torch.distributed.tensor.Shard(0)])"
        ".redistribute(mesh(), [torch.distributed.tensor.Replicate()]).to_local()"
    ),
    "torch.distributed.tensor.DTensor.from_local": (
        "torch.distributed.tensor.DTensor.from_local(T(4, 3), mesh(), [torch.distributed.tensor.Shard(0)]).to_local()"
    ),
    "torch.distributed.tensor.parallel.parallelize_module": (
        "torch.distributed.tensor.parallel.parallelize_module("
        "net(), mesh(), torch.distributed.tensor.parallel.ColwiseParallel())(T(2, 3))"
    ),
    "torch.distributed.DeviceMesh": "run(group(), torch.distributed.DeviceMesh(D, [0])).size()",
    "torch.distributed.DeviceMesh.from_group": "torch.distributed.DeviceMesh.from_group(group(), D).size()",
    "torch.distributed.get_default_backend_for_device": "torch.distributed.get_default_backend_for_device(D) in ('gloo', 'nccl')",
    "torch.distributed.new_group": "run(group(), torch.distributed.new_group([0], device_id=None if D == 'cpu' else torch.device(D, 0))).size()",
    "torch.library.register_autocast": (
        "(lambda n: run(torch.library.custom_op(n, torch.sin, mutates_args=(), schema='(Tensor x) -> Tensor'), "
        "torch.library.register_autocast(n, D, torch.bfloat16)))(f'cat_bench::r{os.urandom(4).hex()}')"
    ),
    "torch.jit.Future": "(lambda f: run(f.set_result(T(3)), f.wait()))(torch.jit.Future(devices=[]))",
    **{
        f"torch.signal.windows.{name}": f"torch.signal.windows.{name}(6, {more}device=D)"
        for name, more in {
            **dict.fromkeys(
                ("bartlett", "blackman", "cosine", "exponential", "gaussian", "general_hamming", "hamming", "hann"), ""
            ),
            "kaiser": "",
            "nuttall": "",
            "general_cosine": "a=[0.5, 0.5], ",
        }.items()
    },
    "torch.utils.benchmark.Timer.adaptive_autorange": "torch.utils.benchmark.Timer('1 + 1').adaptive_autorange().median > 0",
    "torch.utils.benchmark.Timer.blocked_autorange": "torch.utils.benchmark.Timer('1 + 1').blocked_autorange().median > 0",
    "torch.utils.benchmark.Measurement.significant_figures": (
        "torch.utils.benchmark.Timer('1 + 1').timeit(2).significant_figures > 0"
    ),
    **{
        f"torch.optim.{name}.{name}": (
            f"run((x := [T(3)]), __import__('sys').modules['torch.optim.{name}'].{name}(x, {given}, "
            f"**dict({options})), x)"
        )
        for name, given, options in (
            (
                "adadelta",
                "[T(3)], [T(3)], [T(3)], [torch.ones(())]",
                "lr=0.1, rho=0.9, eps=1e-6, weight_decay=0.0, maximize=False",
            ),
            (
                "rmsprop",
                "[T(3)], [T(3)], [], [], [torch.ones(())]",
                "lr=0.1, alpha=0.9, eps=1e-6, weight_decay=0.0, momentum=0.0, centered=False",
            ),
            (
                "rprop",
                "[T(3)], [T(3)], [T(3)], [torch.ones(())]",
                "step_size_min=0.1, step_size_max=1.0, etaminus=0.5, etaplus=1.2, maximize=False, capturable=False, differentiable=False",
            ),
            (
                "sgd",
                "[T(3)], [None]",
                "weight_decay=0.0, momentum=0.9, lr=0.1, dampening=0.0, nesterov=False, maximize=False",
            ),
        )
    },
    "torch.xpu.set_rng_state_all": "torch.xpu.set_rng_state_all(torch.xpu.get_rng_state_all())",
    "torch.futures.Future": "(lambda f: run(f.set_result(T(3)), f.wait()))(torch.futures.Future(devices=[] if D == 'cpu' else [D]))",
    "torch.utils.checkpoint.set_device_states": (
        "torch.utils.checkpoint.set_device_states([0], [torch.get_rng_state()], device_type=D) if D != 'cpu' else None"
    ),
    "torch.utils.checkpoint.DefaultDeviceType.set_device_type": (
        "torch.utils.checkpoint.DefaultDeviceType.set_device_type('cuda')"
    ),
    "torch.optim.swa_utils.AveragedModel": (
        "(lambda a: run(a.update_parameters(net()), a(T(2, 3))))(torch.optim.swa_utils.AveragedModel(net(), device=D))"
    ),
    "torch.profiler.profile.export_memory_timeline": (
        "(lambda p: run(p.__enter__(), net()(T(2, 3)), p.__exit__(None, None, None), "
        "p.export_memory_timeline(file() + '.json', device=D)))"
        "(torch.profiler.profile(record_shapes=True, profile_memory=True, with_stack=True))"
    ),
    "torch.hub.load_state_dict_from_url": (
        "(lambda f: torch.hub.load_state_dict_from_url('file://' + f, model_dir=folder, map_location=D, file_name='h.pt'))"
        "(file({'a': torch.ones(2)}))"
    ),
    "torch.amp.is_autocast_available": "torch.amp.is_autocast_available(D)",
    # State of a type that torch keeps whether or not such a device is here: the question is the same for both.
    "torch.get_autocast_dtype": "torch.get_autocast_dtype('cuda')",
    "torch.set_autocast_dtype": "torch.set_autocast_dtype('cuda', torch.float16)",
    "torch.set_autocast_enabled": "torch.set_autocast_enabled('cuda', False)",
    "torch.is_autocast_enabled": "torch.is_autocast_enabled('cuda')",
    "torch.utils.cpp_extension.include_paths": "torch.utils.cpp_extension.include_paths()",
    "torch.utils.cpp_extension.library_paths": "torch.utils.cpp_extension.library_paths()",
    "torch.autograd.profiler.profile": (
        "entered(torch.autograd.profiler.profile(use_device=None if D == 'cpu' else 'cuda'), lambda: T(2).sum())"
    ),
    "torch.nn.UninitializedParameter.materialize": "torch.nn.UninitializedParameter(device=D).materialize((2, 3), device=D)",
    "torch.nn.parameter.UninitializedTensorMixin.materialize": (
        "torch.nn.UninitializedBuffer(device=D).materialize((2, 3), device=D)"
    ),
    "torch.distributed.Backend.register_backend": (
        "torch.distributed.Backend.register_backend(f'c{os.urandom(4).hex()}', torch.sin, devices=[D])"
    ),
    "torch.distributed.get_pg_count": "torch.distributed.get_pg_count() > 0",
    "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler.unscale_": (
        "(lambda s: run(s.scale(T(1, grad=True).sum()), s.unscale_(opt())))"
        "(torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler(device=D, process_group=group()))"
    ),
    "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler.update": (
        "(lambda s, o: run(s.scale(T(1, grad=True).sum()), s.step(o), s.update()))"
        "(torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler(device=D, process_group=group()), opt())"
    ),
    "torch.get_device_module": "torch.get_device_module(D).__name__ != ''",
    "torch.cuda.FloatTensor": "torch.FloatTensor(3).zero_() if D == 'cpu' else torch.cuda.FloatTensor(3).zero_()",
    "torch.nn.DataParallel.parallel_apply": (
        "torch.nn.DataParallel(net(), device_ids=None if D == 'cpu' else [0]).parallel_apply([net()], [(T(2, 3),)], [{}])"
    ),
    "torch.nn.FractionalMaxPool3d.forward": "torch.nn.FractionalMaxPool3d(2, output_size=2).forward(T(1, 1, 4, 4, 4)).shape",
    "torch.nn.LSTM.check_forward_args": (
        "torch.nn.LSTM(3, 3, device=D).check_forward_args(T(2, 1, 3), (T(1, 1, 3), T(1, 1, 3)), None)"
    ),
    "torch.nn.RNNBase.check_forward_args": (
        "torch.nn.RNNBase('RNN_TANH', 3, 3, device=D).check_forward_args(T(2, 1, 3), T(1, 1, 3), None)"
    ),
    "torch.nn.RNNBase.check_hidden_size": (
        "torch.nn.RNNBase('RNN_TANH', 3, 3, device=D).check_hidden_size(T(1, 1, 3), (1, 1, 3))"
    ),
    "torch.nn.MultiheadAttention.merge_masks": (
        "torch.nn.MultiheadAttention(4, 2, device=D).merge_masks(T(3, 3), T(2, 3), T(2, 3, 4))"
    ),
    "torch.nn.modules.lazy.LazyModuleMixin.initialize_parameters": (
        "(lambda m: run(m.initialize_parameters(T(2, 3)), m.weight.shape))(torch.nn.LazyLinear(2, device=D))"
    ),
    "torch.nn.parameter.UninitializedTensorMixin.share_memory_": (
        "(lambda p: run(p.materialize((2, 3)), p.share_memory_().shape))(torch.nn.UninitializedParameter(device=D))"
    ),
    "torch.nn.parameter.UninitializedTensorMixin.shape": (
        "(lambda p: run(p.materialize((2, 3)), p.shape))(torch.nn.UninitializedParameter(device=D))"
    ),
    "torch.optim.swa_utils.AveragedModel.forward": "torch.optim.swa_utils.AveragedModel(net(), device=D).forward(T(2, 3))",
    **{
        f"torch.optim.{name}.{name}": (
            f"run((x := [T(3)]), module('torch.optim.{name}').{name}(x, {given}, **dict({options})), x)"
        )
        for name, given, options in (
            (
                "adagrad",
                "[T(3)], [T(3)], [torch.ones(())]",
                "lr=0.1, weight_decay=0.0, lr_decay=0.0, eps=1e-6, maximize=False",
            ),
            (
                "adam",
                "[T(3)], [T(3)], [T(3)], [], [torch.ones(())]",
                "amsgrad=False, beta1=0.9, beta2=0.99, lr=0.1, weight_decay=0.0, eps=1e-6, maximize=False",
            ),
            (
                "adamax",
                "[T(3)], [T(3)], [T(3)], [torch.ones(())]",
                "eps=1e-6, beta1=0.9, beta2=0.99, lr=0.1, weight_decay=0.0",
            ),
            (
                "adamw",
                "[T(3)], [T(3)], [T(3)], [], [torch.ones(())]",
                "amsgrad=False, beta1=0.9, beta2=0.99, lr=0.1, weight_decay=0.1, eps=1e-6, maximize=False",
            ),
            (
                "asgd",
                "[T(3)], [T(3)], [torch.ones(())], [torch.ones(())], [torch.ones(())]",
                "lambd=1e-4, lr=0.1, t0=1e6, alpha=0.75, weight_decay=0.0",
            ),
            (
                "nadam",
                "[T(3)], [T(3)], [T(3)], [torch.ones(())], [torch.ones(())]",
                "beta1=0.9, beta2=0.99, lr=0.1, weight_decay=0.0, momentum_decay=4e-3, eps=1e-6",
            ),
            (
                "radam",
                "[T(3)], [T(3)], [T(3)], [torch.ones(())]",
                "beta1=0.9, beta2=0.99, lr=0.1, weight_decay=0.0, eps=1e-6",
            ),
        )
    },
}
