"""Virtual devices: an `mps`, `cuda` or `xpu` that exists on any machine. Only the public functions live here.

    import torch, torchdevice.virtual
    torchdevice.virtual.install("mps")          # early, in a fresh process
    x = torch.ones(2, device="mps") + 1         # x.device.type == "mps", computed by the CPU

Importing this package loads nothing heavy and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torchdevice.virtual.installer import Installation, Support

__all__ = [
    *("counts", "denied", "from_environment", "info", "install", "installed", "on_host", "reset_counts"),
    "set_memory_limit",
]


def install(device: str, count: int = 1, support: Support = "all", on: str = "cpu") -> Installation:
    """Install virtual devices in this process. Call it once, early, in a fresh process: it cannot be undone.

    - `device`: `"mps"`, `"cuda"` or `"xpu"`.
    - `count`: how many.
    - `support`: `"real"` allows only the operators and dtypes that the real backend has; `"all"` allows everything.
    - `on`: the device that computes: `"cpu"`, an accelerator of this machine, or `"auto"` for the best one available.

    Raises `VirtualDeviceUnavailable` if the library cannot be built or installed.
    """
    from torchdevice.virtual import installer

    return installer.install(device, count, support, on)


def installed() -> Installation | None:
    """Return the virtual device of this process, or None."""
    import sys

    installer = sys.modules.get("torchdevice.virtual.installer")
    return installer.installed() if installer is not None else None


def from_environment(value: str) -> Installation | None:
    """Install the virtual device that `value` describes, in the syntax of the variable TORCHDEVICE_VIRTUAL.

    Examples are `mps`, `cuda:2`, `mps:real`, `cuda:2:real`, `mps@cuda` and `cuda@auto`. Returns None if nothing was
    installed. This happens with `@auto` on a machine that has the real device.
    """
    from torchdevice.errors import ConfigError, explain_error
    from torchdevice.virtual import installer

    wanted, _, on = value.strip().lower().partition("@")
    device, *rest = wanted.split(":")
    count, support = 1, "all"
    for part in rest:
        if part.isdigit():
            count = int(part)
        elif part in ("all", "real"):
            support = part
        else:
            raise ConfigError(
                explain_error(
                    f"TORCHDEVICE_VIRTUAL={value!r}",
                    f"{part!r} is neither a count nor `real`",
                    "write a device type, then optionally a count and `real`, then optionally @ and the device that "
                    "computes. Examples: mps, cuda:2, mps:real, cuda:2:real, cuda@auto, mps@cuda.",
                )
            )
    if on == "auto" and installer.is_real(device):
        return None
    return installer.install(device, count, support, on or "cpu")  # type: ignore[arg-type]


def _present() -> Installation:
    from torchdevice.errors import VirtualDeviceUnavailable, explain_error

    there = installed()
    if there is None:
        raise VirtualDeviceUnavailable(
            explain_error(
                "The counts of a virtual device were requested",
                "this process has no virtual device",
                "call install() first.",
            )
        )
    return there


def _summed(column: Literal["calls", "denied", "on_host"]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for row in _present().library.counts():  # an operator has one row per layout that it ran on
        total[row.operator] += getattr(row, column)
    return {name: number for name, number in total.most_common() if number}


def counts() -> dict[str, int]:
    """Return how often each operator ran on the virtual device since the last reset, most frequent first."""
    return _summed("calls")


def denied() -> dict[str, int]:
    """Return how often each operator was refused because the real backend does not support it for these arguments."""
    return _summed("denied")


def on_host() -> dict[str, int]:
    """Return how often each operator ran on the CPU because the device chosen with `install(on=)` lacks it."""
    return _summed("on_host")


def reset_counts() -> None:
    """Reset the counts that `counts`, `denied` and `on_host` return."""
    _present().library.call("reset_counts")


def set_memory_limit(size: int | str) -> None:
    """Limit the memory of each virtual device to `size` bytes, or to a size such as `"2GiB"`. 0 removes the limit."""
    from torchdevice.virtual.installer import parse_size

    there = _present()
    limit = parse_size(size) if isinstance(size, str) else size
    for device in range(there.count):
        there.library.call("set_limit", device, limit)


def info() -> dict[str, Any]:
    """Return the path and the compiler of the library, whether it is built, and what this process has installed."""
    import shlex

    from torchdevice.virtual import build

    there = installed()
    wanted = build.target()
    path = build.library_path(wanted)
    return {
        "cache": str(path.parent),
        "library": str(path),
        "built": path.exists(),
        "compiler": shlex.join(build.find_compiler()) or None,
        "compiler_version": wanted.compiler,
        "torch": wanted.torch_version,
        "cached": [str(p) for p in build.cached()],
        "installed": f"{there.device}:{there.count}:{there.support}@{there.on}" if there else None,
    }
