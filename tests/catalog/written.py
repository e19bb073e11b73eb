"""How to call what no signature explains: name → expression over the names of `bench`. Objects of classes stand beside."""

from __future__ import annotations

# Not called, and why.
NEVER = {"torch.utils.rename_privateuse1_backend": "changes the device types of the process for good"}

# What nothing but knowledge of it can call: name → expression.
WRITTEN: dict[str, str] = {
    "torch.set_default_device": "run(torch.set_default_device(D), torch.ones(2), torch.set_default_device(None))",
    "torch.set_default_dtype": "run(torch.set_default_dtype(torch.float32))",
    "torch.set_default_tensor_type": "run(torch.set_default_tensor_type(torch.FloatTensor))",
    "torch.from_file": "torch.from_file(file(T(300)), size=10, dtype=torch.uint8)",
    "torch.frombuffer": "torch.frombuffer(bytearray(8), dtype=torch.float32)",
    "torch.from_numpy": "torch.from_numpy(__import__('numpy').arange(3.0, dtype='float32'))",
    "torch.save": "torch.save(T(3), file())",
    "torch.load": "torch.load(file(torch.ones(3)), map_location=D)",
    "torch.jit.save": "torch.jit.save(torch.jit.script(net()), file())",
    "torch.jit.load": "(lambda f: run(torch.jit.script(net()).save(f), torch.jit.load(f, map_location=D)))(file())(T(2, 3))",
    "torch.jit.fork": "torch.jit.fork(torch.sin, T(3)).wait()",
    "torch.jit.wait": "torch.jit.wait(torch.jit.fork(torch.sin, T(3)))",
    "torch.jit.script": "torch.jit.script(net())(T(2, 3))",
    "torch.jit.trace": "torch.jit.trace(net(), (T(2, 3),))(T(2, 3))",
    "torch.jit.freeze": "torch.jit.freeze(torch.jit.script(net().eval()))(T(2, 3))",
    "torch.jit.optimize_for_inference": "torch.jit.optimize_for_inference(torch.jit.script(net().eval()))(T(2, 3))",
    "torch.compile": "torch.compile(net(), backend='eager')(T(2, 3))",
    "torch.fork": "torch.jit.fork(torch.sin, T(3)).wait()",
    "torch.vmap": "torch.vmap(torch.sin)(T(3, 3))",
    "torch.func.vmap": "torch.func.vmap(torch.sin)(T(3, 3))",
    "torch.func.grad": "torch.func.grad(lambda x: x.sin().sum())(T(3))",
    "torch.func.grad_and_value": "torch.func.grad_and_value(lambda x: x.sin().sum())(T(3))",
    "torch.func.jacrev": "torch.func.jacrev(torch.sin)(T(3))",
    "torch.func.jacfwd": "torch.func.jacfwd(torch.sin)(T(3))",
    "torch.func.hessian": "torch.func.hessian(lambda x: x.sin().sum())(T(3))",
    "torch.func.vjp": "torch.func.vjp(torch.sin, T(3))[0]",
    "torch.func.jvp": "torch.func.jvp(torch.sin, (T(3),), (T(3),))",
    "torch.func.linearize": "torch.func.linearize(torch.sin, T(3))[1](T(3))",
    "torch.func.functional_call": "torch.func.functional_call(net(), dict(net().named_parameters()), (T(2, 3),))",
    "torch.func.functionalize": "torch.func.functionalize(torch.sin)(T(3))",
    "torch.func.stack_module_state": "torch.func.stack_module_state([net(), net()])",
    "torch.autograd.grad": "torch.autograd.grad((lambda x: (x * x).sum())((p := T(3, grad=True))), p)",
    "torch.autograd.backward": "torch.autograd.backward([T(3, grad=True).sin()], [T(3)])",
    "torch.autograd.gradcheck": "torch.autograd.gradcheck(torch.sin, (torch.ones(2, dtype=torch.float64, requires_grad=True),))",
    "torch.autograd.gradgradcheck": (
        "torch.autograd.gradgradcheck(torch.sin, (torch.ones(2, dtype=torch.float64, requires_grad=True),))"
    ),
    "torch.Tensor.backward": "(lambda x: run(x.sin().sum().backward(), x.grad))(T(3, grad=True))",
    "torch.Tensor.grad": "(lambda x: run(x.sin().sum().backward(), x.grad))(T(3, grad=True))",
    "torch.Tensor.apply_": "torch.ones(2, device='cpu').apply_(lambda x: x + 1)",
    "torch.Tensor.map_": "torch.ones(2, device='cpu').map_(torch.ones(2, device='cpu'), lambda x, y: x + y)",
    "torch.Tensor.map2_": (
        "torch.ones(2, device='cpu').map2_(torch.ones(2, device='cpu'), torch.ones(2, device='cpu'), lambda x, y, z: x + y)"
    ),
    "torch.Generator.manual_seed": "torch.Generator(D).manual_seed(3).initial_seed()",
    "torch.Generator.set_state": "(lambda g: g.set_state(g.get_state()).initial_seed())(torch.Generator(D).manual_seed(3))",
    "torch.Generator.set_offset": "torch.Generator(D).set_offset(4).get_offset()",
    "torch.Generator.graphsafe_set_state": "(lambda g: g.graphsafe_set_state(g.graphsafe_get_state()))(torch.Generator(D))",
    "torch.GradScaler.step": "scaled().step(opt())",
    "torch.GradScaler.unscale_": "scaled().unscale_(opt())",
    "torch.GradScaler.update": "(lambda s, o: run(s.step(o), s.update(), s.get_scale()))(scaled(), opt())",
    "torch.Event.elapsed_time": (
        "(lambda a, b: run(a.record(), b.record(), b.synchronize(), a.elapsed_time(b) >= 0))"
        "(torch.Event(D, enable_timing=True), torch.Event(D, enable_timing=True))"
    ),
    "torch.Stream.wait_event": "torch.Stream(device=D).wait_event(torch.Event(D))",
    "torch.Stream.wait_stream": "torch.Stream(device=D).wait_stream(torch.Stream(device=D))",
    "torch.TypedStorage.copy_": "torch.FloatStorage([1.0, 2.0]).copy_(torch.FloatStorage([3.0, 4.0])).tolist()",
    "torch.TypedStorage.cuda": "torch.FloatStorage([1.0]).tolist() if D == 'cpu' else torch.FloatStorage([1.0]).cuda().tolist()",
    "torch.UntypedStorage.copy_": "T(4).untyped_storage().copy_(T(4).untyped_storage()).tolist()",
    "torch.UntypedStorage.fill_": "T(4).untyped_storage().fill_(0).tolist()",
    "torch.UntypedStorage.resize_": "torch.empty(2, device=D).untyped_storage().resize_(4).nbytes()",
    "torch.UntypedStorage.from_buffer": "torch.UntypedStorage.from_buffer(bytearray(8), dtype=torch.uint8).tolist()",
    "torch.UntypedStorage.from_file": "torch.UntypedStorage.from_file(file(T(300)), False, 8).nbytes()",
    "torch.detach_": "torch.detach_(torch.ones(3, device=D))",
    "torch.chain_matmul": "torch.chain_matmul(P(), P(), P())",
    "torch.ccol_indices_copy": "torch.ccol_indices_copy(P().to_sparse_csc())",
    "torch.row_indices_copy": "torch.row_indices_copy(P().to_sparse_csc())",
    "torch.col_indices_copy": "torch.col_indices_copy(P().to_sparse_csr())",
    "torch.crow_indices_copy": "torch.crow_indices_copy(P().to_sparse_csr())",
    "torch.indices_copy": "torch.indices_copy(sparse())",
    "torch.values_copy": "torch.values_copy(sparse())",
    "torch.conv_tbc": "torch.conv_tbc(T(4, 2, 3), T(2, 3, 2), T(2))",
    "torch.convolution": "torch.convolution(T(1, 3, 5), T(2, 3, 2), T(2), [1], [0], [1], False, [0], 1)",
    "torch.ctc_loss": (
        "torch.ctc_loss(T(5, 2, 4).log_softmax(2), torch.tensor([[1, 2], [2, 3]], device=D), "
        "torch.tensor([5, 5]), torch.tensor([2, 2]))"
    ),
    "torch.dsmm": "torch.dsmm(sparse(), P())",
    "torch.hsmm": "torch.hsmm(sparse(), P())",
    "torch.saddmm": "torch.saddmm(sparse(), sparse(), P())",
    "torch.smm": "torch.smm(sparse(), P())",
    "torch.spmm": "torch.spmm(sparse(), P())",
    "torch.sspaddmm": "torch.sspaddmm(sparse(), sparse(), P())",
    "torch.einsum": "torch.einsum('ij,kj->ik', T(3, 3), T(3, 3))",
    "torch.affine_grid_generator": "torch.affine_grid_generator(T(1, 2, 3), [1, 3, 4, 4], False)",
    "torch.fake_quantize_per_channel_affine": (
        "torch.fake_quantize_per_channel_affine(T(3, 3), T(3) + 0.1, torch.zeros(3, dtype=torch.int32, device=D), 0, 0, 255)"
    ),
    "torch.asarray": "torch.asarray([1.0, 2.0], device=D)",
    "torch.sparse.addmm": "torch.sparse.addmm(P(), sparse(), P())",
    "torch.sparse.mm": "torch.sparse.mm(sparse(), P())",
    "torch.sparse.sum": "torch.sparse.sum(sparse(), 0)",
    "torch.sparse.softmax": "torch.sparse.softmax(sparse(), 1)",
    "torch.sparse.log_softmax": "torch.sparse.log_softmax(sparse(), 1)",
    "torch.sparse.sampled_addmm": "torch.sparse.sampled_addmm(P().to_sparse_csr(), P(), P())",
    "torch.sparse.spdiags": "torch.sparse.spdiags(T(1, 3), torch.tensor([0]), (3, 3))",
    "torch.sparse.as_sparse_gradcheck": "torch.sparse.as_sparse_gradcheck(torch.autograd.gradcheck) is not None",
    "torch.nested.nested_tensor": "torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device=D)",
    "torch.nested.as_nested_tensor": "torch.nested.as_nested_tensor([T(2), T(3)], device=D)",
    "torch.nested.to_padded_tensor": "torch.nested.to_padded_tensor(torch.nested.nested_tensor([T(2), T(3)]), 0.0)",
    "torch.nested.nested_tensor_from_jagged": (
        "torch.nested.nested_tensor_from_jagged(T(5), torch.tensor([0, 2, 5], device=D))"
    ),
    "torch.nested.narrow": "torch.nested.narrow(T(2, 4), 1, 0, 2, layout=torch.jagged)",
    "torch.nested.masked_select": "torch.nested.masked_select(T(2, 4), B(2, 4))",
    "torch.cpu.Stream.wait_event": "torch.cpu.Stream().wait_event(None)",
    "torch.cpu.Stream.wait_stream": "torch.cpu.Stream().wait_stream(torch.cpu.Stream())",
    "torch.cpu.StreamContext": "entered(torch.cpu.StreamContext(torch.cpu.Stream()))",
    "torch.cpu.stream": "entered(torch.cpu.stream(torch.cpu.Stream()))",
    "torch.func.rearrange": "torch.func.rearrange(T(3, 4), 'a b -> b a')",
    "torch.accelerator.set_stream": "torch.accelerator.set_stream(torch.Stream(device=D))",
    "torch.cuda.set_rng_state_all": "torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all())",
    # The measure is what plain torch says of a CUDA tensor.
    "torch.Tensor.get_device": "0 if D == 'cpu' else T(3, 3).get_device()",
    "torch.get_device": "0 if D == 'cpu' else torch.get_device(T(3, 3))",
    "torch.Tensor.numpy": "T(3, 3).cpu().numpy().tolist()",
    "torch.Tensor.to_mkldnn": "T(3, 3).cpu().to_mkldnn()",
    "torch.utils.mkldnn.to_mkldnn": "torch.utils.mkldnn.to_mkldnn(net().cpu())(H(2, 3)).to_dense()",
    "torch.profiler.profile.step": "(lambda p: run(p.__enter__(), p.step(), p.__exit__(None, None, None)))(torch.profiler.profile())",
    "torch.profiler.profile.start_trace": (
        "(lambda p: run(p.prepare_trace(), p.start_trace(), p.stop_trace()))(torch.profiler.profile())"
    ),
    "torch.profiler.profile.stop_trace": (
        "(lambda p: run(p.prepare_trace(), p.start_trace(), p.stop_trace()))(torch.profiler.profile())"
    ),
    "torch.nn.modules.module.register_module_backward_hook": (
        "torch.nn.modules.module.register_module_backward_hook(lambda *args: None).remove()"
    ),
    "torch.nn.modules.module.register_module_full_backward_hook": (
        "torch.nn.modules.module.register_module_full_backward_hook(lambda *args: None).remove()"
    ),
    "torch.sparse_coo_tensor": "torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2, 2), device=D)",
    "torch.sparse_csr_tensor": "torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2.0], (2, 2), device=D)",
    "torch.sparse_csc_tensor": "torch.sparse_csc_tensor([0, 1, 2], [0, 1], [1.0, 2.0], (2, 2), device=D)",
    "torch.sparse_bsr_tensor": "torch.sparse_bsr_tensor([0, 1, 2], [0, 1], [[[1.0]], [[2.0]]], (2, 2), device=D)",
    "torch.sparse_bsc_tensor": "torch.sparse_bsc_tensor([0, 1, 2], [0, 1], [[[1.0]], [[2.0]]], (2, 2), device=D)",
    "torch.sparse_compressed_tensor": (
        "torch.sparse_compressed_tensor([0, 1, 2], [0, 1], [1.0, 2.0], (2, 2), layout=torch.sparse_csr, device=D)"
    ),
    "torch.Tensor.detach_": "torch.ones(3, device=D).detach_()",
    "torch.Tensor.float_power_": "torch.ones(3, dtype=torch.float64, device=D).float_power_(2)",
    "torch.Tensor.resize": "T(3, 3).resize(9)",
    "torch.Tensor.unsafe_split_with_sizes": "T(3, 3).unsafe_split_with_sizes([1, 2])",
    "torch.Tensor.resize_as_sparse_": "sparse().resize_as_sparse_(sparse())",
    "torch.Tensor.sparse_resize_": "sparse().sparse_resize_((4, 4), 2, 0)",
    "torch.Tensor.sparse_resize_and_clear_": "sparse().sparse_resize_and_clear_((4, 4), 2, 0)",
    "torch.Tensor.sparse_mask": "P().sparse_mask(sparse())",
    "torch.Tensor.sspaddmm": "sparse().sspaddmm(sparse(), P())",
    "torch.Tensor.retain_grad": "T(3, grad=True).sin().retain_grad()",
    "torch.Tensor.to": "torch.ones(3).to(D)",
    "torch.Tensor.cuda": "torch.ones(3).to('cpu') if D == 'cpu' else torch.ones(3).cuda()",
    "torch.nn.Module.cuda": "nn.Linear(1, 1) if D == 'cpu' else nn.Linear(1, 1).cuda()",
    "torch.nn.Module.to": "net().to(D)",
    "torch.nn.Module.to_empty": "torch.nn.Linear(2, 2, device='meta').to_empty(device=D).weight.shape",
    "torch.UntypedStorage.cuda": "T(3).untyped_storage() if D == 'cpu' else T(3).untyped_storage().cuda()",
    "torch.utils.checkpoint.checkpoint": "backward(torch.utils.checkpoint.checkpoint(net(), T(2, 3, grad=True), use_reentrant=False))",
    "torch.utils.checkpoint.checkpoint_sequential": (
        "backward(torch.utils.checkpoint.checkpoint_sequential(deep(), 2, T(4, 3, grad=True), use_reentrant=False))"
    ),
    "torch.optim.swa_utils.update_bn": (
        "(lambda m: run(torch.optim.swa_utils.update_bn([torch.ones(4, 3)], m, device=D), m))(deep())"
    ),
    "torch.library.custom_op": (
        "torch.library.custom_op(f'cat_bench::c{os.urandom(4).hex()}', torch.sin, mutates_args=(), "
        "schema='(Tensor x) -> Tensor', device_types=D)(T(3))"
    ),
    "torch.utils.data.random_split": "[len(part) for part in torch.utils.data.random_split(data(), [2, 3])]",
    "torch.utils.data.default_collate": "torch.utils.data.default_collate([(torch.ones(2), 1), (torch.ones(2), 2)])",
    "torch.utils.data.default_convert": "torch.utils.data.default_convert([1, 2.0])",
    "torch.utils.data.DataLoader": (
        "[x for x in torch.utils.data.DataLoader(data(), 2, pin_memory=D != 'cpu', "
        "pin_memory_device='' if D == 'cpu' else 'cuda')]"
    ),
    "torch.utils.dlpack.from_dlpack": "torch.utils.dlpack.from_dlpack(T(3), device=torch.device(D))",
    "torch.from_dlpack": "torch.from_dlpack(T(3))",
    "torch.multiprocessing.spawn": "torch.multiprocessing.spawn(print, nprocs=0)",
    "torch.export.save": "torch.export.save(exported(), file())",
    "torch.export.load": "(lambda f: run(torch.export.save(exported(), f), torch.export.load(f)))(file() + '.pt2')",
    "torch.export.export": "torch.export.export(net(), (T(2, 3),)).module()(T(2, 3))",
    "torch.fx.symbolic_trace": "torch.fx.symbolic_trace(net())(T(2, 3))",
    "torch.fx.Interpreter.run": "torch.fx.Interpreter(graph()).run(T(2, 3))",
    "torch.autocast": "entered(torch.autocast(D, torch.bfloat16), lambda: net()(T(2, 3)))",
    "torch.amp.custom_fwd": "torch.amp.custom_fwd(lambda ctx, x: x, device_type=D)",
    "torch.amp.custom_bwd": "torch.amp.custom_bwd(lambda ctx, x: x, device_type=D)",
    "torch.random.fork_rng": "entered(torch.random.fork_rng(device_type=D), lambda: torch.rand(2, device=D))",
    "torch.autograd.graph.save_on_cpu": (
        "entered(torch.autograd.graph.save_on_cpu(device_type=D), lambda: backward((x := T(3, grad=True)).sin()) * 0 + 1)"
    ),
    "torch.nn.DataParallel": "torch.nn.DataParallel(net(), device_ids=None if D == 'cpu' else [0])(T(2, 3))",
    "torch.nn.parallel.data_parallel": "torch.nn.parallel.data_parallel(net(), T(2, 3), device_ids=None)",
    "torch.nn.attention.flex_attention.flex_attention": (
        "torch.nn.attention.flex_attention.flex_attention(T(1, 2, 16, 8), T(1, 2, 16, 8), T(1, 2, 16, 8))"
    ),
    "torch.nn.attention.flex_attention.create_block_mask": (
        "torch.nn.attention.flex_attention.create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 128, 128, device=D).to_dense()"
    ),
    "torch.nn.attention.flex_attention.create_mask": (
        "torch.nn.attention.flex_attention.create_mask(lambda b, h, q, k: q >= k, 1, 1, 8, 8, device=D)"
    ),
    "torch.distributed.init_process_group": (
        "run(group(), torch.distributed.destroy_process_group(), torch.distributed.init_process_group("
        "'gloo', store=torch.distributed.HashStore(), rank=0, world_size=1, "
        "device_id=None if D == 'cpu' else torch.device(D, 0)), group().size())"
    ),
    "torch.distributed.init_device_mesh": "run(group(), torch.distributed.init_device_mesh(D, (1,)).size())",
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
}
