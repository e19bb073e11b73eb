"""Compressed sparse tensors on a target for which torch makes none: device, layout, values, gradients as elsewhere."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchdevice
from tests.virtual.harness import on
from torchdevice import fallback
from torchdevice._torch.core import torch_release
from torchdevice.fallback import sparse

DENSE = torch.tensor([[0.0, 2.0, 0.0, 0.0], [3.0, 0.0, 0.0, 4.0]])
PARTS = (torch.tensor([0, 1, 3]), torch.tensor([1, 0, 3]), torch.tensor([2.0, 3.0, 4.0]))
needs_mkl = pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="torch adds CSR matrices with MKL only")

# Each makes a tensor on the device that it is given; `values` require a gradient.
WAYS: dict[str, Callable[[str, torch.Tensor], torch.Tensor]] = {
    "to_sparse_csr": lambda d, v: DENSE.to(d).to_sparse_csr(),
    "to_sparse_csc": lambda d, v: DENSE.to(d).to_sparse_csc(),
    "to_sparse_bsr": lambda d, v: DENSE.to(d).to_sparse_bsr((2, 2)),
    "to_sparse_bsc": lambda d, v: DENSE.to(d).to_sparse_bsc((2, 2)),
    "layout": lambda d, v: DENSE.to(d).to_sparse(layout=torch.sparse_csr),
    "from coordinates": lambda d, v: DENSE.to(d).to_sparse().to_sparse_csr(),
    "parts": lambda d, v: torch.sparse_csr_tensor(*(p.to(d) for p in PARTS[:2]), v, size=(2, 4)),
    "parts without size": lambda d, v: torch.sparse_csr_tensor(*(p.to(d) for p in PARTS[:2]), v),
    "lists": lambda d, v: torch.sparse_csr_tensor([0, 1, 3], [1, 0, 3], [2.0, 3.0, 4.0], (2, 4), device=d),
    "unsafe": lambda d, v: torch.ops.aten._sparse_csr_tensor_unsafe(PARTS[0].to(d), PARTS[1].to(d), v, (2, 4)),
    "moved": lambda d, v: DENSE.to_sparse_csr().to(d),
    "moved and cast": lambda d, v: DENSE.double().to_sparse_csr().to(d, torch.float32),
    "back and forth": lambda d, v: DENSE.to(d).to_sparse_csr().to("cpu").to(d),
}


@on("mps:real")
def test_every_way_to_make_one() -> None:
    warnings.simplefilter("ignore")
    torchdevice.activate(policy="portable")
    for name, make in WAYS.items():
        right = torch.randn(4, 3)
        there, here = (make(device, PARTS[2].clone().to(device).requires_grad_()) for device in ("mps", "cpu"))
        assert (there.device.type, there.layout, there.dtype) == ("mps", here.layout, here.dtype), name
        assert (there.shape, there._nnz(), there.requires_grad) == (here.shape, here._nnz(), here.requires_grad), name
        assert there.values().device.type == "mps", name
        products = [there.to_dense() @ right.to("mps")]
        try:
            here @ right
        except RuntimeError:  # the CPU has no product for it: never for BSC, for BSR with MKL only
            with pytest.raises(RuntimeError):
                there @ right.to("mps")
        else:
            products.append(there @ right.to("mps"))
        for product in products:
            assert (product.device.type, product.layout) == ("mps", torch.strided), name
            torch.testing.assert_close(product.detach().to("cpu"), DENSE @ right, msg=name)


@needs_mkl
@on("mps:real")
def test_gradients_reach_dense_operands_values_and_compressed_leaves() -> None:
    warnings.simplefilter("ignore")
    torchdevice.activate(policy="portable")
    torch.manual_seed(0)
    start = {"dense": DENSE, "values": PARTS[2], "left": torch.randn(2, 3), "right": torch.randn(3, 4)}

    def gradients(device: str) -> list[Any]:
        dense, values, left, right = (value.clone().to(device).requires_grad_() for value in start.values())
        leaf = DENSE.to(device).to_sparse_csr().requires_grad_()
        made = torch.sparse_csr_tensor(*(part.to(device) for part in PARTS[:2]), values, size=(2, 4))
        sampled = torch.sparse.sampled_addmm(leaf, left, right)
        total = (dense.to_sparse_csr() @ right.T).sum() + (made @ right.T).square().sum() + sampled.to_dense().sum()
        (total + leaf.to("cpu").to(device, torch.float32).to_dense().sum()).backward()
        return [leaf.grad, dense.grad, values.grad, left.grad, right.grad]

    there, here = gradients("mps"), gradients("cpu")
    for have, want in zip(there, here, strict=True):
        assert (have.device.type, have.layout) == ("mps", want.layout)
        torch.testing.assert_close(have.to("cpu").to_dense(), want.to_dense())
    for reduce in ("sum", "amax"):  # the kernel asks which gradients will be needed
        gradients_of_right = []
        for device in ("mps", "cpu"):
            right = start["right"].clone().T.contiguous().to(device).requires_grad_()
            torch.sparse.mm(DENSE.to(device).to_sparse_csr(), right, reduce).square().sum().backward()
            gradients_of_right.append(right.grad.to("cpu"))
        torch.testing.assert_close(*gradients_of_right)
    leaf = DENSE.to("mps").to_sparse_csr().requires_grad_()
    for _ in range(2):  # accumulated
        (leaf * 2).to_dense().sum().backward()
    assert leaf.grad.values().tolist() == [4.0, 4.0, 4.0]


@on("mps:real")
def test_writes_copies_and_checkpoints() -> None:
    warnings.simplefilter("ignore")
    torchdevice.activate(policy="portable")
    x = DENSE.to("mps").to_sparse_csr()
    x.detach().mul_(2)
    assert x.values().tolist() == [4.0, 6.0, 8.0]
    x.clone().mul_(2)
    assert x.values().tolist() == [4.0, 6.0, 8.0]
    assert "device='mps:0'" in repr(x)
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    assert (type(loaded := torch.load(file)), loaded.device.type) == (torch.Tensor, "cpu")
    file.seek(0)
    if torch_release() < (2, 14):
        assert torch.load(file, map_location="cuda").device.type == "mps"
    else:  # torch checks what it loaded, and refuses MPS there
        with pytest.raises(RuntimeError, match="must be one of CPU, CUDA"):
            torch.load(file, map_location="cuda")
    row = next(row for row in torchdevice.report().fallbacks if row.operator == "aten::mul_.Tensor")
    assert "no compressed sparse tensors" in row.reason
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        x @ torch.ones(3, 3, device="mps")
    torchdevice.deactivate()
    assert x.to("cpu").to_dense().tolist() == (DENSE * 2).tolist()
    assert (x @ torch.ones(4, 1, device="mps")).tolist() == [[4.0], [14.0]]
    with pytest.raises(NotImplementedError):
        DENSE.to("mps").to_sparse_csr()
    assert fallback.coverage.router is None


@on("cuda")
def test_nothing_of_it_where_torch_makes_them() -> None:
    warnings.simplefilter("ignore")
    torchdevice.activate(policy="portable")
    assert sparse.made_for("cuda")
    x = DENSE.to("cuda").to_sparse_csr()
    assert (type(x), x.device.type) == (torch.Tensor, "cuda")


def test_the_constructors_are_torchs() -> None:
    names = set(sparse.constructors())
    assert {"aten::sparse_compressed_tensor.comp_plain_value_size", "aten::_sparse_csr_tensor_unsafe"} <= names
    assert not any("coo" in name or "validate" in name for name in names)


@on("cuda")
def test_gradients_where_torch_makes_them_and_lacks_an_operator() -> None:
    """As on a real GPU: the kernel notes what the gradient reads only if it sees that one is needed."""
    missing = {(f"aten::_sparse_mm_reduce_impl{form}", "SparseCsr") for form in ("", "_backward")}
    for kind in ("sum", "mean", "amax", "amin"):
        gradients = []
        for device in ("cpu", "cuda"):
            matrix = DENSE.to(device).to_sparse_csr().requires_grad_()
            factor = torch.arange(12.0, device=device).view(4, 3).requires_grad_()
            undo = fallback.engage("cuda", "cpu", "test", missing)
            try:
                torch.sparse.mm(matrix, factor, kind).sum().backward()
            finally:
                undo()
            gradients.append([matrix.grad.to_dense().cpu(), factor.grad.cpu()])
        assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True)), kind
    assert any("_sparse_mm_reduce_impl_backward" in record.operator for record in fallback.totals())


@on("mps:real")
def test_values_can_be_written_to() -> None:
    """torch's own gradient of a product empties a copy that way: it would be wrong by the matrix itself."""
    torchdevice.activate(policy="portable")
    found = []
    for device in ("cpu", "mps"):
        matrix = DENSE.to(device).to_sparse_csr()
        values = matrix.values()
        values.mul_(2)
        doubled = matrix.to_dense().cpu()
        matrix.mul_(3)
        again = matrix.values()
        again[0] = 7
        matrix.requires_grad_()
        torch.sparse.mm(matrix, torch.arange(8.0, device=device).view(4, 2)).sum().backward()
        plain = DENSE.to(device).to_sparse_csr().requires_grad_()
        torch.sparse.mm(plain, torch.arange(8.0, device=device).view(4, 2)).sum().backward()
        results = (doubled, values, again, matrix.detach().to_dense(), matrix.grad.to_dense(), plain.grad.values())
        found.append([tensor.cpu() for tensor in results])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True)), found
