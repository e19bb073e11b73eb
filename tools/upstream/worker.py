"""Runs tests of one of PyTorch's files in this process and prints a line of JSON per test.

    python -m tools.upstream.worker FOLDER FILE MODE --list      their names
    python -m tools.upstream.worker FOLDER FILE MODE             runs the names on its input, each for at most a minute
    python -m tools.upstream.worker FOLDER FILE MODE 5           … for at most five seconds

MODE is what TORCHDEVICE_VIRTUAL takes, or "real" for the device that is there. A test that takes longer ends the
process, as a crash does; the caller goes on with the next one (`tools.conformance.run.run_worker`).
"""

from __future__ import annotations

import faulthandler
import importlib
import itertools
import json
import os
import platform
import re
import subprocess
import sys
import time
import unittest
import warnings
from pathlib import Path
from typing import Any

from tools.upstream.table import REAL

SECONDS = 60
A_MAC = "26.0"  # the version of macOS that test_mps finds elsewhere
PLACE = re.compile(r'^  File "[^"]*/(\w+\.py)", line (\d+)', re.MULTILINE)
ONE_LINE = 300


def restore_lost_names() -> None:
    """What the tests ask for at their import, and a newer torch or another machine does not have."""
    if not platform.mac_ver()[0]:  # before torch's tools ask
        platform.mac_ver = lambda *_: (A_MAC, ("", "", ""), "arm64")
    import psutil
    import torch
    from torch.testing._internal import common_cuda, common_mkldnn, common_nn

    lost: dict[tuple[Any, str], Any] = {
        (common_cuda, "tf32_is_not_fp32"): lambda: torch.cuda.get_device_capability() >= (8, 0),
        (common_mkldnn, "bf32_on_and_off"): getattr(common_mkldnn, "reduced_f32_on_and_off", None),
        (common_nn, "new_module_tests"): getattr(common_nn, "get_new_module_tests", list)(),
    }
    for (owner, name), value in lost.items():
        if not hasattr(owner, name):
            setattr(owner, name, value)
    asked = subprocess.check_output

    def answer(command: Any, *args: Any, **named: Any) -> Any:
        if command == ["sysctl", "-n", "hw.memsize"]:  # a Mac's, in test_mps
            return str(psutil.virtual_memory().total).encode()
        return asked(command, *args, **named)

    vars(subprocess)["check_output"] = answer


def load(folder: Path, file: str, mode: str) -> dict[str, unittest.TestCase]:
    """The tests by name, on the device."""
    os.environ["PYTORCH_TESTING_DEVICE_ONLY_FOR"] = "cuda" if mode == REAL else re.split("[:@]", mode)[0]
    os.environ["PYTORCH_TEST_WITH_SLOW"] = "0"
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    if mode != REAL:
        import torchdevice.virtual

        torchdevice.virtual.from_environment(mode)
        os.environ["TORCHDEVICE_VIRTUAL"] = mode  # for processes that tests start
    restore_lost_names()
    module = importlib.import_module(file)
    classes = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, unittest.TestCase)]
    own = [each for each in classes if each.__module__ == file]
    # One by one: the files have a `load_tests` that refuses any caller but itself.
    loaded: Any = itertools.chain.from_iterable(map(unittest.defaultTestLoader.loadTestsFromTestCase, own))
    return {each.id().partition(".")[2]: each for each in loaded}


def run(test: unittest.TestCase) -> dict[str, Any]:
    """The outcome of one test: passed, failed or skipped, and why."""
    result = unittest.TestResult()
    owner: Any = type(test)
    try:
        owner.setUpClass()
        test.run(result)
    except unittest.SkipTest as reason:
        return {"status": "skipped", "why": str(reason)[:ONE_LINE]}
    finally:
        owner.tearDownClass()
    if result.failures or result.errors:
        text = (result.failures + result.errors)[0][1]
        last = [line for line in text.strip().splitlines() if re.match(r"[\w.]+(Error|Exception|Warning|Exit)\b", line)]
        place = [":".join(found) for found in PLACE.findall(text)]
        return {"status": "failed", "why": (last or [text[-ONE_LINE:]])[-1][:ONE_LINE], "at": " ".join(place[-4:])}
    if result.skipped:
        return {"status": "skipped", "why": result.skipped[0][1][:ONE_LINE]}
    if result.unexpectedSuccesses:
        return {"status": "failed", "why": "an expected failure passed"}
    return {"status": "passed"}


def main() -> None:
    """Lines on what was standard output: tests may print."""
    folder, file, mode, *options = sys.argv[1:]
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    # Threads of OpenMP wait actively. Where other processes use the same cores, a small operator then takes ten times
    # as long, and a test runs into the limit.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.simplefilter("default")  # as unittest has it: tests count them
    warnings.showwarning = lambda *_, **__: None
    tests = load(Path(folder), file, mode)
    if options == ["--list"]:
        lines.write("\n".join(sorted(tests)) + "\n")
        lines.close()
        return
    seconds = int(options[0]) if options else SECONDS
    names = sys.stdin.read().split("\n")
    for name in names:
        print(json.dumps({"op": name, "status": "started"}), file=lines, flush=True)
        faulthandler.dump_traceback_later(seconds, exit=True)
        begun = time.monotonic()
        row = run(tests[name])
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"op": name, **row, "seconds": round(time.monotonic() - begun, 2)}), file=lines, flush=True)
    lines.close()
    os._exit(0)  # what tests left running does not matter


if __name__ == "__main__":
    main()
