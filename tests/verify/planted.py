"""The worker of `torchdevice verify` on a virtual device, with errors that were put in on purpose."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

# Entries of torch's database: two of which the tables are made wrong, one with a wrong kernel, one that is right.
OPERATORS = ("atan", "mode", "sinh", "erf")
ATAN, MODE, SINH = "aten::atan", "aten::mode", "aten::sinh"
kept: list[Any] = []  # libraries, which end with the last reference


def few_operators() -> None:
    """Seconds instead of minutes."""
    from torchdevice.verify import operators

    everything = operators.operator_database

    def some() -> list[Any]:
        return [op for op in everything() if op.name in OPERATORS]

    operators.operator_database = some


def wrong_tables() -> None:
    """The tables say that the device lacks `atan`, which it has, and has `mode`, which it lacks."""
    from torchdevice.virtual import supported

    true_list = supported.listed

    def listed(key: str) -> frozenset[str]:
        return frozenset(name for name in true_list(key) if name.partition(".")[0] != "atan") | {"mode"}

    supported.listed = listed  # type: ignore[assignment]


def wrong_value() -> None:
    """`sinh` of the device gives its argument."""
    import torch

    library = torch.library.Library("aten", "IMPL")
    library.impl("sinh", lambda x: x.clone(), "MPS")
    kept.append(library)


def wrong_fallback() -> None:
    """`mode` comes back from its fallback with other values."""
    import torch

    def mode(x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        values, indices = torch.mode(x.cpu(), dim, keepdim)
        return (values + 1).to(x.device), indices.to(x.device)

    library = torch.library.Library("aten", "IMPL")
    library.impl("mode", mode, "MPS")
    kept.append(library)


def wrong_answers() -> None:
    """The device says that nothing is allocated, and its events run backwards."""
    import torch

    torch.mps.current_allocated_memory = lambda: 0
    torch.mps.Event.elapsed_time = lambda self, end: -1.0  # type: ignore[method-assign]


def wrong_coherence() -> None:
    """`torch.load` ignores where tensors shall go."""
    import torch

    load = torch.load
    torch.load = lambda file, map_location=None: load(file, map_location="cpu")


def known_bug() -> None:
    """`torch.argmax` gives zeros on the device."""
    import torch

    argmax = torch.argmax
    torch.argmax = lambda x, dim: argmax(x, dim) * (x.device.type == "cpu")


def wrong_loss() -> None:
    """A loss that is right on the CPU alone."""
    import torch

    true_loss = torch.nn.functional.cross_entropy

    def loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return true_loss(scores, labels) * (1.0 if scores.device.type == "cpu" else 1.5)

    torch.nn.functional.cross_entropy = loss


PLANTS: dict[str, tuple[Callable[[], None], ...]] = {
    "coherence": (wrong_coherence,),
    "answers": (wrong_answers,),
    "wrong values": (known_bug,),
    "steps": (wrong_loss,),
    "fallbacks": (few_operators, wrong_fallback),
    "refusals": (few_operators, wrong_tables),
    "operators": (few_operators, wrong_value),
}

if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # several of these processes share the cores
    from torchdevice.verify import worker

    worker.main(sys.argv[1:], lambda: [plant() for plant in PLANTS[sys.argv[1]]])
