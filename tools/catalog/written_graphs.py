"""How to call what records programs: torch.fx, torch.export, torch.jit, torch.compiler, torch.library."""

from __future__ import annotations

_TRACER = "(lambda t: run(t.trace(net()), t))(torch.fx.Tracer())"
_NODE = "list(graph().graph.nodes)"
_INTERPRETER = "torch.fx.Interpreter(graph())"
_TRANSFORMER = "torch.fx.Transformer(graph())"
_UNFLATTEN = "module('torch.export.unflatten')"
_FILTERED = "torch.compile(net(), backend='eager', options={{'guard_filter_fn': torch.compiler.{}}})(T(2, 3))"
_METADATA = "exported().graph"
_ARGUMENT = "torch.export.graph_signature.TensorArgument('x')"

GRAPHS: dict[str, str] = {
    # torch.fx
    "torch.fx.Graph.call_module": "(lambda g: g.graph.call_module('sub'))(run((g := graph()), g.add_submodule('sub', net()), g))",
    "torch.fx.Graph.create_node": "str(graph().graph.create_node('call_function', torch.sin, (1.0,)))",
    "torch.fx.Graph.create_size_node": f"(lambda g: str(g.create_size_node(list(g.nodes)[-2], 0)))({_METADATA})",
    "torch.fx.Graph.create_storage_offset_node": (
        f"(lambda g: str(g.create_storage_offset_node(list(g.nodes)[-2])))({_METADATA})"
    ),
    "torch.fx.Graph.create_stride_node": f"(lambda g: str(g.create_stride_node(list(g.nodes)[-2], 0)))({_METADATA})",
    "torch.fx.Graph.erase_node": "(lambda g: g.erase_node(g.create_node('call_function', torch.sin, (1.0,))))(graph().graph)",
    "torch.fx.Graph.graph_copy": "str(torch.fx.Graph().graph_copy(graph().graph, {}))",
    "torch.fx.Graph.materialize_symints": "graph().graph.materialize_symints([3])",
    "torch.fx.GraphModule.add_submodule": "graph().add_submodule('sub', net())",
    "torch.fx.Interpreter.boxed_run": f"{_INTERPRETER}.boxed_run([T(2, 3)])",
    "torch.fx.Interpreter.call_function": f"{_INTERPRETER}.call_function(torch.sin, (T(3),), {{}})",
    "torch.fx.Interpreter.call_module": (
        "torch.fx.Interpreter(torch.fx.symbolic_trace(deep())).call_module('0', (T(2, 3),), {})"
    ),
    "torch.fx.Interpreter.fetch_args_kwargs_from_env": (
        f"{_INTERPRETER}.fetch_args_kwargs_from_env(graph().graph.create_node('call_function', torch.sin, (1.0,)))"
    ),
    "torch.fx.Interpreter.placeholder": (
        f"(lambda i: run(setattr(i, 'args_iter', iter([T(3)])), i.placeholder('input', (), {{}})))({_INTERPRETER})"
    ),
    "torch.fx.Interpreter.run_node": (
        f"{_INTERPRETER}.run_node(graph().graph.create_node('call_function', torch.sin, (T(3),)))"
    ),
    "torch.fx.Node.append": f"(lambda n: n[0].append(n[1]))({_NODE})",
    "torch.fx.Node.prepend": f"(lambda n: n[1].prepend(n[0]))({_NODE})",
    "torch.fx.Node.update_arg": f"(lambda n: n[-2].update_arg(0, 1))({_NODE})",
    "torch.fx.Tracer.call_module": (
        "(lambda t: run(t.trace(deep()), t.call_module(t.root[0], lambda x: x.sin(), (T(3),), {})))(torch.fx.Tracer())"
    ),
    "torch.fx.Tracer.create_args_for_root": (
        "(lambda t: run(t.trace(net()), len(t.create_args_for_root(lambda x: x, False)[1])))(torch.fx.Tracer())"
    ),
    "torch.fx.Tracer.create_node": f"str({_TRACER}.create_node('call_function', torch.sin, (1.0,), {{}}))",
    "torch.fx.Tracer.create_proxy": f"str({_TRACER}.create_proxy('call_function', torch.sin, (1.0,), {{}}))",
    "torch.fx.Tracer.get_fresh_qualname": f"{_TRACER}.get_fresh_qualname('p')",
    "torch.fx.Tracer.keys": f"(lambda t: t.keys(t.create_proxy('call_function', torch.sin, (1.0,), {{}})))({_TRACER})",
    "torch.fx.Tracer.path_of_module": (
        "(lambda t: run(t.trace(deep()), t.path_of_module(t.root[0])))(torch.fx.Tracer())"
    ),
    "torch.fx.Transformer.call_function": (
        f"str({_TRANSFORMER}.call_function(torch.sin, ({_TRANSFORMER}.placeholder('x', (), {{}}),), {{}}))"
    ),
    "torch.fx.Transformer.call_module": (
        "(lambda t: str(t.call_module('0', (t.placeholder('x', (), {}),), {})))"
        "(torch.fx.Transformer(torch.fx.symbolic_trace(deep())))"
    ),
    "torch.fx.graph.CodeGen.gen_fn_def": "torch.fx.graph.CodeGen().gen_fn_def(['x'], '')",
    "torch.fx.graph_module.reduce_graph_module": (
        "(lambda g: torch.fx.graph_module.reduce_graph_module(*g.__reduce__()[1])(T(2, 3)))(graph())"
    ),
    "torch.fx.graph_module.reduce_package_graph_module": (
        "(lambda g: torch.fx.graph_module.reduce_package_graph_module(record(import_module=lambda name: record("
        "forward=lambda self, x: x)), dict(g.__dict__), 'generated')(T(2, 3)))(graph())"
    ),
    "torch.fx.subgraph_rewriter.replace_pattern_with_filters": (
        "len(torch.fx.subgraph_rewriter.replace_pattern_with_filters("
        "torch.fx.symbolic_trace(lambda x: x.sin()), lambda x: x.sin(), lambda x: x.cos()))"
    ),
    # torch.export
    "torch.export.AdditionalInputs.dynamic_shapes": (
        "(lambda a: run(a.add((T(2, 3),)), a.add((T(4, 3),)), a.dynamic_shapes(net(), (T(2, 3),))))"
        "(torch.export.AdditionalInputs())"
    ),
    "torch.export.CustomDecompTable.update": "torch.export.CustomDecompTable().update({torch.ops.aten.sin.default: torch.sin})",
    "torch.export.ModuleCallSignature.replace_all_uses_with": (
        "torch.export.ModuleCallSignature([], [], None, None).replace_all_uses_with('a', 'b')"
    ),
    "torch.export.ShapesCollection.dynamic_shapes": (
        "(lambda s, x: run(s.__setitem__(x, {0: torch.export.Dim.DYNAMIC}), s.dynamic_shapes(net(), (x,))))"
        "(torch.export.ShapesCollection(), T(2, 3))"
    ),
    "torch.export.UnflattenedModule.forward": "torch.export.unflatten(exported()).forward(T(2, 3))",
    "torch.export.UnflattenedModule.process_forward_inputs": (
        "torch.export.unflatten(exported()).process_forward_inputs(T(2, 3))"
    ),
    "torch.export.dynamic_shapes.refine_dynamic_shapes_from_suggested_fixes": (
        "torch.export.dynamic_shapes.refine_dynamic_shapes_from_suggested_fixes("
        "'Suggested fixes:\\n  n = 4\\n', {'x': {0: torch.export.Dim('n')}})"
    ),
    "torch.export.graph_signature.InputSpec": (
        f"torch.export.graph_signature.InputSpec(torch.export.graph_signature.InputKind.USER_INPUT, {_ARGUMENT}, None)"
    ),
    "torch.export.graph_signature.OutputSpec": (
        f"torch.export.graph_signature.OutputSpec(torch.export.graph_signature.OutputKind.USER_OUTPUT, {_ARGUMENT}, None)"
    ),
    "torch.export.register_dataclass": (
        "torch.export.register_dataclass("
        "__import__('dataclasses').make_dataclass('Pair', ['a', 'b']), serialized_type_name=os.urandom(4).hex())"
    ),
    "torch.export.unflatten.InterpreterModule.finalize": f"{_UNFLATTEN}.InterpreterModule(sine().graph).finalize()",
    "torch.export.unflatten.InterpreterModule.forward": (
        f"(lambda m: run(m.finalize(), m.forward(T(3))))({_UNFLATTEN}.InterpreterModule(sine().graph))"
    ),
    "torch.export.unflatten.InterpreterModuleDispatcher.forward": (
        f"{_UNFLATTEN}.InterpreterModuleDispatcher(set(), [finished()]).forward(T(3))"
    ),
    # torch.jit
    "torch.jit.CompilationUnit.create_function": (
        "torch.jit.CompilationUnit().create_function('f', torch.jit.trace(torch.sin, (T(3),)).graph).name"
    ),
    "torch.jit.CompilationUnit.define": (
        "(lambda u: run(u.define('def f(x):\\n  return x.sin()\\n'), u.f(T(3))))(torch.jit.CompilationUnit())"
    ),
    "torch.jit.Future.set_exception": "torch.futures.Future().set_exception(ValueError('no'))",
    "torch.jit.Future.set_result": "(lambda f: run(f.set_result(T(3)), f.wait()))(torch.jit.Future(devices=[]))",
    "torch.jit.ScriptFunction.get_debug_state": (
        "(lambda f: run(f(T(3)), f(T(3)), f(T(3)), f.get_debug_state()))(torch.jit.trace(torch.sin, (T(3),)))"
    ),
    "torch.jit.ScriptFunction.graph_for": "torch.jit.trace(torch.sin, (T(3),)).graph_for(T(3)) is not None",
    "torch.jit.ScriptModule.define": (
        "(lambda m: run(m.define('def twice(self, x):\\n  return x * 2\\n'), m.twice(T(3))))(torch.jit.script(net()))"
    ),
    "torch.jit.ScriptModule.forward_magic_method": (
        "torch.jit.script(torch.nn.ModuleList([net()])).forward_magic_method('__len__')"
    ),
    "torch.jit.ScriptModule.get_debug_state": (
        "(lambda m: run(m(T(2, 3)), m(T(2, 3)), m(T(2, 3)), m.get_debug_state()))(torch.jit.script(net()))"
    ),
    "torch.jit.ScriptModule.graph_for": "torch.jit.script(net()).graph_for(T(2, 3)) is not None",
    "torch.jit.export_opnames": "torch.jit.export_opnames(torch.jit.script(net()))",
    "torch.jit.interface": "torch.jit.interface(module('tools.catalog.bench').Doubler) is not None",
    "torch.jit.isinstance": "torch.jit.isinstance([1, 2], __import__('typing').List[int])",
    "torch.jit.set_fusion_strategy": "torch.jit.set_fusion_strategy([('STATIC', 2), ('DYNAMIC', 10)])",
    "torch.jit.trace_module": "torch.jit.trace_module(net(), {'forward': (T(2, 3),)})(T(2, 3))",
    # torch.compiler
    **{
        f"torch.compiler.{name}": _FILTERED.format(name)
        for name in (
            "keep_portable_guards_unsafe",
            "keep_tensor_guards_unsafe",
            "skip_guard_on_all_nn_modules_unsafe",
            "skip_guard_on_globals_unsafe",
            "skip_guard_on_inbuilt_nn_modules_unsafe",
        )
    },
    "torch.compiler.load_compiled_function": (
        "(lambda f: run(torch.compile(module('tools.catalog.bench').doubling, fullgraph=True, backend='eager')"
        ".aot_compile(((T(3),), {})).save_compiled_function(f), "
        "torch.compiler.load_compiled_function(open(f, 'rb'))(T(3))))(file())"
    ),
    "torch.autograd.graph.region_activation_memory_budget": (
        "torch.compile(lambda x: entered(torch.autograd.graph.region_activation_memory_budget(0.5), lambda: x.sin()), "
        "backend='eager')(T(3))"
    ),
    # torch.library
    "torch.library.Library.define": "torch.library.Library('cat_bench', 'FRAGMENT').define(f'd{os.urandom(4).hex()}(Tensor x) -> Tensor')",
    "torch.library.Library.fallback": (
        "(lambda l: run(l.fallback(lambda *a, **k: None, 'Dense'), l._destroy()))(torch.library.Library('_', 'IMPL'))"
    ),
    "torch.library.Library.register_symm_mem_args": (
        "(lambda l, n: run(l.define(n + '(Tensor x) -> Tensor'), l.register_symm_mem_args(n, ['x'])))"
        "(torch.library.Library('cat_bench', 'FRAGMENT'), f's{os.urandom(4).hex()}')"
    ),
    "torch.library.get_kernel": "torch.library.get_kernel('aten::sin', 'CPU') is not None",
    "torch.library.impl": (
        "(lambda n: run(torch.library.define('cat_bench::' + n, '(Tensor x) -> Tensor'), "
        "torch.library.impl('cat_bench::' + n, 'default', torch.sin), getattr(torch.ops.cat_bench, n)(T(3))))"
        "(f'i{os.urandom(4).hex()}')"
    ),
    "torch.library.infer_schema": (
        "torch.library.infer_schema(module('tools.catalog.bench').doubling, mutates_args=())"
    ),
}
