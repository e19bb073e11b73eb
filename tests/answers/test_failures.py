"""A target's failures reach user code as CUDA's: on the CPU, on virtual mps and xpu, with and without a monitor."""

# ruff: noqa: PT017 - `except` clauses are what is tested: they read their class while the error is handled

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

import torchdevice
from tests.virtual.harness import on, run_python
from torchdevice.answers import failures
from torchdevice.answers.failures import as_cuda_error
from torchdevice.session import session

# More than the address space of a process, so that a machine that overcommits memory refuses it too.
HUGE = 10**15

# What takes a device is met in its wrapper, in every Python.
WRAPPED: dict[str, Callable[[], object]] = {
    "factory": lambda: torch.zeros(HUGE, device="cuda"),
    "without a device": lambda: torch.empty(HUGE),
    "like": lambda: torch.ones(1, device="cuda").new_zeros(HUGE),
    "to": lambda: torch.ones(1).expand(HUGE).to("cuda", torch.float64),
    "parameters": lambda: nn.Linear(HUGE, 8, device="cuda"),
}
# Everything else by a monitor (Python 3.12), else by the name in the `except` clause.
OPERATORS: dict[str, Callable[[], object]] = {
    "matmul": lambda: torch.ones(1, 1).expand(10**8, 1) @ torch.ones(1, 1).expand(1, 10**7),
    "method": lambda: torch.ones(1).expand(HUGE).clone(),
    "module": lambda: nn.Upsample(scale_factor=10**6)(torch.ones(1, 1, 10, 10)),
    "backward": lambda: torch.ones(1, requires_grad=True).expand(HUGE)[:1].sum().backward(),
}


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Translation where no monitor of exceptions can be had, as before Python 3.12."""
    monkeypatch.setattr(failures, "MONITORS", ())
    with torchdevice.redirect(target="cpu"):
        yield


def _is_cudas(error: RuntimeError) -> None:
    assert str(error).startswith("CUDA out of memory. Tried to allocate ")
    assert re.search("DefaultCPUAllocator: (can't allocate|not enough) memory", str(error))
    assert len(error.args) == 1
    assert isinstance(error.__cause__, RuntimeError)
    assert "CUDA" not in str(error.__cause__)


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("fixture", ["active", "alone"])
def test_what_takes_a_device_raises_cudas_class(name: str, fixture: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(fixture)
    before = torch.cuda.memory_stats()["num_ooms"]
    real = torch.OutOfMemoryError
    with pytest.raises(real) as raised:
        WRAPPED[name]()
    assert type(raised.value) is real
    _is_cudas(raised.value)
    assert torch.cuda.memory_stats()["num_ooms"] == before + 1
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["num_ooms"] == 0


def test_failures_are_counted_for_the_devices_that_code_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in ("1", "4", "1"):  # the devices of each number are built once, and used again
        monkeypatch.setenv("TORCHDEVICE_DEVICE_COUNT", count)
        with torchdevice.redirect(target="cpu"):
            before = torch.cuda.memory_stats()["num_ooms"]
            with pytest.raises(torch.OutOfMemoryError):
                torch.empty(HUGE, device="cuda")
            assert torch.cuda.memory_stats()["num_ooms"] == before + 1


@pytest.mark.parametrize("name", {**WRAPPED, **OPERATORS})
@pytest.mark.parametrize("fixture", ["active", "alone"])
def test_clauses_of_cuda_code_catch_every_failure(name: str, fixture: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(fixture)
    fail = {**WRAPPED, **OPERATORS}[name]
    for namespace in (torch, torch.cuda):
        try:
            fail()
        except (KeyError, namespace.OutOfMemoryError) as error:
            assert isinstance(error, torch.cuda.OutOfMemoryError)
            assert not isinstance(error, torch.AcceleratorError)
            _is_cudas(error)
        else:
            raise AssertionError("nothing was raised")
    records = [record for record in session.simulated() if record.api == "torch.cuda.OutOfMemoryError"]
    assert {record.site.file for record in records} == {__file__}


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="Python 3.12 has the monitor")
@pytest.mark.parametrize("name", OPERATORS)
def test_the_monitor_raises_cudas_class(name: str, active: None) -> None:
    with pytest.raises(torch.OutOfMemoryError) as raised:
        OPERATORS[name]()
    _is_cudas(raised.value)


def test_halving_the_batch(active: None) -> None:
    size, tried = HUGE, []
    while True:
        try:
            tried.append(size)
            torch.ones(1, device="cuda").expand(size).clone()
            break
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            size //= 10**8
    assert tried == [HUGE, HUGE // 10**8]


@pytest.mark.parametrize("fixture", ["active", "alone"])
def test_other_errors_stay_as_they_are(fixture: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(fixture)
    real = torch.OutOfMemoryError
    for fail in (lambda: torch.zeros(-1, device="cuda"), lambda: torch.ones(2) @ torch.ones(3)):
        try:
            fail()
        except torch.cuda.OutOfMemoryError:
            raise AssertionError("no memory was missing") from None
        except RuntimeError as error:
            assert type(error) is RuntimeError
            assert error.__cause__ is None
            assert torch.cuda.OutOfMemoryError is real
    assert torch.cuda.OutOfMemoryError is torch.OutOfMemoryError is real


@pytest.mark.parametrize("fixture", ["active", "alone"])
def test_suspended_and_deactivated_it_is_the_targets_own(fixture: str, request: pytest.FixtureRequest) -> None:
    real = vars(torch)["OutOfMemoryError"]
    request.getfixturevalue(fixture)
    with torchdevice.suspended(), pytest.raises(RuntimeError) as plain:
        OPERATORS["matmul"]()
    assert type(plain.value) is RuntimeError
    torchdevice.deactivate()
    assert vars(torch)["OutOfMemoryError"] is vars(torch.cuda)["OutOfMemoryError"] is real
    assert "__getattr__" not in vars(torch.cuda)
    for fail in (OPERATORS["matmul"], WRAPPED["factory"]):
        with pytest.raises((RuntimeError, AssertionError)) as after:
            fail()
        assert type(after.value) is not real


SAID = {
    ("cpu", "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."): "0.00 MiB",
    ("cpu", "DefaultCPUAllocator: not enough memory: you tried to allocate 2147483648 bytes."): "2.00 GiB",
    ("mps", "MPS backend out of memory (MPS allocated: 1.00 GiB, max allowed: 9.07 GiB). Tried to allocate 1.50 GiB "
     "on private pool."): "1.50 GiB",
    ("mps", "Invalid buffer size: 14.90 GiB"): "14.90 GiB",
    ("xpu", "XPU out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 1 GiB"): "20.00 MiB",
}  # fmt: skip


@pytest.mark.parametrize(("target", "text"), SAID)
def test_what_devices_say_of_memory(target: str, text: str) -> None:
    found = as_cuda_error(RuntimeError(text), target)
    assert type(found) is torch.OutOfMemoryError
    assert str(found).startswith(f"CUDA out of memory. Tried to allocate {SAID[target, text]}. ")
    assert text in str(found)
    assert as_cuda_error(found, target) is None
    assert as_cuda_error(RuntimeError(text), {"cpu": "mps"}.get(target, "cpu")) is None


def test_what_devices_say_of_ordinals() -> None:
    found = as_cuda_error(RuntimeError("The device index is out of range. It must be in [0, 1), but got 9."), "xpu")
    assert type(found) is torch.AcceleratorError
    assert found.error_code == 101
    assert str(found).startswith("CUDA error: invalid device ordinal")
    assert as_cuda_error(ValueError("invalid device ordinal"), "xpu") is None


def _on_a_full_device() -> None:
    import torchdevice.virtual

    own = torch.ones(1, device=torchdevice.virtual.installed().device)
    torchdevice.activate()
    torchdevice.virtual.set_memory_limit("1MiB")
    for fail in (lambda: torch.zeros(1 << 20, device="cuda"), lambda: own.expand(1 << 20).clone()):
        try:
            fail()
        except torch.cuda.OutOfMemoryError as error:
            assert str(error).startswith("CUDA out of memory. Tried to allocate 4.00 MiB."), error
            assert error.__cause__ is not None
            assert "CUDA" not in str(error.__cause__)
        else:
            raise AssertionError("nothing was raised")
    torchdevice.virtual.set_memory_limit(0)
    assert torch.zeros(1 << 20, device="cuda").device.type == own.device.type
    torch.accelerator.set_device_index(9)  # beyond the count it is folded, as everywhere
    assert torch.accelerator.current_device_index() == 0


@on("mps")
def test_on_virtual_mps() -> None:
    _on_a_full_device()


@on("xpu")
def test_on_virtual_xpu() -> None:
    # XPU's own class is CUDA's: only the words differ, and only factories and a monitor can change them there.
    if hasattr(sys, "monitoring"):
        _on_a_full_device()
        return
    import torchdevice.virtual

    torchdevice.activate()
    torchdevice.virtual.set_memory_limit("1MiB")
    with pytest.raises(torch.cuda.OutOfMemoryError, match="CUDA out of memory"):
        torch.zeros(1 << 20, device="cuda")
    with pytest.raises(torch.cuda.OutOfMemoryError, match="XPU out of memory"):
        torch.ones(1, device="xpu").expand(1 << 20).clone()


def test_compiled_code_under_the_watch() -> None:
    done = run_python(
        "-W",
        "ignore",
        "-c",
        "import torch, torchdevice; torchdevice.activate(target='cpu')\n"
        "f = torch.compile(lambda x: (x.sin() @ x.T).cos(), backend='aot_eager')\n"
        "assert f(torch.ones(3, 2)).shape == (3, 3)\n"
        "try: f(torch.ones(10**7, 1))\n"
        "except torch.cuda.OutOfMemoryError as error: assert 'CUDA out of memory' in str(error)\n"
        "else: raise AssertionError\n",
    )
    assert done.returncode == 0, done.stderr[-3000:]
