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
    found = list(precision.lacking())
    for names, rule in precision.RULES:
        assert {base(name) for name, own in found if own is rule} == names & KNOWN


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_in_float32_under_a_reduced_dtype(name: str, dtype: torch.dtype, active: None) -> None:
    call = SPECIAL.get(name) or getattr(torch, name)
    x = torch.linspace(0.1, 0.9, 16).view(4, 4)
    given = x.to(dtype).requires_grad_()
    with torch.autocast("cuda", dtype=dtype):
        found = call(given)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, call(x.to(dtype).float()))
    found.sum().backward()
    assert given.grad is not None
    assert given.grad.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"pdist", "nuclear_norm", "frobenius_norm"}))
def test_autocast_of_the_cpu_keeps_its_own_lists(name: str, dtype: torch.dtype, active: None) -> None:
    call = SPECIAL.get(name) or getattr(torch, name)
    x = torch.linspace(0.1, 0.9, 16).view(4, 4).to(dtype)
    plain = call(x)
    with torch.autocast("cuda", dtype=dtype):
        pass
    with torch.autocast("cpu", dtype=dtype):
        found = call(x)
    assert found.dtype == plain.dtype
    torch.testing.assert_close(found, plain)


# The rows of torch's own lists that CUDA's autocast casts, on virtual cuda and on a CPU, with two dtypes.
COMPARED = """
import json, sys, torch
if sys.argv[1] == "cuda":
    from torchdevice import virtual
    virtual.install("cuda")
else:
    import torchdevice
    torchdevice.activate(target="cpu", policy="portable")
from torch.testing._internal.autocast_test_lists import AutocastTestLists
lists = AutocastTestLists(torch.device("cpu"))
names = "torch_fp32 torch_need_autocast_promote nn_fp32 methods_fp32 torch_fp16 torch_expect_builtin_promote".split()
homes = (torch, torch._C._nn, torch.nn.functional, torch.Tensor)

def given(value, dtype):
    if isinstance(value, torch.Tensor):
        return value.to(sys.argv[1]).to(dtype if value.dtype is torch.float16 else value.dtype)
    return type(value)(given(each, dtype) for each in value) if isinstance(value, (tuple, list)) else value

found = {}
for name, args, *rest in (row for each in names for row in getattr(lists, each)):
    function = next((getattr(home, name) for home in homes if hasattr(home, name)), None)
    if function is None or "cudnn" in name or not isinstance(args, tuple):
        continue
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cuda", dtype=dtype):
            result = function(*given(args, dtype), **next((each for each in rest if isinstance(each, dict)), {}))
        result = result[0] if isinstance(result, tuple) else result
        found.setdefault(name, []).append(str(getattr(result, "dtype", type(result))))
print(json.dumps(found))
"""
# Called by name by nobody but torch's own functions, which autocast knows.
LEFT = {"_convolution", "convolution"}


def test_dtypes_are_those_of_virtual_cuda_operator_by_operator() -> None:
    runs = [python("-W", "ignore", "-c", COMPARED, kind) for kind in ("cuda", "cpu")]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr + runs[1].stderr
    judge, found = (json.loads(run.stdout) for run in runs)
    assert len(judge) > 60
    assert {name: dtypes for name, dtypes in found.items() if name not in LEFT and dtypes != judge[name]} == {}


# The dtypes of what torch's modules return under autocast, by torch's own samples, with two dtypes.
MODULES = """
import itertools, json, sys, torch
if sys.argv[1] == "cuda":
    from torchdevice import virtual
    virtual.install("cuda")
else:
    import torchdevice
    torchdevice.activate(target="cpu", policy="portable")
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

def there(given):
    moved = pytree.tree_map(lambda each: each.to("cuda") if isinstance(each, torch.Tensor) else each, given)
    return lambda function: function(*moved[0], **moved[1])

found = {}
for info in module_db:
    samples = info.module_inputs_func(info, "cpu", torch.float32, requires_grad=False, training=True)
    for number, sample in enumerate(itertools.islice(samples, 8)):
        made, given = sample.constructor_input, sample.forward_input
        for dtype in (torch.float16, torch.bfloat16):
            try:
                module = there((made.args, made.kwargs))(info.module_cls).to("cuda")
                with torch.autocast("cuda", dtype=dtype):
                    result = there((given.args, given.kwargs))(module)
                seen = [str(each.dtype) for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
            except Exception as error:
                seen = type(error).__name__
            found.setdefault(f"{info.name} {number}", []).append(seen)
print(json.dumps(found))
"""
# CUDA's autocast refuses it and names the function to take instead.
REFUSED = "nn.BCELoss"


@pytest.mark.processes
def test_dtypes_are_those_of_virtual_cuda_module_by_module() -> None:
    runs = [python("-W", "ignore", "-c", MODULES, kind) for kind in ("cuda", "cpu")]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr + runs[1].stderr
    judge, found = (json.loads(run.stdout) for run in runs)
    assert sum(name.startswith("nn.LSTM ") for name in judge) == 8
    assert {name: dtypes for name, dtypes in found.items() if dtypes != judge[name] and REFUSED not in name} == {}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_train_under_a_reduced_dtype(layer: Any, dtype: torch.dtype, active: None) -> None:
    torch.manual_seed(0)
    module, x = layer(4, 8, num_layers=2, bidirectional=True).cuda(), torch.randn(5, 3, 4, requires_grad=True)
    packed = nn.utils.rnn.pack_padded_sequence(x.detach(), torch.tensor([5, 3, 2]))
    expected, _ = module(x)
    with torch.autocast("cuda", dtype=dtype):
        found, _ = module(x)
        assert module(packed)[0].data.dtype == dtype
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.03)
    found.float().sum().backward()
    assert {each.grad.dtype for each in (x, *module.parameters())} == {torch.float32}
    with torch.no_grad(), torch.autocast("cuda", dtype=dtype):
        torch.testing.assert_close(module(x)[0], found.detach(), rtol=0, atol=0)


def test_what_was_computed_under_bfloat16_can_be_given_to_numpy(active: None) -> None:
    x = torch.full((2, 2), 0.5)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.log(x @ x + 1).cpu().numpy().dtype == "float32"
        with torch.autocast("cuda", enabled=False):
            assert x.bfloat16().exp().dtype == torch.bfloat16
        assert x.bfloat16().exp().dtype == torch.float32
    assert x.bfloat16().exp().dtype == torch.bfloat16
    assert not torch.is_autocast_enabled("cuda")


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
