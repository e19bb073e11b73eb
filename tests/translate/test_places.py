"""Code that is made and thrown away: a new code object at an old one's address is another place.

No accelerator is needed: the translator is asked directly, for hosts that are invented.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import torchdevice
from torchdevice import ledger as module
from torchdevice._torch.core import TORCH_FOLDER
from torchdevice.ledger import Ledger, Redirect
from torchdevice.policy.hosts import Host
from torchdevice.session import session
from torchdevice.translate.translator import Situation, Translator

MADE = 1_000


@pytest.fixture(autouse=True)
def _few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FOLD_BEYOND", 50)


@pytest.fixture
def translator() -> Iterator[Translator]:
    """One of its own, on an accelerator that takes every request."""
    made = Translator()
    made.start(Situation(Host("mps")))
    yield made
    made.stop()


def run(source: str, filename: str, **names: Any) -> Any:
    """The value of an expression in a code object of its own, which is gone afterwards."""
    return eval(compile(source, filename, "eval"), names)


def test_every_call_from_code_that_is_made_anew_is_counted() -> None:
    with torchdevice.redirect(target="cpu"):
        for _ in range(MADE):
            run("torch.zeros(1, device='cuda')", "made.py", torch=torch)
        assert session.status().redirected_calls == MADE


def test_every_answer_to_code_that_is_made_anew_is_counted() -> None:
    with torchdevice.redirect(target="cpu"):
        for _ in range(MADE):
            run("torch.cuda.is_available()", "made.py", torch=torch)
        assert session.status().simulated_calls == MADE


def test_a_request_of_torch_itself_is_not_taken_for_an_older_one_of_user_code(translator: Translator) -> None:
    """Of two files by turns: user code, whose CPU is the accelerator, and torch itself, which means the CPU."""
    given: dict[str, set[str]] = {"user.py": set(), f"{TORCH_FOLDER}made.py": set()}

    def asking(api: str) -> Callable[[], Any]:
        return lambda: translator.translate("cpu", api)

    for number in range(MADE):
        for filename, seen in given.items():
            seen.add(str(run("ask()", filename, ask=asking(f"torch.zeros{number % 2}"))))
    assert given == {"user.py": {"mps:0"}, f"{TORCH_FOLDER}made.py": {"cpu"}}


def test_what_is_remembered_of_a_place_is_forgotten_with_it(translator: Translator) -> None:
    ledger: Ledger[Redirect] = translator.ledger
    for _ in range(MADE):
        run("ask()", "user.py", ask=lambda: translator.translate("cuda", "torch.zeros"))
        assert len(ledger.places) <= 50
    assert sum(ledger.totals().values()) == MADE
    ledger.clear()
    assert not ledger.places
    translator.translate("cuda", "torch.zeros", depth=0)
    assert sum(ledger.totals().values()) == 1


def test_one_place_and_two_targets_are_two_records(translator: Translator) -> None:
    def ask() -> Any:
        return translator.translate("cuda", "torch.zeros", depth=0)

    ask()
    translator.start(Situation(Host("xpu")))
    ask()
    assert [record.given for record in translator.ledger.totals()] == ["mps:0", "xpu:0"]


def test_what_is_decided_while_translation_ends_is_not_remembered(translator: Translator) -> None:
    epoch = translator.ledger.epoch
    assert run("translate('cuda', 'torch.zeros', 0)", "user.py", translate=translator.translate) == torch.device(
        "mps", 0
    )
    (tally,) = translator.ledger._tallies.values()
    translator.stop()
    translator.ledger.remember(tally, ("a place",), "a decision", epoch)  # by a thread that was in the middle of it
    assert translator.places == {}
