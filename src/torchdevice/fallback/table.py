"""Where each aten operator runs on the target, as data and as text. Reads what is registered; changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial

from torchdevice._torch import dispatcher
from torchdevice.errors import ConfigError, explain_error
from torchdevice.fallback import kernels
from torchdevice.fallback.gaps import gaps
from torchdevice.fallback.kernels import Coverage
from torchdevice.fallback.mlx import executor as mlx

NATIVE, GUARDED, MLX, CPU, NOWHERE = "native", "guarded", "mlx", "cpu", "nowhere"
RUNNING, DISPATCHER, LISTED = (
    "the running session",
    "torch's dispatcher",
    "torch's list of kernels (native_functions.yaml)",
)


@dataclass(frozen=True)
class Matrix:
    """Where each operator runs for dense tensors, on one `target`.

    `rows` has the operators (`aten::mode`) with the place where each runs; `source` says how that is known.
    """

    target: str
    rows: dict[str, str]
    source: str = RUNNING

    def summary(self) -> dict[str, int]:
        """Count the operators by where they run."""
        return dict(Counter(self.rows.values()).most_common())

    def select(self, search: str = "", route: str | None = None) -> Matrix:
        """Return the operators whose name contains `search` and whose route is `route`, such as `"cpu"`."""
        rows = {name: where for name, where in self.rows.items() if search in name and route in (None, where)}
        return replace(self, rows=rows)

    def to_json(self) -> dict[str, object]:
        """Return the same as plain data."""
        return {"target": self.target, "source": self.source, "summary": self.summary(), "operators": self.rows}

    def __str__(self) -> str:
        figures = ", ".join(f"{count} {where}" for where, count in self.summary().items())
        lines = [f"{name}  {where}" for name, where in self.rows.items() if where != NATIVE]
        return "\n".join([f"{self.target}: {figures}", *lines])


def read_matrix(coverage: Coverage, target: str | None) -> Matrix:
    """The matrix of the active session's target, or of another device type that this torch knows."""
    router = coverage.router
    if target is None and router is None:
        raise ConfigError(
            explain_error(
                "fallback.matrix() without a target",
                "no session with an accelerator is active",
                'activate one, or name a target: fallback.matrix("mps")',
            )
        )
    if router is not None and target in (None, router.target):
        key = dispatcher.backend_key(router.target)
        missing = {gap.name for gap in coverage.covered if gap.key == key}
        has = partial(dispatcher.runs_on, key=key)
        return _matrix(router.target, RUNNING, missing, coverage.guarded, router.chain, has)
    assert target is not None
    return _expected(target)


def _expected(target: str) -> Matrix:
    """What a session on a machine with this device type would do."""
    key = dispatcher.backend_key(target)
    # A torch that was not built for a device type has none of its kernels, but contains the list for all builds.
    built = dispatcher.has_kernel("aten::empty.memory_format", key)
    listing = dispatcher.kernels_under if built else _listed
    there = frozenset(listing(key))
    if "aten::add.Tensor" not in there:
        raise ConfigError(
            explain_error(
                f"the operators of {target!r} were requested",
                "this torch was not built for it, and its list of kernels does not contain them",
                "use a machine that has the device, or request mps or cuda",
            )
        )
    missing = {gap.name for gap in gaps(target, registered=listing) if gap.key == key} if target != "cpu" else set()
    guarded = set(kernels.guarded_rows(target, in_cpp=False))
    chain = ("mlx", "cpu") if target == "mps" and mlx.installed() else ("cpu",)
    return _matrix(
        target,
        DISPATCHER if built else LISTED,
        missing,
        guarded - missing,
        chain,
        lambda name: name in there or dispatcher.runs_on(name, "CompositeImplicitAutograd"),
    )


def _listed(key: str) -> set[str]:
    from torchdevice.virtual import supported  # read only when a target is not in this build of torch

    return {f"aten::{name}" for name in supported.listed(key)}


def _matrix(
    target: str,
    source: str,
    missing: Collection[str],
    guarded: Collection[str],
    chain: tuple[str, ...],
    has: Callable[[str], bool],
) -> Matrix:
    ruled = frozenset(mlx.rules()) if "mlx" in chain else frozenset()
    rows = {}
    for name in sorted(dispatcher.operator_names()):
        if not name.startswith("aten::"):
            continue
        if name in missing:
            rows[name] = MLX if name in ruled else CPU if chain else NOWHERE
        elif name in guarded:
            rows[name] = GUARDED
        else:
            rows[name] = NATIVE if has(name) else NOWHERE
    return Matrix(target, rows, source)
