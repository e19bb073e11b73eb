"""Every OpInfo sample on virtual mps with the real backend's gaps, fallbacks on, against the CPU: figures.

python -m tools.conformance.sweep float32                 all operators; the failures, and a line of figures
python -m tools.conformance.sweep float32 linalg.eigh …   these
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from typing import Any

import torch
from torch.utils import _pytree as pytree

import torchdevice
import torchdevice.virtual
from torchdevice import fallback
from torchdevice.policy.dtypes import dtype_on

os.environ["TORCHDEVICE_MASQUERADE"] = "0"  # op_db asks torch.cuda for a compiler while it is made
torchdevice.virtual.install("mps", support="real")
torchdevice.activate(policy="portable")  # before op_db is made, which holds on to the functions that it finds

from tools.conformance.worker import op_db, samples_of  # noqa: E402
from torchdevice.verify.samples import (  # noqa: E402
    UNINITIALISED,
    copied,
    differs,
    names_a_device,
    outcome,
)


def as_there(tensor: torch.Tensor) -> torch.Tensor:
    """What the CPU gave in the dtype that it has there: float64 is narrowed, by decision and with a warning."""
    return tensor.detach().to(dtype_on("mps", tensor.dtype))


def check_sample(op: Any, sample: Any, kind: str, wants_gradient: bool) -> str | None:
    """Empty: passed. None: the CPU refuses the sample too. Otherwise what went wrong."""
    try:
        expected = outcome(op, copied(op, sample, "cpu"), wants_gradient)
    except Exception:  # nothing to compare with
        return None
    try:
        actual = outcome(op, copied(op, sample, kind), wants_gradient)
    except Exception as error:
        return f"raised {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    expected = pytree.tree_map_only(torch.Tensor, as_there, expected)
    where = kind if names_a_device((sample.input, sample.args, sample.kwargs)) else ""
    for what, want, have in zip(("forward", "gradient"), expected, actual, strict=True):
        if [w is None for w in want] != [h is None for h in have]:
            return f"{what} differs: something is None on one side only"
        if text := differs(want, have, where, op.name not in UNINITIALISED):
            return f"{what} differs: {text}"
    return ""


def check(op: Any, kind: str, dtype: torch.dtype) -> tuple[int, int, list[str]]:
    """How many samples ran, how many passed, and what went wrong in the others."""
    wants_gradient = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    ran, failures = 0, []
    for sample in samples_of(op, dtype, wants_gradient):
        text = check_sample(op, sample, kind, wants_gradient)
        ran += text is not None
        if text:
            failures.append(text)
    return ran, ran - len(failures), failures


def main() -> None:
    dtype = getattr(torch, sys.argv[1])
    wanted = set(sys.argv[2:])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    samples = passed = operators = whole = 0
    started = time.time()
    for op in op_db:
        if dtype not in op.supported_dtypes("cpu") or (wanted and op.name not in wanted):
            continue
        ran, good, failures = check(op, "mps", dtype)
        samples, passed = samples + ran, passed + good
        operators, whole = operators + (ran > 0), whole + (ran > 0 and good == ran)
        if failures:
            print(json.dumps({"op": op.formatted_name, "failed": len(failures), "of": ran, "first": failures[0]}))
            sys.stdout.flush()
    fell_back = {record.operator for record in fallback.totals()}
    print(
        f"{dtype}: {passed}/{samples} samples ({100 * passed / max(samples, 1):.3f}%), {whole}/{operators} operators, "
        f"{len(fell_back)} aten operators fell back, {time.time() - started:.0f} s"
    )


if __name__ == "__main__":
    main()
