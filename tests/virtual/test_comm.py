"""Two virtual devices: torch.cuda.comm, in CUDA's words where it refuses, and what is not on the current device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.cuda import comm

from tests.virtual.harness import on

REFUSED: dict[str, tuple[Callable[[torch.Tensor], object], str]] = {
    "out on the host": (
        lambda x: comm.broadcast(x, out=[x.cuda(0), x.cpu()]),
        "Expected all output tensors to be CUDA tensors, but output tensor at index 1 has device 'cpu'",
    ),
    "out of another shape": (
        lambda x: comm.broadcast(x, out=[x.cuda(0), x.cuda(1)[None]]),
        r"Expected all output tensors to have same shape as the source tensor \[4, 3\], but .+ at index 1",
    ),
    "chunks": (
        lambda x: comm.scatter(x, (0, 1), chunk_sizes=(1, 2, 1)),
        r"Expected devices and chunk_sizes to be of same length, but got len\(devices\) = 2",
    ),
    "nowhere": (lambda x: comm.scatter(x, ()), "Expected at least one device to scatter to"),
    "no outputs": (lambda x: comm.scatter(x, out=[]), "Expected at least one output tensor to scatter to"),
    "parts on the host": (
        lambda x: comm.scatter(x, out=[x[:2].cpu(), x[2:]]),
        "Expected all output tensors to be CUDA tensors, but output tensor at index 0",
    ),
    "parts of other shapes": (
        lambda x: comm.scatter(x, out=[x[:2, :1].contiguous(), x[2:].clone()]),
        "Output tensor at index 0 has incorrect shape",
    ),
    "too few parts": (
        lambda x: comm.scatter(x, out=[x[:1].clone(), x[2:].clone()]),
        "Total size for output tensors along scatter dim 0 does not match",
    ),
    "nothing": (lambda _: comm.gather(()), "Expected at least one tensor to gather from"),
    "a tensor of the host": (
        lambda x: comm.gather((x.cpu(), x)),
        "Expected all input tensors to be CUDA tensors, but tensor at index 0",
    ),
    "other dimensions": (
        lambda x: comm.gather((x, x[None])),
        "Expected all input tensors to have the same number of dimensions, but tensor at index 1",
    ),
    "other sizes": (lambda x: comm.gather((x, x[:, 1:])), "Input tensor at index 1 has invalid shape"),
    "a small out": (
        lambda x: comm.gather((x, x), out=torch.empty(1, 3, device="cuda")),
        "Expected out tensor to have shape",
    ),
}


@on("cuda:2")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    call, words = REFUSED[name]
    with pytest.raises(RuntimeError, match=words):
        call(torch.randn(4, 3, device="cuda"))


@on("cuda:2")
def test_parts_come_back_together() -> None:
    x = torch.randn(5, 3, device="cuda")
    parts = comm.scatter(x, (0, 1), chunk_sizes=(2, 3))
    assert [part.device.index for part in parts] == [0, 1]
    torch.testing.assert_close(comm.gather(parts, destination=0), x, rtol=0, atol=0)
    out = [torch.empty(2, 3, device="cuda:0"), torch.empty(3, 3, device="cuda:1")]
    comm.scatter(x, out=out)
    torch.testing.assert_close(comm.gather(out, out=torch.empty_like(x)), x, rtol=0, atol=0)


@on("cuda:2")
def test_scatter_gives_views_where_it_can_and_keeps_the_format() -> None:
    x = torch.arange(8.0, device="cuda:0").view(2, 4)
    here, there = torch.cuda.comm.scatter(x, (0, 1), dim=1)
    assert (here.data_ptr(), here.stride(), there.device.index) == (x.data_ptr(), (4, 1), 1)
    image = torch.rand(4, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    assert all(part.is_contiguous(memory_format=torch.channels_last) for part in torch.cuda.comm.scatter(image, (0, 1)))


@on("cuda:2")
def test_what_has_a_device_that_is_not_the_current_one() -> None:
    moved = torch.eye(3).to_sparse().to("cuda:1")
    assert (moved.device.index, moved.values().device.index) == (1, 1)
    assert torch.equal((moved + moved).to_dense().cpu(), 2 * torch.eye(3))
    assert [torch.cuda.FloatTensor(1, device=place).get_device() for place in (0, 1, None)] == [0, 1, 0]
    event = torch.cuda.Event()
    assert event.device is None
    with torch.cuda.device(1):
        assert torch.cuda.FloatTensor(1, device=0).get_device() == 0
        event.record()
    assert event.device == torch.device("cuda:1")
