"""A few operations right after loading: vtables that drifted between torch versions show here, not in a user's run."""

from __future__ import annotations

import torch

from torchdevice.errors import VirtualDeviceUnavailable, explain_error


def run(device: str, count: int) -> None:
    """Raises VirtualDeviceUnavailable when the device does not compute. Leaves no memory behind, starts no threads."""
    try:
        for index in range(count):
            place = f"{device}:{index}"
            x = torch.arange(6, dtype=torch.float32).to(place).view(2, 3)
            y = (x @ x.t() + 1).sum()
            passed = str(x.device) == place and y.item() == 87.0 and x.cpu().device.type == "cpu"
            if not passed:
                raise RuntimeError(f"wrong result on {place}: {y.item()} on {x.device}")
    except RuntimeError as error:
        raise VirtualDeviceUnavailable(
            explain_error(
                f"The virtual {device} device was loaded into torch {torch.__version__}",
                f"its self-test failed: {error}",
                "delete the cached library with `torchdevice virtual clean`; if that does not help, this torch version "
                "is not supported.",
            )
        ) from error
