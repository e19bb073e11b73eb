"""`torchdevice run X` is `python X`: the same probes with and without us."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
import zipfile
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


def test_program_in_a_zip_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", "import inspect, helper\nprint(inspect.getsource(helper.f))\n" + PROBE)
        archive.writestr("helper.py", "def f():\n    return 1\n")
    expected = python("app.pyz", "a", cwd=tmp_path, stdin="typed")
    found = torchdevice("run", "app.pyz", "a", cwd=tmp_path, stdin="typed")
    assert (found.stdout, found.returncode) == (expected.stdout, 0)
    assert "return 1" in found.stdout


@pytest.mark.parametrize("variable", ["PYTHONSAFEPATH", "PYTHONDEVMODE", "PYTHONDONTWRITEBYTECODE", "PYTHONOPTIMIZE"])
def test_variables_of_the_interpreter_are_kept(variable: str, tree: Path) -> None:
    expected = python("probe.py", cwd=tree, environment={variable: "1"})
    found = torchdevice("run", "probe.py", cwd=tree, environment={variable: "1"})
    assert (found.stdout, found.returncode) == (expected.stdout, 0)


SEVERAL = """
import asyncio, dataclasses, inspect, multiprocessing, pickle, sys, torch

@dataclasses.dataclass
class Item:
    number: int
    tensor: torch.Tensor

def doubled(item):
    return Item(2 * item.number, item.tensor.to("cuda") * 2), __name__, type(item).__module__, sys.argv

async def later(item):
    await asyncio.sleep(0)
    return doubled(item)[0].number

if __name__ == "__main__":
    print(inspect.getsource(doubled).splitlines()[0], inspect.getfile(Item), inspect.getmodule(later).__name__)
    print(asyncio.run(later(Item(4, torch.ones(1)))))
    for method in ("spawn", "forkserver", "fork"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, pool.map(doubled, [Item(1, torch.ones(1))]))
    failing = multiprocessing.get_context("spawn").Process(target=sys.exit, args=(3,))
    failing.start()
    failing.join()
    print(failing.exitcode, pickle.loads(pickle.dumps(Item(1, torch.ones(2)))))
"""


def test_several_processes_and_pickles_of_main(tmp_path: Path) -> None:
    write(tmp_path, {"several.py": SEVERAL.replace("cuda", "cpu")})
    expected = python("several.py", "a", cwd=tmp_path)
    write(tmp_path, {"several.py": SEVERAL})
    found = torchdevice("run", "-q", "several.py", "a", cwd=tmp_path)
    assert (found.stdout, found.stderr, found.returncode) == (expected.stdout, expected.stderr, 0)
    assert expected.stdout.count("'__mp_main__', '__main__'") == 2 or "'__main__', '__main__'" in expected.stdout


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


SHOWN = """
import asyncio, io, logging, sys, traceback, unittest, warnings, torch

def refused():
    torch.zeros(-1, device="DEVICE")

async def later():
    refused()

class Refusing(unittest.TestCase):
    def test(self):
        refused()

class Dying:
    def __del__(self):
        refused()

def attempt(show):
    try:
        refused()
    except RuntimeError as error:
        show(error)

attempt(lambda error: traceback.print_exc())
attempt(lambda error: logging.exception("logged"))
attempt(lambda error: print(traceback.format_exception(error), traceback.extract_tb(error.__traceback__)))
try:
    asyncio.run(later())
except RuntimeError as error:
    traceback.print_exception(error)
print(traceback.format_exception_only(ValueError("never raised")), traceback.format_exception(ValueError(1)))
shown = io.StringIO()
unittest.TextTestRunner(shown).run(Refusing("test"))
print([line for line in shown.getvalue().splitlines() if not line.startswith("Ran ")])
Dying()
for again in range(2):
    torch.tensor(torch.ones(1), device="DEVICE")    # torch warns in C++, of the line: once
torch.tensor(torch.ones(1), device="DEVICE")        # and of this one
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.tensor(torch.ones(1), device="DEVICE")
    torch.tensor(torch.ones(1), device="DEVICE")
print([(warning.filename, warning.lineno) for warning in caught])
x = torch.ones(3, device="DEVICE", requires_grad=True)
x.register_hook(lambda gradient: traceback.print_stack())
x.sum().backward()
"""


def test_what_a_program_shows_of_its_frames(tmp_path: Path) -> None:
    """Tracebacks that the program prints itself, and the places of warnings."""
    write(tmp_path, {"shows.py": SHOWN.replace("DEVICE", "cpu")})
    expected = python("shows.py", cwd=tmp_path)
    write(tmp_path, {"shows.py": SHOWN.replace("DEVICE", "cuda")})
    found = torchdevice("run", "-q", "shows.py", cwd=tmp_path)
    shown = re.sub(r"[~^]{2,}", "", found.stdout.replace("cuda", "cpu"))  # Python 3.13 marks the call in them, too
    assert (found.returncode, shown) == (0, re.sub(r"[~^]{2,}", "", expected.stdout))
    assert _comparable(found.stderr).replace("cuda", "cpu") == _comparable(expected.stderr)
    assert expected.stderr.count("UserWarning: To copy construct") == 2


def _comparable(text: str) -> str:
    return _unmarked(re.sub(r" at 0x[0-9a-f]+", "", text))


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
    # A shell's background jobs ignore Ctrl-C, and their children would.
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=clean_environment(), **heard) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=60)
    assert running.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in stderr
    assert stderr.splitlines()[-1].startswith(
        "torchdevice: cuda → cpu · 1 call redirected at 1 place · 0 ops fell back"
    )
    assert report.exists()


TERMINATED = """
import signal, sys, time, torch
if sys.argv[1] == "own":
    before = signal.getsignal(signal.SIGTERM)
    def handler(*args):                      # as trainers do: their own after whatever was there
        if callable(before):
            before(*args)
        sys.exit(5)
    signal.signal(signal.SIGTERM, handler)
torch.zeros(2, device="cuda")
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("handler", "options", "status", "lines"),
    [
        ("none", [], -signal.SIGTERM, 0),  # nobody asked for more than the line: the signal is Python's
        ("none", ["--report"], -signal.SIGTERM, 1),
        ("own", ["--report"], 5, 1),
    ],
)
def test_sigterm(handler: str, options: list[str], status: int, lines: int, tmp_path: Path) -> None:
    write(tmp_path, {"waits.py": TERMINATED})
    command = [sys.executable, "-m", "torchdevice", "run", *options, "waits.py", handler]
    environment = clean_environment()
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=environment, cwd=tmp_path) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGTERM)
        _, stderr = running.communicate(timeout=60)
    assert (running.returncode, len(without_summary(stderr)[1])) == (status, lines)
    assert ("torch.zeros  cuda" in stderr) == bool(options)


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
