"""Which imports find a stand-in, who is told the truth, what is counted, and that nothing is left behind."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import torchdevice
from tests.cli.harness import torchdevice as command
from tests.cli.harness import write
from torchdevice.packages.choices import is_choice
from torchdevice.packages.table import MODULES, PACKAGES

MISSING = [name for name in PACKAGES if importlib.util.find_spec(name) is None]


@pytest.fixture
def active() -> Iterator[None]:
    torchdevice.activate(target="cpu", policy="portable", packages=True)
    yield
    torchdevice.deactivate()


def run(source: str, folder: Path, name: str = "program") -> dict[str, object]:
    """A module with this source, imported from a file: what is a choice is read from there."""
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    space: dict[str, object] = {"__name__": name, "__file__": str(path)}
    exec(compile(source, str(path), "exec"), space)
    return space


@pytest.mark.parametrize("name", [name for name in MODULES if name.partition(".")[0] in MISSING])
def test_each_module_of_the_table_is_there_with_its_names(name: str, active: None) -> None:
    module = importlib.import_module(name)
    assert {each for each in MODULES[name].names if not hasattr(module, each)} == set()
    with pytest.raises(AttributeError, match=r"was asked for; \w+ is not installed[^\0]*\nHint: "):
        module.no_such_name  # noqa: B018


@pytest.mark.parametrize("name", MISSING)
def test_who_looks_before_importing_is_told_the_truth(name: str, active: None) -> None:
    for _ in range(2):  # before and after a program has imported it
        assert importlib.util.find_spec(name) is None
        with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
            importlib.util.find_spec(f"{name}.below")
        with pytest.raises(importlib.metadata.PackageNotFoundError):
            importlib.metadata.version(name)
        importlib.import_module(name)


def test_everything_is_as_before_afterwards() -> None:
    before = importlib.util.find_spec, [*sys.meta_path], {*sys.modules}
    torchdevice.activate(packages=True)
    module = importlib.import_module("flash_attn")
    torchdevice.deactivate()
    assert (importlib.util.find_spec, sys.meta_path) == before[:2]
    assert {name for name in sys.modules if name in MODULES} <= before[2]
    with pytest.raises(ModuleNotFoundError, match="No module named 'flash_attn'"):
        importlib.import_module("flash_attn")
    torchdevice.activate(packages=True)
    try:
        assert importlib.import_module("flash_attn") is module  # classes keep their identity
    finally:
        torchdevice.deactivate()


def test_without_being_asked_for_there_are_none() -> None:
    torchdevice.activate()
    try:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("flash_attn")
    finally:
        torchdevice.deactivate()


CHOICES = {
    "caught": "try:\n    import flash_attn\nexcept ImportError:\n    flash_attn = None\n",
    "caught with others": "try:\n    import flash_attn\nexcept (ImportError, OSError):\n    flash_attn = None\n",
    "caught by all": "try:\n    import flash_attn\nexcept:\n    flash_attn = None\n",
    "suppressed": (
        "import contextlib\nflash_attn = None\nwith contextlib.suppress(ImportError):\n    import flash_attn\n"
    ),
    "in a function": (
        "import importlib\ndef look():\n    try:\n        return importlib.import_module('flash_attn')\n"
        "    except ImportError:\n        return None\nflash_attn = look()\n"
    ),
}
DEMANDS = {
    "plain": "import flash_attn\n",
    "below": "from flash_attn.layers import rotary\nimport flash_attn\n",
    "raised again": "try:\n    import flash_attn\nexcept ImportError as error:\n    raise RuntimeError from error\n",
    "other errors": "try:\n    import flash_attn\nexcept ValueError:\n    flash_attn = None\n",
}


@pytest.mark.parametrize("source", CHOICES.values(), ids=CHOICES)
def test_a_program_with_another_way_keeps_it(source: str, active: None, tmp_path: Path) -> None:
    assert run(source, tmp_path)["flash_attn"] is None


@pytest.mark.parametrize("source", DEMANDS.values(), ids=DEMANDS)
def test_a_program_that_insists_gets_it(source: str, active: None, tmp_path: Path) -> None:
    assert isinstance(run(source, tmp_path)["flash_attn"], ModuleType)


def test_a_choice_further_up_counts(active: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fast_way_of_mine.py").write_text("import flash_attn\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    space = run("try:\n    import fast_way_of_mine as fast\nexcept ImportError:\n    fast = None\n", tmp_path)
    assert space["fast"] is None
    assert isinstance(run("import fast_way_of_mine as fast\n", tmp_path)["fast"], ModuleType)


def test_nobody_importing_is_no_choice() -> None:
    assert not is_choice(sys._getframe())


def test_what_is_installed_wins(active: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flash_attn").mkdir()
    (tmp_path / "flash_attn" / "__init__.py").write_text("flash_attn_func = 'theirs'\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert importlib.import_module("flash_attn").flash_attn_func == "theirs"
        assert importlib.util.find_spec("flash_attn") is not None
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("flash_attn.layers")
    finally:
        sys.modules.pop("flash_attn", None)


PROGRAM = """import torch
from flash_attn import flash_attn_func

q = torch.ones(2, 4, 2, 8, device="cuda", dtype=torch.float16)
for _ in range(3):
    out = flash_attn_func(q, q, q, causal=True)
flash_attn_func(q, q, q, softcap=1.0)
print(tuple(out.shape), "torchdevice.packages.xformers" in __import__("sys").modules)
"""


def test_a_program_under_run_is_counted_with_its_lines(tmp_path: Path) -> None:
    folder = write(tmp_path, {"program.py": PROGRAM})
    done = command("run", "--target", "cpu", "--report", folder / "program.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(2, 4, 2, 8) False\n"
    assert "4 calls computed by stand-ins at 2 places" in done.stderr.splitlines()[-1]
    rows = [line.split() for line in done.stderr.splitlines() if line.startswith("flash_attn_func")]
    assert [row[:6] for row in rows] == [
        ["flash_attn_func", "flash_attn", "scaled_dot_product_attention", "3", "1", f"{folder}/program.py:6"],
        ["flash_attn_func", "flash_attn", "explicit", "math", "1", "1"],
    ]


def test_no_packages_turns_them_off(tmp_path: Path) -> None:
    folder = write(tmp_path, {"program.py": PROGRAM})
    done = command("run", "--target", "cpu", "--no-packages", folder / "program.py")
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'flash_attn'\ntorchdevice: flash_attn was imported" in done.stderr
    assert "Hint: " in done.stderr


def test_children_inherit_the_switch(tmp_path: Path) -> None:
    source = (
        "import torch.multiprocessing as mp\n"
        "def work(rank):\n"
        "    import torch, flash_attn\n"
        "    q = torch.ones(1, 2, 1, 4)\n"
        "    flash_attn.flash_attn_func(q, q, q)\n"
        "if __name__ == '__main__':\n"
        "    mp.spawn(work, nprocs=2)\n"
    )
    folder = write(tmp_path, {"program.py": source})
    done = command("run", "--target", "cpu", folder / "program.py")
    assert done.returncode == 0, done.stderr
    assert "2 calls computed by stand-ins at 1 place" in done.stderr.splitlines()[-1]
