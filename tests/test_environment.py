"""An environment that is somebody else's decides nothing, in explicit calls too."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from torchdevice import environment

NOBODY = 65534
# What the caller of a program would like to decide.
HOSTILE = {
    "TORCHDEVICE": "1",
    "TORCHDEVICE_TARGET": "klingon",
    "TORCHDEVICE_POLICY": "klingon",
    "TORCHDEVICE_CACHE": "/tmp/somebody-else",
    "TORCHDEVICE_RUN_CACHE": "/tmp/somebody-else",
    "TORCHDEVICE_VIRTUAL": "mps",
    "TORCHDEVICE_VIRTUAL_MEMORY": "klingon",
    "TORCHDEVICE_REPORT": "json:/tmp/somebody-else.json",
    "XDG_CACHE_HOME": "/tmp/somebody-else",
    "XDG_DATA_HOME": "/tmp/somebody-else",
    "HOME": "/tmp/somebody-else",
    "CXX": "/tmp/somebody-else/c++",
}
PROBE = f"""
import os, pwd, sys
sys.path.insert(0, {str(ROOT / "src")!r})
exec(sys.argv[1])
os.environ["PATH"] = "/tmp/somebody-else"
import torch, torchdevice
from torchdevice import config
from torchdevice.virtual import build, installer
assert not torchdevice.is_active()
torchdevice.activate()
assert torchdevice.status().target == "cpu", torchdevice.status()
torchdevice.deactivate()
home = pwd.getpwuid(os.geteuid()).pw_dir
assert str(config.cache_folder()).startswith(home), config.cache_folder()
assert str(config.data_folder()).startswith(home), config.data_folder()
assert str(build.library_path()).startswith(home), build.library_path()
assert installer.limit_from_environment() == 0
assert not any("somebody" in word for word in [*build.find_compiler(), *build._surroundings().values()])
print("untouched")
"""
WAYS = {
    "isolated": (["-I"], ""),
    "without environment": (["-E"], ""),
    "set-uid": ([], f"os.setresuid({NOBODY}, 0, 0)"),
    "set-gid": ([], f"os.setresgid({NOBODY}, 0, 0)"),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_environment_that_is_somebody_else_s_decides_nothing(way: str, tmp_path: Path) -> None:
    options, become = WAYS[way]
    if become and os.geteuid() != 0:
        pytest.skip("needs root to become a program that runs for another user")
    command = [sys.executable, *options, "-c", PROBE, become]
    done = subprocess.run(
        command, env={**os.environ, **HOSTILE}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "untouched\n"), done.stderr


def test_an_environment_of_our_own_is_read() -> None:
    assert environment.environment() is os.environ
    assert environment.home() == Path.home()


# Who passes the environment on to children or writes to it, and who reads variables that are not ours.
OTHERS = {
    "__init__.py": "whether anybody asks; `autoload` decides",
    "answers/devices.py": "torchrun's",
    "autoload.py": "whether anybody asks",
    "bench/calls.py": "passed on",
    "bench/fallbacks.py": "passed on",
    "bench/runner.py": "passed on",
    "bench/startup.py": "passed on",
    "cli/doctor.py": "torch's and CUDA's; passed on",
    "cli/env.py": "shown",
    "cli/run.py": "passed on",
    "config.py": "CUDA's; written for children",
    "distributed/backends.py": "NCCL's and gloo's",
    "distributed/groups.py": "torchrun's",
    "environment.py": "the accessor",
    "packages/triton_interpreter.py": "Triton's",
    "placement.py": "torchrun's",
    "pytest_plugin.py": "written for children",
    "run_child.py": "SLURM's; written for children",
    "session.py": "CUDA's",
    "verify/runner.py": "written for children",
    "virtual/installer.py": "torch's",
}


def test_nobody_else_looks_at_the_environment() -> None:
    package = ROOT / "src" / "torchdevice"
    found = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"):
                found.add(path.relative_to(package).as_posix())
    assert found == set(OTHERS)
