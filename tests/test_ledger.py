from __future__ import annotations

import os
import sys

import pytest

from torchdevice import ledger as module
from torchdevice.errors import TorchDeviceWarning
from torchdevice.ledger import Fallback, FallbackTotals, Ledger, Redirect, Site


def record(line: int) -> Redirect:
    return Redirect("torch.zeros", "cuda", "cpu", "no cuda here", Site("script.py", line))


def count(ledger: Ledger[Redirect], about: object, line: int) -> bool:
    return ledger.count(sys._getframe(), (about,), lambda site: record(line))


def test_listeners_hear_of_a_place_once() -> None:
    ledger, heard = Ledger(), []
    with ledger.listening(heard.append):
        assert [count(ledger, "a", 1) for _ in range(3)] == [True, False, False]
    count(ledger, "b", 2)
    assert heard == [record(1)]
    assert ledger.totals() == {record(1): 3, record(2): 1}


def test_what_has_no_line_of_code_is_counted_once() -> None:
    ledger, heard = Ledger(), []
    with ledger.listening(heard.append):
        for _ in range(3):
            ledger.enter(record(1))
    assert heard == [record(1)]
    assert ledger.totals() == {record(1): 1}


def test_a_listener_that_raises_is_dropped_with_one_warning() -> None:
    ledger = Ledger()

    def broken(_: Redirect) -> None:
        raise ValueError("no")

    with ledger.listening(broken):
        with pytest.warns(TorchDeviceWarning, match="dropped"):
            count(ledger, "a", 1)
        count(ledger, "b", 2)


def test_memory_stays_flat_and_counts_exact_when_places_keep_changing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FOLD_BEYOND", 10)
    ledger = Ledger()
    for number in range(1000):
        count(ledger, number, number % 7)
    assert len(ledger._tallies) <= 10
    assert sum(ledger.totals().values()) == 1000
    assert len(ledger.totals()) == 7


def test_what_was_measured_is_folded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FOLD_BEYOND", 10)
    ledger: Ledger[Fallback] = Ledger()
    for number in range(100):
        dtypes = (f"d{number % 4}",)
        ledger.measure(
            sys._getframe(),
            (number,),
            lambda site, dtypes=dtypes: Fallback("aten::mode", "cpu", "why", dtypes, site),
            seconds=0.5,
            moved=8,
        )
    assert len(ledger._tallies) <= 10
    assert [*ledger.measured().values()] == [FallbackTotals(25, 12.5, 200)] * 4
    ledger.clear()
    assert ledger.measured() == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_lock_that_another_thread_holds_is_free_in_a_forked_child() -> None:
    ledger: Ledger[Redirect] = Ledger()
    with ledger._lock:
        child = os.fork()
        if not child:
            os._exit(0 if ledger._lock.acquire(blocking=False) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert ledger._lock.locked()
