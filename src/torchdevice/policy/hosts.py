"""What a machine offers: the real one, or one invented for `explain`. How requests are decided lives in `resolve`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchdevice._torch.core import RealDevice, cuda_devices_by_nvml, lost_by_fork
from torchdevice.errors import ConfigError, TargetUnavailable, explain_error

# Types that torch can parse and that are no accelerators: they are never redirected, on any host. Everything
# else that torch can parse is one, so a type that a later torch adds is redirected without a change here.
NOT_ACCELERATORS = frozenset({"cpu", "meta", "mkldnn", "opengl", "opencl", "ideep", "vulkan", "lazy"})


@dataclass(frozen=True)
class Host:
    """A machine as the policy sees it.

    - `type`: the device type to compute on; `count`: how many there are; `current`: the number of the current one.
    - `lost`: the type of an accelerator that this process cannot use, because it was forked from one that does.
    """

    type: str
    count: int = 1
    current: int = 0
    lost: str = ""

    @property
    def accelerated(self) -> bool:
        """True if there is an accelerator."""
        return self.type != "cpu"


def is_accelerator(device_type: str) -> bool:
    """Whether requests for this type are requests for an accelerator."""
    return device_type not in NOT_ACCELERATORS


def invent_host(description: str | Host) -> Host:
    """`"mps"`, `"cuda"`, `"cuda:4"` (four devices), `"xpu"`, `"cpu"`: a host that need not exist."""
    if isinstance(description, Host):
        return description
    kind, _, count = str(description).strip().lower().partition(":")
    try:
        RealDevice(kind)
    except RuntimeError as error:
        raise ConfigError(
            explain_error(
                f"host={description!r} was asked for",
                f"torch has no device type {kind!r}",
                "try mps, cuda:4, xpu or cpu",
            )
        ) from error
    if count and not (count.isdecimal() and int(count) > 0):
        raise ConfigError(
            explain_error(
                f"host={description!r} was asked for", f"{count!r} is no number of devices", "write cuda:4 for four"
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
    if count != 0 and lost_by_fork(kind):  # any other question would raise, or end the process
        return Host("cpu", lost=kind)
    if count is None:
        module = torch.get_device_module(kind)
        count = int(module.device_count()) if module.is_available() else 0
    return Host(kind, count, _current_index(kind)) if count else Host("cpu")


def is_untouched(host: Host) -> bool:
    """Whether nothing has used the host's GPUs yet: which of them there are may still change."""
    return host.type == "cuda" and not torch.cuda.is_initialized()


def _current_index(kind: str) -> int:
    """Asking torch initialises the device, which forked children then cannot use; before that it is the first one."""
    is_initialized = getattr(torch.get_device_module(kind), "is_initialized", None)
    return torch.accelerator.current_device_index() if is_initialized is None or is_initialized() else 0


def target_host(target: str, source: str) -> Host:
    """The host that a configured target stands for: this machine's accelerator, or its CPU."""
    host = this_host()
    if target in ("auto", host.type) or (host.lost and target == host.lost):
        return host
    if target == "cpu":
        return Host("cpu")
    allowed = ", ".join(dict.fromkeys(("auto", host.type, "cpu")))
    asked = f"target={target!r} ({source}) was asked for"
    try:
        kind = RealDevice(target)
    except RuntimeError as error:
        raise ConfigError(explain_error(asked, "torch has no such device type", f"use one of {allowed}")) from error
    if kind.index is not None or not is_accelerator(kind.type):
        raise ConfigError(explain_error(asked, "a target is a device type", f"use one of {allowed}"))
    raise TargetUnavailable(
        explain_error(
            asked,
            f"torch {torch.__version__} sees no {kind.type} device on this machine",
            f"use one of {allowed}, or a virtual device: torchdevice.virtual.install({kind.type!r})",
        )
    )
