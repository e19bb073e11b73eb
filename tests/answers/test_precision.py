"""What `autocast("cuda")` computes in float32 is computed so on a CPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.cli.harness import python
from torchdevice._torch import dispatcher
from torchdevice.answers import precision

# How each is called; what the names of two words are called by in torch is beside them.
SPECIAL: dict[str, Callable[[Any], Any]] = {
    "cosine_similarity": lambda x: torch.cosine_similarity(x, x.flip(0)),
    "cumprod": lambda x: x.cumprod(0),
    "cumsum": lambda x: x.cumsum(0),
    "dist": lambda x: torch.dist(x, x.flip(0)),
    "group_norm": lambda x: nn.functional.group_norm(x, 2),
    "layer_norm": lambda x: nn.functional.layer_norm(x, (4,)),
    "log_softmax": lambda x: torch.log_softmax(x, 1),
    "logsumexp": lambda x: x.logsumexp(1),
    "pdist": nn.functional.pdist,
    "pow": lambda x: x**1.5,
    "renorm": lambda x: x.renorm(2, 0, 1.0),
    "rms_norm": lambda x: nn.functional.rms_norm(x, (4,)),
    "softmax": lambda x: x.softmax(1),
    "softplus": nn.functional.softplus,
    "frobenius_norm": lambda x: torch.ops.aten.frobenius_norm(x, [0, 1]),
    "linalg_matrix_norm": lambda x: torch.linalg.matrix_norm(x),
    "linalg_vector_norm": lambda x: torch.linalg.vector_norm(x),
    "nuclear_norm": lambda x: torch.ops.aten.nuclear_norm(x),
}


def base(name: str) -> str:
    return name.partition("::")[2].partition(".")[0]


# Of the table, what the installed torch's autocast knows: torch 2.9 leaves rms_norm alone.
KNOWN = {base(name) for name in dispatcher.kernels_under("AutocastCUDA")}
NAMES = sorted((precision.WIDE | precision.SPELLED | precision.WIDE_NORMS) & KNOWN)
# In a process of its own: that module changes flags of torch for good.
LISTS = """
import json, torch
from torch.testing._internal.autocast_test_lists import AutocastTestLists
lists = AutocastTestLists(torch.device("cpu"))
print(json.dumps([row[0] for row in (*lists.torch_fp32, *lists.nn_fp32, *lists.methods_fp32)]))
"""


def test_the_table_is_torchs_own_list() -> None:
    done = python("-W", "ignore", "-c", LISTS)
    assert done.returncode == 0, done.stderr
    expected = set(json.loads(done.stdout)) - {"__pow__"}
    expected -= set(map(base, dispatcher.kernels_under("AutocastCPU")))
    assert expected == (precision.WIDE | precision.WIDE_NORMS) & KNOWN
    assert set(map(base, precision.overloads())) == (precision.WIDE | precision.SPELLED) & KNOWN


@pytest.mark.parametrize("name", NAMES)
def test_in_float32_under_float16(name: str, active: None) -> None:
    call = SPECIAL.get(name) or getattr(torch, name)
    x = torch.linspace(0.1, 0.9, 16).view(4, 4)
    given = x.half().requires_grad_()
    with torch.autocast("cuda", dtype=torch.float16):
        found = call(given)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, call(x.half().float()))
    found.sum().backward()
    assert given.grad is not None
    assert given.grad.dtype == torch.float16


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"pdist", "nuclear_norm", "frobenius_norm"}))
def test_bfloat16_keeps_the_cpus_own_lists(name: str, active: None) -> None:
    call = SPECIAL.get(name) or getattr(torch, name)
    x = torch.linspace(0.1, 0.9, 16).view(4, 4).bfloat16()
    plain = call(x)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        found = call(x)
    assert found.dtype == plain.dtype
    torch.testing.assert_close(found, plain)


def test_nothing_overflows_and_a_dtype_that_is_asked_for_stays(active: None) -> None:
    h = torch.full((2, 400), 200.0, dtype=torch.float16, requires_grad=True)
    with torch.autocast("cuda"):
        assert h.sum().item() == 160_000
        assert h.sum(dtype=torch.float16).dtype == torch.float16
        assert h.softmax(0, dtype=torch.float64).dtype == torch.float64
        loss = h.pow(2).mean()
    assert loss.item() == 40_000
    loss.backward()
    assert h.grad is not None
    assert h.grad.isfinite().all()


def test_compiled_code_does_the_same(active: None) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda"):
            return (x @ x).pow(2).sum()

    x = torch.full((64, 64), 4.0)
    torch._dynamo.reset()
    for backend in ("eager", "aot_eager"):
        found = torch.compile(f, backend=backend, fullgraph=True)(x)
        assert (found.dtype, found.item()) == (torch.float32, f(x).item())
        assert found.isfinite()
