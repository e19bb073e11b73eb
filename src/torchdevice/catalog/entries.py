"""One row per public name, from the installed torch, the tables and the measurements."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torchdevice.catalog import signatures, treatment
from torchdevice.catalog.measured import HOSTS, Measured
from torchdevice.catalog.status import status_of
from torchdevice.catalog.store import Equivalent, Results
from torchdevice.catalog.surface import ROOTS, Found, Surface
from torchdevice.catalog.treatment import Tables

# Longest first: the page that lists a name.
_INNER = ("Tensor", "nn.functional", "nn.init", "nn.utils", "nn.parallel")
NAMESPACES = [f"torch.{name}" for name in (*_INNER, *ROOTS)]
_STORAGES = ("torch.UntypedStorage", "torch.TypedStorage")


@dataclass(frozen=True)
class Entry:
    """A public name of torch."""

    name: str
    kind: str
    namespace: str
    signature: str
    summary: str
    aliases: tuple[str, ...]
    device_parameters: tuple[str, ...]
    role: str
    treatment: str
    how: str
    same_signature: bool | None
    native: tuple[str, ...]
    mlx: str
    mlx_confidence: str
    verified_by: str
    plain: bool
    outcomes: dict[str, str]
    why: dict[str, str]
    status: str
    reason: str
    note: str

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def build(surface: Surface, tables: Tables, results: Results, notes: dict[str, str]) -> list[Entry]:
    """All rows, by name."""
    return [_entry(found, tables, results, notes) for found in surface.found.values()]


def namespace_of(name: str) -> str:
    """The page that lists a name."""
    if name.startswith(_STORAGES):
        return "torch.storage"
    return next((space for space in NAMESPACES if name == space or name.startswith(f"{space}.")), "torch")


def equivalent_of(name: str, verified: dict[str, Equivalent]) -> Equivalent:
    """The equivalent in MLX. A tensor method has that of the function with its name."""
    function = name.replace("torch.Tensor.", "torch.", 1)
    return verified.get(name) or verified.get(function) or Equivalent()


def _entry(found: Found, tables: Tables, results: Results, notes: dict[str, str]) -> Entry:
    devices = signatures.device_parameters(found)
    measured = results.measured.get(found.name)
    treated = treatment.treat(found, tables, measured)
    patched = tables.patched.get(id(found.value))
    adapter = patched.how if patched else ""
    shown = measured or Measured()
    mlx = equivalent_of(found.name, results.mlx)
    return Entry(
        name=found.name,
        kind=found.kind,
        namespace=namespace_of(found.name),
        signature=signatures.signature_text(found),
        summary=signatures.summary(found),
        aliases=tuple(found.aliases),
        device_parameters=devices,
        role=signatures.role(found, devices, adapter in tables.making, adapter in tables.moving),
        treatment=treated.kind,
        how=treated.how,
        same_signature=treated.same_signature,
        native=treatment.native(found, tables, measured),
        mlx=mlx.expression,
        mlx_confidence=mlx.confidence,
        verified_by=shown.by if any(shown.outcomes.get(host) == "passed" for host in HOSTS) else "none",
        plain=shown.plain,
        outcomes=shown.outcomes,
        why=shown.why,
        status=status_of(measured, treated.kind),
        reason=shown.reason,
        note=notes.get(found.name, ""),
    )
