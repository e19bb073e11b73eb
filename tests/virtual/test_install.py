"""Installing: what is refused, and with which words; the environment's form; the build and its cache."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchdevice.virtual
from tests.virtual.harness import on, run_python
from torchdevice.errors import AlreadyActive, ConfigError, TorchDeviceWarning, VirtualDeviceUnavailable
from torchdevice.virtual import build, installer


@on("cuda", only_cpu="installs a device on the CPU")
def test_a_second_install() -> None:
    first = torchdevice.virtual.installed()
    assert torchdevice.virtual.install("cuda") is first
    for device, count in (("cuda", 2), ("mps", 1)):
        with pytest.raises(AlreadyActive, match="Hint: use a separate process"):
            torchdevice.virtual.install(device, count)
    torch.ones(2, device="cuda") + 1
    assert torchdevice.virtual.counts()["aten::add.Tensor"] == 1
    assert torchdevice.virtual.denied() == {}
    torchdevice.virtual.reset_counts()
    assert torchdevice.virtual.counts() == {}


@on("")
def test_after_the_first_backward_autograd_is_repaired() -> None:
    x = torch.ones(2, requires_grad=True)
    x.sum().backward()
    with pytest.warns(TorchDeviceWarning, match="after the first backward"):
        torchdevice.virtual.install("cuda", 2)
    for device in ("cuda:0", "cuda:1"):
        y = torch.ones(2, device=device, requires_grad=True)
        (y * y).sum().backward()
        assert y.grad.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("device", "count", "support"), [("tpu", 1, "all"), ("cuda", 0, "all"), ("mps", 2, "all"), ("mps", 1, "some")]
)
def test_what_means_nothing_is_refused(device: str, count: int, support: str) -> None:
    with pytest.raises(ConfigError, match="Hint: "):
        torchdevice.virtual.install(device, count, support)  # type: ignore[arg-type]


def test_bad_environment_values() -> None:
    with pytest.raises(ConfigError, match="neither a count nor `real`"):
        torchdevice.virtual.from_environment("mps:rael")
    with pytest.raises(ConfigError, match="not a size"):
        installer.parse_size("lots")
    assert installer.parse_size("2GiB") == 2 << 30
    assert installer.parse_size("512 mb") == 512 << 20
    assert installer.parse_size("1000") == 1000


def test_a_real_device_is_not_shadowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(VirtualDeviceUnavailable, match="CUDA_VISIBLE_DEVICES"):
        torchdevice.virtual.install("cuda")


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("TORCHDEVICE_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(VirtualDeviceUnavailable, match=r"no C\+\+ compiler was found.*\n?Hint: install one"):
        build.build()


@pytest.mark.processes
def test_the_cache_is_keyed_and_can_be_cleaned(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("TORCHDEVICE_CACHE", str(tmp_path))
    wanted = build.target()
    assert wanted.torch_version in wanted.name
    assert wanted._replace(compiler="another").name != wanted.name
    build.private.folder()
    build.library_path(wanted).touch()
    assert torchdevice.virtual.info()["built"]
    assert [path.name for path in build.clean()] == [f"{wanted.name}.so"]
    assert build.cached() == []


@pytest.mark.processes
def test_a_broken_build_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    fake = tmp_path / "c++"
    fake.write_text("#!/bin/sh\necho 'x.cpp:1: error: unknown standard' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("TORCHDEVICE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", str(fake))
    with pytest.raises(VirtualDeviceUnavailable, match=r"unknown standard.*\nHint: use a compiler with C\+\+20"):
        build.build()
    assert build.cached() == []


def test_importing_is_light() -> None:
    done = run_python("-c", "import sys, torchdevice.virtual; sys.exit('torch' in sys.modules)")
    assert done.returncode == 0, done.stderr


@pytest.mark.processes
def test_the_library_compiles_without_a_warning() -> None:
    assert build.build().with_suffix(".log").read_text() == ""


@pytest.mark.processes
def test_a_binary_that_is_not_whole_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDEVICE_CACHE", str(tmp_path))
    built = []

    def pretend(recipe: build.Recipe, compiler: str, abi: bool, into: Path) -> None:
        built.append(into)
        into.write_bytes(b"binary")
        into.with_suffix(".sha256").write_text(hashlib.sha256(b"binary").hexdigest())

    monkeypatch.setattr(build, "_compile", pretend)
    path = build.build()
    assert build.build() == path
    assert built == [path]
    path.write_bytes(b"bin")  # a full disk
    build.build()
    assert len(built) == 2
    path.with_suffix(".sha256").unlink()  # killed before it was done
    build.build()
    assert len(built) == 3
    killed = path.parent / "build-killed"
    killed.mkdir()
    (killed / "api.o").touch()
    assert build.clean() == [path]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="macOS has one C++ runtime for all")
def test_the_library_is_linked_with_the_runtime_of_torch() -> None:
    """A compiler that links its own copy statically crashed the process in the first message that holds a number."""
    (runtime,) = build._runtime_of_torch()
    assert Path(runtime).is_file()
    symbols = subprocess.run(["nm", "-D", "--defined-only", build.build()], capture_output=True, text=True, check=True)
    assert "_ZNSolsEi" not in symbols.stdout  # std::ostream::operator<<(int)
