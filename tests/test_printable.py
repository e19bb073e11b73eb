"""Nothing that others wrote is a command to a terminal or to a CI log, wherever we show it."""

from __future__ import annotations

import io
import logging
import os
from pathlib import Path

import pytest

from tests.cli.harness import torchdevice as command
from tests.cli.harness import write
from torchdevice.cli import env, main
from torchdevice.ledger import Fallback, FallbackTotals, Redirect, Simulated, Site
from torchdevice.printable import printable, printable_lines
from torchdevice.reporting import destinations, log, text
from torchdevice.reporting.collect import Context, Counts, Profile, Report, Timed
from torchdevice.reporting.destinations import Destination

HOSTILE = "\x1b[31mred\x1b]0;title\x07\n::error::owned\r\x9b2J\u202etxt.exe\u2028\udc80\t.py"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain → text · é ✓", "plain → text · é ✓"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x9b\u202e\udc80", "\\x9b\\u202e\\udc80"),
        ("::error::x", "\\x3a:error::x"),
        ("  ::set-output name=a::b", "  \\x3a:set-output name=a::b"),
        ("a::b", "a::b"),
        ("x ##[group]y ##vso[task]z ##teamcity[q]", "x \\x23#[group]y \\x23#vso[task]z \\x23#teamcity[q]"),
        ("### a heading", "### a heading"),
    ],
)
def test_printable(given: str, shown: str) -> None:
    assert printable(given) == shown
    assert printable(shown) == shown


def test_line_breaks_that_are_meant_stay() -> None:
    assert printable_lines("a\x1b\n::b\nc") == "a\\x1b\n\\x3a:b\nc"


def is_inert(shown: str) -> bool:
    return bool(shown) and all(line == printable(line) for line in shown.split("\n"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def report_of(words: str, folder: Path) -> tuple[Report, Context]:
    """A report in which everything that a program can choose says `words`, and so does the line of code."""
    source = folder / "x.py"
    source.write_text(f"x = 1  # {words}\n".replace("\n", " "), encoding="utf-8", errors="replace")
    sites = [Site(str(source), 1), Site(words, 1)]
    records = {Redirect(words, words, words, words, site): 3 for site in sites}
    fallbacks = {Fallback(words, words, words, (words,), sites[1]): FallbackTotals(1, 0.1, 8)}
    profile = Profile({(words, words): Timed(1, 1.0)}, {site: Timed(1, 1.0) for site in sites}, 1.0, words)
    context = Context(words, words, words, {words: words}, policy_reason=words)
    return Report.of_counts(Counts(records, fallbacks, 1.0, profile)), context


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_the_text_report(stream: type[io.StringIO], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("TERM", "dumb")  # rich itself writes nothing but text then
    report, context = report_of(HOSTILE, tmp_path)
    into = stream()
    text.write(report, context, into)
    assert "red" in into.getvalue()
    assert all(line.isprintable() for line in into.getvalue().split("\n"))
    assert is_inert(into.getvalue()) or into.isatty()  # a terminal, for which lines are folded, takes no `::error::`
    assert is_inert(str(report))


def test_the_lines_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, context = report_of(HOSTILE, tmp_path)
    wanted = (
        Destination("summary"),
        Destination("json", f"/proc/{HOSTILE}/x"),
        Destination("json", f"{tmp_path}/\x1b"),
    )
    destinations.write(report, context, wanted)
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 2
    assert is_inert(shown)


def test_the_log(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(HOSTILE, 1)
    with caplog.at_level(logging.INFO, "torchdevice"):
        log.redirected(Redirect(HOSTILE, HOSTILE, HOSTILE, HOSTILE, site))
        log.answered(Simulated(HOSTILE, HOSTILE, HOSTILE, site))
        log.Fallbacks().fell_back(Fallback(HOSTILE, HOSTILE, HOSTILE, (), site))
    assert len(caplog.messages) == 3
    assert all("\n" not in message and is_inert(message) for message in caplog.messages)


@pytest.mark.processes
def test_scan(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    name = HOSTILE.replace("\udc80", "")
    write(tmp_path, {name: "x.cuda()\nx.is_cuda\n", f"bad{name}": "print 'python 2'", "::error::.py": "x.is_cuda\n"})
    monkeypatch.chdir(tmp_path)
    for words in (["scan", "."], ["scan", ".", "-v"], ["scan", ".", "--json"]):
        assert main(words) == 0
        assert is_inert(capsys.readouterr().out)


def test_env(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(env, "facts", lambda: iter([(HOSTILE, HOSTILE)]))
    assert main(["env"]) == 0
    assert is_inert(capsys.readouterr().out)


def test_a_program_with_a_hostile_name(tmp_path: Path) -> None:
    name = "\x1b[31m\n::error::.py"
    (tmp_path / name).write_text("import torch; torch.zeros(2, device='cuda')", encoding="utf-8")
    done = command("run", "-v", "--report", "text", os.path.join(".", name), cwd=tmp_path)
    assert done.returncode == 0
    assert "error" in done.stderr
    assert is_inert(done.stderr)
