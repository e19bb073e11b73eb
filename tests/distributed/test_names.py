"""What user code is told, what torch is told, and that all of it goes away again; in this one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

import torchdevice
from torchdevice.distributed import collectives, points
from torchdevice.session import session


@pytest.fixture
def group(active: None, tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("nccl", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_user_code_reads_back_what_it_asked_for_and_torch_reads_the_truth(group: None) -> None:
    assert (dist.get_backend(), dist.get_backend_config()) == ("nccl", "cuda:nccl")
    assert torchdevice.original("torch.distributed.get_backend")() == "gloo"
    assert dist.group.WORLD._get_backend(torch.device("cuda")).name() == "gloo"
    (row,) = [row for row in torchdevice.report().rows if row.api.endswith("init_process_group")]
    assert (row.asked, row.given, row.calls) == ("nccl", "gloo", 1)
    assert row.first.file == __file__


def test_groups_have_the_name_that_each_was_asked_for(group: None) -> None:
    assert dist.get_backend(dist.new_group([0])) == "nccl"
    assert dist.get_backend(dist.new_group([0], backend="gloo")) == "gloo"
    own, _ = dist.new_subgroups(backend="cpu:gloo,cuda:nccl")
    assert dist.get_backend(own) == "cpu:gloo,cuda:nccl"


def test_a_plain_gloo_group_is_gloo(active: None, tmp_path: Path) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    assert dist.get_backend() == "gloo"
    dist.destroy_process_group()


def test_everything_goes_away_again(tmp_path: Path) -> None:
    names = {*points.functions_with("backend"), "get_backend", "is_nccl_available"}
    before = {name: getattr(dist, name) for name in names}
    written = {path: points.resolve_path(path) for path, _, _ in points.WRITTEN}
    tables = {name: torch._C._dispatch_dump(f"c10d::{name}") for name in collectives.COLLECTIVES}
    with torchdevice.redirect(target="cpu"):
        assert all(getattr(dist, name) is not value for name, value in before.items())
        dist.init_process_group("nccl", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
        assert any(torch._C._dispatch_dump(f"c10d::{name}") != table for name, table in tables.items())
        dist.destroy_process_group()
    assert all(getattr(dist, name) is value for name, value in before.items())
    assert all(points.resolve_path(path) == value for path, value in written.items())
    assert {name: torch._C._dispatch_dump(f"c10d::{name}") for name in collectives.COLLECTIVES} == tables
    assert hasattr(dist, "ProcessGroupNCCL") is dist.is_nccl_available()
    assert session.status().lost == ()


def test_every_row_is_a_name_of_this_torch() -> None:
    for name in collectives.COLLECTIVES:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"c10d::{name}", "CPU"), name
    for path, _, _ in points.WRITTEN:
        assert points.resolve_path(path) is not None


@pytest.mark.parametrize(("count", "visible"), [("1", None), ("3", None), ("3", "0,1"), ("2", "")])
def test_devices_are_counted(count: str, visible: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDEVICE_DEVICE_COUNT", count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with torchdevice.redirect(target="cpu"):
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)  # after `import torch`, as scripts do
        told = int(count) if visible is None else len([name for name in visible.split(",") if name])
        assert torch.cuda.device_count() == told
        assert torch.cuda.is_available() is (told > 0)
        torch.cuda.set_device(0)
        torch.cuda.set_device(int(count) + 3)  # a LOCAL_RANK that is not here
        assert torch.cuda.current_device() == 0
        torch.cuda.set_device(int(count) - 1)
        assert torch.cuda.current_device() == int(count) - 1
        assert torch.ones(1, device=f"cuda:{int(count) + 3}").device.type == "cpu"


def test_a_reduction_that_nothing_can_do_says_so(group: None) -> None:
    with pytest.raises(torchdevice.CollectiveUnsupported, match="uint64"):
        dist.all_reduce(torch.ones(2, dtype=torch.uint64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (4, 3, 2, 2)])
def test_sync_batch_norm_of_one_process_is_batch_norm(
    group: None, shape: tuple[int, ...], affine: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    kinds = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}
    plain = kinds[len(shape)](3, affine=affine, dtype=dtype)
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(kinds[len(shape)](3, affine=affine, dtype=dtype))
    gradients = []
    for layer in (plain, synced):
        inputs = torch.linspace(-2, 3, torch.Size(shape).numel(), dtype=dtype).view(shape).requires_grad_()
        layer(inputs).square().mul(inputs.detach()).sum().backward()
        gradients.append([inputs.grad, *(each.grad for each in layer.parameters()), *layer.buffers()])
    torch.testing.assert_close(gradients[1], gradients[0])
