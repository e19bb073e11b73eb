"""Interpreters with options, tracers and debuggers, archives and frozen programs, the end of a process, reloads."""

from __future__ import annotations

import compileall
import copy
import copyreg
import functools
import gc
import importlib
import pickle
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import coverage
import pytest
import torch

import torchdevice
from tests.cli.harness import python, write
from tests.test_session import differences, snapshot

PACKAGE = Path(torchdevice.__file__).parent
STEP = """
import torch
x = torch.ones(2, device="cuda", requires_grad=True)
torch.nn.Linear(2, 2).cuda()(x).sum().backward()
torch.cuda.synchronize()
assert x.grad.device.type == "cpu" and torch.cuda.is_available()
print("done")
"""


def test_interpreter_options() -> None:
    options = ["-O", "-X", "importtime", "-X", "dev", "-W", "error"]
    done = python(*options, "-c", STEP, environment={"TORCHDEVICE": "1"})
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]
    (told,) = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert told.startswith("torchdevice: <string>:3: torch.ones(cuda) → cpu: ")  # the first redirection; no warning


ENDING = """
import atexit, faulthandler, signal, time, torch
faulthandler.enable()
signal.signal(signal.SIGALRM, lambda *_: print("signal", torch.ones(1, device="cuda").device))
signal.setitimer(signal.ITIMER_REAL, 0.01)
until = time.monotonic() + 0.1
while time.monotonic() < until:                  # the signal comes in the middle of our own code
    torch.ones(1, device="cuda").to("cuda")

class Kept:
    def __del__(self):                           # when modules are taken down, at the very end
        print("del", self.make(1, device="cuda").device, flush=True)

Kept.make = staticmethod(torch.zeros)
kept = Kept()
atexit.register(lambda: print("atexit", torch.ones(1, device="cuda").device))
print("end")
"""


def test_signals_atexit_and_the_end_of_the_interpreter(tmp_path: Path) -> None:
    write(tmp_path, {"ending.py": ENDING})
    done = python("-m", "torchdevice", "run", "ending.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "signal cpu\nend\natexit cpu\ndel cpu\n"), done.stderr[-2000:]
    assert done.stderr.startswith("torchdevice: cuda → cpu · ")
    assert len(done.stderr.splitlines()) == 1


def redirecting() -> list[str]:
    made = torch.ones(2, device="cuda").to("cuda")
    assert torch.cuda.is_available()
    return [str(made.device), str(torch.nn.Linear(2, 2).cuda().weight.device)]


def traced(work: Callable[[], Any], install: Callable[[Any], None]) -> Any:
    def trace(*args: Any) -> Any:
        return trace

    install(trace)
    try:
        return work()
    finally:
        install(None)


@pytest.mark.parametrize("tool", ["settrace", "setprofile", "coverage"])
def test_tools_that_watch_every_line(tool: str, active: None) -> None:
    """The same places, the same counts, with and without."""
    redirecting()
    before = torchdevice.status().redirected_calls
    if tool == "coverage":
        watching = coverage.Coverage(data_file=None)
        watching.start()
        try:
            found = redirecting()
        finally:
            watching.stop()
    else:
        found = traced(redirecting, getattr(sys, tool))
    assert found == ["cpu", "cpu"]
    assert torchdevice.status().redirected_calls - before == 3
    assert torchdevice.status().redirected_places == 2


def test_a_debugger(tmp_path: Path) -> None:
    write(tmp_path, {"step.py": STEP})
    commands = "b step.py:4\nc\ns\nu\np x.device.type\nn\nc\nq\n"
    done = python("-m", "pdb", "step.py", cwd=tmp_path, stdin=commands, environment={"TORCHDEVICE": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    assert "'cpu'" in done.stdout
    assert "done" in done.stdout
    assert "Error" not in done.stdout


FROM_ELSEWHERE = """
import sys
sys.path[:] = [sys.argv[1], *(path for path in sys.path if not path.endswith("src"))]
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in str(finder).lower()]
sys.frozen = True
import torch, torchdevice, torchdevice.virtual
assert torchdevice.__file__.startswith(sys.argv[1]), torchdevice.__file__
torchdevice.activate()
assert torch.zeros(2, device="cuda").cuda().device.type == "cpu" and torch.cuda.device_count() == 1
from torchdevice.reporting import html
from torchdevice.reporting.collect import Context
assert "<table" in html.render(torchdevice.report(), Context())
torchdevice.deactivate()
try:
    torchdevice.virtual.install("mps")
except torchdevice.VirtualDeviceUnavailable as error:
    print(error)
"""


@pytest.mark.parametrize("form", ["archive", "frozen"])
def test_our_own_package_without_files(form: str, tmp_path: Path) -> None:
    """In a zip file, or as bytecode alone, the way programs are frozen: all but what must be compiled works."""
    elsewhere = tmp_path / "td.zip"
    if form == "archive":
        with zipfile.ZipFile(elsewhere, "w") as archive:
            for path in PACKAGE.rglob("*"):
                if path.suffix in (".py", ".jinja"):
                    archive.write(path, Path("torchdevice") / path.relative_to(PACKAGE))
    else:
        elsewhere = tmp_path / "frozen"
        shutil.copytree(
            PACKAGE, elsewhere / "torchdevice", ignore=shutil.ignore_patterns("__pycache__", "*.cpp", "data")
        )
        compileall.compile_dir(elsewhere, quiet=1, legacy=True)
        for source in elsewhere.rglob("*.py"):
            source.unlink()
    done = python("-c", FROM_ELSEWHERE, str(elsewhere), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "its C++ sources are not in" in done.stdout
    assert "Hint:" in done.stdout


def test_a_reload_keeps_what_is_in_force() -> None:
    before = snapshot()
    torchdevice.activate(target="cpu")
    importlib.reload(torchdevice)
    importlib.reload(sys.modules["torchdevice.session"])
    assert torchdevice.is_active()
    assert torch.zeros(1, device="cuda").device.type == "cpu"
    torchdevice.deactivate()
    assert differences(before, snapshot()) == []


def test_pickles_and_copies_of_what_is_replaced(active: None) -> None:
    """What a program sends to its children by name; and reducers of its own."""
    for thing in (torch.zeros, torch.Tensor.cuda, torch.cuda.is_available, torch.device, torch.Generator, torch.load):
        assert pickle.loads(pickle.dumps(thing)) is thing
        assert copy.deepcopy(thing) is thing
    make = pickle.loads(pickle.dumps(functools.partial(torch.zeros, 2, device="cuda")))
    assert make().device.type == "cpu"

    class Wrapped:
        def __init__(self, device: Any) -> None:
            self.device = device

    copyreg.pickle(Wrapped, lambda wrapped: (torch.device, (wrapped.device.type,)))  # type: ignore[arg-type]
    try:
        assert pickle.loads(pickle.dumps(Wrapped(torch.device("cuda")))) == torch.device("cpu")
        assert copy.copy(Wrapped(torch.device("cuda"))) == torch.device("cpu")
    finally:
        copyreg.dispatch_table.pop(Wrapped)  # type: ignore[arg-type]


@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_rests_while_we_start_and_is_left_as_it_was(collects: bool) -> None:
    passes = []
    before, thresholds = gc.isenabled(), gc.get_threshold()
    gc.callbacks.append(lambda phase, info: passes.append(phase))
    try:
        gc.set_threshold(1)
        gc.enable() if collects else gc.disable()
        with pytest.raises(torchdevice.TargetUnavailable):
            torchdevice.activate(target="xpu")
        assert gc.isenabled() is collects
        passes.clear()
        torchdevice.activate()
        during = len(passes)
        torchdevice.deactivate()
        assert gc.isenabled() is collects
    finally:
        gc.callbacks.pop()
        gc.set_threshold(*thresholds)
        gc.enable() if before else gc.disable()
    assert during < 2000  # without a rest: one for every object that is made, tens of thousands


def test_an_interpreter_without_its_lock_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    for attempt in (torchdevice.activate, torchdevice.redirect().__enter__):
        with pytest.raises(torchdevice.InterpreterUnsupported, match="PYTHON_GIL=1"):
            attempt()
    assert not torchdevice.is_active()


IN_A_SUB_INTERPRETER = """
from torchdevice import process
made = process._numbers()
number = made.create()
result = made.run_string(number, '''
import torchdevice
try:
    torchdevice.activate()
except torchdevice.InterpreterUnsupported as refusal:
    assert "sub-interpreter" in str(refusal)
else:
    raise SystemError
''')
made.destroy(number)
assert result is None, result
print("refused")
"""


def test_a_sub_interpreter_is_refused_before_torch_hangs_in_it() -> None:
    """In a process of its own: once there was one, Python says that every thread holds its lock, and torch refuses."""
    done = python("-c", IN_A_SUB_INTERPRETER)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr[-2000:]
