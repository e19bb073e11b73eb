"""Graphs of translated devices: a capture leaves no trace, and a replay computes what an eager call computes."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torchdevice._torch import core, dispatcher

pytestmark = [pytest.mark.usefixtures("active"), pytest.mark.filterwarnings("ignore")]

Call = Callable[..., Any]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
SEED = 42  # operators of torch's database that draw random numbers seed their generator with it


def captured(call: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, result


def with_each(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, dict):
        return {name: with_each(each, change) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([with_each(each, change) for each in value])
    return change(value) if isinstance(value, torch.Tensor) else value


def copies(value: Any) -> Any:
    return with_each(value, lambda tensor: tensor.detach().clone())


def tensors(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    with_each(value, lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return found


def memory(value: Any) -> list[torch.Tensor]:
    return [core.whole_memory(tensor) for tensor in tensors(value)]


# --- every operator of torch's database -------------------------------------------------------------------------


def with_numbers_of(other: Arguments, arguments: Arguments) -> Arguments:
    """The same call with the floating-point numbers of another. Masks, indices and sizes stay."""
    numbers = tensors(other)
    if [each.shape for each in numbers] != [each.shape for each in tensors(arguments)]:
        return arguments
    values = iter(numbers)
    changed: Arguments = with_each(
        arguments, lambda tensor: new if (new := next(values)).is_floating_point() else tensor
    )
    return changed


@functools.cache
def operators() -> list[tuple[Any, Arguments, Arguments]]:
    """Each operator with the arguments of a call, and others of the same shapes."""
    from torch.testing._internal.common_methods_invocations import op_db

    found = []
    for op in op_db:
        if not op.supports_dtype(torch.float32, "cpu") or op.name.startswith(UNDEFINED):
            continue
        drawn: list[Arguments] = []
        for seed in (1, 2):
            torch.default_generator.manual_seed(seed)
            # `op.sample_inputs` reads the source of every frame of the stack for each sample
            sample = next(iter(op.sample_inputs_func(op, "cpu", torch.float32, False)), None)
            drawn += [((sample.input, *sample.args), sample.kwargs)] if sample is not None else []
        if drawn and all(each.layout is torch.strided for each in tensors(drawn)):
            found.append((op, drawn[0], with_numbers_of(drawn[1], drawn[0])))
    return found


def into_outputs(function: Call) -> Call:
    """The operator with `out=`, for tensors that come before its arguments."""

    def call(outputs: list[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs, out=outputs[0] if len(outputs) == 1 else tuple(outputs))

    return call


def with_gradients(function: Call) -> Call:
    """The results of the operator and of its backward."""

    def call(*args: Any, **kwargs: Any) -> list[Any]:
        leaves: list[torch.Tensor] = []

        def leaf(tensor: torch.Tensor) -> torch.Tensor:
            leaves.append(tensor.detach().requires_grad_(tensor.is_floating_point()))
            return leaves[-1]

        results = tensors(function(*with_each(args, leaf), **with_each(kwargs, leaf)))
        ends = [each.abs().sum() for each in results if each.requires_grad]
        inputs = [each for each in leaves if each.requires_grad]
        gradients = torch.autograd.grad(ends, inputs, allow_unused=True, materialize_grads=True) if ends else ()
        return [*(each.detach() for each in results), *gradients]

    return call


def on_a_tensor_of_the_graph(function: Call) -> Call:
    return lambda first, *args, **kwargs: function(first.clone(), *args, **kwargs)


def in_place(op: Any) -> Call | None:
    """Operators that only reshape are left out: a graph does not change the shape of an argument again."""
    function = op.inplace_variant
    reshapes = function is not None and reshapes_in_place(function)
    return None if reshapes else function


def in_place_on_a_result(op: Any) -> Call | None:
    function = op.inplace_variant
    return function and (lambda first, *args, **kwargs: function(first * 1, *args, **kwargs))


def reshapes_in_place(function: Any) -> bool:
    packet = getattr(torch.ops.aten, getattr(function, "__name__", ""), None)
    return packet is not None and any(
        torch.Tag.inplace_view in getattr(packet, overload).tags for overload in packet.overloads()
    )


FORMS: dict[str, Callable[[Any], Call | None]] = {
    "forward": lambda op: op.op,
    "in place": in_place,
    "in place on a result": in_place_on_a_result,
    "out": lambda op: into_outputs(op.op) if op.supports_out else None,
    "gradients": lambda op: with_gradients(op.op) if op.supports_autograd else None,
}
UNDEFINED = ("empty", "new_empty", "jiterator")  # uninitialized memory, and kernels in the source code of CUDA
DIFFERENT = {("linalg.matrix_rank", "out")}  # composed of operators without `out=` if there is any dispatch mode


def runs(call: Call, arguments: Arguments) -> bool:
    """Whether the operator has this form for its sample."""
    args, kwargs = copies(arguments)
    try:
        call(*args, **kwargs)
    except (RuntimeError, TypeError):
        return False
    return True


def compare(call: Call, first: Arguments, second: Arguments) -> None:
    """Capture the call with the first arguments, then replay it and call it eagerly with the second."""
    static, eager = copies(first), copies(second)
    places = with_each(static, core.same_memory)  # with the shapes before the call
    state, before = torch.get_rng_state(), [each.clone() for each in memory(static)]
    graph, result = captured(lambda: call(*static[0], **static[1]))
    assert torch.equal(state, torch.get_rng_state()), "the capture drew random numbers"
    unchanged = [torch.equal(now[: then.numel()], then) for now, then in zip(memory(static), before, strict=True)]
    assert all(unchanged), "the capture changed an argument"
    for place, value in zip(tensors(places), tensors(eager), strict=True):
        place.copy_(value)
    for _ in range(2):
        torch.default_generator.manual_seed(SEED)
        graph.replay()
        torch.default_generator.manual_seed(SEED)
        expected = call(*eager[0], **eager[1])
        torch.testing.assert_close(tensors(result), tensors(expected), equal_nan=True)
        torch.testing.assert_close(tensors(static), tensors(eager), equal_nan=True)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small operators are faster without the threads of the CPU, above all beside other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.long
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("form", FORMS)
def test_every_operator(form: str) -> None:
    compared, wrong = 0, {}
    for op, first, second in operators():
        call = FORMS[form](op)
        if call is None or (op.name, form) in DIFFERENT:
            continue
        if form == "out":
            results = tensors(op.op(*first[0], **first[1]))
            outputs = [torch.zeros_like(each) for each in results]
            first, second = (((copies(outputs), *args), kwargs) for args, kwargs in (first, second))
        if runs(call, first):
            compared += 1
            try:
                compare(call, first, second)
            except (AssertionError, RuntimeError) as error:
                wrong[f"{op.name} {op.variant_test_name}"] = str(error)
    assert not wrong
    assert compared > 100


# --- schemas that do not say everything -------------------------------------------------------------------------


def test_writes_that_only_torch_knows_of_are_undone() -> None:
    """torch has a table of the schemas that do not declare what their operators write."""
    missing = []
    for schema in torch._C._jit_get_all_schemas():
        operator = dispatcher.find_operator(f"{schema.name}.{schema.overload_name}".rstrip("."))
        if operator is None:
            continue
        info = torch._C._SchemaInfo(schema)
        written = [each.name for each in schema.arguments if info.is_mutable(each.name)]
        marks = {each.name: torch.ones(1) for each in schema.arguments}
        found = [id(each) for each in dispatcher.effects_of(operator).written((), marks)]
        missing += [(str(operator), name) for name in written if id(marks[name]) not in found]
    assert not missing


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_every_module(training: bool) -> None:
    from torch.testing._internal.common_modules import module_db

    wrong = {}
    for row in module_db:
        torch.default_generator.manual_seed(1)
        drawn = row.module_inputs_func(row, device="cpu", dtype=torch.float32, requires_grad=False, training=training)
        given = next(iter(drawn)) if drawn else None
        if given is None or "lazy" in row.name.lower():
            continue
        made = given.constructor_input
        static = row.module_cls(*made.args, **made.kwargs).train(training)
        eager = copy.deepcopy(static)
        state = copies(static.state_dict())
        args, kwargs = copies((given.forward_input.args, given.forward_input.kwargs))
        if not runs(copy.deepcopy(static), (args, kwargs)):
            continue
        graph, result = captured(lambda: static(*args, **kwargs))  # noqa: B023 - called at once
        try:
            torch.testing.assert_close(static.state_dict(), state, rtol=0, atol=0, msg="the capture changed it")
            for _ in range(2):
                torch.default_generator.manual_seed(SEED)
                graph.replay()
                torch.default_generator.manual_seed(SEED)
                torch.testing.assert_close(tensors(result), tensors(eager(*args, **kwargs)), equal_nan=True)
                torch.testing.assert_close(static.state_dict(), eager.state_dict())
        except (AssertionError, RuntimeError) as error:
            wrong[row.name] = str(error)
    assert not wrong


@torch.library.custom_op("tests_graphs::add_and_scale", mutates_args={"x"})
def add_and_scale(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 10


def test_an_operator_that_writes_and_returns() -> None:
    x = torch.zeros(2, device="cuda")
    graph, y = captured(lambda: add_and_scale(x))
    for count in (1, 2, 3):
        graph.replay()
        assert (x.tolist(), y.tolist()) == ([count] * 2, [10 * count] * 2)


def test_a_part_that_a_schema_calls_new() -> None:
    x = torch.zeros(4, device="cuda")
    graph, _ = captured(lambda: torch.unsafe_chunk(x, 2)[0].add_(1))
    assert x.tolist() == [0, 0, 0, 0]
    graph.replay()
    assert x.tolist() == [1, 1, 0, 0]


def test_a_copy_that_a_schema_calls_a_view() -> None:
    x = torch.zeros(2, 3, device="cuda")
    with torch.inference_mode():
        graph, y = captured(lambda: x.t().reshape(-1))
    x.copy_(torch.arange(6).reshape(2, 3))
    graph.replay()
    assert y.tolist() == [0, 3, 1, 4, 2, 5]


@pytest.fixture
def single_process(active: None, tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_statistics_that_processes_share(single_process: None) -> None:
    x = torch.ones(2, device="cuda")
    graph, y = captured(lambda: (torch.distributed.all_reduce(x.mul_(2)), x + 1)[1])
    assert x.tolist() == [1, 1]
    graph.replay()
    assert (x.tolist(), y.tolist()) == ([2, 2], [3, 3])


# --- the state of the thread that replays -----------------------------------------------------------------------


def test_a_replay_ignores_the_modes_of_its_caller() -> None:
    x, lstm = torch.rand(5, 2, 2, device="cuda"), nn.LSTM(2, 3).cuda()
    graph, y = captured(lambda: lstm(x)[0] @ torch.ones(3, 3, device="cuda"))
    x.mul_(3)
    expected = (lstm(x)[0] @ torch.ones(3, 3)).detach()
    for mode in (torch.no_grad(), torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16)):
        with mode:
            graph.replay()
        torch.testing.assert_close(y.detach(), expected)


def in_inference(call: Callable[[], object]) -> object:
    with torch.inference_mode():
        return call()


def test_a_part_of_a_capture_in_inference_mode() -> None:
    x = torch.ones(3, device="cuda")
    graph, y = captured(lambda: in_inference(lambda: x.add_(1) * 2))
    assert x.tolist() == [1, 1, 1]
    graph.replay()
    assert (x.tolist(), y.tolist()) == ([2, 2, 2], [4, 4, 4])


def test_sparse_arguments_are_restored() -> None:
    x = torch.eye(2, device="cuda").to_sparse()
    graph, y = captured(lambda: x.mul_(2).to_dense())
    assert x.to_dense().tolist() == [[1, 0], [0, 1]]
    graph.replay()
    assert y.tolist() == [[2, 0], [0, 2]]


def test_memory_that_was_freed_stays_free() -> None:
    x = torch.ones(3, device="cuda")
    captured(lambda: (x.add_(1), x.untyped_storage().resize_(0)))
    assert x.untyped_storage().nbytes() == 0


def test_a_replay_does_not_count_writes() -> None:
    x, w = torch.ones(3, device="cuda"), torch.ones(3, device="cuda", requires_grad=True)
    graph, y = captured(lambda: x * 3)
    loss = (y * w).sum()
    x.fill_(2)
    graph.replay()
    loss.backward()
    assert w.grad is not None
    assert w.grad.tolist() == [6, 6, 6]


def test_a_tensor_subclass_is_captured_by_its_parts() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    x = TwoTensor(torch.ones(2, device="cuda"), torch.zeros(2, device="cuda"))
    graph, y = captured(lambda: x.add_(1) * 2)
    assert (x.a.tolist(), x.b.tolist()) == ([1, 1], [0, 0])
    graph.replay()
    assert (x.a.tolist(), y.a.tolist(), y.b.tolist()) == ([2, 2], [4, 4], [2, 2])


def test_a_nested_tensor_is_replayed() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device="cuda")
    graph, y = captured(lambda: nested * 2)
    nested.mul_(5)
    graph.replay()
    assert y.to_padded_tensor(0.0).tolist() == [[10, 10, 0], [10, 10, 10]]


# --- results that depend on data --------------------------------------------------------------------------------


def test_a_result_of_another_size_is_an_error() -> None:
    x = torch.tensor([0.0, 1.0, 2.0], device="cuda")
    graph, y = captured(lambda: x[x > 0])
    graph.replay()
    assert y.tolist() == [1, 2]
    x.add_(1)
    with pytest.raises(RuntimeError, match=r"(?s)aten\.index\.Tensor.*\(2,\).*\(3,\).*Hint:"):
        graph.replay()


def test_released_memory_is_an_error() -> None:
    x = torch.zeros(1000, device="cuda")
    graph, _ = captured(lambda: x[500:].add_(1))
    x.untyped_storage().resize_(2000)
    with pytest.raises(RuntimeError, match="replayed after memory of its capture was released"):
        graph.replay()
