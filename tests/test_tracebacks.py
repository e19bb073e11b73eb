"""Our frames are taken out of tracebacks, and warnings get the place of who called us. Whole programs: tests/cli."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from torchdevice import tracebacks


def of_ours(name: str = "wrapper") -> Callable[[Callable[[], Any]], Any]:
    """A function that calls another, in a file of this package."""
    space: dict[str, Any] = {"__name__": "torchdevice.errors"}
    exec(compile(f"def {name}(call):\n    return call()\n", str(tracebacks.__file__), "exec"), space)
    function: Callable[[Callable[[], Any]], Any] = space[name]
    return function


def refuse() -> None:
    raise ValueError("refused")


def caught(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(ValueError, match="refused") as raised:
        call()
    return raised.value


def names(error: BaseException) -> list[str]:
    return [entry.name for entry in traceback.extract_tb(error.__traceback__)]


def test_frames_of_ours_go_wherever_they_stand() -> None:
    wrapper = of_ours()
    error = caught(lambda: wrapper(lambda: wrapper(refuse)))
    assert names(error).count("wrapper") == 2
    tracebacks.strip(error)
    assert "wrapper" not in names(error)
    assert names(error)[-2:] == ["<lambda>", "refuse"]


def test_chained_exceptions_are_cleaned_too() -> None:
    def again() -> None:
        try:
            of_ours()(refuse)
        except ValueError as error:
            raise ValueError("refused again") from error

    error = caught(again)
    tracebacks.strip(error)
    assert error.__cause__ is not None
    assert names(error.__cause__) == ["again", "refuse"]


def test_a_traceback_that_is_all_ours_stays() -> None:
    error = caught(lambda: of_ours()(refuse))
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_name != "wrapper":
        tb = tb.tb_next
    assert tb is not None
    tb.tb_next = None
    assert tracebacks.without_ours(tb) is tb
    assert tracebacks.without_ours(None) is None


def test_a_warning_is_shown_once_for_each_line_that_caused_it() -> None:
    shown: list[Any] = []
    show = tracebacks._with_users_place(shown.append)
    line_of_wrapper = 2

    def warn() -> None:
        message = warnings.WarningMessage(UserWarning("careful"), UserWarning, tracebacks.__file__, line_of_wrapper)
        tracebacks._registry_of(tracebacks.__file__)["careful", UserWarning, line_of_wrapper] = True  # as Python does
        show(message)

    wrapper = of_ours()
    for _ in range(2):
        wrapper(warn)
        first = sys._getframe().f_lineno - 1
    wrapper(warn)
    assert [(each.filename, each.lineno) for each in shown] == [(__file__, first), (__file__, first + 2)]
    globals().pop("__warningregistry__", None)


def test_a_warning_that_is_always_due_is_always_shown() -> None:
    shown: list[Any] = []
    show = tracebacks._with_users_place(shown.append)
    for _ in range(2):
        of_ours()(lambda: show(warnings.WarningMessage(UserWarning("always"), UserWarning, tracebacks.__file__, 2)))
    assert [each.filename for each in shown] == [__file__] * 2
