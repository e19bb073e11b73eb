"""Tensors of a virtual device: cross-device errors, storages, serialization, sparse, nested and quantized layouts."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.virtual.harness import on, run_python


@on("cuda:2")
def test_devices_do_not_mix() -> None:
    a, b = torch.ones(2, 2, device="cuda:0"), torch.ones(2, 2, device="cuda:1")
    for clash in (
        lambda: a + torch.ones(2, 2),
        lambda: a @ torch.ones(2, 2),
        lambda: torch.cat([a, torch.ones(2, 2)]),
        lambda: nn.Linear(2, 2).cuda()(torch.ones(1, 2)),
    ):
        with pytest.raises(RuntimeError, match="same device"):
            clash()
    with pytest.raises(RuntimeError, match=r"cuda:1, different from other tensors on cuda:0"):
        a + b
    assert (a + torch.tensor(1.0)).is_cuda
    assert a[torch.tensor([0])].is_cuda
    b.copy_(a * 3)
    assert b.tolist() == [[3, 3], [3, 3]]
    with pytest.raises(TypeError, match="to host memory first"):
        a.numpy()
    assert torch.ones(3).pin_memory().is_pinned()
    assert not torch.ones(3).is_pinned()


def survives(device: str) -> None:
    saved = io.BytesIO()
    torch.save({"x": torch.ones(3, device=device), "net": nn.Linear(2, 2).to(device).state_dict()}, saved)
    for options, expected in (({}, device), ({"map_location": "cpu"}, "cpu"), ({"weights_only": False}, device)):
        saved.seek(0)
        loaded = torch.load(saved, **options)
        assert loaded["x"].device.type == expected
        assert loaded["net"]["weight"].device.type == expected
    x = torch.ones(2, device=device, requires_grad=True)
    assert copy.deepcopy(nn.Linear(2, 2).to(device)).weight.device.type == device
    assert pickle.loads(pickle.dumps(x)).device.type == device
    assert torch.UntypedStorage(8, device=device).device.type == device
    y = torch.ones(4, device=device)
    view = y[:2]
    y.resize_(100)
    assert view.tolist() == [1, 1]
    assert y.untyped_storage().nbytes() == 400


@on("cuda")
def test_cuda_tensors_survive() -> None:
    survives("cuda")
    x = torch.ones(4, device="cuda")
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(16)
    assert x.fill_(2).sum() == 8
    assert x.share_memory_().is_shared()


@on("mps")
def test_mps_tensors_survive() -> None:
    survives("mps")


@on("cuda")
def test_the_order_of_coalesced_indices_is_checked() -> None:
    values = torch.rand(2, device="cuda", requires_grad=True)

    def made(*places: int) -> torch.Tensor:
        indices = torch.tensor([places], device="cuda")
        return torch.sparse_coo_tensor(indices, values, (3,), check_invariants=True, is_coalesced=True)

    made(0, 1).to_dense().sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [1.0, 1.0]
    for places in ((1, 0), (1, 1)):
        with pytest.raises(RuntimeError, match="uncoalesced"):
            made(*places)
    grid = torch.tensor([[0, 1], [2, 0]], device="cuda")
    with torch.sparse.check_sparse_tensor_invariants():
        made_of_two = torch.sparse_coo_tensor(grid, values, (3, 3), is_coalesced=True)
        assert torch.sparse.check_sparse_tensor_invariants.is_enabled()
        with pytest.raises(RuntimeError, match="uncoalesced"):
            torch.sparse_coo_tensor(grid.flip(1), values, (3, 3), is_coalesced=True)
        assert torch.sparse.check_sparse_tensor_invariants.is_enabled()
    assert made_of_two.is_coalesced()
    assert made_of_two.device.type == "cuda"


@on("cuda")
def test_sparse_layouts() -> None:
    dense = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])
    coo = dense.to_sparse().cuda()
    made = torch.sparse_coo_tensor(dense.to_sparse().indices(), dense.to_sparse().values(), (2, 3), device="cuda")
    for sparse in (coo, made, dense.cuda().to_sparse()):
        assert sparse.is_cuda
        assert sparse.coalesce().indices().is_cuda
        assert sparse.coalesce().values().is_cuda
        assert torch.equal(sparse.to_dense().cpu(), dense)
    assert torch.equal((coo + coo).to_dense().cpu(), dense * 2)
    weight = torch.ones(3, 2, device="cuda", requires_grad=True)
    out = torch.sparse.mm(coo, weight)
    out.sum().backward()
    assert out.tolist() == [[2, 2], [4, 4]]
    assert weight.grad.tolist() == [[1, 1], [2, 2], [3, 3]]
    assert not coo.cpu().is_cuda
    csr = dense.to_sparse_csr().cuda()
    assert csr.crow_indices().is_cuda
    assert torch.equal((csr @ torch.ones(3, 1, device="cuda")).cpu(), dense.sum(1, keepdim=True))
    assert torch.equal(csr.cpu().to_dense(), dense)
    embedding = nn.Embedding(5, 3, sparse=True).cuda()
    optim = torch.optim.SparseAdam(list(embedding.parameters()))
    embedding(torch.tensor([1, 2, 1], device="cuda")).sum().backward()
    assert embedding.weight.grad.is_sparse
    assert embedding.weight.grad.is_cuda
    optim.step()


@on("cuda")
def test_nested_and_quantized() -> None:
    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    nested = torch.nested.nested_tensor(parts, device="cuda")
    padded = torch.nested.to_padded_tensor(nn.functional.relu(nested), 0.0)
    assert padded.is_cuda
    assert torch.equal(padded[1].cpu(), parts[1].relu())
    assert nested.unbind()[0].is_cuda
    assert not nested.cpu().is_cuda
    sizes = nested._nested_tensor_size(), nested._nested_tensor_strides(), nested._nested_tensor_storage_offsets()
    buffer = torch.cat([part.flatten() for part in parts]).cuda()
    again = torch._nested_view_from_buffer_copy(buffer, *sizes)  # what another process rebuilds it from
    assert torch.equal(again.unbind()[1].cpu(), parts[1])
    assert torch._nested_from_padded(padded, sizes[0]).is_cuda
    jagged = torch.nested.nested_tensor(parts, device="cuda", layout=torch.jagged)
    assert (jagged * 2).values().is_cuda
    x = torch.randn(3, 3)
    q = torch.quantize_per_tensor(x.cuda(), 0.1, 0, torch.qint8)
    assert q.is_cuda
    assert torch.equal(q.dequantize().cpu(), torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize())
    assert torch.equal(q.cpu().int_repr(), q.int_repr().cpu())
    scales, zeros = torch.full((3,), 0.1, device="cuda"), torch.zeros(3, dtype=torch.long, device="cuda")
    channels = torch.quantize_per_channel(x.cuda(), scales, zeros, 0, torch.qint8)
    del scales, zeros
    assert channels.q_per_channel_scales().is_cuda
    assert channels.dequantize().is_cuda


def _quantized() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(3, 3)
    zeros = torch.zeros(3, dtype=torch.long)
    of_rows = torch.quantize_per_channel(x, torch.tensor([0.1, 0.2, 0.3]), zeros, 0, torch.qint8)
    return torch.quantize_per_tensor(x, 0.1, 3, torch.quint8), of_rows


@on("cuda")
def test_quantized_tensors_of_the_host_are_copied() -> None:
    for q in _quantized():
        there = q.cuda()
        assert there.is_cuda
        assert there.qscheme() == q.qscheme()
        assert torch.equal(there.dequantize().cpu(), q.dequantize())
        assert torch.equal(there.cpu().int_repr(), q.int_repr())


@on("cuda")
def test_quantized_tensors_get_the_storages_of_others() -> None:
    for q in (q.cuda() for q in _quantized()):
        for copied in (copy.deepcopy(q), pickle.loads(pickle.dumps(q))):
            assert copied.is_cuda
            assert copied.data_ptr() != q.data_ptr()
            assert torch.equal(copied.dequantize(), q.dequantize())
    part = q.clone().set_(q.untyped_storage(), 3, (1, 3), (3, 1))
    assert part.data_ptr() == q.data_ptr() + 3
    assert torch.equal(part.int_repr(), q.int_repr()[1:2])


@on("mps")
def test_layouts_that_mps_lacks_raise_its_errors() -> None:
    sparse = torch.eye(3).to_sparse().to("mps")
    assert sparse.device.type == "mps"
    assert sparse.to_dense().device.type == "mps"
    with pytest.raises(NotImplementedError):
        torch.eye(3).to_sparse_csr().to("mps")
    with pytest.raises(RuntimeError, match="NestedTensorImpl storage must be"):
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device="mps")


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_attention_takes_masks_of_booleans(device: str) -> None:
    done = run_python("-c", ATTENTION, env={"TORCHDEVICE_VIRTUAL": device})
    assert done.returncode == 0, done.stdout + done.stderr


ATTENTION = """
import torch
torch.manual_seed(0)
query, key, value = torch.randn(3, 2, 2, 5, 8)
mask = torch.ones(2, 1, 5, 5, dtype=torch.bool).tril()
mask[1, :, :, 0] = False  # padding on the left: the first row of the second is masked altogether
device = torch.accelerator.current_accelerator()
attend = torch.nn.functional.scaled_dot_product_attention
expected = attend(query, key, value, attn_mask=mask)
found = attend(query.to(device), key.to(device), value.to(device), attn_mask=mask.to(device))
torch.testing.assert_close(found.cpu(), expected)
"""


@on("cuda:2")
def test_an_index_is_on_the_tensors_device_or_on_the_host() -> None:
    x = torch.arange(4.0, device="cuda:0")
    for where in ("cpu", "cuda:0"):
        assert x[torch.tensor([2, 1], device=where)].tolist() == [2, 1]
    index = torch.tensor([2, 1], device="cuda:1")
    with pytest.raises(RuntimeError, match=r"on cpu or on the same device as the indexed tensor \(cuda:0\)"):
        x[index]
    with pytest.raises(RuntimeError, match=r"on cpu or on the same device as the indexed tensor \(cuda:0\)"):
        x[index] = 1.0


@on("cuda")
def test_the_host_cannot_wait_for_what_is_being_captured() -> None:
    x, pinned = torch.ones(2, device="cuda"), torch.empty(2, pin_memory=True)
    synchronisation = (torch.cuda.synchronize, lambda: torch.cuda.current_stream().synchronize())
    for waits in (lambda: x.sum().item(), x.cpu, x.nonzero, lambda: torch.equal(x, x + 1), x.tolist, *synchronisation):
        refused = pytest.raises(RuntimeError, match="operation not permitted when stream is capturing")
        with refused, torch.cuda.graph(torch.cuda.CUDAGraph()):
            waits()
        assert not torch.cuda.is_current_stream_capturing()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pinned.copy_(x + 1, non_blocking=True)
    x += 1
    graph.replay()
    assert pinned.tolist() == [3, 3]
    assert x.sum().item() == 4


@on("cuda:2")
def test_numbers_of_another_device() -> None:
    """CUDA's kernels of `fill_` and of indexed assignments copy them; others refuse them."""
    x, number = torch.zeros(3, device="cuda:0"), torch.ones((), device="cuda:1")
    x[torch.tensor([0], device="cuda:0")] = number
    assert x.tolist() == [1, 0, 0]
    assert x.fill_(number * 2).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x + number
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x.index_put_((torch.tensor([0], device="cuda:0"),), torch.ones(1, device="cuda:1"))


@on("cuda")
@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "bool", "complex64"])
def test_new_memory_is_filled_where_everything_is_to_be_deterministic(name: str) -> None:
    dtype = getattr(torch, name)
    torch.use_deterministic_algorithms(True)
    for make in (
        lambda device: torch.empty(3, dtype=dtype, device=device),
        lambda device: torch.empty_strided((3,), (2,), dtype=dtype, device=device),
    ):
        torch.testing.assert_close(make("cuda").cpu(), make("cpu"), rtol=0, atol=0, equal_nan=True)


@on("cuda")
def test_a_lazy_clone_is_a_copy() -> None:
    x = torch.ones(3, device="cuda")
    copy = torch._lazy_clone(x)
    x.fill_(2)
    assert copy.tolist() == [1.0, 1.0, 1.0]


@on("cuda")
def test_composites_that_choose_a_kernel_by_the_type_of_the_device() -> None:
    x = torch.tensor([[1.0, 2.0, 2.0], [3.0, 3.0, 1.0]])
    out = (torch.empty(0, device="cuda"), torch.empty(0, dtype=torch.long, device="cuda"))
    torch.mode(x.cuda(), out=out)
    assert out[0].tolist() == torch.mode(x).values.tolist()
    for more in ((), (False,), (False, 3.0)):
        torch.testing.assert_close(
            torch.kaiser_window(8, *more, device="cuda").cpu(), torch.kaiser_window(8, *more), rtol=0, atol=0
        )


@on("cuda")
def test_cudnns_sampler_is_the_cpus() -> None:
    results = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        image = torch.rand(1, 2, 4, 4).to(device).requires_grad_()
        grid = (torch.rand(1, 3, 3, 2) * 2 - 1).to(device).requires_grad_()
        if device == "cuda":
            sampled = torch.ops.aten.cudnn_grid_sampler(image, grid)
        else:
            sampled = torch.nn.functional.grid_sample(image, grid, align_corners=True)
        sampled.square().sum().backward()
        results.append([sampled.detach().cpu(), image.grad.cpu(), grid.grad.cpu()])
    torch.testing.assert_close(*results)


@on("cuda")
def test_cudas_words_for_a_result_and_for_indices_elsewhere() -> None:
    x = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="Expected out tensor to have device cuda:0, but got cpu instead"):
        torch.sum(x, 0, out=torch.empty(()))
    with pytest.raises(RuntimeError, match=r"indices should be either on cpu or on the same device .* \(cpu\)"):
        torch.ones(3)[torch.tensor([0], device="cuda")]


@on("mps")
def test_what_a_mac_gives_for_bincount_and_refuses_for_isin_and_normal() -> None:
    x = torch.tensor([0, 1, 1], device="mps")
    assert torch.bincount(x).dtype == torch.int64
    for weights, dtype in ((torch.tensor([1, 2, 3]), torch.int32), (torch.tensor([1.0, 2.0, 3.0]), torch.float32)):
        found = torch.bincount(x, weights.to("mps"))
        assert (found.dtype, found.tolist()) == (dtype, [1, 5])
    assert torch.isin(x, torch.tensor([1], device="mps")).tolist() == [False, True, True]
    with pytest.raises(RuntimeError, match=r"Expected elements.dtype\(\) == test_elements.dtype\(\)"):
        torch.isin(x, torch.tensor([1.0], device="mps"))
    with pytest.raises(RuntimeError, match=r"Expected elements.is_mps\(\)"):
        torch.isin(x, torch.tensor([1]))
    with pytest.raises(TypeError, match="normal_ is not supported for Int on MPS"):
        torch.normal(10, 11, (2, 2), device="mps", dtype=torch.int32)


@on("mps", only_cpu="an accelerator draws other random numbers")
def test_normal_numbers_are_those_of_the_cpu() -> None:
    torch.manual_seed(0)
    drawn = torch.normal(0.0, 1.0, (2, 2), device="mps")
    torch.manual_seed(0)
    assert torch.equal(drawn.cpu(), torch.normal(0.0, 1.0, (2, 2)))
    torch.manual_seed(0)
    complex_numbers = torch.randn(3, dtype=torch.complex64, device="mps")
    torch.manual_seed(0)
    assert torch.equal(complex_numbers.cpu(), torch.randn(3, dtype=torch.complex64))


@on("cuda")
def test_a_lazy_clone_shares_memory_until_somebody_writes() -> None:
    for write in (
        lambda t: t.add_(1),
        lambda t: t[:1].fill_(9),
        lambda t: t.copy_(torch.zeros(3)),
        lambda t: t.resize_(9),
    ):
        for written in (0, 1):
            before = torch.cuda.memory_allocated()
            both = [x := torch.tensor([1.0, 2.0, 3.0], device="cuda"), x._lazy_clone()]
            assert torch.cuda.memory_allocated() - before == 512
            write(both[written])
            assert both[1 - written].tolist() == [1.0, 2.0, 3.0]
            write(both[1 - written])
            assert torch.equal(both[0][:1], both[1][:1])
            del both, x
            assert torch.cuda.memory_allocated() == before
    x = torch.arange(4.0, device="cuda")
    y = x._lazy_clone()
    torch.cumsum(x, 0, out=x)  # read first, then written
    assert (x.tolist(), y.tolist()) == ([0.0, 1.0, 3.0, 6.0], [0.0, 1.0, 2.0, 3.0])
    x = torch.ones(2, device="cuda")
    y = x._lazy_clone()
    x.add_(x)  # read and written in one call
    assert (x.tolist(), y.tolist()) == ([2.0, 2.0], [1.0, 1.0])
    assert torch.empty(0, device="cuda")._lazy_clone().numel() == 0


@on("cuda")
def test_collectives_and_sparse_tensors_write_to_one_of_two_lazy_clones() -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    x = torch.ones(3, device="cuda")
    y = x._lazy_clone()
    assert torch._C._is_cow_tensor(x)
    torch.distributed.all_reduce(x)  # its schema does not say that it writes
    assert (torch._C._is_cow_tensor(x), y.tolist()) == (False, [1.0] * 3)
    torch.distributed.destroy_process_group()
    values = torch.ones(2, device="cuda")
    kept = values._lazy_clone()
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 1]], device="cuda"), values, (3,), is_coalesced=True)
    sparse.mul_(5)
    assert (kept.tolist(), sparse.to_dense().tolist()) == ([1.0, 1.0], [5.0, 5.0, 0.0])


@on("cuda:2")
def test_a_copy_at_the_first_write_stays_on_its_device() -> None:
    x = torch.ones(1000, device="cuda:1")
    before = torch.cuda.memory_allocated(0)
    y = x._lazy_clone()
    y.add_(1)
    assert y.device.index == 1
    assert torch.cuda.memory_allocated(0) == before
    assert torch.cuda.memory_allocated(1) >= 8000


# Calls for the CPU that draw random numbers; `g` is the generator.
DRAWING: dict[str, Callable[[torch.Generator], object]] = {
    "rand": lambda g: torch.rand(2, generator=g),
    "randn": lambda g: torch.randn(2, generator=g),
    "randint": lambda g: torch.randint(9, (2,), generator=g),
    "randperm": lambda g: torch.randperm(3, generator=g),
    "randperm out": lambda g: torch.randperm(3, generator=g, out=torch.empty(3, dtype=torch.long)),
    "normal": lambda g: torch.normal(0.0, 1.0, (2,), generator=g),
    "normal of tensors": lambda g: torch.normal(torch.zeros(2), torch.ones(2), generator=g),
    "bernoulli": lambda g: torch.bernoulli(torch.full((2,), 0.5), generator=g),
    "multinomial": lambda g: torch.multinomial(torch.ones(3), 2, generator=g),
    "poisson": lambda g: torch.poisson(torch.ones(2), generator=g),
    "init": lambda g: nn.init.trunc_normal_(torch.empty(2), generator=g),
    "sampler": lambda g: list(torch.utils.data.RandomSampler(range(3), generator=g)),
    **{
        name: lambda g, name=name: getattr(torch.ones(2), name)(generator=g)  # type: ignore[misc]
        for name in ("bernoulli_", "cauchy_", "exponential_", "log_normal_", "normal_", "random_", "uniform_")
    },
    "geometric_": lambda g: torch.ones(2).geometric_(0.5, generator=g),
}


@on("cuda")
def test_the_cpu_refuses_generators_of_the_device() -> None:
    for name, draw in DRAWING.items():
        draw(torch.Generator())
        for generator in (torch.Generator("cuda"), torch.cuda.default_generators[0]):
            before = generator.get_state()
            with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"):
                draw(generator)
            assert torch.equal(generator.get_state(), before), name
