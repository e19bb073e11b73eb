"""Where each aten operator runs on the target, as data and as text. Reads what is registered; changes nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from torchdevice import compat
from torchdevice.errors import ConfigError, explain_error
from torchdevice.fallback.capability import backend_key, gaps
from torchdevice.fallback.kernels import Coverage
from torchdevice.fallback.mlx import executor as mlx

NATIVE, GUARDED, MLX, CPU, NOWHERE = "native", "guarded", "mlx", "cpu", "nowhere"


@dataclass(frozen=True)
class Matrix:
    """Operator (`aten::mode`) → where it runs for dense tensors, for one target."""

    target: str
    rows: dict[str, str]

    def summary(self) -> dict[str, int]:
        """How many operators run where."""
        return dict(Counter(self.rows.values()).most_common())

    def to_json(self) -> dict[str, object]:
        """The same as plain data."""
        return {"target": self.target, "summary": self.summary(), "operators": self.rows}

    def __str__(self) -> str:
        figures = ", ".join(f"{count} {where}" for where, count in self.summary().items())
        lines = [f"{name}  {where}" for name, where in self.rows.items() if where != NATIVE]
        return "\n".join([f"{self.target}: {figures}", *lines])


def read_matrix(coverage: Coverage, target: str | None) -> Matrix:
    """The matrix of the active session's target, or of another accelerator type as the dispatcher shows it."""
    router = coverage.router
    if target is None and router is None:
        raise ConfigError(
            explain_error(
                "fallback.matrix() without a target",
                "no session with an accelerator is active",
                'activate one, or name a target: fallback.matrix("mps")',
            )
        )
    kind = target or (router.target if router is not None else "")
    key = backend_key(kind)
    if router is not None and router.target == kind:
        missing = {gap.name for gap in coverage.covered if gap.key == key}
        chain, guarded = router.chain, frozenset(coverage.guarded)
    else:
        missing = {gap.name for gap in gaps(kind) if gap.key == key}
        chain, guarded = ("cpu",), frozenset()
    ruled = frozenset(mlx.rules()) if "mlx" in chain else frozenset()
    rows = {}
    for name in sorted(compat.operator_names()):
        if not name.startswith("aten::"):
            continue
        if name in missing:
            rows[name] = MLX if name in ruled else CPU if chain else NOWHERE
        elif name in guarded:
            rows[name] = GUARDED
        elif compat.runs_on(name, key):
            rows[name] = NATIVE
        else:
            rows[name] = NOWHERE
    return Matrix(kind, rows)
