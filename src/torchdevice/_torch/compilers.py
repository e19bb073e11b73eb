"""Private names of torch for torch.compile and TorchScript: rules, twins, builtins, graphs.

"Expiry" says what would make an entry unnecessary. Other private names are in `core`.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from torchdevice._torch.core import Undo
from torchdevice._torch.imports import when_imported

F = TypeVar("F", bound=Callable[..., Any])
Pair = tuple[Callable[..., Any], Callable[..., Any]]

# Our modules that torch's compiler traces: functions made for it, and packages that programs import.
TRACED = ("twins", "packages")

# torch's compiler calls it to decide whether compiled code must run without autocast. Expiry: a version that includes
# MPS (2.13 does not, and casts twice there).
ANY_AUTOCAST = "torch._C._is_any_autocast_enabled"


def register_script_builtin(wrapper: Callable[..., Any], original: Callable[..., Any]) -> None:
    """Make `torch.jit.script` compile `wrapper` like `original`, if that is a builtin operator.

    This lasts until the process ends, like the wrapper itself. Expiry: torch.jit's removal.
    """
    from torch.jit import _builtins

    table = _builtins._get_builtin_table()
    operator = table.get(id(original))
    if operator is not None:
        table[id(wrapper)] = operator


def script_graphs(made: Any) -> Iterator[Any]:
    """The graphs of a result of `torch.jit.script`: that of a function, or those of all methods of all modules.

    Expiry: torch.jit's removal.
    """
    if isinstance(made, torch.jit.ScriptModule):
        for module in made.modules():
            for name in module._c._method_names():
                yield module._c._get_method(name).graph
    elif isinstance(made, torch.jit.ScriptFunction):
        yield made.graph


def inline_graph(graph: Any) -> None:
    """Inline called functions and methods in a TorchScript graph. Expiry: torch.jit's removal."""
    torch._C._jit_pass_inline(graph)


def parse_schema(text: str) -> Any:
    """An operator's schema from its text. Expiry: public access to operator schemas."""
    return torch._C.parse_schema(text)


def when_dynamo_is_imported(action: Callable[[], Undo | None]) -> Undo:
    """Run `action` now if torch's compiler front end is loaded, else after its import, which takes a second.

    Expiry: `torch.compiler.substitute_in_graph` working without importing the compiler.
    """
    return when_imported("torch._dynamo", "optimize", action)


def trace_as(wrapper: Callable[..., Any], twin: Callable[..., Any]) -> None:
    """Make torch's compiler trace `twin` instead of `wrapper`. Call `rules_on_originals` before."""
    torch.compiler.substitute_in_graph(wrapper, skip_signature_check=True)(twin)


def rules_on_originals(
    moved: Sequence[Pair], kept: Sequence[Pair], nodes: Sequence[Pair], traced: Sequence[Callable[..., Any]]
) -> Undo:
    """Keep the rules of torch's compiler on originals. Pairs are (wrapper, original).

    The compiler must be loaded. It looks its rules up by name, when it starts and again after `init_process_group`. If
    torch is patched then, the rule for an original is stored for its wrapper. A rule says whether a function is a node
    of graphs, whether the compiler handles it itself, or whether its result is a constant.

    - `moved`: the wrapper has no rule, or that of `trace_as`.
    - `kept`: the wrapper has the rules of the original, unless the compiler traces that.
    - `nodes`: the wrapper is a node of graphs if the original is one. The other rules ask the real device.
    - `traced`: wrappers that the compiler traces, although it leaves their module untraced.

    Expiry: rules by object.
    """
    from torch._dynamo import trace_rules
    from torch._dynamo.variables import PolyfilledFunctionVariable as Substituted
    from torch._dynamo.variables import UserFunctionVariable as Traced
    from torch._dynamo.variables import torch as functions

    def move() -> None:
        rules, substituted = trace_rules.get_torch_obj_rule_map(), Substituted._get_polyfill_handlers()
        others = (functions.TorchInGraphFunctionVariable._get_handlers(), functions.constant_fold_functions)
        for table in (rules, *others):
            for wrapper, original in (*moved, *kept, *nodes):
                rule = table.pop(wrapper, Substituted)
                if rule is not Substituted:
                    table.setdefault(original, rule)
            for wrapper, original in (*kept, *(nodes if table is rules else ())):
                if table.get(original, Traced) is not Traced:
                    table[wrapper] = table[original]
        rules.update(dict.fromkeys(traced, Traced))
        for wrapper, _ in moved:
            if wrapper in substituted:  # `trace_as` added it before the rules were read again
                rules[wrapper] = Substituted

    def clear_and_move() -> None:
        clear()
        move()

    def put_back() -> None:
        trace_rules.clear_lru_cache = clear

    clear = trace_rules.clear_lru_cache
    trace_rules.clear_lru_cache = clear_and_move
    move()
    return put_back


def leave_untraced() -> Undo:
    """Make torch's compiler run our functions without tracing them, also when compiled code calls them.

    Without this, it would also compile each wrapper that is called between two graphs. TRACED is not affected.
    Expiry: a public mark for a package.
    """
    from torch._dynamo import trace_rules

    def put_back() -> None:
        for each in _untraced():
            trace_rules.SKIP_DIRS.remove(each)
        trace_rules._recompile_re()

    trace_rules.SKIP_DIRS.extend(_untraced())
    trace_rules._recompile_re()

    return put_back


@functools.cache
def _untraced() -> list[str]:
    ours = Path(__file__).parent.parent
    modules = [module for module in pkgutil.iter_modules([str(ours)]) if module.name not in TRACED]
    return [f"{(ours / each.name).as_posix()}{'/' if each.ispkg else '.py'}" for each in modules]


def leave_classes_untraced(classes: Sequence[type], twins: Mapping[type, Callable[..., Any]]) -> Undo:
    """Make torch's compiler break the graph where a program makes an object of these classes or uses one.

    It has rules for streams, events and device contexts, which it finds by their base class and which call the device
    in C. `twins`: for some of the classes, a function that the compiler traces instead of a call of the class.
    Expiry: rules that call the methods of the class.
    """
    from torch._dynamo import trace_rules
    from torch._dynamo.guards import GuardBuilder
    from torch._dynamo.variables import UserFunctionVariable
    from torch._dynamo.variables.builder import VariableBuilder

    def traced(builder: Any, value: Any) -> Any:
        builder.install_guards(GuardBuilder.ID_MATCH)
        return UserFunctionVariable(twins[value])

    ours, by_type, by_id = (
        trace_rules._disallowed_callable_ids,
        VariableBuilder._type_dispatch(),
        VariableBuilder._id_dispatch(),
    )
    for each in classes:
        ours.add(id(each))
        by_type[each] = VariableBuilder.wrap_user_defined
    for each in twins:
        by_id[id(each)] = traced

    def put_back() -> None:
        for each in classes:
            ours.remove(id(each))
            by_type.pop(each, None)
        for each in twins:
            by_id.pop(id(each), None)

    return put_back


def constant_when_traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make torch's compiler run `function` while tracing and treat the result as a constant."""
    return torch.compiler.assume_constant_result(function)


def runs_while_traced(function: F) -> F:
    """Make torch's compiler run `function` while tracing and treat its result as a constant.

    Like `constant_when_traced`, but without importing the compiler, which takes a second. Expiry: a public mark that
    does not import it.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
