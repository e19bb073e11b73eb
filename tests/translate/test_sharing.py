"""Memory that programs take for shared or for apart, under a policy that makes host and device one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torchdevice
from tests.virtual.harness import on
from torchdevice.errors import TorchDeviceWarning
from torchdevice.translate import adapters, sharing
from torchdevice.translate.translator import translator


def heard(program: Callable[[], Any], policy: str, target: str = "auto") -> list[str]:
    """The warnings of ours, each cut to its first words."""
    with warnings.catch_warnings(record=True) as caught, torchdevice.redirect(target=target, policy=policy):
        warnings.simplefilter("always")
        kept = program()  # until the end: what a program holds on to matters
    del kept
    return [
        str(each.message).split(",")[0].split(" shares")[0] for each in caught if each.category is TorchDeviceWarning
    ]


def array() -> Any:
    return np.zeros(3, dtype=np.float32)


SHARED = {
    "torch.from_numpy": lambda: torch.from_numpy(array()),
    "torch.frombuffer": lambda: torch.frombuffer(bytearray(8), dtype=torch.uint8),
    "torch.as_tensor": lambda: torch.as_tensor(array()),
    "torch.asarray": lambda: torch.asarray(array()),
}
NOT_SHARED = {
    "a copy was asked for": lambda: torch.asarray(array(), copy=True),
    "another device": lambda: torch.as_tensor(array(), device="cuda"),
    "a list": lambda: torch.as_tensor([1.0, 2.0]),
    "always a copy": lambda: torch.tensor(array()),
    "nobody can write": lambda: torch.frombuffer(b"12345678", dtype=torch.uint8),
}


@on("mps")
def test_a_copy_of_a_writable_array_costs_a_warning() -> None:
    for name, make in SHARED.items():
        assert heard(make, "accelerate") == [name]
        assert heard(lambda make=make: [make() for _ in range(3)], "accelerate") == []  # the same place
        assert heard(make, "portable") == []
    for why, make in NOT_SHARED.items():
        assert heard(make, "accelerate") == [], why


ARRAYS = {
    "numpy": lambda tensor: tensor.numpy(),
    "asarray": np.asarray,
    "cpu": lambda tensor: tensor.cpu().numpy(),
    "detach": lambda tensor: tensor.detach().numpy(),
    "__array__": lambda tensor: tensor.__array__(),
}


@on("mps")
def test_an_array_that_is_a_copy_refuses_writes() -> None:
    for made in ARRAYS.values():
        with torchdevice.redirect(policy="accelerate"):
            found = made(torch.ones(3))
            assert found.tolist() == [1.0, 1.0, 1.0]
            with pytest.raises(ValueError, match="read-only"):
                found[:] = 5
        with torchdevice.redirect(policy="portable"):
            tensor = torch.ones(3)
            made(tensor)[:] = 5
            assert tensor.tolist() == [5.0, 5.0, 5.0]
    with torchdevice.redirect(policy="accelerate"):
        forced = torch.ones(3).numpy(force=True)
        forced[:] = 5
        assert forced.tolist() == [5.0, 5.0, 5.0]


def filled_and_kept() -> Any:
    host, kept = torch.zeros(2), []
    for number in range(3):
        host.fill_(number)
        kept.append(host.to("cuda"))
    return kept


def data_and_kept() -> Any:
    weight = nn.Parameter(torch.ones(2))
    saved = weight.data.cuda()
    weight.data.mul_(0)
    return saved


def best_weights() -> Any:
    model, best = nn.Linear(2, 2).cuda(), {}
    for step in range(3):
        with torch.no_grad():
            model.weight.add_(1)
        if step == 0:
            best = {name: value.cpu() for name, value in model.state_dict().items()}
    return model, best


def history() -> Any:
    weight, kept = nn.Parameter(torch.ones(2).cuda()), []
    for _ in range(3):
        kept.append(weight.cpu())
        weight.data.add_(1)
    return kept


def moved_and_written() -> Any:
    kept = []
    for _ in range(3):
        x = torch.zeros(2)
        x = x.cuda()
        x.add_(1)
        kept.append(x)
    return kept


def a_buffer_that_is_used_up() -> Any:
    buffer, sums = torch.zeros(2), []
    for number in range(3):
        buffer.fill_(number)
        sums.append(buffer.cuda().sum().item())
    return buffer, sums


def looked_at() -> Any:
    weight = nn.Parameter(torch.ones(2).cuda())
    for _ in range(3):
        weight.cpu().tolist()
        weight.data.add_(1)
    return weight


def kept_and_not_written() -> Any:
    weight = torch.ones(2).cuda()
    return weight, [weight.cpu(), weight.detach().cpu(), weight.cuda()]


# What is heard where there is only the CPU, and on an accelerator under `accelerate`, where `.cpu()` is a copy.
HAZARDS = {
    filled_and_kept: (["torch.Tensor.to returned its own input"],) * 2,
    data_and_kept: (["torch.Tensor.cuda returned its own input"],) * 2,
    best_weights: (["torch.Tensor.cpu returned its own input"], []),
    history: (["torch.Tensor.cpu returned its own input"],) * 2,
}
HARMLESS = (moved_and_written, a_buffer_that_is_used_up, looked_at, kept_and_not_written)


@pytest.mark.parametrize("program", HAZARDS)
def test_a_result_that_follows_its_input_costs_a_warning_on_a_cpu(program: Callable[[], Any]) -> None:
    assert heard(program, "accelerate", "cpu") == HAZARDS[program][0]


@pytest.mark.parametrize("program", HARMLESS)
def test_what_no_program_can_notice_costs_none_on_a_cpu(program: Callable[[], Any]) -> None:
    assert heard(program, "accelerate", "cpu") == []


def _on_an_accelerator() -> None:
    for program, (_, expected) in HAZARDS.items():
        assert heard(program, "accelerate") == expected, program
        assert heard(program, "portable") == [], program
    for program in HARMLESS:
        assert heard(program, "accelerate") == [], program


@on("mps")
def test_results_that_follow_their_input_on_mps() -> None:
    _on_an_accelerator()


@on("cuda")
def test_results_that_follow_their_input_on_cuda() -> None:
    _on_an_accelerator()


@on("cuda")
def test_pinning_what_is_on_the_accelerator() -> None:
    """torch refuses it. Under `accelerate` the tensor may have been requested on the CPU."""
    x = torch.zeros(2, device="cuda")
    calls = [lambda: x.pin_memory(), lambda: torch.zeros(2, device="cuda", pin_memory=True)]

    def outcome(call: Callable[[], torch.Tensor]) -> str:
        try:
            return str(call().is_pinned())
        except RuntimeError as error:
            return str(error)

    plain = [outcome(call) for call in calls]
    assert all("only dense cpu tensors can be pinned" in text.lower() for text in plain)
    with torchdevice.redirect(policy="portable"):
        assert [outcome(call) for call in calls] == plain
        assert torch.zeros(2).pin_memory().is_pinned()
    with torchdevice.redirect(policy="accelerate"):
        assert [outcome(call) for call in calls] == ["True", "True"]
        assert torch.zeros(2).pin_memory().is_pinned()


def test_the_report_has_the_place(active: None) -> None:
    with pytest.warns(TorchDeviceWarning, match="Hint: `run --as cuda` keeps them apart"):
        kept = filled_and_kept()
    del kept
    (row,) = torchdevice.report().of_kind("changed")
    assert (row.api, row.asked, row.given, row.calls) == ("torch.Tensor.to", "cuda", "its input", 1)
    assert row.first.file == __file__


def test_a_place_is_watched_only_at_first(active: None, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(sharing, "contents_of", looks.append)
    x = torch.zeros(1)
    for _ in range(3 * sharing.WATCHED_CALLS):
        x.cuda()
    assert len(looks) == sharing.WATCHED_CALLS


def test_memory_that_cannot_be_shared_says_what_to_do(active: None) -> None:
    def refuse(self: Any) -> Any:
        raise RuntimeError("_share_fd_: only available on CPU")

    share = adapters.share_memory(refuse, "torch.storage.UntypedStorage.share_memory_", translator)
    with pytest.raises(RuntimeError, match="only available on CPU"):
        share(torch.empty(1).untyped_storage())
    with pytest.raises(
        RuntimeError, match=r"called for memory on meta(.|\n)*Hint: run with --policy portable, or .*cpu:-1"
    ):
        share(torch.empty(1, device="meta").untyped_storage())
