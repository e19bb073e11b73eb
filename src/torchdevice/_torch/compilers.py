"""Private names of torch for torch.compile and TorchScript: rules, twins, builtins, graphs.

"Expiry" says what would make an entry unnecessary. Other private names are in `core`.
"""

from __future__ import annotations

import functools
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from torchdevice._torch.core import Undo
from torchdevice._torch.imports import when_imported

F = TypeVar("F", bound=Callable[..., Any])
Function = Callable[..., Any]
Pair = tuple[Function, Function]

# Our modules that torch's compiler traces: functions made for it, and packages that programs import.
TRACED = ("twins", "packages")

# torch's compiler calls it to decide whether compiled code must run without autocast. Expiry: a version that includes
# MPS (2.13 does not, and casts twice there).
ANY_AUTOCAST = "torch._C._is_any_autocast_enabled"

# torch's compiler calls it after it has traced a function, to return a number from the graph. It is a node then.
NUMBER_TO_TENSOR = "torch.scalar_tensor"


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


@dataclass(frozen=True)
class Rules:
    """What torch's compiler does with functions while a session is active. Pairs are (wrapper, original).

    - `moved`: the wrapper has no rule, or that of its twin.
    - `kept`: the wrapper has the rules of the original, unless the compiler traces that.
    - `nodes`: the wrapper is a node of graphs if the original is one without other rules. Those ask the real device.
    - `traced`: wrappers that the compiler traces, although it leaves their module untraced.
    - `instead`: functions of torch, with those that the compiler traces instead.
    """

    moved: Sequence[Pair]
    kept: Sequence[Pair]
    nodes: Sequence[Pair]
    traced: Sequence[Function]
    instead: Mapping[Function, Function]


def apply_rules(given: Rules, twins: Sequence[tuple[Function, Function, Function]]) -> Undo:
    """Keep the rules of torch's compiler on originals, and add rules for wrappers. The compiler must be loaded.

    `twins`: (wrapper, original, function that the compiler traces instead), once per process.

    It looks its rules up by name, when it starts and again after `init_process_group`. If torch is patched then, the
    rule for an original is stored for its wrapper. A rule says whether a function is a node of graphs, whether the
    compiler handles it itself, or whether its result is a constant. Expiry: rules by object.
    """
    from torch._dynamo import trace_rules
    from torch._dynamo.variables import PolyfilledFunctionVariable as Substituted
    from torch._dynamo.variables import UserFunctionVariable as Traced
    from torch._dynamo.variables import torch as functions

    handled = functions.TorchInGraphFunctionVariable._get_handlers()

    # Where a rule belongs that is stored for one of these.
    places: dict[Any, Any] = {}
    reread = False
    for wrapper, original in (*given.moved, *given.kept, *given.nodes):
        place = places[wrapper] = without_cache(original)
        if original is not place:
            places[original] = place

    def tables() -> tuple[dict[Any, Any], ...]:
        return trace_rules.get_torch_obj_rule_map(), handled, functions.constant_fold_functions

    def move_to_originals() -> None:
        for table in tables():
            for stored in table.keys() & places.keys():
                rule = table.pop(stored)
                if rule is not Substituted:
                    table.setdefault(places[stored], rule)

    def add_to_wrappers() -> None:
        rules, substituted = trace_rules.get_torch_obj_rule_map(), Substituted._get_polyfill_handlers()
        plain = [(wrapper, original) for wrapper, original in given.nodes if original not in handled]
        for table in tables():
            for wrapper, original in (*given.kept, *(plain if table is rules else ())):
                if table.get(original, Traced) is not Traced:
                    table[wrapper] = table[original]
        rules.update(dict.fromkeys(given.traced, Traced))
        for wrapper, _ in given.moved:
            if wrapper in substituted:
                rules[wrapper] = Substituted
        rules.update(dict.fromkeys(given.instead, Substituted))

    def clear_and_add() -> None:
        nonlocal reread
        reread = True
        clear()
        move_to_originals()
        add_to_wrappers()

    def put_back() -> None:
        for each in given.instead:
            trace_rules.get_torch_obj_rule_map().pop(each, None)
            Substituted._get_polyfill_handlers().pop(each, None)
        trace_rules.clear_lru_cache, trace_rules.get_tensor_method = clear, methods
        methods.cache_clear()
        if reread:  # while torch was patched
            clear()

    @functools.cache
    def methods_with_originals() -> frozenset[Any]:
        return frozenset(methods.__wrapped__() | {each for _, each in given.moved if inspect.ismethoddescriptor(each)})

    for function, twin in given.instead.items():
        twin.__torch_dynamo_polyfill__ = twin  # type: ignore[attr-defined]
        Substituted._get_polyfill_handlers()[function] = twin
    clear, methods = trace_rules.clear_lru_cache, trace_rules.get_tensor_method
    trace_rules.clear_lru_cache, trace_rules.get_tensor_method = clear_and_add, methods_with_originals
    move_to_originals()
    for wrapper, _, twin in twins:
        torch.compiler.substitute_in_graph(wrapper, skip_signature_check=True)(twin)
    add_to_wrappers()
    return put_back


@functools.cache
def without_cache(function: Any) -> Any:
    """The function behind `functools.lru_cache`. torch's compiler has its rules for that."""
    return function.__wrapped__ if hasattr(function, "cache_info") else function


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
    from torch._dynamo.exc import Unsupported
    from torch._dynamo.guards import GuardBuilder
    from torch._dynamo.variables import StreamVariable, TensorVariable, UserFunctionVariable
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
    # torch 2.15 has a table of methods, 2.13 a method, older versions have no rule for it.
    table = getattr(TensorVariable, "tp_methods", {})
    owner, name = (table["record_stream"], "handler") if table else (TensorVariable, "method_record_stream")
    record_stream = getattr(owner, name, None)

    def recorded(tensor: Any, tx: Any, stream: Any) -> Any:
        if not isinstance(stream, StreamVariable):
            raise Unsupported("record_stream() of a stream that is not torch's own")
        return record_stream(tensor, tx, stream)  # type: ignore[misc]

    if record_stream is not None:
        setattr(owner, name, recorded)

    def put_back() -> None:
        if record_stream is not None:
            setattr(owner, name, record_stream)
        for each in classes:
            ours.remove(id(each))
            by_type.pop(each, None)
        for each in twins:
            by_id.pop(id(each), None)

    return put_back


def ask_for_streams_of_the_accelerator() -> Undo:
    """Let compiled code ask for the current stream of an accelerator while requests for it are redirected to the CPU.

    On a host with an accelerator, the compiler adds this question to each function, in the function's own code, with a
    device that it makes there. Versions before 2.12 do not ask. Expiry: a device that is made elsewhere.
    """
    from torch._dynamo import guards, utils

    name = "get_current_stream"
    original = getattr(utils, name, None)
    places = [each for each in (utils, guards) if original is not None and getattr(each, name, None) is original]

    def current_stream(device: torch.device) -> Any:
        assert original is not None
        return original(None if device.type == "cpu" else device)

    for each in places:
        setattr(each, name, current_stream)

    def put_back() -> None:
        for each in places:
            setattr(each, name, original)

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
