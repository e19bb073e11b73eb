"""`torchdevice run X` is `python X`: the same probes with and without us."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.harness import clean_environment, python, torchdevice, without_summary, write

PROBE = """
import atexit, os, pickle, sys, torch
class Kept:
    def __eq__(self, other): return type(self) is type(other)
print(sys.argv, __name__, globals().get("__file__"), globals().get("__package__"), sys.path[0], __spec__ is None)
print(sys.modules["__main__"].__dict__ is globals(), pickle.loads(pickle.dumps(Kept())) == Kept(), Kept.__module__)
print(sorted(name for name in globals() if name.startswith("__")), sys.stdin.read(), os.getcwd())
print(sys.flags, sys.warnoptions, "rich" in sys.modules)
if __name__ == "__main__":
    print("main")
"""

FORMS = {
    "script": ["probe.py", "a", "--b", "-m", "--report"],
    "module": ["-m", "package.probe", "-x", "y"],
    "package": ["-m", "package", "z"],
    "folder": ["folder", "z"],
    "code": ["-c", PROBE, "-c", "more"],
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write(
        tmp_path,
        {
            "probe.py": PROBE,
            "package/__init__.py": "",
            "package/__main__.py": PROBE,
            "package/probe.py": PROBE,
            "folder/__main__.py": PROBE,
        },
    )


@pytest.mark.parametrize("form", FORMS)
def test_what_a_program_sees_of_itself(form: str, tree: Path) -> None:
    expected = python(*FORMS[form], cwd=tree, stdin="typed")
    found = torchdevice("run", *FORMS[form], cwd=tree, stdin="typed")
    assert found.stdout == expected.stdout
    assert "main" in found.stdout
    assert (found.returncode, without_summary(found.stderr)[0]) == (0, expected.stderr)


def test_program_from_stdin(tmp_path: Path) -> None:
    expected = python("-", "a", cwd=tmp_path, stdin=PROBE)
    assert torchdevice("run", "-", "a", cwd=tmp_path, stdin=PROBE).stdout == expected.stdout
    assert "['-', 'a'] __main__" in expected.stdout


def test_interpreter_flags_are_kept() -> None:
    code = "import sys, torch; assert False; print(sys.flags.optimize, sys.warnoptions, sys.stdout.write_through)"
    found = python("-O", "-u", "-W", "error::ResourceWarning", "-m", "torchdevice", "run", "-c", code)
    assert found.stdout == "1 ['error::ResourceWarning'] True\n"


FAILURES = {
    "torch refuses": "import torch\ndef f():\n    torch.zeros(-1, device='cuda')\nf()\n",
    "missing checkpoint": "import torch\ntorch.load('missing.pt', 'cuda')\n",
    "not a device": "import torch\ntorch.device('nonsense')\n",
    "chained": (
        "import torch\ntry:\n    torch.zeros(-1, device='cuda')\n"
        "except RuntimeError as error:\n    raise ValueError(3) from error\n"
    ),
    "syntax": "import torch\nx = = 2\n",
    "exit status": "import sys, torch\nsys.exit(7)\n",
    "exit message": "import sys, torch\nsys.exit('good bye')\n",
    "interrupted": "import torch\nraise KeyboardInterrupt\n",
    "killed": "import os, signal, torch\nos.kill(os.getpid(), signal.SIGTERM)\n",
    "thread": (
        "import threading, torch\n"
        "thread = threading.Thread(target=lambda: torch.zeros(-1, device='cuda'), name='T')\n"
        "thread.start()\nthread.join()\n"
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_look_as_they_do_in_python(name: str, tmp_path: Path) -> None:
    """On the device that is here: a refusal of CUDA itself would be another message."""
    write(tmp_path, {"fails.py": FAILURES[name].replace("cuda", "cpu")})
    expected = python("fails.py", cwd=tmp_path)
    write(tmp_path, {"fails.py": FAILURES[name]})
    found = torchdevice("run", "fails.py", cwd=tmp_path)
    program, ours = without_summary(found.stderr)
    assert _unmarked(program).replace("'cuda'", "'cpu'") == _unmarked(expected.stderr)
    assert found.returncode == expected.returncode
    assert len(ours) == (0 if name in ("killed", "syntax") else 1)


def _unmarked(traceback: str) -> str:
    """Without the lines of `^^^^`, which differ where the device's name is shorter."""
    return "".join(line for line in traceback.splitlines(keepends=True) if set(line.strip()) - {"^", "~"})


@pytest.mark.parametrize("program", [["missing.py"], ["-m", "missing"], ["-c", "import"]])
def test_a_missing_program_is_pythons_business(program: list[str], tmp_path: Path) -> None:
    expected = python(*program, cwd=tmp_path)
    found = torchdevice("run", *program, cwd=tmp_path)
    assert (found.returncode, found.stderr) == (expected.returncode, expected.stderr)
    assert found.returncode != 0


def test_ctrl_c_still_reports(tmp_path: Path) -> None:
    code = "import time, torch\ntorch.zeros(2, device='cuda')\nprint('ready', flush=True)\ntime.sleep(60)"
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "torchdevice", "run", "--report", f"json:{report}", "-c", code]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=clean_environment()) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=60)
    assert running.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in stderr
    assert stderr.splitlines()[-1].startswith("torchdevice: cuda → cpu · 1 call redirected at 1 place · report in ")
    assert report.exists()


def test_a_running_program_reports_on_sigusr1() -> None:
    code = (
        "import sys, time, torch\ntorch.zeros(2, device='cuda')\nprint('ready', flush=True)\n"
        "sys.stdin.readline()\nprint('went on')"
    )
    command = [sys.executable, "-m", "torchdevice", "run", "-q", "-c", code]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True, env=clean_environment()) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        stdout, stderr = running.communicate("\n", timeout=60)
    assert (running.returncode, stdout) == (0, "went on\n")
    assert "torch.zeros  cuda   cpu    1" in stderr
