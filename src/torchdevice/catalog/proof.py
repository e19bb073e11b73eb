"""Whether a name with a device-like parameter is safe: it is translated or answered, or a call that gave "cuda" worked."""

from __future__ import annotations

from torchdevice.catalog.entries import Entry
from torchdevice.catalog.status import PASSED, Measured
from torchdevice.catalog.treatment import PASSTHROUGH

# Device-like parameters that ask for nothing, or for nothing that a translation could change, and why. A name that no row
# covers and no call proves fails tests/catalog/test_devices.py: that is how a new torch's additions are found.
NOT_NEEDED = {
    "torch.Tensor.is_pinned": "answers False for every device that is not here",
    "torch.UntypedStorage.is_pinned": "answers False for every device that is not here",
    "torch.TypedStorage.is_pinned": "answers False for every device that is not here",
}


def needs_proof(entry: Entry) -> bool:
    """Whether a call could ask this name for a device that is not here, with nothing of ours in between."""
    return bool(entry.device_parameters) and entry.treatment == PASSTHROUGH and entry.name not in NOT_NEEDED


def proven(entry: Entry) -> bool:
    """Whether a call that gave the device was made under TorchDevice on a machine without CUDA, and worked."""
    measured = Measured(entry.verified_by, entry.call)
    return measured.gives_the_device and entry.outcomes.get("cpu") == PASSED
