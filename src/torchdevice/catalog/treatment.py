"""What TorchDevice does with a name, computed from the tables of its mechanisms, which are passed in as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from torchdevice.catalog.measured import PASSED, Measured
from torchdevice.catalog.signatures import operator_name
from torchdevice.catalog.surface import METHOD, PROPERTY, Found

PASSTHROUGH = "passthrough"
TRANSLATED = "translated"
SIMULATED = "simulated"
FALLBACK = "fallback"
UNSUPPORTED = "unsupported"
DEVICES = ("cpu", "cuda", "mps")


@dataclass(frozen=True)
class Patched:
    """A replaced name: its path, the adapter, and whether the signature is torch's own."""

    path: str
    how: str
    same_signature: bool


@dataclass(frozen=True)
class Tables:
    """The tables of the mechanisms.

    - `patched`: by the identity of torch's own object.
    - `answers`: by path, the kind (as in treatments) and a description of the result.
    - `kernels`: aten operator with overload → the devices with a kernel.
    - `rules`: aten operators with an MLX rule.
    - `making`, `moving`: names of adapters for functions that create tensors and that move them.
    """

    patched: dict[int, Patched] = field(default_factory=dict)
    answers: dict[str, tuple[str, str]] = field(default_factory=dict)
    kernels: dict[str, frozenset[str]] = field(default_factory=dict)
    rules: frozenset[str] = frozenset()
    making: frozenset[str] = frozenset()
    moving: frozenset[str] = frozenset()

    def overloads(self, name: str) -> list[str]:
        """The operators that a public name calls, in their functional and in-place forms."""
        base = operator_name(name)
        return self._by_base.get(base, []) if base else []

    @cached_property
    def _by_base(self) -> dict[str, list[str]]:
        grouped: dict[str, list[str]] = {}
        for operator in self.kernels:
            base, _, overload = operator.partition(".")
            if "out" not in overload:
                grouped.setdefault(base, []).append(operator)
        return grouped


@dataclass(frozen=True)
class Treatment:
    """The treatment, and a description of the mechanism."""

    kind: str
    how: str = ""
    same_signature: bool | None = None


def treat(found: Found, tables: Tables, measured: Measured | None = None) -> Treatment:
    """The treatment of a public name.

    A fallback is known from a measurement on MPS. Without one, it is assumed if torch's table lists no MPS kernel.
    """
    patched = tables.patched.get(id(found.value))
    same = patched.same_signature if patched else None
    for name in (found.name, *found.aliases, *([found.owner] if found.kind in (METHOD, PROPERTY) else [])):
        if name in tables.answers:
            kind, words = tables.answers[name]
            return Treatment(kind, words, same)
    if patched:
        return Treatment(TRANSLATED, f"{patched.path} by {patched.how}", same)
    lacking = _elsewhere(found, tables, measured)
    if lacking:
        ruled = [each for each in lacking if f"aten::{each}" in tables.rules]
        return Treatment(FALLBACK, f"on mps {', '.join(sorted(lacking)[:3])} by {'MLX or ' if ruled else ''}the CPU")
    return Treatment(PASSTHROUGH)


def native(found: Found, tables: Tables, measured: Measured | None = None) -> tuple[str, ...]:
    """The devices that have kernels for every form of it; empty if it is not an operator.

    CPU: a call with plain torch succeeded. MPS: a call on MPS ran none of its operators on another device. CUDA, and
    names that were not called: torch's own table lists a kernel for every form.
    """
    overloads = tables.overloads(found.name)
    listed = {
        device: bool(overloads) and all(device in tables.kernels[each] for each in overloads) for device in DEVICES
    }
    if overloads and measured is not None and measured.plain:
        listed["cpu"] = True
        listed["mps"] = measured.outcomes.get("mps") == PASSED and not measured.elsewhere
    return tuple(device for device in DEVICES if listed[device])


def _elsewhere(found: Found, tables: Tables, measured: Measured | None) -> list[str]:
    if measured is not None and measured.outcomes.get("mps") == PASSED:
        return [each.removeprefix("aten::") for each in measured.elsewhere]
    kernels = tables.kernels
    return [each for each in tables.overloads(found.name) if "mps" not in kernels[each] and "cpu" in kernels[each]]
