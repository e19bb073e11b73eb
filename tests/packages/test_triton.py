"""Triton: its interpreter where it is installed, modules that can be imported where it is not."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.cli.harness import torchdevice as command
from tests.cli.harness import write

INSTALLED = importlib.util.find_spec("triton") is not None
installed = pytest.mark.skipif(not INSTALLED, reason="triton is not installed")
missing = pytest.mark.skipif(INSTALLED, reason="triton is installed")

KERNEL = """import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": size}, num_warps=4) for size in (64, 32)]

@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, x + tl.load(y_ptr + offsets, mask=inside), mask=inside)

x, y = torch.arange(100.0, device="cuda"), torch.ones(100, device="cuda")
out = torch.empty_like(x)
add_kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, y, out, 100)
print(torch.equal(out.cpu(), (x + y).cpu()), add_kernel.configs[0].kwargs, triton.next_power_of_2(100))
"""


@installed
@pytest.mark.parametrize("device", [("--target", "cpu"), ("--virtual", "cuda"), ("--virtual", "mps:real")])
def test_kernels_run_in_tritons_own_interpreter(device: tuple[str, ...], tmp_path: Path) -> None:
    folder = write(tmp_path, {"program.py": KERNEL})
    done = command("run", *device, "--report", folder / "program.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True {'BLOCK': 64} 128\n"
    assert "program.py:17: TorchDeviceWarning: torchdevice: Triton's kernels run in its interpreter" in done.stderr
    assert "1 call computed by stand-ins at 1 place" in done.stderr.splitlines()[-1]
    row = next(line.split() for line in done.stderr.splitlines() if line.startswith("add_kernel"))
    assert row[:6] == ["add_kernel", "triton", "Triton's", "interpreter", "1", "1"]


@installed
def test_numbers_and_math_of_nvidias_library(tmp_path: Path) -> None:
    program = """import torch, triton, triton.language as tl
from triton.language.extra import libdevice

@triton.jit
def kernel(x_ptr, out_ptr, eps, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr + tl.arange(0, N), libdevice.rsqrt(x + eps.to(tl.float32)) + libdevice.tanh(libdevice.pow(x, 2.0)))

x = torch.linspace(0.1, 2, 8, device="cuda")
out = torch.empty_like(x)
kernel[(1,)](x, out, 0.5, N=8)
torch.testing.assert_close(out, torch.rsqrt(x + 0.5) + torch.tanh(x**2))
"""
    done = command("run", "--target", "cpu", write(tmp_path, {"program.py": program}) / "program.py")
    assert done.returncode == 0, done.stderr


@installed
def test_the_counter_of_a_loop_is_a_tensor_as_in_a_compiled_kernel(tmp_path: Path) -> None:
    program = """import torch, triton, triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, n, N: tl.constexpr):
    total = tl.zeros([N], tl.float32)
    for row in range(tl.cdiv(n, 1)):
        total += tl.load(x_ptr + row.to(tl.int64) * N + tl.arange(0, N)) * row
    for twice in tl.static_range(2):
        total += twice
    tl.store(out_ptr + tl.arange(0, N), total)

x = torch.randn(3, 8, device="cuda")
out = torch.empty(8, device="cuda")
kernel[(1,)](x, out, 3, N=8)
torch.testing.assert_close(out, x[1] + 2 * x[2] + 1)
"""
    done = command("run", "--target", "cpu", write(tmp_path, {"program.py": program}) / "program.py")
    assert done.returncode == 0, done.stderr


@installed
def test_an_array_of_one_element_is_an_index(tmp_path: Path) -> None:
    """NumPy 2.5 raises the error that NumPy 2.4 announces by a warning."""
    program = """import torch, triton, triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, n, N: tl.constexpr):
    for start in range(0, n * 1, N):
        at = start + tl.arange(0, N)
        tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)

x = torch.randn(20, device="cuda")
out = torch.empty(20, device="cuda")
kernel[(1,)](x, out, 20, N=8)
torch.testing.assert_close(out, 2 * x)
"""
    announced = {"PYTHONWARNINGS": "error:Conversion of an array:DeprecationWarning"}
    path = write(tmp_path, {"program.py": program}) / "program.py"
    done = command("run", "--target", "cpu", path, environment=announced)
    assert done.returncode == 0, done.stderr


@installed
@pytest.mark.parametrize("device", [("--virtual", "cuda")])
def test_on_a_virtual_device_who_has_another_way_takes_it(device: tuple[str, ...], tmp_path: Path) -> None:
    program = """import importlib.util
import torch
try:
    import triton
except ImportError:
    triton = None
looked = importlib.util.find_spec("triton")
import triton as demanded
print(triton, looked, demanded.__name__, importlib.util.find_spec("triton"))
"""
    done = command("run", *device, write(tmp_path, {"program.py": program}) / "program.py")
    assert (done.returncode, done.stdout) == (0, "None None triton None\n"), done.stderr


@missing
def test_modules_with_kernels_can_be_imported_and_a_launch_names_the_kernel(tmp_path: Path) -> None:
    folder = write(tmp_path, {"program.py": KERNEL})
    done = command("run", "--target", "cpu", folder / "program.py")
    assert done.returncode == 1
    assert "CudaOnlyError: the kernel __main__.add_kernel was called; it needs Triton" in done.stderr
    assert "\nHint: use the program's code path for plain PyTorch" in done.stderr
    assert "computed by stand-ins" not in done.stderr
    assert "· 1 unsupported" in done.stderr


@missing
def test_what_is_no_launch_works(tmp_path: Path) -> None:
    program = """import torch
import triton, triton.language as tl, triton.runtime, triton.testing
from triton.language.extra.libdevice import tanh
from triton.runtime.jit import JITFunction
from torchdevice import CudaOnlyError

SIZE: tl.constexpr = tl.constexpr(8)

@triton.heuristics({"EVEN": lambda args: True})
@triton.jit(debug=True)
def scale(x_ptr, n, EVEN: tl.constexpr, dtype: tl.constexpr = tl.float32):
    "Doubles."

assert isinstance(scale.fn, JITFunction) and scale.arg_names == ["x_ptr", "n", "EVEN", "dtype"]
assert (triton.cdiv(7, 2), triton.next_power_of_2(64), SIZE == 8) == (4, 64, True)
for call in (lambda: tanh(1), lambda: triton.runtime.driver.active, lambda: triton.testing.do_bench(scale)):
    try:
        call()
    except CudaOnlyError as error:
        assert "Hint:" in str(error)
    else:
        raise AssertionError
print(torch.compile(lambda x: x.sin() + 1)(torch.zeros(3)).tolist(), triton.__version__)
"""
    done = command("run", "--target", "cpu", write(tmp_path, {"program.py": program}) / "program.py")
    assert (done.returncode, done.stdout) == (0, "[1.0, 1.0, 1.0] 3.5.0\n"), done.stderr


@missing
def test_torch_and_programs_with_another_way_do_not_see_it(tmp_path: Path) -> None:
    program = """import torch, torch.utils._triton
try:
    import triton
except ImportError:
    triton = None
print(triton, torch.utils._triton.has_triton_package())
"""
    done = command("run", "--target", "cpu", write(tmp_path, {"program.py": program}) / "program.py")
    assert (done.returncode, done.stdout) == (0, "None False\n"), done.stderr
