"""Graphs of a virtual cuda: what a capture leaves as it was, and the generators that graphs draw from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchdevice
from tests.virtual.harness import on

Drawn = list[torch.Tensor]


def draw(generator: torch.Generator, first: torch.Generator, second: torch.Generator) -> Drawn:
    """One tensor from the state of `second`, then two from the state of `first`."""
    generator.graphsafe_set_state(second)
    drawn = [torch.rand(5, device="cuda", generator=generator)]
    generator.graphsafe_set_state(first)
    return [*drawn, *(torch.rand(5, device="cuda", generator=generator) for _ in range(2))]


def seeded(generator: torch.Generator) -> tuple[torch.Generator, torch.Generator, torch.Generator]:
    """The generator with two states that begin alike."""
    generator.manual_seed(0)
    return generator, generator.graphsafe_get_state(), generator.clone_state()


@on("cuda")
def test_replays_draw_from_the_states_of_the_capture() -> None:
    eager = seeded(torch.Generator(device="cuda"))
    captured = seeded(torch.cuda.default_generators[0])
    graph = torch.cuda.CUDAGraph()
    for state in captured[1:]:
        graph.register_generator_state(state)
    with torch.cuda.graph(graph):
        static = draw(*captured)
    for _ in range(3):
        expected = draw(*eager)
        graph.replay()
        torch.testing.assert_close(static, expected, rtol=0, atol=0)


@on("cuda")
def test_a_capture_advances_no_generator() -> None:
    own = torch.Generator(device="cuda").manual_seed(3)
    expected = torch.rand(4, device="cuda", generator=torch.Generator(device="cuda").manual_seed(3))
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(own)
    with torch.cuda.graph(graph):
        static = torch.rand(4, device="cuda", generator=own)
    graph.replay()
    torch.testing.assert_close(static, expected, rtol=0, atol=0)


# Arguments of batch norms by name. `count`: of one device, `counts`: of several.
X = torch.arange(12.0).reshape(4, 3)
OF_NORMS = {
    "input": X,
    "weight": torch.ones(3),
    "bias": torch.zeros(3),
    "mean": X.mean(0, keepdim=True),
    "invstd": X.var(0, keepdim=True).rsqrt(),
    "running_mean": torch.zeros(3),
    "running_var": torch.ones(3),
    "training": True,
    "use_input_stats": True,
    "momentum": 0.1,
    "exponential_average_factor": 0.1,
    "eps": 1e-5,
    "epsilon": 1e-5,
    "cudnn_enabled": False,
    "count": 4,
    "counts": torch.full((1,), 4.0),
}


def norms() -> dict[str, torch._ops.OpOverload]:
    """The operators of torch with running statistics that can be called with `OF_NORMS`."""
    found = {}
    for schema in torch._C._jit_get_all_schemas():
        names = {argument.name for argument in schema.arguments}
        if "running_mean" in names <= OF_NORMS.keys() and schema.name.startswith("aten::"):
            packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"))
            found[f"{schema.name}.{schema.overload_name}"] = getattr(packet, schema.overload_name or "default")
    return found


def arguments_of(norm: torch._ops.OpOverload, dtype: torch.dtype) -> dict[str, Any]:
    given = {each.name: OF_NORMS[each.name] for each in norm._schema.arguments}
    return {
        name: value.to("cuda", dtype) if isinstance(value, torch.Tensor) else value for name, value in given.items()
    }


def contents(given: dict[str, Any]) -> dict[str, str]:
    """As text: a variance may be NaN, which equals nothing."""
    return {name: str(value.tolist()) for name, value in given.items() if isinstance(value, torch.Tensor)}


@on("cuda")
def test_a_capture_leaves_the_statistics_of_norms_to_the_replays() -> None:
    changed = set()
    for dtype in (torch.float32, torch.float16):
        for name, norm in norms().items():
            eager, static = arguments_of(norm, dtype), arguments_of(norm, dtype)
            try:
                norm(**eager)
            except RuntimeError:  # an operator of cuDNN or of MIOpen
                continue
            before = contents(static)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                norm(**static)
            assert contents(static) == before, (name, dtype)
            graph.replay()
            assert contents(static) == contents(eager), (name, dtype)
            if contents(static) != before:
                changed.add((name, dtype))
    assert {("aten::native_batch_norm.", torch.float32), ("aten::native_batch_norm.", torch.float16)} <= changed
    assert ("aten::batch_norm_update_stats.", torch.float32) in changed


@on("cuda")
def test_statistics_whose_memory_is_shared_are_separated_before_an_update() -> None:
    mean, var = torch.zeros(3, device="cuda"), torch.ones(3, device="cuda")
    kept = torch._lazy_clone(mean)
    torch.native_batch_norm(X.cuda(), None, None, mean, var, True, 0.1, 1e-5)
    assert kept.tolist() == [0, 0, 0] != mean.tolist()


# Changes of the geometry of a tensor of three values by four, which are not work for the device.
GEOMETRY: dict[str, Callable[[torch.Tensor], object]] = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "unsqueeze_": lambda x: x.unsqueeze_(1),
    "squeeze_": lambda x: x.unsqueeze_(1).squeeze_(1),
    "as_strided_": lambda x: x.as_strided_((2, 3), (1, 4), 1),
    "resize_": lambda x: x.resize_(2, 4),
    "set_": lambda x: x.set_(x.storage(), 2, (5,), (2,)),
    "data": lambda x: setattr(x, "data", x.data.t()),
}


def numbers(scale: float = 1.0) -> torch.Tensor:
    return torch.arange(12.0, device="cuda").reshape(3, 4) * scale


@on("cuda")
def test_a_graph_keeps_the_geometry_that_a_tensor_had() -> None:
    for name, change in GEOMETRY.items():
        for during in (True, False):
            x, eager = numbers(), numbers(10)
            whole = torch.as_strided(x, (12,), (1,))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                first = x * 2
                if during:
                    change(x)
                second = x.clone()
                x.add_(1)
            change(x)
            expected = [eager * 2]
            if during:
                change(eager)
            expected.append(eager.clone())
            whole.copy_(numbers(10).flatten())
            graph.replay()
            assert [first.tolist(), second.tolist()] == [each.tolist() for each in expected], (name, during)
            expected_whole = numbers(10).flatten()
            torch.as_strided(expected_whole, eager.size(), eager.stride(), eager.storage_offset()).add_(1)
            assert whole.tolist() == expected_whole.tolist(), (name, during)


@on("cuda")
def test_a_capture_restores_a_tensor_whose_geometry_it_changes() -> None:
    x = numbers()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.t_()
        x.add_(1)
        x.t_()
        x.mul_(3)
    assert x.tolist() == numbers().tolist()
    square = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="cuda")
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        square.t_()
        square.add_(1)
        square.t_()
    assert square.tolist() == [[1, 2], [3, 4]]


@on("cuda")
def test_sparse_tensors_take_part_in_a_graph() -> None:
    eye, dense = torch.eye(2, device="cuda"), torch.ones(2, 2, device="cuda")
    compressed, sparse = eye.to_sparse_csr(), eye.to_sparse()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        products = compressed @ dense, torch.sparse.mm(sparse, dense), (sparse * 2).to_dense() + dense
    dense.fill_(3)
    graph.replay()
    assert [each.tolist() for each in products] == [[[3, 3], [3, 3]], [[3, 3], [3, 3]], [[5, 3], [3, 5]]]


def number_and_steps(host: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A graph reads a number of the CPU, counts there, and copies to it. Returns all three after two replays."""
    x, rate, steps = torch.ones(4, device="cuda"), torch.tensor(0.5), torch.zeros(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.mul_(rate)
        steps.add_(1)
        host.copy_(x, non_blocking=True)
    assert host.tolist() == [0, 0, 0, 0]
    rate.fill_(100)
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    return x.cpu(), steps, host


def replayed_in_a_capture() -> None:
    inner, x = torch.cuda.CUDAGraph(), torch.zeros(2, device="cuda")
    with torch.cuda.graph(inner):
        x.add_(1)
    refused = pytest.raises(RuntimeError, match="Cannot prepare for replay during capturing stage")
    with refused, torch.cuda.graph(torch.cuda.CUDAGraph()):
        inner.replay()
    assert x.tolist() == [0, 0]


def a_graph_is_as_on_cuda(host: torch.Tensor) -> None:
    x, steps, copied = number_and_steps(host)
    assert x.tolist() == copied.tolist() == [0.25] * 4
    assert steps.tolist() == [1]
    replayed_in_a_capture()


@on("cuda")
def test_a_graph_is_as_on_cuda() -> None:
    """A capture keeps the values of numbers on the CPU, and the CPU's own work is no part of a graph."""
    a_graph_is_as_on_cuda(torch.zeros(4, pin_memory=True))


@on("mps")
def test_a_graph_of_a_translated_accelerator_is_as_on_cuda() -> None:
    with torchdevice.redirect(policy="portable"):
        a_graph_is_as_on_cuda(torch.zeros(4))


@on("cuda")
def test_copies_for_which_the_host_waits_are_refused_in_a_capture() -> None:
    x, here, pinned = torch.zeros(2, device="cuda"), torch.ones(2), torch.ones(2).pin_memory()
    waiting: list[Callable[[], Any]] = [
        lambda: torch.tensor([1.0, 2.0], device="cuda"),
        lambda: here.to("cuda"),
        lambda: x.copy_(pinned),
        lambda: x[0].copy_(torch.tensor(5.0)),
        lambda: x.cpu(),
    ]
    for call in waiting:
        with pytest.raises(torch.AcceleratorError, match="capturing"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.copy_(pinned, non_blocking=True)
        x[:1] = 5.0
    pinned.fill_(3)
    graph.replay()
    assert x.tolist() == [5, 3]


@on("cuda:2")
def test_an_event_belongs_to_the_device_of_its_stream() -> None:
    first, second = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    second.record(torch.cuda.Stream(1))
    torch.cuda.synchronize()
    with pytest.raises(RuntimeError, match="invalid resource handle"):
        first.elapsed_time(second)
    with pytest.raises(RuntimeError, match="does not match recording stream's device"):
        first.record(torch.cuda.Stream(1))


@on("cuda")
def test_released_memory_is_an_error() -> None:
    graph, x = torch.cuda.CUDAGraph(), torch.zeros(1000, device="cuda")
    with torch.cuda.graph(graph):
        x.add_(1)
    for size in (x.nbytes // 2, 0):
        x.untyped_storage().resize_(size)
        with pytest.raises(RuntimeError, match="replayed after memory of its capture was released"):
            graph.replay()
