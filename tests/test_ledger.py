from __future__ import annotations

import os

import pytest

from torchdevice import ledger as module
from torchdevice.errors import TorchDeviceWarning
from torchdevice.fallback import records
from torchdevice.ledger import Ledger, Redirect, Site

CODE = (lambda: None).__code__


def record(line: int) -> Redirect:
    return Redirect("torch.zeros", "cuda", "cpu", "no cuda here", Site("script.py", line))


def test_listeners_hear_of_a_place_once() -> None:
    ledger, heard = Ledger(), []
    with ledger.listening(heard.append):
        for _ in range(3):
            next(ledger.counter(("a",)) or ledger.open(("a",), CODE, record(1)))
    ledger.open(("b",), CODE, record(2))
    assert heard == [record(1)]
    assert ledger.totals()[record(1)] == 3


def test_a_listener_that_raises_is_dropped_with_one_warning() -> None:
    ledger = Ledger()

    def broken(_: Redirect) -> None:
        raise ValueError("no")

    ledger.listen(broken)
    with pytest.warns(TorchDeviceWarning, match="dropped"):
        ledger.open(("a",), CODE, record(1))
    ledger.open(("b",), CODE, record(2))


def test_memory_stays_flat_and_counts_exact_when_places_keep_changing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FOLD_BEYOND", 10)
    ledger = Ledger()
    for number in range(1000):
        next(ledger.open((number,), CODE, record(number % 7)))
    assert len(ledger._tallies) <= 10
    assert sum(ledger.totals().values()) == 1000
    assert len(ledger.totals()) == 7


def test_fallbacks_are_folded_too_and_their_listener_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "FOLD_BEYOND", 10)
    ledger = records.FallbackLedger()
    ledger.listener = int  # no record is a number
    lines = "\n".join(f"add('aten::mode', 'cpu', 'why', ('d{n % 7}',), 0.5, 8)" for n in range(100))
    with pytest.warns(TorchDeviceWarning, match="dropped") as caught:
        exec(compile(lines.replace("\n", ";"), "made.py", "exec"), {"add": ledger.add})
    assert len(caught) == 1
    assert len(ledger._entries) <= 10
    totals = ledger.totals()
    assert len(totals) == 7
    assert sum(each.calls for each in totals.values()) == 100
    assert sum(each.bytes for each in totals.values()) == 800
    ledger.clear()
    assert ledger.totals() == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_lock_that_another_thread_holds_is_free_in_a_forked_child() -> None:
    ledger: Ledger[Redirect] = Ledger()
    with ledger._lock:
        child = os.fork()
        if not child:
            os._exit(0 if ledger._lock.acquire(blocking=False) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert ledger._lock.locked()
