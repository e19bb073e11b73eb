"""What a user hears without asking, and how one level governs it: messages of the logger and Python's warnings."""

from __future__ import annotations

import ast
import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchdevice
from tests.conftest import ROOT
from tests.virtual.harness import on
from torchdevice import notices
from torchdevice.answers.audience import Audience
from torchdevice.answers.rows import LOSSES, SURFACE
from torchdevice.config import LOG_LEVELS
from torchdevice.errors import TorchDeviceWarning
from torchdevice.ledger import REFUSED, Fallback, Redirect, Simulated, Site
from torchdevice.reporting import log
from torchdevice.translate.translator import Translator

SITE = Site("train.py", 7)
# Level → what tells of it.
SAYINGS: dict[str, Callable[[], object]] = {
    "ERROR": lambda: log.Fallbacks().fell_back(Fallback("aten::mm", REFUSED, "nothing can", (), SITE)),
    "WARNING": lambda: log.answered(Simulated("torch.cuda.Stream", "simulated", "cpu", SITE, "nothing overlaps")),
    "INFO": lambda: log.redirected(Redirect("torch.zeros", "cuda", "cpu", "no cuda here", SITE)),
}
PROGRAM = """
import TorchDevice, torch
for _ in range(2):
    torch.zeros(2, device="cuda")
torch.zeros(2, device="cuda:1")
weights, kept = torch.ones(2), []
for _ in range(2):
    kept.append(weights.cuda())
    weights += 1
torch.cuda.Stream()
"""


@pytest.mark.parametrize("level", LOG_LEVELS)
def test_a_level_shows_itself_and_what_is_worse(
    level: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(notices.LOG_LEVEL, level)
    with torchdevice.redirect(target="cpu"):
        caplog.clear()
        for say in SAYINGS.values():
            say()
    shown = LOG_LEVELS.index(level)
    assert [record.levelname for record in caplog.records] == [
        each for each in SAYINGS if LOG_LEVELS.index(each) >= shown
    ]


@pytest.mark.parametrize("before_activation", [True, False])
@pytest.mark.parametrize("level", LOG_LEVELS)
def test_the_level_governs_python_warnings(
    level: str, before_activation: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(notices.LOG_LEVEL, level)
    if not before_activation:
        torchdevice.activate(target="cpu")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        notices.warn("changed", (__file__, 1))
        notices.warn("not done", level=logging.ERROR)
    assert [str(each.message) for each in caught] == ["changed", "not done"][level == "ERROR" :]
    assert {each.category for each in caught} == {TorchDeviceWarning}
    assert caught[-1].filename == __file__


def test_a_level_that_the_program_sets_is_kept() -> None:
    notices.logger.setLevel(logging.ERROR)
    try:
        with torchdevice.redirect(target="cpu"):
            assert not notices.is_wanted(logging.WARNING)
    finally:
        notices.logger.setLevel(logging.NOTSET)
    with torchdevice.redirect(target="cpu"):
        assert notices.is_wanted(logging.WARNING)


def test_every_warning_of_ours_goes_through_one_function() -> None:
    """A `TorchDeviceWarning` that is raised elsewhere would not heed the level."""
    others = {}
    for path in sorted((ROOT / "src" / "torchdevice").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("warnings.warn"):
                others.setdefault(path.name, []).append(ast.unparse(node))
    ours = {name: calls for name, calls in others.items() if "TorchDeviceWarning" in " ".join(calls)}
    assert ours.keys() == {"notices.py"}


def test_a_program_hears_of_the_first_redirection_and_of_what_changes(python: Callable[..., Any]) -> None:
    """On stderr, without asking: one line says that redirection is on, one what a stream is not, one what is shared."""
    said = python(PROGRAM).stderr
    assert said.count("script.py:4: torch.zeros(cuda) → cpu") == said.count(log.HOW_TO_SEE) == 1
    assert "cuda:1" not in said
    assert said.count("script.py:10: torch.cuda.Stream is simulated, answered for cpu: work runs in the order") == 1
    assert said.count("script.py:8: TorchDeviceWarning: torch.Tensor.cuda returned its own input") == 1


def test_error_silences_all_of_it(python: Callable[..., Any]) -> None:
    done = python(PROGRAM, TORCHDEVICE_LOG_LEVEL="ERROR")
    assert (done.stdout, done.stderr) == ("", "")


def test_info_says_it_in_its_own_words(python: Callable[..., Any]) -> None:
    said = python(PROGRAM, TORCHDEVICE_LOG_LEVEL="INFO").stderr
    assert log.HOW_TO_SEE not in said
    assert "script.py:5: torch.zeros(cuda:1) → cpu" in said


@pytest.mark.parametrize("activation", ["import torchdevice; torchdevice.activate()", "import TorchDevice"])
def test_one_process_of_a_program_says_it(activation: str, python: Callable[..., Any]) -> None:
    inner = "import torch; torch.zeros(1, device='cuda')"
    done = python(
        f"import subprocess, sys, torch; {activation}\ntorch.zeros(1, device='cuda')\n"
        f"subprocess.run([sys.executable, '-c', {inner!r}], check=True)"
    )
    assert done.stderr.count(log.HOW_TO_SEE) == 1
    ranks = [python(f"{activation}; {inner}", RANK=rank).stderr.count(log.HOW_TO_SEE) for rank in ("0", "1")]
    assert ranks == [1, 0]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_program_with_logging_of_its_own_hears_it_there_and_once(when: str, python: Callable[..., Any]) -> None:
    setup, activation = "logging.basicConfig(format='mine %(message)s')", "import TorchDevice"
    first, second = (setup, activation) if when == "before" else (activation, setup)
    done = python(f"import logging, torch\n{first}\n{second}\ntorch.zeros(1, device='cuda')")
    (line,) = done.stderr.splitlines()
    assert line.startswith("mine ")


def test_what_an_answer_loses_is_a_warning_once_per_place(caplog: pytest.LogCaptureFixture) -> None:
    with torchdevice.redirect(target="cpu"):
        for _ in range(3):
            torch.cuda.Stream()
        torch.cuda.CUDAGraph()
        torch.cuda.MemPool()
        torch.cuda.memory_snapshot()
        torch.cuda.current_stream().synchronize()
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [each for each in told if LOSSES["overlap"].cpu in each] == [told[0]]
    assert {loss for loss, answer in LOSSES.items() if any(answer.cpu in each for each in told)} == LOSSES.keys()


def test_every_loss_has_rows_and_none_where_the_target_has_the_thing() -> None:
    rows = [row for surface in SURFACE.values() for row in surface if row.loses]
    assert {row.loses for row in rows} == LOSSES.keys()
    audience = Audience(Translator())
    for target, lacking in {"cpu": set(LOSSES), "mps": set(LOSSES), "cuda": set()}.items():
        audience.target = target
        assert {row.loses for row in rows if audience._loss(row)} == lacking, target


@on("mps:real")
def test_an_operator_that_runs_elsewhere_is_a_warning_the_first_time() -> None:
    torchdevice.activate(policy="portable")
    x = torch.ones(3, device="mps")
    told: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = told.append  # type: ignore[method-assign]
    notices.logger.addHandler(handler)
    notices.logger.setLevel(logging.INFO)
    torch.special.log_ndtr(x)
    torch.special.log_ndtr(x)
    ran = [record.levelname for record in told if "aten::special_log_ndtr ran on cpu" in record.getMessage()]
    assert ran == ["WARNING", "INFO"]
