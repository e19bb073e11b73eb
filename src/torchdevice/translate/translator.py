"""Applies the policy to requests at run time, and records every redirection.

There is one object per process, because user code keeps references to wrappers (`from torch import zeros`). These must
follow later activations and do nothing after deactivation. `policy.resolve` holds the table, `adapters` the wrappers.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, Protocol

import torch

from torchdevice._torch.core import RealDevice, has_device_context, unseen_by_modes
from torchdevice.errors import TorchDeviceWarning
from torchdevice.ledger import Key, Ledger, Redirect, renew_after_fork
from torchdevice.policy.hosts import Host, is_accelerator
from torchdevice.policy.resolve import NOTHING, Caller, Condition, CpuOverride, Decision, Request, parse, resolve
from torchdevice.translate import subclasses
from torchdevice.translate.callers import NAMING, TRACED, Role, Roles, user_frame
from torchdevice.translate.sharing import Aliases

_getframe = sys._getframe
_suspended: ContextVar[bool] = ContextVar("torchdevice_suspended", default=False)


class Relief(Protocol):
    """Frees memory of the target. `on_cpu`: calls may use the CPU if that is not enough."""

    on_cpu: bool

    def applies(self, error: BaseException) -> bool: ...
    def free(self, api: str) -> None: ...
    def note_on_cpu(self, api: str) -> None: ...


@dataclass(frozen=True)
class Situation:
    """Everything that decisions depend on between `start` and `stop`.

    - `ordered`: the classes that replace torch.Stream and torch.Event on a target that has neither.
    - `failure_of`: converts an error of the target to CUDA's error.
    - `relief`: frees memory if the target is full; None if errors are raised at once.
    - `mps_workarounds`: copies to `mps` block, because asynchronous ones give wrong values.
    - `at_first_decision`: called before the first decision. It may start another situation.
    - `at_first_redirect`: called once with the first redirection, also if its place is known already.
    """

    host: Host
    policy: str = "accelerate"
    float64: str = "downcast"
    ordered: Mapping[str, Any] = field(default_factory=dict)
    failure_of: Callable[[BaseException], BaseException | None] | None = None
    relief: Relief | None = None
    mps_workarounds: bool = True
    at_first_decision: Callable[[], None] | None = None
    at_first_redirect: Callable[[Redirect], None] | None = None

    @property
    def fills(self) -> bool:
        """Whether user code that gives no device gets the host's accelerator."""
        return resolve(NOTHING, self.host, self.policy).redirected


class Route:
    """A decision in the form that the translator uses.

    `given` is None if the request is not redirected. While `unless()` is true, the request is not redirected either.
    """

    __slots__ = ("decision", "given", "request", "unless")

    def __init__(self, request: Request, decision: Decision, unless: Callable[[], bool] | None) -> None:
        self.request = request
        self.decision = decision
        self.given = decision.device if decision.redirected else None
        self.unless = unless


class Translator:
    """Decides requests and records redirections.

    `settled` maps requests that need neither to their device. Wrappers look there first. For each place in user code,
    the ledger stores a counter, the decided device, and the condition under which the request is not redirected.
    `used` has the types of redirected requests that allocate, `named` those of requests that only name a device.
    """

    def __init__(self) -> None:
        self.settled: dict[object, object] = {}
        self.ledger: Ledger[Redirect] = Ledger()
        self.override = CpuOverride()
        self.aliases = Aliases()
        self.host = Host("cpu")
        self.situation = Situation(self.host)
        self.blocks = False  # copies to the target always block
        self.active = False
        self.fills = False
        self.roles = Roles()
        self.used: set[str | None] = set()
        self.named: set[str | None] = set()
        self.suspensions = 0  # over all threads; while it is 0, no thread needs to check its own context
        self.settled_default: RealDevice | None = None  # the device for "none given", if it is the same for all callers
        self.default_type: RealDevice | None = None  # the device of the default tensor type, if torch does not know it
        self._at_first_decision: Callable[[], None] | None = None
        self._at_first_redirect: Callable[[Redirect], None] | None = None
        self._holds = {Condition.OVERRIDE: self.override.is_on, Condition.DEFAULT: has_device_context}
        self._lock = threading.Lock()
        renew_after_fork(self, "_lock")
        self._routes: list[dict[object, Route]] = [{} for _ in Caller]  # by Role.slot
        self.places: dict[Key, tuple[Iterator[int], RealDevice, Callable[[], bool] | None]] = self.ledger.places

    def start(self, situation: Situation) -> None:
        """Use a situation from now on. The ledger is kept: its counts belong to the process until they are cleared."""
        if self.active:
            self.stop()
        host = situation.host
        self.situation, self.host, self.fills = situation, host, situation.fills
        self.blocks = host.type == "mps" and situation.mps_workarounds
        self._forget_routes()  # another thread may have added a route while the last situation ended
        self.settled.update(_settled_requests(host, situation.policy))
        self.settled_default = RealDevice("cpu") if None in self.settled else None
        self._at_first_decision = situation.at_first_decision
        self._at_first_redirect = situation.at_first_redirect
        self.active = True

    def stop(self) -> None:
        """Stop translating, also in wrappers that user code still holds."""
        subclasses.notice(active=self.active)
        self.active = self.fills = False
        self._at_first_redirect = self._at_first_decision = None
        with suppress(TorchDeviceWarning):  # `python -W error` must not interrupt the stop; the record is kept
            self.aliases.look(self)
        self.aliases.clear()
        self.settled.clear()
        self.override.reset()
        self.ledger.forget_places()
        self._forget_routes()

    def _forget_routes(self) -> None:
        for routes in self._routes:
            routes.clear()

    @property
    def in_force(self) -> bool:
        """Whether requests are translated in this context."""
        return self.active and not _suspended.get()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Disable translation for the block, in this thread and task only."""
        token = _suspended.set(True)
        with self._lock:
            self.suspensions += 1
        try:
            yield
        finally:
            with self._lock:
                self.suspensions -= 1
            _suspended.reset(token)

    def translate(self, asked: Any, api: str, depth: int = 1, moving: bool = False, naming: bool = False) -> Any:
        """The device to pass to torch instead of `asked`, or `asked` itself. The caller is `depth` frames up.

        `moving`: the request comes from a method that moves a tensor. torch's compiler keeps its original arguments.
        `naming`: the request only names a device and allocates nothing.
        """
        frame = _getframe(depth + 1)
        try:
            known = self.places.get((id(frame.f_code), frame.f_lasti, api, asked))
        except TypeError:  # unhashable: not a device, torch raises an error
            return asked
        if known is not None and not (self.suspensions and _suspended.get()):
            counter, given, unless = known
            if unless is None or not unless():
                next(counter)
                return given
            return asked
        return self.translate_from(asked, api, frame, moving, naming)

    def translate_from(self, asked: Any, api: str, frame: FrameType, moving: bool = False, naming: bool = False) -> Any:
        """The same for a decision that is made after the call. `frame` is the frame of the caller."""
        epoch = self.ledger.epoch  # read before any decision
        if not self.in_force:
            return asked
        role = self.roles[frame.f_code.co_filename]
        if moving and role.relays:
            role = TRACED
        elif naming and role.caller is Caller.TORCH:
            role = NAMING
        return self._decide(asked, api, frame, role, epoch, naming)

    def translate_traced(self, asked: Any, api: str) -> Any:
        """The same for code under torch's compiler. Traced code counts as user code."""
        epoch = self.ledger.epoch
        return self._decide(asked, api, _getframe(1), TRACED, epoch) if self.in_force else asked

    def redirected_type(self, asked_type: str, api: str, depth: int = 1) -> str:
        """The type to which requests for `asked_type` are redirected, for parameters that name a device type."""
        device = self.translate(asked_type, api, depth + 1)
        return device.type if isinstance(device, RealDevice) else asked_type

    def caller(self, depth: int = 1) -> Caller:
        """The class of the caller, `depth` frames up."""
        return self.roles[_getframe(depth + 1).f_code.co_filename].caller

    def has_asked_beyond(self, kind: str) -> bool:
        """Whether a request for an accelerator of another type than `kind` was redirected so far."""
        asked = {record.asked.partition(":")[0] for record in self.ledger.totals()}
        return any(map(is_accelerator, asked - {str(NOTHING), kind}))

    def standing_for_cpu(self) -> RealDevice | None:
        """The device to which user code's requests for the CPU currently go; None for the CPU."""
        if not self.in_force:
            return None
        route = self._find_route("cpu", TRACED)
        return None if route.unless is not None and route.unless() else route.given

    def _decide(self, asked: Any, api: str, frame: FrameType, role: Role, epoch: int, naming: bool = False) -> Any:
        if self._at_first_decision is not None and role is not NAMING:
            look, self._at_first_decision = self._at_first_decision, None
            look()
        try:
            route = self._routes[role.slot].get(asked) or self._find_route(asked, role)
        except (RuntimeError, TypeError, ValueError):  # not a device: torch raises its own error
            return asked
        if route.request.override:
            if role.caller is Caller.USER:
                self.override.flip()
            return route.decision.device
        if route.given is None or (route.unless is not None and route.unless()):
            return asked
        (self.named if naming else self.used).add(route.request.type)
        place = user_frame(frame, self.roles) if role.inner else frame
        tally = self.ledger.tally(
            place,
            (api, asked, route.given, route.decision.reason),
            lambda site: Redirect(api, str(route.request), str(route.given), route.decision.reason, site),
        )
        if self._at_first_redirect is not None:
            tell, self._at_first_redirect = self._at_first_redirect, None
            tell(tally.record)
        next(tally.counter)
        if not role.inner and self.host.count == 1 and _is_remembered(asked):
            key = (id(place.f_code), place.f_lasti, api, asked)
            self.ledger.remember(tally, key, (tally.counter, route.given, route.unless), epoch)
        return route.given

    def _find_route(self, asked: Any, role: Role) -> Route:
        host = self.host
        if host.count > 1:
            host = replace(host, current=torch.accelerator.current_device_index())
        with unseen_by_modes():  # a mode of the program would receive calls of `torch.device`
            request = NOTHING if asked is None else parse(asked)
            decision = resolve(request, host, self.situation.policy, caller=role.caller)
        route = Route(request, decision, decision.unless and self._holds[decision.unless])
        # With several devices, a decision may depend on the current device of this thread.
        if host.count == 1 and _is_remembered(asked):
            self._routes[role.slot][asked] = route
        return route


def _is_remembered(asked: object) -> bool:
    """Whether a request can be cached.

    Integers cannot: they equal `True`, `1.0` and NumPy's numbers, and torch accepts only some of these as a device.
    """
    return asked is None or isinstance(asked, (str, RealDevice))


def _settled_requests(host: Host, policy: str) -> Iterator[tuple[object, object]]:
    """Requests that are not redirected for any caller.

    They include dtypes, because `.to(dtype)` passes one in the position where `.to(device)` passes a device.
    """
    yield from ((dtype, dtype) for dtype in _dtypes())
    if _is_settled(NOTHING, host, policy):
        yield None, None
    for kind in ("meta", "cpu", host.type):
        for index in (None, *range(host.count if kind == host.type else 1)):
            request = Request(kind, index)
            if _is_settled(request, host, policy):
                device = RealDevice(kind) if index is None else RealDevice(kind, index)
                spelled = resolve(request, host, policy).device
                yield device, spelled
                yield str(device), spelled


@functools.cache
def _dtypes() -> frozenset[torch.dtype]:
    return frozenset(value for value in vars(torch).values() if isinstance(value, torch.dtype))


def _is_settled(request: Request, host: Host, policy: str) -> bool:
    return not any(resolve(request, host, policy, caller=caller).redirected for caller in Caller)


translator = Translator()
