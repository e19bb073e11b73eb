"""Fixtures for all tests: a process that starts and ends without translation, and scripts in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import torchdevice
import torchdevice.virtual
from tests import checkout, selection
from tests.virtual import harness
from torchdevice.ledger import shortages, stand_ins
from torchdevice.session import session

checkout.give_it_an_entry_point()
# pytest imports torch before this file, to resolve a warning filter. Without an entry point torch installed no device.
if (asked := os.environ.get("TORCHDEVICE_VIRTUAL")) and torchdevice.virtual.installed() is None:
    harness.install(asked)
ROOT = Path(__file__).parent.parent


def pytest_configure(config: pytest.Config) -> None:
    # The tests are about machines without a GPU and about virtual ones, so a real GPU is hidden: by numbers that no
    # machine has. An empty list would hide it too, but programs are told of that one. `-m accelerated` runs on the GPU.
    real = os.path.exists("/dev/nvidiactl") or "CUDA_VISIBLE_DEVICES" in os.environ
    if real and config.option.markexpr != "accelerated":
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(1000, 1064)))
    if selection.LEFT_OUT in config.option.markexpr:
        config.pluginmanager.register(selection.Refusal())


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and selection.starts_processes(item):
            item.add_marker("processes")
    items.sort(key=selection.rank)


@pytest.fixture(autouse=True)
def _inactive() -> Iterator[None]:
    """No test inherits translation, counts or settings from another, and none leaves any behind."""
    torchdevice.deactivate()
    session._translator.ledger.clear()
    session._masquerades().audience.ledger.clear()
    stand_ins.clear()
    shortages.clear()
    yield
    torchdevice.deactivate()


@pytest.fixture
def active() -> Iterator[None]:
    """Translation to the CPU."""
    with torchdevice.redirect(target="cpu"):
        yield


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run code as a script in a fresh Python, with the given environment on top of a clean one."""

    def run(code: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "script.py"
        script.write_text(code, encoding="utf-8")
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("TORCHDEVICE", "TORCH_ALLOW"))
        }
        done = subprocess.run(
            [sys.executable, str(script)],
            env={**clean, **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done

    return run
