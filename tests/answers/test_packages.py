"""Packages that compute by CUDA itself: what a program is told that one of them ended."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tests.cli.harness import torchdevice, write
from torchdevice.answers.packages import NOT_IN_STAND_IN, PACKAGES, SWITCHED_OFF, WITH_CPU_BACKEND, hint, package
from torchdevice.answers.rows import TRUTH_PACKAGES
from torchdevice.packages import table
from torchdevice.tracebacks import followed_by


def raised_in(module: str, error: BaseException) -> BaseException:
    space: dict[str, object] = {"__name__": module, "error": error}
    exec("def fail():\n    raise error", space)
    with pytest.raises(type(error)) as raised:
        space["fail"]()  # type: ignore[operator]
    return raised.value


def test_every_package_that_gets_the_truth_has_a_row() -> None:
    assert {name for name in TRUTH_PACKAGES if "/" not in name} <= set(PACKAGES)
    assert all(PACKAGES.values())


@pytest.mark.parametrize("name", sorted(PACKAGES.keys() - table.PACKAGES.keys()))
def test_a_missing_package_and_one_that_failed_are_explained(name: str) -> None:
    for module in (name, f"{name}.kernels"):
        missing = hint(ModuleNotFoundError(f"No module named '{module}'", name=module), "cpu")
        assert missing.startswith(f"{name} was imported, and is not available; the device here is cpu")
        failed = hint(raised_in(module, RuntimeError("no driver")), "mps")
        assert failed.startswith(f"{name} failed; the device here is mps")
        advice = f"install {name}; it has a CPU backend" if name in WITH_CPU_BACKEND else PACKAGES[name]
        assert missing.endswith(f"\nHint: {advice}")
        assert failed.endswith(f"\nHint: {PACKAGES[name]}")


@pytest.mark.parametrize("name", table.PACKAGES)
def test_a_missing_package_with_a_stand_in_says_how_to_get_it(name: str) -> None:
    missing = hint(ModuleNotFoundError(f"No module named '{name}'", name=name), "mps")
    assert missing.startswith(f"{name} was imported, and is not available; the device here is mps, {name} is not")
    assert missing.endswith(f"\nHint: {SWITCHED_OFF}")


def test_other_errors_get_no_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [ModuleNotFoundError("No module named 'tritonclient'", name="tritonclient"), ValueError("made by hand")]
    others += [raised_in("apexlike.amp", RuntimeError("no"))]  # type: ignore[list-item]
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    shown: list[object] = []
    show = followed_by(lambda *args: shown.append(args), lambda error: hint(error, "cpu"))
    for error in others:
        assert hint(error, "cpu") == ""
        show(type(error), error, error.__traceback__)
    assert len(shown) == len(others)
    assert said.getvalue() == ""
    assert package("flash_attn_interface") is None


@pytest.mark.parametrize("missing", ["import flash_attn.no_such_module", "from flash_attn import no_such_name"])
def test_what_a_stand_in_lacks_is_explained(missing: str, tmp_path: Path) -> None:
    folder = write(tmp_path, {"program.py": f"import torch\n{missing}\n"})
    done = torchdevice("run", "--target", "cpu", folder / "program.py")
    assert done.returncode == 1
    assert "the device here is cpu, flash_attn is not installed, and its stand-in lacks this name" in done.stderr
    assert f"\nHint: {NOT_IN_STAND_IN}" in done.stderr
    assert "1 unsupported" in done.stderr.splitlines()[-1]


def test_a_package_beside_the_program_is_the_programs_own(tmp_path: Path) -> None:
    folder = write(tmp_path, {"triton/__init__.py": "", "program.py": "import torch\nimport triton.language\n"})
    done = torchdevice("run", "--target", "cpu", folder / "program.py")
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'triton.language'\n" in done.stderr
    assert "Hint:" not in done.stderr


@pytest.mark.parametrize("virtual", [(), ("--virtual", "cuda"), ("--virtual", "mps:real")], ids=["cpu", "cuda", "mps"])
def test_a_missing_extension_is_explained_by_the_sources_beside_it_and_counted(
    virtual: tuple[str, ...], tmp_path: Path
) -> None:
    modules = '[submodule "knn"]\n\tpath = sub/knn\n'
    files = {"lib/draw.py": "import rasterizer_of_mine\n", "cuda/a.cu": "", ".gitmodules": modules}
    folder = write(tmp_path, {**files, "program.py": "import torch\nimport lib.draw\n"})
    done = torchdevice("run", "--policy", "portable", *virtual, folder / "program.py")
    assert done.returncode == 1
    assert (
        "torchdevice: rasterizer_of_mine was imported, and is not available; the program contains CUDA sources "
        f"({Path('cuda/a.cu')}) and git submodules (sub/knn), and CUDA sources cannot be compiled"
    ) in done.stderr
    assert "\nHint: if rasterizer_of_mine is built from them" in done.stderr
    assert "1 unsupported" in done.stderr.splitlines()[-1]


def test_a_missing_module_of_a_program_without_such_sources_gets_no_hint(tmp_path: Path) -> None:
    folder = write(tmp_path, {"program.py": "import torch\nimport rasterizer_of_mine\n"})
    done = torchdevice("run", "--target", "cpu", folder / "program.py")
    assert "Hint:" not in done.stderr
    assert "nothing was redirected" in done.stderr.splitlines()[-1]


def test_a_listed_package_that_ended_a_program_is_counted(tmp_path: Path) -> None:
    folder = write(tmp_path, {"program.py": "import torch\nimport gsplat\n"})
    done = torchdevice("run", "--target", "cpu", folder / "program.py")
    assert "torchdevice: gsplat was imported" in done.stderr
    assert "1 unsupported" in done.stderr.splitlines()[-1]
