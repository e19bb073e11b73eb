"""What stands for a virtual tensor in a call of a kernel is used again, and outlives nothing that it needs."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from tests.virtual.harness import on

MANY = 1000


@on("cuda", only_cpu="kernels of the CPU get copies")
def test_a_kernel_may_keep_its_input() -> None:
    kept: list[torch.Tensor] = []

    def keep(x: torch.Tensor) -> torch.Tensor:
        kept.append(x)
        return x.clone()

    library = torch.library.Library("torchdevice_test", "FRAGMENT")
    library.define("keep(Tensor x) -> Tensor")
    library.impl("keep", keep, "CPU")
    before = torch.cuda.memory_allocated()
    x = torch.full((MANY,), 3.0, device="cuda")
    assert (x + x).sum().item() == 6 * MANY
    for _ in range(2):
        assert torch.ops.torchdevice_test.keep(x).is_cuda
    x.add_(1)
    del x
    others = [torch.zeros(MANY, device="cuda") for _ in range(50)]  # would take the memory if it were free
    assert [one.device.type for one in kept] == ["cpu", "cpu"]
    assert all(one.eq(4).all().item() for one in kept)
    del others
    kept.clear()
    assert torch.cuda.memory_allocated() == before


@on("cuda")
def test_an_error_leaves_what_was_lent_usable() -> None:
    x, y = torch.ones(3, device="cuda"), torch.ones(4, device="cuda")
    for _ in range(3):
        with pytest.raises(RuntimeError, match="must match") as held:  # its traceback holds the arguments
            x + y
        assert held.tb is not None
        assert (x + x).tolist() == [2.0] * 3
        assert (y * 3).tolist() == [3.0] * 4


@on("cuda")
def test_memory_may_change_between_calls() -> None:
    x = torch.arange(6.0, device="cuda")
    for rows in (6, 12, 3):
        x.resize_(rows)
        x.fill_(rows)
        assert (x + 1).tolist() == [rows + 1.0] * rows
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(12)
    x.fill_(5)
    assert (x + x).tolist() == [10.0] * 3
    x.set_(torch.arange(4.0, device="cuda"))
    assert (x * x).tolist() == [0.0, 1.0, 4.0, 9.0]
    out = torch.empty(0, device="cuda")
    torch.add(x, x, out=out)
    torch.add(out, 1, out=out)
    assert out.tolist() == [1.0, 3.0, 5.0, 7.0]
    view = x.view(2, 2).t()
    assert (view @ view).tolist() == (view.cpu() @ view.cpu()).tolist()
    assert (x.view(torch.int32) + 0).dtype == torch.int32


@on("cuda")
def test_long_lists_and_repeated_tensors() -> None:
    def lists(device: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        base = torch.arange(400.0, device=device)
        firsts = [base[i : i + 1] for i in range(200)]  # of one storage
        return firsts, [torch.full((1,), float(i % 7), device=device) for i in range(200)]

    for function in (torch._foreach_add_, torch._foreach_mul, torch._foreach_maximum):
        results: list[Any] = []
        for device in ("cpu", "cuda"):
            firsts, others = lists(device)
            given = function(firsts, [*others[:100], *firsts[:100]])
            results.append([t.item() for t in (given or firsts)])
        assert results[0] == results[1]


@on("cuda")
def test_one_tensor_in_many_threads() -> None:
    shared = torch.arange(64.0, device="cuda")
    wrong = []

    def work() -> None:
        for _ in range(400):
            if (shared + shared).sum().item() != 4032:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
