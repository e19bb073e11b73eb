"""Checks a list of OpInfo operators on a virtual device against the CPU, one JSON line an operator on stdout.

Runs in a process of its own (see run.py). An operator passes when every sample that the CPU accepts gives the same
values, gradients and devices. `started` lines let the parent name the operator that killed this process.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

import torchdevice.virtual
from torchdevice.verify import samples
from torchdevice.verify.samples import UNINITIALISED, copied, differs, has_gradient, names_a_device, outcome

SAMPLES = 40
# The real backend's own words for a dtype or an operator that it lacks: the intended result.
REFUSALS = (
    "RuntimeError: Adaptive pool MPS: ",
    "TypeError: Cannot convert a MPS Tensor to float64",
    "TypeError: Trying to convert ComplexDouble to the MPS",
    'NotImplementedError: "',
    "NotImplementedError: The operator '",
    "NotImplementedError: Could not run 'new_compressed_tensor' from the 'mps:0' device",
)


def names(dtype: torch.dtype) -> list[str]:
    return [op.formatted_name for op in op_db if dtype in op.supported_dtypes("cpu")]


def samples_of(op: Any, dtype: torch.dtype, wants_gradient: bool) -> Iterator[Any]:
    return samples.samples_of(op, dtype, wants_gradient, SAMPLES)


def is_refusal(text: str) -> bool:
    return text.startswith(REFUSALS) or text.endswith("on the MPS device.")


def check(op: Any, kind: str, dtype: torch.dtype) -> dict[str, Any]:
    """The first sample that goes wrong decides; a refused one is noted, and the others must still be right."""
    wants_gradient = has_gradient(op, dtype)
    ran, refused, refusal = 0, 0, ""
    for sample in samples_of(op, dtype, wants_gradient):
        try:
            expected = outcome(op, copied(op, sample, "cpu"), wants_gradient)
        except Exception:  # the CPU itself refuses this sample: nothing to compare with
            continue
        ran += 1
        try:
            arguments = copied(op, sample, kind)
            actual = outcome(op, arguments, wants_gradient)
        except Exception as error:
            text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            if not is_refusal(text):
                return {"status": "raised", "error": text}
            refused, refusal = refused + 1, refusal or text
            continue
        values = op.name not in UNINITIALISED
        for what, want, have in zip(("forward", "gradient"), expected, actual, strict=True):
            if text := differs(
                want, have, kind if names_a_device((sample.input, sample.args, sample.kwargs)) else "", values
            ):
                return {"status": "differs", "error": f"{what}: {text}"}
    if refused:
        return {"status": "refused", "error": f"{refused} of {ran} samples: {refusal}"}
    return {"status": "passed" if ran else "no sample", "samples": ran}


def main() -> None:
    kind, support, dtype_name = sys.argv[1:4]
    wanted = set(sys.stdin.read().split("\n"))
    dtype = getattr(torch, dtype_name)
    torchdevice.virtual.install(kind, support=support)  # type: ignore[arg-type]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for op in op_db:
        if op.formatted_name in wanted:
            print(json.dumps({"op": op.formatted_name, "status": "started"}), flush=True)
            print(json.dumps({"op": op.formatted_name, **check(op, kind, dtype)}), flush=True)


if __name__ == "__main__":
    main()
