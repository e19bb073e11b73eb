"""How to call what surrounds training: autograd's and profilers' records, torch.utils, files, processes."""

from __future__ import annotations

_GRADCHECK = "module('torch.autograd.gradcheck')"
_EVENTS = "profiled().function_events"
_NESTED = (
    "type('F', (torch.autograd.NestedIOFunction,), {'forward_extended': lambda self, x: x * 2, "
    "'backward_extended': lambda self, g: g * 2})()"
)
_SPAWN = "module('torch.multiprocessing.spawn')"
_NORM = "module('torch.nn.utils.spectral_norm').SpectralNorm"
_WEIGHT = "module('torch.nn.utils.weight_norm').WeightNorm"
_BENCHMARK = "torch.utils.benchmark"
_COUNTS = f"{_BENCHMARK}.FunctionCounts(({_BENCHMARK}.FunctionCount(2, 'f'),), True)"
_CALLGRIND = f"{_BENCHMARK}.CallgrindStats({_BENCHMARK}.TaskSpec('1', 'pass'), 1, True, {_COUNTS}, {_COUNTS}, {_COUNTS}, {_COUNTS}, None)"
_PIPE = "torch.utils.data.datapipes.iter.IterableWrapper([1, 2, 3])"
_BUILD = "torch.utils.cpp_extension.BuildExtension(module('setuptools').Distribution())"
_SETTINGS = "torch.utils.data.graph_settings"

TOOLS: dict[str, str] = {
    # torch.autograd
    "torch.autograd.Function.materialize_grads": "setattr(torch.autograd.Function(), 'materialize_grads', True)",
    "torch.autograd.Function.apply": "module('tools.catalog.bench').Doubling.apply(T(3, grad=True))",
    "torch.autograd.Function.register_hook": "doubled().grad_fn.register_hook(lambda *given: None).remove()",
    "torch.autograd.Function.register_prehook": "doubled().grad_fn.register_prehook(lambda *given: None).remove()",
    "torch.autograd.function.BackwardCFunction.apply": "doubled().grad_fn.apply(T(3))",
    "torch.autograd.function.BackwardCFunction.apply_boxed": "doubled().grad_fn.apply_boxed(T(3))",
    "torch.autograd.function.BackwardCFunction.apply_jvp": "doubled().grad_fn.apply_jvp(T(3))",
    "torch.autograd.function.BackwardCFunction.materialize_grads": "setattr(doubled().grad_fn, 'materialize_grads', True)",
    "torch.autograd.function.BackwardCFunction.register_hook": "doubled().grad_fn.register_hook(lambda *given: None).remove()",
    "torch.autograd.function.BackwardCFunction.register_prehook": (
        "doubled().grad_fn.register_prehook(lambda *given: None).remove()"
    ),
    "torch.autograd.function.FunctionMeta": (
        "torch.autograd.function.FunctionMeta('F', (torch.autograd.Function,), {}).__name__"
    ),
    "torch.autograd.NestedIOFunction.forward": (
        f"(lambda f: run(setattr(f, '_nested_input', (T(3),)), f.forward(T(3))))({_NESTED})"
    ),
    "torch.autograd.NestedIOFunction.backward": (
        f"(lambda f: run(setattr(f, '_nested_output', [T(3)]), f.backward(T(3))))({_NESTED})"
    ),
    "torch.autograd.NestedIOFunction.saved_tensors": (
        f"(lambda f: run(setattr(f, '_to_save_nested', ()), f.saved_tensors))({_NESTED})"
    ),
    "torch.autograd.gradcheck.get_analytical_jacobian": (
        f"(lambda x: {_GRADCHECK}.get_analytical_jacobian((x,), x.sin()))(T(3, grad=True))"
    ),
    "torch.autograd.gradcheck.get_numerical_jacobian": (
        f"(lambda x: {_GRADCHECK}.get_numerical_jacobian(lambda given: given[0].sin(), (x,), eps=0.1))(T(3, grad=True))"
    ),
    "torch.autograd.gradcheck.get_numerical_jacobian_wrt_specific_input": (
        f"(lambda x: {_GRADCHECK}.get_numerical_jacobian_wrt_specific_input("
        "lambda given: (given.sin(),), 0, (x,), (x.sin(),), eps=0.1))(T(3, grad=True))"
    ),
    "torch.autograd.graph.Node.metadata": "T(3, grad=True).sin().grad_fn.metadata",
    "torch.autograd.variable.VariableMeta": "module('torch.autograd.variable').VariableMeta('V', (), {}).__name__",
    "torch.autograd.profiler.EventList.export_stacks": (
        "profiled(with_stack=True).function_events.export_stacks(file(), 'self_cpu_time_total')"
    ),
    "torch.autograd.profiler.FunctionEvent.append_cpu_child": f"(lambda e: e[0].append_cpu_child(e[1]))({_EVENTS})",
    "torch.autograd.profiler.FunctionEvent.set_cpu_parent": f"(lambda e: e[1].set_cpu_parent(e[0]))({_EVENTS})",
    "torch.autograd.profiler.load_nvprof": "[e.name for e in torch.autograd.profiler.load_nvprof(nvprof())]",
    "torch.autograd.profiler.parse_nvprof_trace": "[e.name for e in torch.autograd.profiler.parse_nvprof_trace(nvprof())]",
    "torch.autograd.profiler.profile.export_stacks": "profiled(with_stack=True).export_stacks(file(), 'self_cpu_time_total')",
    "torch.autograd.profiler_legacy.profile.export_stacks": (
        "entered(torch.autograd.profiler_legacy.profile(with_stack=True)).export_stacks(file(), 'self_cpu_time_total')"
    ),
    "torch.profiler.profile.export_stacks": (
        "entered(torch.profiler.profile(with_stack=True)).export_stacks(file(), 'self_cpu_time_total')"
    ),
    "torch.autograd.profiler_util.EventMetadata": (
        "(lambda kind: kind(*[None] * len(kind._fields)))(torch.autograd.profiler_util.EventMetadata)"
    ),
    "torch.autograd.profiler_util.FunctionEventAvg.add": ("(lambda e: e.add(e).count)(profiled().key_averages()[0])"),
    # torch.utils
    "torch.utils.ThroughputBenchmark.benchmark": (
        "(lambda b: run(b.add_input(T(2, 3)), b.benchmark(1, 1, 1).num_iters))(torch.utils.ThroughputBenchmark(net()))"
    ),
    "torch.utils.ThroughputBenchmark.run_once": "torch.utils.ThroughputBenchmark(net()).run_once(T(2, 3))",
    "torch.utils.throughput_benchmark.format_time": "torch.utils.throughput_benchmark.format_time(time_us=3.0)",
    "torch.utils.benchmark.CallgrindStats.as_standardized": f"{_CALLGRIND}.as_standardized().counts()",
    "torch.utils.benchmark.CallgrindStats.delta": f"len({_CALLGRIND}.delta({_CALLGRIND}))",
    "torch.utils.benchmark.Colorize": f"{_BENCHMARK}.Colorize('none')",
    "torch.utils.benchmark.Compare.extend_results": (
        f"{_BENCHMARK}.Compare([]).extend_results([{_BENCHMARK}.Timer('1 + 1').timeit(2)])"
    ),
    "torch.utils.benchmark.Compare.print": (
        f"{_BENCHMARK}.Compare([{_BENCHMARK}.Timer('1 + 1', label='a', sub_label='b', description='c').timeit(2)]).print()"
    ),
    "torch.utils.benchmark.CopyIfCallgrind.unwrap_all": (
        f"{_BENCHMARK}.CopyIfCallgrind.unwrap_all({{'a': {_BENCHMARK}.CopyIfCallgrind(1)}})"
    ),
    "torch.utils.benchmark.FuzzedParameter.sample": (
        f"{_BENCHMARK}.FuzzedParameter('n', 1, 3, 'uniform').sample(__import__('numpy').random.RandomState(0))"
    ),
    "torch.utils.benchmark.FuzzedSparseTensor.sparse_tensor_constructor": (
        f"{_BENCHMARK}.FuzzedSparseTensor.sparse_tensor_constructor([3, 3], torch.float32, 2, 2, True).shape"
    ),
    "torch.utils.benchmark.FuzzedTensor.satisfies_constraints": (
        f"{_BENCHMARK}.FuzzedTensor('x', [3, 3]).satisfies_constraints({{'n': 3}})"
    ),
    "torch.utils.benchmark.unit_to_english": f"{_BENCHMARK}.unit_to_english('ms')",
    "torch.utils.checkpoint.CheckpointFunction.forward": (
        "backward(torch.utils.checkpoint.CheckpointFunction.apply(net(), True, T(2, 3, grad=True)))"
    ),
    "torch.utils.checkpoint.CheckpointFunction.backward": (
        "(lambda x: run(torch.utils.checkpoint.CheckpointFunction.apply(net(), True, x).sum().backward(), x.grad))"
        "(T(2, 3, grad=True))"
    ),
    "torch.utils.checkpoint.create_selective_checkpoint_contexts": (
        "backward(torch.utils.checkpoint.checkpoint(net(), T(2, 3, grad=True), use_reentrant=False, context_fn=lambda: "
        "torch.utils.checkpoint.create_selective_checkpoint_contexts([torch.ops.aten.mm.default])))"
    ),
    "torch.utils.cpp_extension.CppExtension": "torch.utils.cpp_extension.CppExtension('e', ['e.cpp']).sources",
    "torch.utils.cpp_extension.BuildExtension.build_extensions": (
        f"(lambda b: run(setattr(b, 'extensions', []), setattr(b, 'compiler', module('setuptools._distutils.ccompiler')"
        f".new_compiler()), b.build_extensions()))({_BUILD})"
    ),
    "torch.utils.cpp_extension.BuildExtension.get_ext_filename": (
        f"(lambda b: run(b.finalize_options(), b.get_ext_filename('e').partition('.')[0]))({_BUILD})"
    ),
    "torch.utils.cpp_extension.BuildExtension.get_export_symbols": (
        f"{_BUILD}.get_export_symbols(torch.utils.cpp_extension.CppExtension('e', ['e.cpp']))"
    ),
    "torch.utils.cpp_extension.load_inline": (
        "os.path.exists(torch.utils.cpp_extension.load_inline(f'e{os.urandom(4).hex()}', 'extern \"C\" int f() { return 1; }', "
        "build_directory=folder, no_implicit_headers=True, is_python_module=False))"
    ),
    "torch.utils.cpp_extension.load": (
        "os.path.exists(torch.utils.cpp_extension.load(f'e{os.urandom(4).hex()}', [source()], "
        "build_directory=folder, is_python_module=False))"
    ),
    "torch.utils.data.argument_validation": (
        "torch.utils.data.argument_validation(module('tools.catalog.bench').doubling)(T(3))"
    ),
    "torch.utils.data.runtime_validation": (
        "(lambda f: run(setattr(f, '__name__', '__iter__'), list(torch.utils.data.runtime_validation(f)("
        "record(type=record(issubtype_of_instance=lambda value: True))))))"
        "(lambda self: iter([1]))"
    ),
    "torch.utils.data.graph.traverse": f"len(torch.utils.data.graph.traverse({_PIPE}))",
    "torch.utils.data.graph.traverse_dps": f"len(torch.utils.data.graph.traverse_dps({_PIPE}))",
    "torch.utils.data.graph_settings.apply_random_seed": f"list({_SETTINGS}.apply_random_seed({_PIPE}, torch.Generator()))",
    "torch.utils.data.graph_settings.apply_sharding": f"list({_SETTINGS}.apply_sharding({_PIPE}.sharding_filter(), 1, 0))",
    "torch.utils.data.graph_settings.apply_shuffle_seed": f"list({_SETTINGS}.apply_shuffle_seed({_PIPE}, torch.Generator()))",
    "torch.utils.data.graph_settings.get_all_graph_pipes": (
        f"len({_SETTINGS}.get_all_graph_pipes(torch.utils.data.graph.traverse_dps({_PIPE})))"
    ),
    "torch.utils.data.non_deterministic.deterministic_wrapper_fn": (
        "torch.utils.data.non_deterministic(lambda *given: False)(type('P', (torch.utils.data.IterDataPipe,), {}))()"
        ".__class__.__name__"
    ),
    "torch.utils.hooks.unserializable_hook": "torch.utils.hooks.unserializable_hook(lambda *given: None)",
    "torch.utils.mkldnn.MkldnnBatchNorm": (
        "torch.utils.mkldnn.MkldnnBatchNorm(torch.nn.BatchNorm2d(3, device='cpu').eval())(H(1, 3, 4, 4).to_mkldnn()).to_dense()"
    ),
    **{
        f"torch.utils.mkldnn.{name}": (
            f"torch.utils.mkldnn.{name}(torch.nn.{plain}.eval(), torch.float32)({given}.to_mkldnn()).to_dense().shape"
        )
        for name, plain, given in (
            ("MkldnnConv1d", "Conv1d(3, 2, 2, device='cpu')", "H(1, 3, 4)"),
            ("MkldnnConv2d", "Conv2d(3, 2, 2, device='cpu')", "H(1, 3, 4, 4)"),
            ("MkldnnConv3d", "Conv3d(3, 2, 2, device='cpu')", "H(1, 3, 4, 4, 4)"),
            ("MkldnnLinear", "Linear(3, 2, device='cpu')", "H(2, 3)"),
            ("MkldnnPrelu", "PReLU(device='cpu')", "H(2, 3)"),
        )
    },
    "torch.utils.data.IterableDataset": (
        "list(torch.utils.data.DataLoader("
        "type('S', (torch.utils.data.IterableDataset,), {'__iter__': lambda self: iter([1, 2])})()))"
    ),
    "torch.utils.set_module": "torch.utils.set_module(type('C', (), {}), 'torch.utils')",
    "torch.utils.weak.WeakIdKeyDictionary.get": "(lambda k: torch.utils.weak.WeakIdKeyDictionary({k: 1}).get(k))(T(3))",
    "torch.utils.weak.WeakIdKeyDictionary.pop": "(lambda k: torch.utils.weak.WeakIdKeyDictionary({k: 1}).pop(k))(T(3))",
    "torch.utils.weak.WeakIdKeyDictionary.popitem": (
        "(lambda k: torch.utils.weak.WeakIdKeyDictionary({k: 1}).popitem()[1])(T(3))"
    ),
    "torch.utils.weak.WeakIdKeyDictionary.setdefault": (
        "(lambda k: torch.utils.weak.WeakIdKeyDictionary().setdefault(k, 2))(T(3))"
    ),
    "torch.utils.weak.WeakIdRef": "(lambda k: torch.utils.weak.WeakIdRef(k)() is k)(T(3))",
    "torch.masked.as_masked_tensor": "torch.masked.as_masked_tensor(T(3, 3), B(3, 3))",
    "torch.masked.masked_tensor": "torch.masked.masked_tensor(T(3, 3), B(3, 3))",
    "torch.masked.MaskedTensor.unary": "torch.masked.MaskedTensor.unary(torch.ops.aten.sin, T(3, 3), B(3, 3))",
    # Files, downloads and processes.
    "torch.hub.download_url_to_file": (
        "(lambda f: torch.hub.download_url_to_file('file://' + file(T(3)), f, progress=False))(file())"
    ),
    "torch.hub.help": "torch.hub.help(hub(), 'doubling', trust_repo=True)",
    "torch.hub.list": "torch.hub.list(hub(), trust_repo=True)",
    "torch.hub.load": "torch.hub.load(hub(), 'doubling', trust_repo=True)",
    "torch.serialization.add_safe_globals": "torch.serialization.add_safe_globals([torch.sin])",
    "torch.serialization.check_module_version_greater_or_equal": (
        "torch.serialization.check_module_version_greater_or_equal(torch, (2, 0))"
    ),
    "torch.serialization.default_restore_location": (
        "torch.serialization.default_restore_location(H(3).untyped_storage(), 'cpu').nbytes()"
    ),
    "torch.serialization.normalize_storage_type": "torch.serialization.normalize_storage_type(torch.FloatStorage)",
    "torch.multiprocessing.set_sharing_strategy": (
        "torch.multiprocessing.set_sharing_strategy(torch.multiprocessing.get_sharing_strategy())"
    ),
    "torch.multiprocessing.spawn.spawn": f"{_SPAWN}.spawn(print)",
    "torch.multiprocessing.spawn.start_processes": f"{_SPAWN}.start_processes(print)",
    "torch.multiprocessing.spawn.ProcessContext.join": f"{_SPAWN}.spawn(print, join=False).join()",
    "torch.multiprocessing.spawn.ProcessContext.pids": (
        f"(lambda c: run(c.join(), len(c.pids())))({_SPAWN}.spawn(print, join=False))"
    ),
    "torch.overrides.handle_torch_function": (
        "(lambda x: torch.overrides.handle_torch_function(torch.sin, (x,), x))"
        "(T(3).as_subclass(type('Sub', (torch.Tensor,), {})))"
    ),
    "torch.overrides.has_torch_function": "torch.overrides.has_torch_function((T(3),))",
    # torch.nn.utils
    "torch.nn.utils.clip_grad_value_": (
        "(lambda m: run(m(T(2, 3)).sum().backward(), torch.nn.utils.clip_grad_value_(m.parameters(), 0.5), m.weight.grad))"
        "(net())"
    ),
    "torch.nn.utils.fuse_conv_bn_eval": (
        "torch.nn.utils.fuse_conv_bn_eval("
        "torch.nn.Conv2d(3, 2, 2, device=D).eval(), torch.nn.BatchNorm2d(2, device=D).eval())(T(1, 3, 4, 4)).shape"
    ),
    "torch.nn.utils.fuse_linear_bn_eval": (
        "torch.nn.utils.fuse_linear_bn_eval(net().eval(), torch.nn.BatchNorm1d(3, device=D).eval())(T(2, 3))"
    ),
    "torch.nn.utils.parametrize.ParametrizationList.right_inverse": (
        "torch.nn.utils.parametrizations.orthogonal(net()).parametrizations.weight.right_inverse(torch.eye(3, device=D))"
    ),
    "torch.nn.utils.parametrize.remove_parametrizations": (
        "(lambda m: run(torch.nn.utils.parametrize.register_parametrization(m, 'weight', torch.nn.Identity(), unsafe=True), "
        "torch.nn.utils.parametrize.remove_parametrizations(m, 'weight')))(net())"
    ),
    "torch.nn.utils.prune.PruningContainer.add_pruning_method": (
        "(lambda c: run(c.add_pruning_method(pruning()), len(c)))(torch.nn.utils.prune.PruningContainer(pruning()))"
    ),
    "torch.nn.utils.prune.PruningContainer.compute_mask": (
        "torch.nn.utils.prune.PruningContainer(pruning()).compute_mask(T(3, 3), torch.ones(3, 3, device=D))"
    ),
    "torch.nn.utils.prune.global_unstructured": (
        "(lambda m: run(torch.nn.utils.prune.global_unstructured("
        "[(m, 'weight')], torch.nn.utils.prune.L1Unstructured, amount=2), m.weight))(net())"
    ),
    "torch.nn.utils.prune.remove": (
        "(lambda m: run(torch.nn.utils.prune.l1_unstructured(m, 'weight', 2), "
        "torch.nn.utils.prune.remove(m, 'weight').weight))(net())"
    ),
    "torch.nn.utils.remove_spectral_norm": (
        "torch.nn.utils.remove_spectral_norm(torch.nn.utils.spectral_norm(net())).weight.shape"
    ),
    "torch.nn.utils.remove_weight_norm": "torch.nn.utils.remove_weight_norm(torch.nn.utils.weight_norm(net()))",
    "torch.nn.utils.spectral_norm.SpectralNorm.compute_weight": (
        f"(lambda m: {_NORM}().compute_weight(m, True).shape)(torch.nn.utils.spectral_norm(net()))"
    ),
    "torch.nn.utils.spectral_norm.SpectralNorm.remove": (
        f"(lambda m: run({_NORM}().remove(m), m.weight.shape))(torch.nn.utils.spectral_norm(net()))"
    ),
    "torch.nn.utils.weight_norm.WeightNorm.compute_weight": (
        f"{_WEIGHT}('weight', 0).compute_weight(torch.nn.utils.weight_norm(net()))"
    ),
    "torch.nn.utils.weight_norm.WeightNorm.remove": (
        f"(lambda m: run({_WEIGHT}('weight', 0).remove(m), m.weight))(torch.nn.utils.weight_norm(net()))"
    ),
    # torch.distributions
    "torch.distributions.CorrCholeskyTransform.inverse_shape": (
        "torch.distributions.CorrCholeskyTransform().inverse_shape(torch.Size([3, 3]))"
    ),
    "torch.distributions.ReshapeTransform.forward_shape": (
        "torch.distributions.ReshapeTransform((3, 3), (9,)).forward_shape(torch.Size([3, 3]))"
    ),
    "torch.distributions.StickBreakingTransform.log_abs_det_jacobian": (
        "(lambda t, x: t.log_abs_det_jacobian(x, t(x)))(torch.distributions.StickBreakingTransform(), T(3))"
    ),
    "torch.distributions.Transform.event_dim": "torch.distributions.ExpTransform().event_dim",
    "torch.distributions.constraints.Constraint.check": "torch.distributions.constraints.positive.check(T(3))",
    **{
        f"torch.distributions.constraints.{name}.check": f"torch.distributions.constraints.{made}.check({given})"
        for name, made, given in (
            ("cat", "cat([torch.distributions.constraints.real, torch.distributions.constraints.positive])", "T(2)"),
            (
                "stack",
                "stack([torch.distributions.constraints.real, torch.distributions.constraints.positive])",
                "T(2)",
            ),
            ("independent", "independent(torch.distributions.constraints.real, 1)", "T(3)"),
            (
                "MixtureSameFamilyConstraint",
                "MixtureSameFamilyConstraint(torch.distributions.constraints.real)",
                "T(3)",
            ),
        )
    },
    "torch.distributions.Distribution.enumerate_support": "torch.distributions.Bernoulli(T(3)).enumerate_support()",
    "torch.distributions.Independent.enumerate_support": (
        "torch.distributions.Independent(torch.distributions.Bernoulli(T(3)), 0).enumerate_support()"
    ),
    "torch.distributions.kl_divergence": (
        "torch.distributions.kl_divergence("
        "torch.distributions.Normal(T(3), T(3) + 0.5), torch.distributions.Normal(T(3) + 1, T(3) + 1))"
    ),
    "torch.distributions.register_kl": (
        "torch.distributions.register_kl(type('A', (torch.distributions.Normal,), {}), torch.distributions.Normal)(torch.sin)"
    ),
}
