"""What TorchDevice predicts of an operator on a device: runs or refused. The tables of virtual devices decide."""

from __future__ import annotations

from dataclasses import dataclass

from torchdevice._torch import dispatcher
from torchdevice.virtual import supported
from torchdevice.virtual.installer import CROSS_DEVICE, DENIED_DTYPES

RUNS, REFUSED, DEPENDS = "runs", "refused", "depends on sizes"
# The tables name the kernel that torch's code calls for it.
_CALLS = {"convolution": "_convolution"}


@dataclass(frozen=True)
class Prediction:
    """`reason` names the table that it comes from."""

    what: str
    reason: str = ""


def known_for(kind: str) -> bool:
    """Whether torch's lists contain the kernels of this device type. Those of xpu are elsewhere."""
    return "add.out" in supported.listed(dispatcher.backend_key(kind))


def lacks_dtype(kind: str, dtype: str) -> bool:
    """Whether no tensor of the device can have this dtype."""
    return bool(dtype) and dtype in DENIED_DTYPES.get(kind, "").split(",")


def predict(kind: str, operator: str, dtype: str) -> Prediction:
    """For dense tensors, by the name of an operator (`aten::mode`) and a dtype: of its first tensor, or requested."""
    key = dispatcher.backend_key(kind)
    space, _, short = operator.partition("::")
    if lacks_dtype(kind, dtype):
        return Prediction(REFUSED, f"{kind} has no {dtype}")
    if space != "aten" or short in CROSS_DEVICE:
        return Prediction(RUNS)
    if short in supported.even_sizes_only(key):
        return Prediction(DEPENDS, "even_sizes_only")
    # Without a kernel for the CPU either, an operator is a composite, or one of another backend.
    kernels, ours = supported.listed(key), supported.whole("", key, real=True)
    lacking = supported.lacks_kernel(short, kernels, ours) and not supported.decomposes(short)
    if lacking and dispatcher.has_kernel(operator, "CPU"):
        return Prediction(REFUSED, "native_functions.yaml has no kernel")
    if dtype in supported.refusal_of(_CALLS.get(short, short), key, real=True).dtypes:
        return Prediction(REFUSED, f"{'common_mps.py' if key == 'MPS' else 'virtual/supported.py'} lists {dtype}")
    return Prediction(RUNS)
