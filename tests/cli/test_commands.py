"""The commands beside `run` and `scan`, and what all of them share: help, mistakes, exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.harness import python
from torchdevice import __version__
from torchdevice._torch import core
from torchdevice.answers import asked
from torchdevice.cli import COMMANDS, doctor, main


@pytest.mark.parametrize("command", [*COMMANDS, None])
def test_help_fits_a_screen_and_ends_in_two_examples(command: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main([*([command] if command else []), "--help"])
    except SystemExit as ended:
        status = int(str(ended.code))
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert status == 0
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100
    assert lines[-3] == "examples:"
    assert all(line.startswith("  torchdevice ") for line in lines[-2:])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["docter"], "torchdevice: no command or script 'docter', did you mean doctor? (see torchdevice --help)"),
        (["explain", "nonsense"], "torchdevice explain: 'nonsense' is not a device that torch knows"),
        (["explain", "cuda", "--host", "toaster"], "torchdevice explain: host='toaster' was requested"),
        (["virtual"], "torchdevice virtual: the following arguments are required: action"),
        (["virtual", "info", "--force"], "torchdevice virtual: --force is an option of build only"),
        (["scan", "nowhere"], "torchdevice scan: nowhere does not exist"),
        (["doctor", "--xml"], "torchdevice doctor: unrecognized arguments: --xml"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(said)


def test_without_a_command_there_is_help_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().err
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"torchdevice {__version__}\n"


def test_the_command_line_loads_no_torch() -> None:
    code = "import sys, torchdevice.cli.run; print({'torch', 'rich', 'jinja2'} & set(sys.modules))"
    assert python("-c", code).stdout == "set()\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("cuda:1 --host mps", "cuda:1 → mps:0: no cuda here: the accelerator is mps\n"),
        ("none --host cuda --policy portable", "none given → cpu: no device given: left to torch by policy=portable\n"),
        ("mps:3 --host cuda:4", "mps:3 → cuda:3: no mps here: the accelerator is cuda\n"),
        ("cpu:-1 --host cuda", "cpu:-1 → cpu: cpu:-1 requests the real CPU\n"),
    ],
)
def test_explain_one_request(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *words.split()]) == 0
    assert capsys.readouterr().out == said


def test_explain_the_whole_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--host", "cuda:4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "on a machine with cuda (4 devices)"
    table = {line.split("  ")[0]: line.split()[-1] for line in lines[2:]}
    assert {"none given", "cpu", "cpu:-1", "mps", "cuda", "xpu", "meta"} <= table.keys()
    assert any(line.split()[:2] == ["mps:1", "cuda:1"] for line in lines)


@pytest.mark.processes
def test_doctor_is_well_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    found = {check["name"]: check["status"] for check in data["checks"]}
    assert data["ok"]
    assert {found[name] for name in ("python", "installed", "settings", "translation")} == {"ok"}
    assert found["torch"] == ("ok" if core.torch_release() in core.TESTED_RELEASES else "warn")


def test_doctor_names_the_fix_and_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TORCHDEVICE_POLICY", "fast")
    monkeypatch.setattr(doctor, "CHECKS", (doctor.python, doctor.settings))
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "✗ settings" in out
    assert "fix: use one of accelerate, portable" in out


@pytest.mark.parametrize("variable", [row[0] for row in doctor.CONFLICTS])
def test_doctor_warns_of_variables_that_work_against_us(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1" if variable == "PYTORCH_ENABLE_MPS_FALLBACK" else "0")
    if variable == "CUDA_VISIBLE_DEVICES":
        assert [check.status for check in doctor.settings()] == ["ok"]  # device 0 is a choice, not a conflict
        monkeypatch.setenv(variable, "")
    warned = [check for check in doctor.settings() if check.status == doctor.WARN]
    assert [check.name for check in warned] == [variable]
    assert warned[0].fix


@pytest.mark.processes
def test_doctor_says_what_a_small_program_died_of() -> None:
    check = doctor._smoke("translation", "raise SystemExit('no luck')", {}, "{}")
    assert (check.status, check.detail) == ("fail", "a small program failed: no luck")


@pytest.mark.processes
def test_doctor_shows_the_first_line_of_a_long_message() -> None:
    check = doctor._smoke("translation", "raise ValueError('no luck\\nbut many words')", {}, "{}")
    assert check.detail == "a small program failed: ValueError: no luck"


def test_doctor_says_once_that_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "entry_points", lambda group: [])
    found = [check for each in (doctor.installation, doctor.translation, doctor.virtual) for check in each()]
    assert [check.name for check in found if check.status == doctor.FAIL] == ["installed"]


@pytest.mark.processes
def test_virtual_clean_removes_the_builds_of_its_cache_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHDEVICE_CACHE", str(tmp_path))
    build, other = tmp_path / "libraries" / "torchdevice-1.so", tmp_path / "torchdevice-2.so"
    build.parent.mkdir(mode=0o700)
    build.touch()
    other.touch()
    assert main(["virtual", "info"]) == 0
    assert f"cached            {build}" in capsys.readouterr().out
    assert main(["virtual", "clean"]) == 0
    assert capsys.readouterr().out == f"removed {build}\n"
    assert (build.exists(), other.exists()) == (False, True)


@pytest.mark.processes
def test_env_tells_versions_and_settings_but_no_paths(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHDEVICE_POLICY", "portable")
    monkeypatch.setenv("TORCHDEVICE_CACHE", "/home/somebody")
    assert main(["env"]) == 0
    out = capsys.readouterr().out
    assert "TORCHDEVICE_POLICY   portable" in out
    assert "torch built for" in out
    assert "somebody" not in out


def test_doctor_lists_what_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [check.status for check in doctor.questions()] == [doctor.OK]
    monkeypatch.setattr(asked, "unanswered_names", lambda: tuple(f"_cuda_new{n}" for n in range(7)))
    (check,) = doctor.questions()
    assert check.status == doctor.WARN
    assert "7 names" in check.detail
    assert "_cuda_new0" in check.detail
    assert "and 2 more" in check.detail
