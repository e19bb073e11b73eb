"""Reports are inert, whole or not there, and tell nothing that nobody asked for; a reader that goes costs nothing."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import torchdevice
from tests.cli.harness import clean_environment, python, write
from tests.cli.harness import torchdevice as command
from tests.users import as_root
from torchdevice.cli import doctor, env, main
from torchdevice.errors import ConfigError
from torchdevice.ledger import Redirect, Site
from torchdevice.notebook import Shown
from torchdevice.reporting import destinations, files
from torchdevice.reporting.collect import Context, Counts, Report
from torchdevice.reporting.destinations import Destination

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
HOSTILE = "<script>alert(1)<!--\"'`${x}<img src=x onerror=alert(2)>--></textarea><svg onload=alert(3)>{{ 7*7 }}"
NOBODY = 65534
ENDS_SCRIPT = "</script><script>alert(4)</script>"


class Tags(HTMLParser):
    """What a browser would make elements and attributes of."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))


def page_of(words: str, folder: Path) -> str:
    """A report in which everything that a program can choose says `words`."""
    source = folder / f"{words.replace('/', '_')[:80]}.py"
    source.write_text(f"x = {words!r}; y = torch.zeros(2, device='cuda')\n", encoding="utf-8")
    site = Site(str(source), 1)
    records = {Redirect(words, words, words, words, site): 3}
    report = Report.of_counts(Counts(records))
    context = Context(target=words, policy=words, command=f"python {words}", versions={words: words})
    path = folder / "report.html"
    destinations.write(report, context, (Destination("html", str(path)),))
    return path.read_text(encoding="utf-8") + Shown(report)._repr_html_()


@pytest.mark.parametrize("words", [HOSTILE, ENDS_SCRIPT, "\x00\udc80<b>", "javascript:alert(5)"])
def test_a_report_of_hostile_words_has_the_elements_of_a_harmless_one(words: str, tmp_path: Path) -> None:
    if "\x00" in words:
        words = words.replace("\x00", "\x01")  # no path has one
    (tmp_path / "a").mkdir()
    hostile = page_of(words, tmp_path)
    assert Tags(hostile).found == Tags(page_of("harmless", tmp_path / "a")).found
    assert "<script>alert" not in hostile
    assert not {"href", "src"} & {name for _, names in Tags(hostile).found for name in names}


def test_a_hostile_script_under_run(tmp_path: Path) -> None:
    """From the command line to the file: the script's name, its source, its arguments."""
    name = "<script>alert(1).py"
    write(tmp_path, {name: f'import torch\nx = {HOSTILE!r}; torch.zeros(2, device="cuda")\n'})
    options = ["--report", "html:r.html", "--report", "json:r.json", "--report", "text"]
    done = command("run", "-q", *options, name, ENDS_SCRIPT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    scripts = [tag for tag in Tags(page).found if tag[0] in ("script", "img", "svg")]
    assert scripts == [("script", ())]  # ours
    assert name in json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["rows"][0]["file"]


def written(path: Path, words: str = "text") -> None:
    report = Report.of_counts(Counts({Redirect(words, "cuda", "cpu", "", Site("x.py", 1)): 1}))
    destinations.write(report, Context(), (Destination("json", str(path)),))


@pytest.mark.parametrize("step", ["write", "replace"])
def test_a_disk_that_is_full_leaves_the_report_of_before(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    written(path)
    before = path.read_text(encoding="utf-8")

    def full(*args: Any, **kwargs: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace" if step == "replace" else "chmod", full)
    written(path, "other")
    assert capsys.readouterr().err == f"torchdevice: the report {path} was not written: No space left on device\n"
    assert path.read_text(encoding="utf-8") == before
    assert [each.name for each in tmp_path.iterdir()] == ["report.json"]


def test_a_report_keeps_modes_and_links(tmp_path: Path) -> None:
    """A new one is its user's alone: it holds a command line and lines of code."""
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    mask = os.umask(0)
    written(real)
    os.umask(mask)
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    real.chmod(0o640)
    link.symlink_to(real)
    written(link, "other")
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert json.loads(real.read_text(encoding="utf-8"))["rows"][0]["api"] == "other"


# A file may have 50 bytes from here on: what is left of a full disk, without one.
LIMITED = """
import multiprocessing, resource, sys, torch
def child():
    torch.ones(1, device="cuda")
if __name__ == "__main__":
    torch.ones(1, device="cuda")
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    print(process.exitcode)
    sys.exit(7)
"""


def test_what_cannot_be_written_costs_a_line_and_no_exit_status(tmp_path: Path) -> None:
    write(tmp_path, {"limited.py": LIMITED})
    done = command("run", "-q", "--report", "json:limited.json", "limited.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (7, "0\n"), done.stderr
    lost, line = (re.sub(r"process \d+", "process N", line) for line in done.stderr.splitlines())
    assert lost == "torchdevice: the figures of process N are lost: File too large"
    assert line == f"torchdevice: the report {tmp_path / 'limited.json'} was not written: File too large"
    assert [path.name for path in tmp_path.iterdir()] == ["limited.py"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has this device")
def test_what_is_no_file_is_written_to_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    written(Path("/dev/full"))
    assert capsys.readouterr().err == "torchdevice: the report /dev/full was not written: No space left on device\n"
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


@as_root
@pytest.mark.parametrize("where", ["report.json", "folder/report.json"])
def test_a_link_of_another_user_is_not_followed(where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither as the report nor on the way to it, nor where a link of ours leads to one of theirs."""
    (tmp_path / "theirs").mkdir()
    ours, mine = tmp_path / "theirs" / "report.json", tmp_path / "mine.json"
    ours.write_text("kept", encoding="utf-8")
    link = tmp_path / Path(where).parts[0]
    link.symlink_to(ours if link.name == ours.name else ours.parent)
    mine.symlink_to(tmp_path / where)
    written(mine)
    assert ours.read_text(encoding="utf-8") != "kept"
    ours.write_text("kept", encoding="utf-8")
    os.lchown(link, NOBODY, NOBODY)
    for path in (tmp_path / where, mine):
        written(path)
        assert (
            capsys.readouterr().err
            == f"torchdevice: the report {path} was not written: {link} is a link that belongs to another user\n"
        )
    assert ours.read_text(encoding="utf-8") == "kept"


@as_root
def test_a_file_of_another_user_does_not_open_ours(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("theirs", encoding="utf-8")
    path.chmod(0o666)
    os.chown(path, NOBODY, NOBODY)
    written(path)
    assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (0, 0o600)


def test_a_pipe_that_nobody_reads_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    written(path)
    assert capsys.readouterr().err == f"torchdevice: the report {path} was not written: it has no active reader\n"
    monkeypatch.setattr(files, "SECONDS_TO_READ", 0.05)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opened, and never read
    written(path, "x" * 1_000_000)
    os.close(reading)
    assert capsys.readouterr().err == f"torchdevice: the report {path} was not written: it has no active reader\n"


def test_a_pipe_that_somebody_reads_gets_the_whole_report(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    keep_open = os.open(path, os.O_RDWR)  # `cat` may not have opened it yet
    read = tmp_path / "read"
    with open(read, "w") as into, subprocess.Popen(["cat", path], stdout=into):
        written(path, "x" * 300_000)
        os.close(keep_open)
    assert json.loads(read.read_text(encoding="utf-8"))["rows"][0]["api"] == "x" * 300_000


@pytest.mark.parametrize("place", ["folder", "no/such/folder", "/proc/report.json", "file/below"])
def test_places_that_take_no_file_cost_a_line(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    written(tmp_path / place)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"torchdevice: the report {tmp_path / place} was not written: ")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "folder"]


def test_where_no_folder_can_be_made_the_program_runs_all_the_same(tmp_path: Path) -> None:
    code = "import torch; print(torch.ones(1, device='cuda').device)"
    full = {"TORCHDEVICE": "1", "TORCHDEVICE_REPORT": "summary", "TORCHDEVICE_RUN": "/proc/no/folder"}
    done = python("-c", code, cwd=tmp_path, environment=full)
    assert (done.returncode, done.stdout) == (0, "cpu\n")
    assert done.stderr.startswith("torchdevice: cuda → cpu · 1 call redirected")


def test_a_folder_of_a_run_that_the_program_uses_keeps_what_is_its_own(tmp_path: Path) -> None:
    code = "import os, torch; torch.ones(1, device='cuda'); open('results/scores.json', 'w').write('{}'); os.chdir('/')"
    given = {"TORCHDEVICE": "1", "TORCHDEVICE_REPORT": "summary", "TORCHDEVICE_RUN": "results"}
    done = python("-c", code, cwd=tmp_path, environment=given)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["scores.json"]


def test_a_folder_of_a_run_alone_does_not_end_a_program_with_a_bad_target(tmp_path: Path) -> None:
    """Only `torchdevice run` does, which was asked for that target a moment ago."""
    given = {"TORCHDEVICE": "1", "TORCHDEVICE_TARGET": "klingon", "TORCHDEVICE_RUN": str(tmp_path / "run")}
    done = python("-c", "import torch; print(torch.ones(1).device)", cwd=tmp_path, environment=given)
    assert (done.returncode, done.stdout) == (0, "cpu\n")
    assert "torchdevice is off in this process" in done.stderr
    done = command("run", "--target", "klingon", "-c", "import torch; print(1)", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")


SECRET = "hunter2-secret"


@pytest.mark.processes
def test_values_of_the_environment_that_are_shown_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    listed = (
        DOCS.read_text(encoding="utf-8").partition("**What is shown of the environment.**")[2].partition("Of other")
    )
    assert set(re.findall(r"`([A-Z0-9_]+)`", listed[0])) == set(env.SHOWN)
    assert {conflict[0] for conflict in doctor.CONFLICTS} <= set(env.SHOWN)
    settings = {f"SECRET_{n}" for n in range(3)} | {"TORCH_HOME", "PYTORCH_TOKEN", "TORCHDEVICE_TOKEN", "AWS_SECRET"}
    for name in settings | {"TORCHDEVICE_RUN", "TORCHDEVICE_CACHE", "TORCHDEVICE_REPORT", "HF_TOKEN"}:
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.setenv("TORCHDEVICE_CACHE", f"/{SECRET}")  # a relative one is refused
    assert main(["env"]) == 0
    found = list(doctor.settings())
    with torchdevice.redirect():
        report = torchdevice.report()
    path = tmp_path / "report.json"
    destinations.write(report, Context(), (Destination("json", str(path)), Destination("text")))
    shown = capsys.readouterr()
    assert re.search(r"^TORCH_HOME +\(set\)$", shown.out, re.MULTILINE)
    assert "CUDA_VISIBLE_DEVICES=-1" in str(found)
    for text in (shown.out, shown.err, str(found), path.read_text(encoding="utf-8")):
        assert SECRET not in text


def test_a_bad_destination_is_named() -> None:
    for wanted in ("pdf:x", "json:~a\0b", "html:"):
        with pytest.raises(ConfigError, match="use text, json:PATH, html:PATH or trace:PATH"):
            destinations.parse(wanted)


@pytest.mark.parametrize("words", [["ops", "--target", "mps", "--json"], ["--help"]])
def test_a_reader_that_goes_costs_no_traceback(words: list[str]) -> None:
    """`torchdevice ops | head`."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "torchdevice", *words],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")
