"""Refusals that the sources of torch's MPS kernels contain, compared with those of a virtual `mps:real`.

    python -m tools.mac_reports.checks       runs every call and keeps the outcomes for docs/mac.md

The virtual device reads torch's lists of tests that are expected to fail. The kernels' own checks are a second source:
`tests/mac_reports/kernel_checks.json` has a call per check, with the words of its message. The page lists where the two
sources disagree.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tools.mac_reports.table import DATA, Outcome

CHECKS = DATA / "kernel_checks.json"
KEPT = Path(__file__).parent / "checks.json"
SAME, OTHER, COMPUTES = "same words", "other words", "computes"
# The kernel of the virtual device that the operator of a check reaches, where the names differ.
KERNEL_OF = {
    "aten::adaptive_avg_pool2d": "aten::_adaptive_avg_pool2d",
    "aten::bernoulli_": "aten::bernoulli_.Tensor",
    "aten::conv_transpose3d": "aten::_convolution",
    "aten::linalg_lu_factor": "aten::linalg_lu_factor_ex",
    "aten::linalg_matrix_power": "aten::linalg_inv_ex",
    "aten::lstm": "aten::lstm.input",
}
RANDOM = frozenset({"aten::bernoulli_"})  # the device has its own generator, so the CPU draws other numbers
# Operators whose check is not in a kernel of their own: their refusal cannot be simulated.
NOT_SIMULATED = frozenset({"aten::scaled_dot_product_attention", "aten::_to_copy", "aten::mul"})


@dataclass(frozen=True)
class Check:
    """A check of a kernel. `call` is refused by a Mac and computed by the CPU; `message` is a pattern for the error."""

    operator: str
    condition: str
    call: str
    message: str
    file: str  # in aten/src/ATen/native/mps/operations of torch's sources
    commit: str


def checks() -> list[Check]:
    """In the order of the file."""
    return [Check(**row) for row in json.loads(CHECKS.read_text(encoding="utf-8"))]


def kept() -> list[Outcome]:
    """The outcomes of the last run, in the same order."""
    return [Outcome(**row) for row in json.loads(KEPT.read_text(encoding="utf-8"))]


def agreement(check: Check, outcome: Outcome) -> str:
    """What the virtual device does, compared with the check."""
    if not outcome.plain:
        return COMPUTES
    return SAME if re.search(check.message, outcome.plain) else OTHER


def example(pattern: str) -> str:
    """A message that the pattern of a check matches."""
    text = re.sub(r"\(([^()|]*)\|[^()]*\)", r"\1", pattern.replace(r"\(", "\0").replace(r"\)", "\1"))
    return text.replace(".*", "").replace("\\", "").replace("\0", "(").replace("\1", ")")


def is_simulated(check: Check, outcome: Outcome) -> bool:
    """Whether the outcome with TorchDevice is that of a refusal that we made the virtual device raise."""
    return not outcome.plain and check.operator not in NOT_SIMULATED


def _error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:  # whatever a kernel raises is the outcome
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


def measure() -> list[Outcome]:
    """In this process: every call without TorchDevice, then with it, where its values must be the CPU's."""
    import torch

    import torchdevice
    from torchdevice._torch import core

    torchdevice.virtual.install("mps", support="real")

    def evaluate(call: str, device: str) -> Any:
        torch.manual_seed(0)
        return eval(call, {"torch": torch, "F": torch.nn.functional, "d": device})

    def compare(row: Check) -> None:
        expected, found = (core.tensors_in(evaluate(row.call, device)) for device in ("cpu", "mps"))
        for one, other in zip(expected, found, strict=True):
            if row.operator in RANDOM:
                assert (one.shape, one.dtype) == (other.shape, other.dtype)
            else:
                torch.testing.assert_close(other.cpu(), one, check_dtype=False, equal_nan=True)

    rows = checks()
    plain = [_error_of(partial(evaluate, row.call, "mps")) for row in rows]
    with torchdevice.redirect(policy="portable"):
        ours = [_error_of(partial(compare, row)) for row in rows]
    outcomes = [Outcome(*both) for both in zip(plain, ours, strict=True)]
    for number, row in enumerate(rows):
        if is_simulated(row, outcomes[number]):
            with _refusing(KERNEL_OF.get(row.operator, row.operator), example(row.message)):
                assert _error_of(partial(evaluate, row.call, "mps")), f"{row.operator} does not reach the kernel"
                with torchdevice.redirect(policy="portable"):
                    outcomes[number] = Outcome("", _error_of(partial(compare, row)))
    return outcomes


@contextmanager
def _refusing(operator: str, message: str) -> Iterator[None]:
    """The virtual device's kernel of the operator raises the error of a Mac."""
    import torch

    from torchdevice._torch import dispatcher

    def refuse(*args: object, **kwargs: object) -> None:
        raise RuntimeError(message)

    library = torch.library.Library("aten", "IMPL")
    try:
        composite = dispatcher.has_kernel(operator, "CompositeImplicitAutograd")
        for key in ("MPS", "AutogradMPS") if composite else ("MPS",):
            library.impl(operator.removeprefix("aten::"), refuse, key)
        yield
    finally:
        library._destroy()


def section() -> Iterator[str]:
    """For the page: the sums, and every disagreement."""
    pairs = list(zip(checks(), kept(), strict=True))
    found = [agreement(*pair) for pair in pairs]
    refused = [outcome for (_, outcome), how in zip(pairs, found, strict=True) if how != COMPUTES]
    yield f"\n## Checks in the sources of MPS ({len(pairs)})\n"
    yield "A second source of what a Mac refuses: the checks in torch's MPS kernels, read from public sources. Each"
    yield "has a call. The sources may be newer or older than the installed torch.\n"
    same, other, computed = (found.count(how) for how in (SAME, OTHER, COMPUTES))
    yield f"- A virtual `mps:real` refuses {same} calls in the same words and {other} in other words."
    yield f"- It computes the other {computed}. There the two sources disagree."
    yield f"- Of the {len(refused)} refused calls, {sum(not each.ours for each in refused)} run with TorchDevice."
    simulated = [outcome for check, outcome in pairs if is_simulated(check, outcome)]
    run = sum(not each.ours for each in simulated)
    yield f"- For {len(simulated)} of the computed calls the refusal was simulated: the kernel raised the error of the"
    yield f"  source. {run} of them run with TorchDevice.\n"
    yield "| operator | refused by the kernel's source | virtual `mps:real` | with TorchDevice |"
    yield "| --- | --- | --- | --- |"
    for (check, outcome), how in zip(pairs, found, strict=True):
        tried = how != COMPUTES or is_simulated(check, outcome)
        after = "–" if not tried else f"fails: {outcome.ours[:80]}" if outcome.ours else "runs"
        if how != SAME or outcome.ours:
            yield f"| `{check.operator}` ({check.file}) | {check.condition} | {how} | {after.replace('|', '/')} |"


def main() -> int:
    """Keeps the outcomes, and prints the section of the page."""
    outcomes = measure()
    KEPT.write_text(json.dumps([asdict(each) for each in outcomes], indent=1) + "\n", encoding="utf-8")
    print("\n".join(section()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
