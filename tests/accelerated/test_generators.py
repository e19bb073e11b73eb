"""States of generators on a host with an accelerator: what `.cpu()` or `torch.load` gave sets any generator."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils import data

import torchdevice

pytestmark = [pytest.mark.accelerated, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def _accelerate() -> Iterator[None]:
    with torchdevice.redirect(policy="accelerate"):
        yield


def reloaded(thing: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def on_real_cpu() -> torch.Generator:
    with torchdevice.cpu_override():
        return torch.Generator("cpu")


GENERATORS: dict[str, Callable[[], torch.Generator]] = {
    "none given": torch.Generator,
    "cpu": lambda: torch.Generator("cpu"),
    "cuda": lambda: torch.Generator("cuda"),
    "the CPU's": on_real_cpu,
    "default": lambda: torch.default_generator,
    "a clone": lambda: torch.Generator().clone_state(),
}


@pytest.mark.parametrize("arrived", [lambda state: state.cpu(), lambda state: reloaded(state)], ids=["cpu()", "load"])
@pytest.mark.parametrize("name", GENERATORS)
def test_a_state_that_arrived_on_the_accelerator(name: str, arrived: Callable[[Any], Any]) -> None:
    generator = GENERATORS[name]()
    state = arrived(generator.get_state())
    assert state.device.type != "cpu"
    first = torch.rand(4, generator=generator)
    generator.set_state(state)
    assert torch.equal(torch.rand(4, generator=generator), first)


WAYS: dict[str, tuple[str, Callable[[], Any], Callable[[Any], None]]] = {
    "torch": ("cpu:-1", lambda: torch.get_rng_state().cpu(), lambda state: torch.set_rng_state(state)),
    "torch.random": ("cpu:-1", lambda: torch.get_rng_state().cpu(), lambda state: torch.random.set_rng_state(state)),
    "torch.cuda": ("cuda", lambda: torch.cuda.get_rng_state().cpu(), lambda state: torch.cuda.set_rng_state(state)),
    "all of torch.cuda": (
        "cuda",
        lambda: reloaded(torch.cuda.get_rng_state_all()),
        lambda states: torch.cuda.set_rng_state_all(states),
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_the_states_of_a_namespace(name: str) -> None:
    device, get, set_back = WAYS[name]
    torch.manual_seed(7)
    state = get()
    first = torch.rand(4, device=device)
    assert not torch.equal(torch.rand(4, device=device), first)
    set_back(state)
    assert torch.equal(torch.rand(4, device=device), first)


def test_a_pickled_generator() -> None:
    generator = torch.Generator().manual_seed(5)
    again = reloaded({"generator": generator})["generator"]
    with torchdevice.cpu_override():
        assert torch.rand(4, generator=again).tolist() == torch.rand(4, generator=generator).tolist()


def test_a_loader_that_goes_on_where_it_was() -> None:
    generator = torch.Generator().manual_seed(1)
    loader = data.DataLoader(data.TensorDataset(torch.arange(8.0)), batch_size=4, shuffle=True, generator=generator)
    state = generator.get_state().cpu()
    first = [batch.tolist() for (batch,) in loader]
    loader.generator.set_state(state)
    assert [batch.tolist() for (batch,) in loader] == first


def test_what_is_no_state_is_refused_in_the_words_of_torch() -> None:
    with pytest.raises(TypeError, match=r"RNG state must be a torch\.ByteTensor"):
        torch.Generator().set_state(torch.zeros(3))


def test_the_method_of_torch_is_there_again_afterwards() -> None:
    ours = torch.Generator.set_state
    with torchdevice.redirect(policy="portable"):
        plain = torch.Generator.set_state
        assert plain is not ours
        assert type(plain) is type(torch.Generator.get_state)
    assert torch.Generator.set_state is ours
