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


# Functions of a host tensor that take it to the device in different ways.
MOVES = {
    "x.cuda()": lambda x: x.cuda() * 2,
    "x.to(0)": lambda x: x.to(0) * 2,
    "x.to('cuda')": lambda x: x.to("cuda") * 2,
    "x.type('torch.cuda.FloatTensor')": lambda x: x.type("torch.cuda.FloatTensor") * 2,
    "there and back": lambda x: (x.cuda(non_blocking=True) * 2).cpu(),
}


@pytest.mark.parametrize("move", list(MOVES))
@on("cuda")
def test_a_graph_that_gets_its_first_device_tensor_inside_is_compiled(move: str) -> None:
    function, x = MOVES[move], torch.rand(3)
    compiled = torch.compile(function, fullgraph=True)(x)
    assert compiled.device == function(x).device
    assert torch.equal(compiled.cpu(), x * 2)


@on("cuda")
def test_a_compiled_backward_runs_on_the_device() -> None:
    import torch._dynamo

    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1)).cuda()
    x = torch.rand(2, 3, device="cuda")

    def step() -> torch.Tensor:
        net.zero_grad()
        net(x).sum().backward()
        return torch.cat([parameter.grad.flatten() for parameter in net.parameters()])

    expected = step()
    with torch._dynamo.config.patch(compiled_autograd=True):
        compiled = torch.compile(step)()
    assert compiled.is_cuda
    assert torch.allclose(compiled, expected)


@on("cuda")
def test_inductor_that_is_called_by_its_other_names() -> None:
    import torch._dynamo
    from torch._inductor.compile_fx import compile_fx

    x = torch.rand(3)
    for compile_ in (
        lambda function: torch.compile(function, backend=compile_fx),
        lambda function: torch._dynamo.optimize("inductor")(function),
    ):
        torch._dynamo.reset()
        assert torch.equal(compile_(lambda x: x.cuda() + 1)(x).cpu(), x + 1)


@on("cuda")
def test_graphs_that_are_compiled_for_cuda_graphs_run_eagerly() -> None:
    net = torch.nn.Linear(3, 2).cuda()
    compiled = torch.compile(net, backend="cudagraphs")
    for _ in range(3):
        x = torch.rand(4, 3, device="cuda")
        with torch.no_grad():
            assert torch.equal(compiled(x), net(x))
        compiled(x).sum().backward()
    assert net.weight.grad is not None
    on_host = torch.compile(lambda x: x + 1, backend="cudagraphs")
    assert on_host(torch.ones(2)).tolist() == [2, 2]
