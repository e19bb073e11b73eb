"""The accelerators of a machine: this one, or a hypothetical one for `explain`. `resolve` decides requests."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchdevice._torch.core import RealDevice, cuda_devices_by_nvml, lost_by_fork
from torchdevice.errors import ConfigError, TargetUnavailable, explain_error

# Types that torch can parse but that are not accelerators. They are never redirected, on any host. Every other type
# that torch can parse counts as an accelerator, so a type added by a later torch is redirected without a change here.
NOT_ACCELERATORS = frozenset({"cpu", "meta", "mkldnn", "opengl", "opencl", "ideep", "vulkan", "lazy"})


@dataclass(frozen=True)
class Host:
    """A machine as the policy sees it.

    - `type`: the device type that computes.
    - `count`: the number of its devices.
    - `current`: the index of the current device.
    - `lost`: the type of an accelerator that this process cannot use, because its parent used it before the fork.
    - `named`: the type of an accelerator that is used only if a request names it, in a worker of a DataLoader.
    """

    type: str
    count: int = 1
    current: int = 0
    lost: str = ""
    named: str = ""

    @property
    def accelerated(self) -> bool:
        """True if the host has an accelerator."""
        return self.type != "cpu"


def is_accelerator(device_type: str) -> bool:
    """Whether a request for this type is a request for an accelerator."""
    return device_type not in NOT_ACCELERATORS


def invent_host(description: str | Host) -> Host:
    """Makes a host from its description: `"mps"`, `"cuda"`, `"cuda:4"` (four devices), `"xpu"`, `"cpu"`."""
    if isinstance(description, Host):
        return description
    kind, _, count = str(description).strip().lower().partition(":")
    try:
        RealDevice(kind)
    except RuntimeError as error:
        raise ConfigError(
            explain_error(
                f"host={description!r} was requested",
                f"torch has no device type {kind!r}",
                "try mps, cuda:4, xpu or cpu",
            )
        ) from error
    if count and not (count.isdecimal() and int(count) > 0):
        raise ConfigError(
            explain_error(
                f"host={description!r} was requested", f"{count!r} is not a number of devices", "write cuda:4 for four"
            )
        )
    return Host(kind, int(count or 1))


def this_host() -> Host:
    """The accelerator that torch reports, else the CPU."""
    built_for = torch.accelerator.current_accelerator(check_available=False)
    if built_for is None:
        return Host("cpu")
    kind = built_for.type
    count = cuda_devices_by_nvml() if kind == "cuda" else None
    if count != 0 and lost_by_fork(kind):  # any other call to the device would raise an error or abort the process
        return Host("cpu", lost=kind)
    if count is None:
        module = torch.get_device_module(kind)
        count = int(module.device_count()) if module.is_available() else 0
    return Host(kind, count, _current_index(kind)) if count else Host("cpu")


def is_untouched(host: Host) -> bool:
    """Whether no code has used the host's GPUs yet, so that the set of visible GPUs can still change."""
    return host.type == "cuda" and not torch.cuda.is_initialized()


def _current_index(kind: str) -> int:
    """The current device index, read only if the device is initialized; before that it is 0.

    Reading it initializes the device, and then forked children could not use it.
    """
    is_initialized = getattr(torch.get_device_module(kind), "is_initialized", None)
    return torch.accelerator.current_device_index() if is_initialized is None or is_initialized() else 0


def target_host(target: str, source: str) -> Host:
    """The host for a configured target: this machine with its accelerator, or only its CPU."""
    host = this_host()
    if target in ("auto", host.type) or (host.lost and target == host.lost):
        return host
    if target == "cpu":
        return Host("cpu")
    allowed = ", ".join(dict.fromkeys(("auto", host.type, "cpu")))
    asked = f"target={target!r} ({source}) was requested"
    try:
        kind = RealDevice(target)
    except RuntimeError as error:
        raise ConfigError(explain_error(asked, "torch has no such device type", f"use one of {allowed}")) from error
    if kind.index is not None or not is_accelerator(kind.type):
        raise ConfigError(explain_error(asked, "a target is a device type without an index", f"use one of {allowed}"))
    raise TargetUnavailable(
        explain_error(
            asked,
            f"torch {torch.__version__} sees no {kind.type} device on this machine",
            f"use one of {allowed}, or a virtual device: torchdevice.virtual.install({kind.type!r})",
        )
    )
