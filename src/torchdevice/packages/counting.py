"""Counts each use of a stand-in, with the line of user code."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from torchdevice._torch.compilers import runs_while_traced
from torchdevice.ledger import UNSUPPORTED, Simulated, StandIn, simulations, stand_ins
from torchdevice.translate.callers import user_frame
from torchdevice.translate.translator import translator

F = TypeVar("F", bound=Callable[..., Any])


@runs_while_traced
def count(api: str, by: str) -> None:
    """Counts a call of `api` that `by` computes. In compiled code a place counts once, when it is compiled."""
    count_at(user_frame(sys._getframe(1), translator.roles), api, by)


def count_refusal(api: str) -> None:
    """Counts a call that no stand-in can compute and that raises an error."""
    target = translator.host.type
    frame = user_frame(sys._getframe(1), translator.roles)
    simulations.count(frame, (api, UNSUPPORTED), lambda site: Simulated(api, UNSUPPORTED, target, site))


def count_at(frame: FrameType, api: str, by: str) -> None:
    """Counts a call at a line of user code that the caller has found."""
    stand_ins.count(frame, (api, by), lambda site: StandIn(api, by, site))


def counted(api: str, by: str) -> Callable[[F], F]:
    """Decorator that counts the calls of a function or the instances of a class."""

    def decorate(target: F) -> F:
        if not isinstance(target, type):

            @functools.wraps(target)
            def call(*args: Any, **kwargs: Any) -> Any:
                count(api, by)
                return target(*args, **kwargs)

            return call  # type: ignore[return-value]
        make = target.__init__  # type: ignore[misc]

        @functools.wraps(make)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            count(api, by)
            make(self, *args, **kwargs)

        target.__init__ = init  # type: ignore[misc]
        return target

    return decorate
