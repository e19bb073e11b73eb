"""A full target: memory is freed and the call tried once more, then the CPU if that was asked for, each recorded."""

from __future__ import annotations

import gc
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import torchdevice
from tests.virtual.harness import on
from torchdevice.answers import relief
from torchdevice.reporting.collect import Place

MIB = 1 << 20


class Cycle:
    """Python frees such an object, and the tensor in it, only when it collects garbage."""

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held
        self.itself = self


def full(kind: str) -> torch.Tensor:
    """A small tensor on a device of 64 MiB, 48 of which are garbage from now on."""
    import torchdevice.virtual

    gc.collect()
    gc.disable()  # or it might be collected before memory runs out
    if kind == "cpu":
        small = torch.ones(MIB, dtype=torch.uint8)
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + 64 * MIB) / total)
    else:
        small = torch.ones(MIB, dtype=torch.uint8, device=kind)
        torchdevice.virtual.set_memory_limit("64MiB")
    Cycle(small.repeat(48))
    return small


# Of 32 MiB each.
CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "factory": lambda x: torch.zeros(32 * MIB, dtype=torch.uint8, device=x.device),
    "move": lambda x: torch.ones(4 * MIB).to(x.device, torch.int64),
    "operator": lambda x: x.repeat(32),
    "method": lambda x: x.expand(32, MIB).clone(),
    "in place": lambda x: x.new_empty(0).resize_(32 * MIB),
    "gradient": lambda x: x[:4].float().requires_grad_().expand(2 * MIB, 4)[0].sum().backward(),
}


def rows(kind: str, given: str = relief.TRIED_AGAIN) -> list[Place]:
    places = (place for place in torchdevice.report().by_place if place.kind == "shortage")
    return [place for place in places if (place.asked, place.given) == (kind, given)]


def check(kind: str, call: str) -> None:
    torchdevice.activate(target=kind, policy="portable")
    x = full(kind)
    assert rows(kind) == []
    CALLS[call](x)
    (row,) = rows(kind)
    assert row.site.file == ("<backward pass>" if call == "gradient" and kind != "cpu" else __file__)
    assert "relieved at 1 place" in torchdevice.report().summary()


@pytest.mark.parametrize("call", CALLS)
@on("cuda")
def test_garbage_is_freed_on_cuda(call: str) -> None:
    check("cuda", call)


@pytest.mark.parametrize("call", CALLS)
@on("mps")
def test_garbage_is_freed_on_mps(call: str) -> None:
    check("mps", call)


@pytest.mark.parametrize("call", sorted(CALLS.keys() - {"move"}))  # a move to the CPU from the CPU is none
@on("")
def test_garbage_is_freed_on_a_cpu_with_a_limit(call: str) -> None:
    check("cpu", call)


@pytest.mark.parametrize("call", CALLS)
@on("cuda")
def test_without_a_retry_the_error_is_raised_at_once(call: str) -> None:
    """What plain torch does, too: its allocator does not collect garbage."""
    torchdevice.activate(on_oom="raise", policy="portable")
    x = full("cuda")
    with pytest.raises(torch.OutOfMemoryError):
        CALLS[call](x)
    assert rows("cuda") == []
    torchdevice.deactivate()
    with pytest.raises(torch.OutOfMemoryError):
        CALLS[call](x)
    gc.collect()
    CALLS[call](x)


@on("cuda")
def test_it_is_tried_once_and_the_error_is_torchs() -> None:
    torchdevice.activate(policy="portable")
    x = full("cuda")

    def ask() -> None:
        torch.zeros(80 * MIB, dtype=torch.uint8, device="cuda").cuda()

    with pytest.raises(torch.OutOfMemoryError, match=r"^CUDA out of memory. Tried to allocate 80.00 MiB. GPU 0 ") as e:
        ask()
    assert e.value.__cause__ is None
    places = [(place.site.line, place.api, place.calls) for place in rows("cuda")]
    assert places == [(ask.__code__.co_firstlineno + 1, relief.OPERATOR, 1)]
    assert torch.cuda.memory_stats()["num_ooms"] == 1
    assert x.repeat(60).numel() == 60 * MIB


@on("")
def test_a_call_with_keywords_only_is_tried_twice_and_raises_torchs_error() -> None:
    torchdevice.activate(target="cpu", on_oom="cpu")
    with pytest.raises(torch.OutOfMemoryError):
        torch.zeros(size=(1 << 50,), device="cuda")
    assert [(place.api, place.calls) for place in rows("cpu")] == [("torch.zeros", 1)]


@on("cuda")
def test_half_of_an_operator_in_place_is_not_done_twice() -> None:
    """The conversion of the second addend finds no memory, when the first is added already."""
    torchdevice.activate(policy="portable")
    full("cuda")
    into = [torch.zeros(size, device="cuda") for size in (1 << 14, 3 * MIB)]
    addends = [torch.ones(1, device="cuda", dtype=torch.float64).expand_as(each) for each in into]
    assert rows("cuda") == []
    torch._foreach_add_(into, addends)
    assert [each.cpu().unique().tolist() for each in into] == [[1.0], [1.0]]
    assert len(rows("cuda")) == 1


@on("cuda")
def test_finalizers_do_not_run_inside_the_operator() -> None:
    torchdevice.activate(policy="portable")
    seen: list[tuple[str, bool]] = []

    class Loud(Cycle):
        def __del__(self) -> None:
            with torch.enable_grad():
                y = torch.ones(2, requires_grad=True) * 2
            seen.append((threading.current_thread().name, y.requires_grad))

    x = full("cuda")
    Loud(x)
    assert x.repeat(32).numel() == 32 * MIB
    assert seen == [("torchdevice-relief", True)]


@on("cuda")
def test_a_finalizer_that_runs_out_of_memory_does_not_wait_for_itself() -> None:
    torchdevice.activate(policy="portable")
    seen: list[str] = []

    class Greedy(Cycle):
        def __del__(self) -> None:
            try:
                x.repeat(80)
            except torch.OutOfMemoryError:
                seen.append("error")

    x = full("cuda")
    Greedy(x)
    assert x.repeat(32).numel() == 32 * MIB
    assert seen == ["error"]


@on("cuda")
def test_threads_that_run_out_at_the_same_time() -> None:
    torchdevice.activate(policy="portable")
    x = full("cuda")
    done: list[int] = []

    def work() -> None:
        for _ in range(20):
            done.append(x.repeat(14).numel())
            Cycle(x.repeat(1))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert done == [14 * MIB] * 60


# --- the CPU, if it was asked for ------------------------------------------------------------------------------------


@on("cuda")
def test_an_operator_may_use_memory_of_the_host_for_what_is_not_its_result() -> None:
    import torchdevice.virtual

    plain = (
        torch.arange(8 * MIB).remainder(97).float()
    )  # 32 MiB; `kthvalue` needs 96 beside it, and its result is small
    expected = plain.kthvalue(1000)
    x = plain.to("cuda")
    torchdevice.virtual.set_memory_limit("48MiB")
    torchdevice.activate(policy="portable")
    with pytest.raises(torch.OutOfMemoryError):
        x.kthvalue(1000)
    torchdevice.deactivate()
    assert rows("cuda", relief.IN_HOST_MEMORY) == []
    torchdevice.activate(on_oom="cpu", policy="portable")
    found = x.kthvalue(1000)
    line = inspect.currentframe().f_lineno - 1
    assert found.values.device == found.indices.device == x.device
    assert (found.values.item(), found.indices.item()) == (expected.values.item(), expected.indices.item())
    assert {place.site.line for place in rows("cuda", relief.IN_HOST_MEMORY)} == {line}
    assert torch.cuda.memory_allocated() <= 33 * MIB


@on("cuda")
def test_a_result_that_does_not_fit_is_an_error() -> None:
    """It cannot stay on the CPU: the next operator would find its arguments on two devices."""
    torchdevice.activate(on_oom="cpu", policy="portable")
    x = full("cuda")
    for call in (
        lambda: torch.zeros(80 * MIB, dtype=torch.uint8, device="cuda"),
        lambda: torch.ones(80 * MIB, dtype=torch.uint8).to("cuda"),
        lambda: x.repeat(80),
        lambda: nn.Linear(8192, 8192).to("cuda"),
    ):
        with pytest.raises(torch.OutOfMemoryError, match=r"^CUDA out of memory"):
            call()
    assert torch.cuda.memory_allocated() < 64 * MIB


class Full:
    """A device that has room for a result, but not for a conversion."""

    on_cpu = True

    def __init__(self) -> None:
        self.done: list[str] = []

    def applies(self, error: BaseException) -> bool:
        return isinstance(error, torch.OutOfMemoryError)

    def free(self, api: str) -> None:
        self.done.append(f"freed for {api}")

    def note_on_cpu(self, api: str) -> None:
        self.done.append(f"{api} on the CPU")


@pytest.fixture
def converting_on_the_device() -> Iterator[tuple[Full, Callable[..., Any]]]:
    from dataclasses import replace

    from torchdevice.translate import shortage
    from torchdevice.translate.translator import translator

    with torchdevice.redirect(target="cpu"):
        there, situation = Full(), translator.situation
        translator.situation = replace(situation, relief=there)

        def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            device, dtype, _, _ = torch._C._nn._parse_to(*args, **kwargs)
            if device.type == "meta" and dtype not in (None, self.dtype):
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 6.00 GiB")
            return torch.Tensor.to(self, *args, **kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return to(*args, **kwargs)
            except RuntimeError as error:
                return shortage.tried_again(error, to, args, kwargs, "torch.Tensor.to", translator)

        yield there, call
        translator.situation = situation


def test_a_move_is_converted_on_the_cpu_if_the_device_has_no_room_for_it(converting_on_the_device: Any) -> None:
    there, to = converting_on_the_device
    moved = to(torch.ones(3), "meta", torch.float16, non_blocking=True)
    assert (moved.device.type, moved.dtype) == ("meta", torch.float16)
    assert there.done == ["freed for torch.Tensor.to", "torch.Tensor.to on the CPU"]


def test_without_the_cpu_the_conversion_fails(converting_on_the_device: Any) -> None:
    there, to = converting_on_the_device
    there.on_cpu = False
    with pytest.raises(torch.OutOfMemoryError):
        to(torch.ones(3), "meta", torch.float16)
    assert there.done == ["freed for torch.Tensor.to"]


def test_nothing_surrounds_calls_that_need_no_help() -> None:
    plain = {name: getattr(torch, name) for name in ("add", "matmul", "sort", "cat")}
    with torchdevice.redirect(target="cpu"):
        assert {name: getattr(torch, name) for name in plain} == plain
        assert torch._C._len_torch_function_stack() == torch._C._len_torch_dispatch_stack() == 0
