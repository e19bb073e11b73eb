"""The running policy: from what a call asked for to what torch is given, with every redirection recorded.

One object a process, because wrappers that user code holds on to (`from torch import zeros`) must follow later
activations and go silent after deactivation. The table itself is `policy.resolve`; the wrappers are `adapters`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from types import FrameType
from typing import Any

import torch

from torchdevice.compat import RealDevice, has_device_context
from torchdevice.events import Ledger, Redirect, Site
from torchdevice.patching.callers import Roles, user_frame
from torchdevice.policy.hosts import Host
from torchdevice.policy.override import CpuOverride
from torchdevice.policy.resolve import NOTHING, Caller, Decision, Request, parse, resolve

_suspended: ContextVar[bool] = ContextVar("torchdevice_suspended", default=False)


class Translator:
    """Decides and records. `settled` holds the requests that need neither: wrappers test it first."""

    def __init__(self) -> None:
        self.settled: set[object] = set()
        self.ledger = Ledger()
        self.override = CpuOverride()
        self.host = Host("cpu")
        self.policy = "accelerate"
        self.active = False
        self.roles = Roles()
        self._decisions: dict[tuple[Request, Host, Caller, bool], Decision] = {}

    def start(self, host: Host, policy: str) -> None:
        """Take up a host and a policy. The ledger goes on: counts belong to the process until cleared."""
        self.host, self.policy, self.active = host, policy, True
        self._decisions.clear()
        self.settled.clear()
        self.settled.update(_settled_requests(host, self.fills))

    def stop(self) -> None:
        """Pass everything through, also for wrappers that are still held somewhere."""
        self.active = False
        self.settled.clear()
        self.override.reset()

    @property
    def fills(self) -> bool:
        """Whether requests for no device and for the CPU go to the accelerator."""
        return self.policy == "accelerate" and self.host.accelerated

    @property
    def in_force(self) -> bool:
        """Whether requests are translated in this context."""
        return self.active and not _suspended.get()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Real torch inside, for this thread and task only."""
        token = _suspended.set(True)
        try:
            yield
        finally:
            _suspended.reset(token)

    def translate(self, asked: object, api: str, depth: int = 1) -> Any:
        """What to give torch instead of `asked`, or `asked` itself. `depth` frames up is the code that called."""
        if not self.active or _suspended.get():
            return asked
        return self._decide(asked, api, sys._getframe(depth + 1))

    def translate_from(self, asked: object, api: str, frame: FrameType) -> Any:
        """The same for a decision that falls later than the call: `frame` is the code that called."""
        return self._decide(asked, api, frame) if self.in_force else asked

    def translate_traced(self, asked: object, api: str) -> Any:
        """The same for code under torch's compiler: what is traced counts as user code."""
        if not self.in_force:
            return asked
        return self._decide(asked, api, sys._getframe(1), Caller.USER)

    def redirected_type(self, asked_type: str, api: str, depth: int = 1) -> str:
        """For parameters that are a device type by name: the type that such requests go to."""
        device = self.translate(asked_type, api, depth + 1)
        return device.type if isinstance(device, RealDevice) else asked_type

    def caller(self, depth: int = 1) -> Caller:
        """Who calls, `depth` frames up."""
        return self.roles[sys._getframe(depth + 1).f_code.co_filename].caller

    def _decide(self, asked: object, api: str, frame: FrameType, caller: Caller | None = None) -> Any:
        try:
            request = NOTHING if asked is None else parse(asked)
        except (RuntimeError, TypeError):  # not a device: torch says so itself, in its own words
            return asked
        if caller is None:
            caller = self.roles[frame.f_code.co_filename].caller
        if request.override:
            if caller is Caller.USER:
                self.override.flip()
            return RealDevice("cpu")
        host = self.host
        if host.count > 1:
            host = replace(host, current=torch.accelerator.current_device_index())
        key = (request, host, caller, self.override.on)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decisions[key] = resolve(request, host, self.policy, key[3], caller)
        if not decision.redirected or (asked is None and has_device_context()):
            return asked
        self.record(api, request, decision, frame)
        return decision.device

    def record(self, api: str, asked: object, decision: Decision, frame: FrameType) -> None:
        """Count a redirection at the line of user code behind `frame`; its first time there, tell the listeners."""
        place = user_frame(frame, self.roles)
        code = place.f_code
        key = (id(code), place.f_lasti, api, asked)
        if self.ledger.count(key):
            return
        site = Site(code.co_filename, place.f_lineno)
        self.ledger.open(key, code, Redirect(api, str(asked), str(decision.device), decision.reason, site))


def _settled_requests(host: Host, fills: bool) -> Iterator[object]:
    """Requests that no caller and no override can turn into anything else on this host.

    dtypes are among them because `.to(dtype)` asks for one at the place where `.to(device)` asks for a device.
    """
    yield from (value for value in vars(torch).values() if isinstance(value, torch.dtype))
    yield from ("meta", RealDevice("meta"))
    types = [host.type] if fills else ["cpu", host.type]
    if not fills:
        yield None
    for kind in types:
        yield from (kind, RealDevice(kind))
        for index in range(host.count if kind == host.type else 1):
            yield from (f"{kind}:{index}", RealDevice(kind, index))


translator = Translator()
