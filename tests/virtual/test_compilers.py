"""What compiles for a real device has no place on a virtual one, and is not found there."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
import torch

from tests.checkout import source_paths
from tests.cli.harness import write
from tests.virtual.harness import on, run_python


@on("cuda")
def test_triton_is_not_found() -> None:
    assert importlib.util.find_spec("triton") is None
    with pytest.raises(ModuleNotFoundError) as raised:
        import triton  # noqa: F401
    assert raised.value.name == "triton"
    from torch.utils._triton import has_triton_package

    assert not has_triton_package()
    assert torch.compile(lambda x: x + 1)(torch.ones(2, device="cuda")).tolist() == [2, 2]


@pytest.mark.parametrize("own", [True, False])
def test_only_the_installed_triton_is_hidden(own: bool, tmp_path: Path) -> None:
    installed = "site-packages/triton/__init__.py"
    program = "import torch\ntry:\n    import triton\n    print(triton.MINE)\nexcept ImportError:\n    print('none')\n"
    mine = {"triton/__init__.py": "MINE = 'mine'\n"} if own else {}
    folder = write(tmp_path, {"program.py": program, installed: "MINE = 'installed'\n", **mine})
    path = os.pathsep.join([*source_paths(), str(folder / "site-packages")])
    done = run_python(str(folder / "program.py"), env={"PYTHONPATH": path, "TORCHDEVICE_VIRTUAL": "cuda"})
    assert (done.stdout, done.stderr) == ("mine\n" if own else "none\n", "")


@on("cuda")
def test_cuda_sources_are_refused_with_a_hint() -> None:
    from torch.utils.cpp_extension import CUDAExtension

    with pytest.raises(OSError, match=r"CUDA_HOME environment variable is not set.*\nHint: build"):
        CUDAExtension("kernels", ["kernels.cu"])


@on("cuda")
def test_builders_of_cuda_sources_get_the_answer_of_translation_and_are_counted() -> None:
    from torch.utils import cpp_extension

    import torchdevice

    torchdevice.activate(policy="portable")
    for build, arguments in {
        cpp_extension.CUDAExtension: ("kernels", ["bind.cpp", "a/kernels.cu"]),
        cpp_extension.load: ("kernels", ["bind.cpp", "a/kernels.cu"]),
        cpp_extension.load_inline: ("kernels", "", "__global__ void f() {}"),
    }.items():
        with pytest.raises(torchdevice.CudaExtensionRefused, match="the extension 'kernels'") as refused:
            build(*arguments)
        assert isinstance(refused.value, (OSError, RuntimeError))
        assert ("a/kernels.cu" in str(refused.value)) == (build is not cpp_extension.load_inline)
    assert "3 unsupported" in torchdevice.report().summary()
    with pytest.raises(TypeError):
        cpp_extension.load()
    assert cpp_extension.CppExtension("plain", ["bind.cpp"]).name == "plain"
