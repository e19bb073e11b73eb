"""How to call what no signature explains: name → expression over the names of `bench`.

Modules and collectives stand in `written_nn`, other subjects in `written_*`; objects of classes in `exemplars`.
"""

from __future__ import annotations

from tools.catalog.written_accelerators import ACCELERATORS
from tools.catalog.written_distributed import DISTRIBUTED
from tools.catalog.written_graphs import GRAPHS
from tools.catalog.written_nn import MODULES
from tools.catalog.written_operators import OPERATORS
from tools.catalog.written_tools import TOOLS

# Not called: `reasons` says why.
NEVER = frozenset(
    {
        "torch.utils.rename_privateuse1_backend",
        "torch.distributed.breakpoint",
        "torch.distributed.ProcessGroup.split_group",
    }
)

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
    **MODULES,
    **OPERATORS,
    **ACCELERATORS,
    **GRAPHS,
    **TOOLS,
    **DISTRIBUTED,
}
