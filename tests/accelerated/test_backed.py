"""On a host with CUDA: a virtual device that it computes for is as CUDA is, under another name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import torchdevice.virtual
from tests.accelerated.backed_programs import PROGRAMS
from tests.virtual.harness import on, run_python

pytestmark = [
    pytest.mark.accelerated,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torchdevice.virtual.installed() is not None,
        reason="needs a real GPU with CUDA",
    ),
]
PLACES = ("mps@cuda", "xpu@cuda")
MANY = 1 << 20


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[torch.Tensor]]]:
    folder: Path = tmp_path_factory.mktemp("found")
    results = {}
    for place in ("cuda", *PLACES):
        file = folder / place.replace("@", "-")
        done = run_python("-m", "tests.accelerated.backed_programs", place, str(file))
        assert done.returncode == 0, done.stderr[-4000:]
        results[place] = torch.load(file)
    return results


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("place", PLACES)
def test_it_computes_what_cuda_computes(place: str, name: str, found: dict[str, dict[str, list[torch.Tensor]]]) -> None:
    exact = {"rtol": 0.0, "atol": 0.0} if PROGRAMS[name][1] else {}
    torch.testing.assert_close(found[place][name], found["cuda"][name], **exact)


def _device() -> str:
    there = torch.accelerator.current_accelerator()
    assert there is not None
    return there.type


@pytest.mark.parametrize("place", PLACES)
def test_cuda_itself_is_hidden(place: str) -> None:
    code = (
        "import torch; print(torch.cuda.is_available(), torch.cuda.device_count(), torch.backends.cudnn.is_available())"
    )
    done = run_python("-c", code, env={"TORCHDEVICE_VIRTUAL": place})
    assert done.stdout.split() == ["False", "0", "False"], done.stderr


def _two_streams_overlap() -> None:
    device = _device()
    x = torch.randn(256, 256, device=device)
    x @ x
    side, main = torch.Stream(device), torch.accelerator.current_stream()
    start, slow, fast = (torch.Event(device, enable_timing=True) for _ in range(3))
    start.record(main)
    with side:
        side.wait_event(start)
        torch._C._cuda_sleep(200_000_000)
        slow.record(side)
    x @ x
    fast.record(main)
    assert not slow.query()
    torch.accelerator.synchronize()
    assert start.elapsed_time(fast) < start.elapsed_time(slow) / 2


def _a_recorded_stream_keeps_memory_alive() -> None:
    device = _device()
    side = torch.Stream(device)
    torch.full((4,), 7.0, device=device) * 2  # a kernel that is loaded later would wait for the others
    x = torch.ones(MANY, device=device)
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        torch._C._cuda_sleep(100_000_000)
        doubled = x * 2
    address = x.data_ptr()
    x.record_stream(side)
    del x
    other = torch.full(
        (MANY,), 7.0, device=device
    )  # would get the memory of `x`, which the side stream has not read yet
    assert other.data_ptr() != address
    torch.accelerator.synchronize()
    assert doubled.eq(2).all().item()


def _out_of_memory_is_recovered_from() -> None:
    device = _device()
    held = torch.ones(MANY, device=device)
    with pytest.raises(RuntimeError, match="out of memory"):
        torch.empty(1 << 45, device=device)
    with pytest.raises(RuntimeError, match="out of memory"):
        held[:, None].expand(MANY, MANY).clone()
    assert (held + held).sum().item() == 2 * MANY


def _copies_do_not_block() -> None:
    device = _device()
    pinned = torch.ones(MANY).pin_memory()
    assert pinned.is_pinned()
    torch._C._cuda_sleep(200_000_000)
    moved, done = pinned.to(device, non_blocking=True), torch.Event(device)
    done.record()
    assert not done.query()
    assert moved.sum().item() == MANY


@pytest.mark.parametrize("check", ["overlap", "record_stream", "memory", "copies"])
@on("mps@cuda")
def test_streams_and_memory_of_mps(check: str) -> None:
    CHECKS[check]()


@pytest.mark.parametrize("check", ["overlap", "record_stream", "memory", "copies"])
@on("xpu@cuda")
def test_streams_and_memory_of_xpu(check: str) -> None:
    CHECKS[check]()


CHECKS = {
    "overlap": _two_streams_overlap,
    "record_stream": _a_recorded_stream_keeps_memory_alive,
    "memory": _out_of_memory_is_recovered_from,
    "copies": _copies_do_not_block,
}


@on("xpu@cuda")
def test_collectives_of_xpu_run_on_nccl() -> None:
    import torch.distributed as dist

    dist.init_process_group("xccl", store=dist.HashStore(), rank=0, world_size=1)
    x = torch.arange(3.0, device="xpu")
    gathered = [torch.zeros(3, device="xpu")]
    dist.all_reduce(x)
    dist.all_gather(gathered, x)
    assert (x.tolist(), gathered[0].tolist()) == ([0.0, 1.0, 2.0], [0.0, 1.0, 2.0])
    assert type(dist.group.WORLD._get_backend(torch.device("cuda"))).__name__ == "ProcessGroupNCCL"
    dist.destroy_process_group()
