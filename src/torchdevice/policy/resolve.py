"""The policy table as one pure function: (request, caller, host, policy, conditions) → Decision.

This module also parses requests and holds the CPU override, because `cpu:-1` is both. The override has two parts: a
process-wide switch that `cpu:-1` flips, and a scope that can be nested. Caching and recording are in
`translate.translator`. `translate.callers` recognizes callers.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from numbers import Integral

from torchdevice._torch.core import RealDevice
from torchdevice.ledger import renew_after_fork
from torchdevice.policy.hosts import Host, is_accelerator

_forced: ContextVar[bool] = ContextVar("torchdevice_cpu_override", default=False)


class CpuOverride:
    """On while either the process-wide switch is on or the current context is inside `scope()`."""

    def __init__(self) -> None:
        self._flipped = False
        self._lock = threading.Lock()
        renew_after_fork(self, "_lock")

    def is_on(self) -> bool:
        """Whether plain `cpu` requests currently yield the CPU in this context."""
        return self._flipped or _forced.get()

    def flip(self) -> None:
        """Flips the process-wide switch. Each `cpu:-1` request calls this."""
        with self._lock:
            self._flipped = not self._flipped

    def reset(self) -> None:
        """Turns the process-wide switch off, which is its initial state."""
        with self._lock:
            self._flipped = False

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Turns the override on for the block, per thread and per task. `cpu:-1` does not affect it."""
        token = _forced.set(True)
        try:
            yield
        finally:
            _forced.reset(token)


_OVERRIDE = re.compile(r"cpu:-1\Z")


class Caller(Enum):
    """The code that makes a request. Requests for an accelerator that the host lacks are redirected for all callers."""

    USER = "user code"
    AGENT = "torch on the user's behalf"  # no device: as if the user had given none; an explicit "cpu" stays the CPU
    TORCH = "torch itself"  # no device and an explicit "cpu" both stay the CPU
    NAMING = "torch itself, to compare"  # names a device (`device == torch.device("mps:0")`) and allocates nothing


@dataclass(frozen=True, slots=True)
class Request:
    """A device request after parsing. `type` None: no device was given."""

    type: str | None
    index: int | None = None
    override: bool = False

    def __str__(self) -> str:
        if self.override:
            return "cpu:-1"
        if self.type is None:
            return "none given"
        return self.type if self.index is None else f"{self.type}:{self.index}"


class Condition(Enum):
    """State that can change a decision while the host and the policy stay the same."""

    OVERRIDE = "the CPU override is on"
    DEFAULT = "a default device is set"  # setting it was a request, which was translated


@dataclass(frozen=True, slots=True)
class Decision:
    """The result for a device request.

    - `device`: the device that is used.
    - `redirected`: False if torch would have used the same device without TorchDevice.
    - `reason`: the reason, as text.
    - `unless`: the condition under which the request would not be redirected, or None.
    """

    device: RealDevice
    redirected: bool
    reason: str
    unless: Condition | None = None


NOTHING = Request(None)
OVERRIDE = Request("cpu", None, override=True)


def parse(asked: object) -> Request:
    """Parse a request as torch does: None, a string, a `torch.device`, an index. torch's own errors propagate."""
    if asked is None:
        return NOTHING
    if isinstance(asked, str) and _OVERRIDE.match(asked):
        return OVERRIDE
    if isinstance(asked, Integral) and not isinstance(asked, bool):
        # A bare index means "the accelerator with this index". torch cannot make that device on a host without an
        # accelerator, so it is read as cuda, the type that such code was written for. torch checks the sign and
        # raises its own error.
        return _as_torch_reads(RealDevice("cuda", int(asked)))
    return _as_torch_reads(asked)


def _as_torch_reads(asked: object) -> Request:
    device = asked if isinstance(asked, RealDevice) else RealDevice(asked)
    if device.index is not None and device.index < 0:  # torch stores the index in a signed byte: 128 becomes -128
        raise RuntimeError(f"Device index must not be negative, got {asked!r}, which torch reads as {device.index}")
    return Request(device.type, device.index)


def resolve(
    request: Request,
    host: Host,
    policy: str = "accelerate",
    override: bool = False,
    caller: Caller = Caller.USER,
    default: bool = False,
) -> Decision:
    """Decide by the table in docs/policy.md. `override` and `default` say whether the two conditions hold."""
    decision = _by_table(request, host, policy, caller)
    holds = override if decision.unless is Condition.OVERRIDE else default
    if decision.unless is None or not holds:
        return decision
    kept = RealDevice("cpu") if request.type is None else _spelled(request)
    return Decision(kept, False, decision.unless.value)


def _by_table(request: Request, host: Host, policy: str, caller: Caller) -> Decision:
    if request.override:
        return Decision(RealDevice("cpu"), False, "cpu:-1 requests the real CPU")
    if request.type is None:
        return _nothing_given(host, policy, caller)
    if request.type == "cpu":
        return _cpu(request, host, policy, caller)
    if caller is Caller.NAMING:
        return Decision(
            _as_reported(request, host),
            False,
            "torch only names a device; each request for a tensor on it is decided later",
        )
    if not is_accelerator(request.type):
        return Decision(_spelled(request), False, f"{request.type} is not an accelerator and is never redirected")
    if request.type == host.type:
        return _native(request, host)
    if request.type == host.named:
        return Decision(_spelled(request), False, f"this host has {host.named}, and a worker may send its tensors")
    if host.lost:
        reason = f"a forked process cannot use {host.lost} after its parent has used it, so it uses the CPU"
    else:
        kind = "the accelerator is" if host.accelerated else "there is only the"
        reason = f"no {request.type} here: {kind} {_named(host)}"
    return Decision(_on_host(request, host), True, reason)


def _nothing_given(host: Host, policy: str, caller: Caller) -> Decision:
    if not host.accelerated:
        return Decision(RealDevice("cpu"), False, "no device given, and there is only the CPU")
    if policy == "portable":
        return Decision(RealDevice("cpu"), False, "no device given: left to torch by policy=portable")
    if caller in (Caller.TORCH, Caller.NAMING):
        return Decision(RealDevice("cpu"), False, "torch itself gave no device, which means the CPU")
    reason = f"no device given: policy=accelerate uses {_named(host)}"
    return Decision(_on_host(NOTHING, host), True, reason, Condition.DEFAULT)


def _cpu(request: Request, host: Host, policy: str, caller: Caller) -> Decision:
    kept = _spelled(request)
    if not host.accelerated:
        return Decision(kept, False, "there is only the CPU")
    if policy == "portable":
        return Decision(kept, False, "cpu is not redirected by policy=portable")
    if caller is not Caller.USER:
        return Decision(kept, False, f"{caller.value} requests the CPU, and such requests are not redirected")
    reason = f"cpu becomes {_named(host)} by policy=accelerate"
    return Decision(_on_host(NOTHING, host), True, reason, Condition.OVERRIDE)


def _native(request: Request, host: Host) -> Decision:
    if request.index is None or request.index < host.count:
        return Decision(_as_reported(request, host), False, f"this host has {host.type}")
    return Decision(
        RealDevice(host.type, host.current),
        True,
        f"no {request} here: {host.type} has {host.count} device{'s' if host.count > 1 else ''}",
    )


def _on_host(request: Request, host: Host) -> RealDevice:
    """The host's device for a request of another type: the same index if it exists, else the current device.

    The CPU never gets an index. torch reports CPU tensors as `cpu`, and treats `cpu:0` as a different device in
    compilation, loading and comparisons.
    """
    if not host.accelerated:
        return RealDevice("cpu")
    index = request.index if request.index is not None and request.index < host.count else host.current
    return RealDevice(host.type, index)


def _as_reported(request: Request, host: Host) -> RealDevice:
    """A device of the host as its tensors report it: a machine has one MPS device, so no index means index 0 there."""
    return RealDevice("mps", 0) if request == Request("mps") and host.type == "mps" else _spelled(request)


def _spelled(request: Request) -> RealDevice:
    return RealDevice(request.type) if request.index is None else RealDevice(request.type, request.index)


def _named(host: Host) -> str:
    return "CPU" if host.type == "cpu" else host.type
