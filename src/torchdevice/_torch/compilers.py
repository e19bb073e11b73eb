"""Private names of torch for torch.compile and TorchScript: rules, twins, builtins, graphs.

"Expiry" says what would make an entry unnecessary. Other private names are in `core`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from torchdevice._torch.core import Undo
from torchdevice._torch.imports import when_imported

F = TypeVar("F", bound=Callable[..., Any])

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


def rules_on_originals(pairs: Sequence[tuple[Callable[..., Any], Callable[..., Any]]]) -> Undo:
    """Move the rules of torch's compiler from wrappers to originals. `pairs` are (wrapper, original).

    The compiler must be loaded. It looks its rules up by name, when it starts and again after `init_process_group`. If
    torch is patched then, the rule for an original is stored for its wrapper. Expiry: rules by object.
    """
    from torch._dynamo import trace_rules
    from torch._dynamo.variables import PolyfilledFunctionVariable as Substituted

    def move() -> None:
        rules, substituted = trace_rules.get_torch_obj_rule_map(), Substituted._get_polyfill_handlers()
        for wrapper, original in pairs:
            if rules.get(wrapper, Substituted) is not Substituted:
                rules[original] = rules.pop(wrapper)
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
