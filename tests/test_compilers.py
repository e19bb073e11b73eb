"""torch.jit, torch.compile, torch.export, torch.fx, fake tensors and function transforms while active."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import torchdevice

pytestmark = [pytest.mark.usefixtures("active"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def factories(x: torch.Tensor) -> torch.Tensor:
    made = torch.ones(2, device="cuda") + torch.arange(2, device=torch.device("cuda")) + torch.zeros(2)
    return x + made + torch.full_like(x, 2.0, device="cuda:1") + torch.tensor([1.0, 2.0], device="cuda")


def moves(x: torch.Tensor) -> torch.Tensor:
    return x.to("cuda") + x.cuda() + x.to(torch.device("cuda", 0)) + x.cpu().to("cuda") + x.new_ones(2, device="cuda")


def mixed_precision(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return torch.outer(x, x) @ torch.outer(x, x)


PROGRAMS: list[Callable[[torch.Tensor], torch.Tensor]] = [factories, moves, mixed_precision]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.processes)])
def test_compile_without_graph_breaks(program: Callable[[torch.Tensor], torch.Tensor], backend: str) -> None:
    torch._dynamo.reset()
    x = torch.tensor([1.0, 2.0])
    expected = program(x)
    compiled = torch.compile(program, fullgraph=True, backend=backend)
    assert torch.equal(compiled(x), expected)
    assert torch.equal(compiled(x + 0), expected)


def test_compiled_code_does_not_recompile_as_places_are_counted() -> None:
    torch._dynamo.reset()
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    compiled = torch.compile(factories, backend=counter)
    for _ in range(5):
        compiled(torch.zeros(2))
        torch.zeros(1, device="cuda")
    assert counter.frame_count == 1


def test_compile_before_activation_then_after() -> None:
    torchdevice.deactivate()
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x + torch.zeros(2, device="cpu"), backend="eager", fullgraph=True)
    compiled(torch.zeros(2))
    torchdevice.activate(target="cpu")
    assert torch.compile(factories, backend="eager", fullgraph=True)(torch.zeros(2)).is_cpu
    assert compiled(torch.zeros(2)).is_cpu
    torchdevice.deactivate()
    assert compiled(torch.zeros(2)).is_cpu


@pytest.mark.parametrize("cleared_while_active", [True, False])
def test_the_compiler_may_read_its_rules_again(cleared_while_active: bool) -> None:
    """As `init_process_group` makes it do."""
    torch._dynamo.reset()
    compiled = torch.compile(factories, backend="eager", fullgraph=True)
    compiled(torch.zeros(2))
    if not cleared_while_active:
        torchdevice.deactivate()
    torch._dynamo.trace_rules.clear_lru_cache()
    if not cleared_while_active:
        torchdevice.activate(target="cpu")
    torch._dynamo.reset()
    assert compiled(torch.zeros(2)).is_cpu


def test_compiled_modules_train() -> None:
    torch._dynamo.reset()
    model = torch.compile(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1)).cuda(), backend="aot_eager")
    model(torch.ones(3, 2, device="cuda")).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def scripted_factory(n: int, device: torch.device) -> torch.Tensor:
    return torch.zeros(n, device=device) + torch.ones(n, device=device) + torch.arange(n)


def test_script_of_functions_that_make_tensors() -> None:
    scripted = torch.jit.script(scripted_factory)
    assert isinstance(scripted, torch.jit.ScriptFunction)
    assert "aten::zeros" in str(scripted.graph)
    assert scripted(2, torch.device("cuda")).tolist() == [1, 2]


def test_script_of_annotations_bound_before_activation(python: Callable[..., Any]) -> None:
    done = python(
        "import torch\n"
        "def make(device: torch.device): return torch.zeros(1, device=device)\n"
        "import torchdevice; torchdevice.activate(target='cpu')\n"
        "def later(device: torch.device): return torch.zeros(1, device=device)\n"
        "print(*(torch.jit.script(f)(torch.device('cuda')).device for f in (make, later)))"
    )
    assert done.stdout == "cpu cpu\n"


def test_script_of_literal_devices() -> None:
    def literal(n: int) -> torch.Tensor:
        device = torch.device("cpu")
        made = torch.zeros(n, device=device) + torch.ones(n, device="cuda")
        if n > 1:
            made = made.cuda() + made.to("cuda:1")
        return made

    assert torch.jit.script(literal)(2).tolist() == [2, 2]
    assert "torch.jit.script" in {row.api for row in torchdevice.report().rows}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + torch.rand_like(x) * 0 + torch.arange(2)


def test_script_and_trace_of_modules() -> None:
    model, x = Model(), torch.zeros(1, 2)
    assert torch.equal(torch.jit.script(model)(x), model(x))
    assert torch.equal(torch.jit.trace(model, x)(x), model(x))


class Moving(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to("cuda") + torch.ones(2, device="cuda")


@pytest.mark.parametrize("strict", [True, False])
def test_export(strict: bool) -> None:
    exported = torch.export.export(Moving(), (torch.zeros(2),), strict=strict)
    assert exported.module()(torch.ones(2)).tolist() == [2, 2]


def test_fx_tracing_and_its_code() -> None:
    traced = torch.fx.symbolic_trace(Moving())
    assert traced(torch.ones(2)).tolist() == [2, 2]
    assert make_fx(Moving())(torch.zeros(2))(torch.ones(2)).tolist() == [2, 2]

    def sized(x: torch.Tensor) -> Any:
        return torch.zeros(x.size(0), device="cuda")

    assert "torch.zeros" in torch.fx.symbolic_trace(sized).code


def test_fake_tensors_and_transforms() -> None:
    with FakeTensorMode():
        fake = torch.zeros(2, device="cuda") + torch.zeros(2).cuda() + torch.zeros(2)
    assert fake.device == torch.device("cpu")
    mapped = torch.func.vmap(lambda row: row.to("cuda") + torch.ones(2, device="cuda"))(torch.zeros(3, 2))
    assert mapped.sum() == 6
    gradient = torch.func.grad(lambda x: (x.cuda() ** 2).sum())(torch.ones(2))
    assert gradient.tolist() == [2, 2]


class Logged(torch.Tensor):
    """A subclass with a protocol of its own sees torch's functions, not ours."""

    seen: list[Any] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_tensor_subclasses() -> None:
    x = torch.zeros(2).as_subclass(Logged)
    Logged.seen.clear()
    assert type(x.to("cuda")) is Logged
    assert type(torch.ones_like(x, device="cuda")) is Logged
    assert torchdevice.original("torch.ones_like") in Logged.seen
    assert torchdevice.original("torch.Tensor.to") in Logged.seen


LEFT_BEHIND = """
import torch, torchdevice
if {loaded}:
    import torch._dynamo
    before = list(torch._dynamo.trace_rules.SKIP_DIRS)
for _ in range(2):
    with torchdevice.redirect(target="cpu"):
        import torch._dynamo
        from torch._dynamo import trace_rules
        skipped = [each for each in trace_rules.SKIP_DIRS if "torchdevice" in each]
        assert len(skipped) == len(set(skipped)) > 1
        assert not [each for each in skipped if each.endswith(("torchdevice/packages/", "torchdevice/twins.py"))]
        assert "torchdevice" in trace_rules.SKIP_DIRS_RE.pattern
    assert not [each for each in trace_rules.SKIP_DIRS if "torchdevice" in each]
    assert "torchdevice" not in trace_rules.SKIP_DIRS_RE.pattern
if {loaded}:
    assert trace_rules.SKIP_DIRS == before
"""


@pytest.mark.parametrize("loaded", [True, False])
def test_the_compilers_list_of_what_to_skip_is_put_back(loaded: bool, python: Callable[..., Any]) -> None:
    python(LEFT_BEHIND.format(loaded=loaded))
