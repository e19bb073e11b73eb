"""Samplers that run on the CPU for another device draw from that device's generator."""

from __future__ import annotations

import torch
from torch.nn.functional import rrelu, rrelu_

import torchdevice
from tests.torches import on_pinned_torch
from tests.virtual.harness import on
from torchdevice.fallback.plan import read_plan
from torchdevice.ledger import fallbacks


def samplers() -> dict[str, object]:
    rate = torch.full((8,), 4.0, device="mps")
    return {
        "aten::poisson": lambda: torch.poisson(rate),
        "aten::binomial": lambda: torch.binomial(rate * 10, torch.full_like(rate, 0.5)),
        "aten::rrelu_with_noise": lambda: rrelu(-rate, training=True),
        "aten::rrelu_with_noise_": lambda: rrelu_(-rate.clone(), training=True),
    }


@on("mps:real")
def test_seeds_and_states_of_the_device_decide() -> None:
    torchdevice.activate(policy="portable")
    for name, sample in samplers().items():
        torch.mps.manual_seed(5)
        first = sample()
        second = sample()
        torch.mps.manual_seed(5)
        assert torch.equal(sample(), first), name
        assert torch.equal(sample(), second), name
        assert not torch.equal(first, second), name
        state = torch.mps.get_rng_state()
        third = sample()
        torch.mps.set_rng_state(state)
        assert torch.equal(sample(), third), name
        torch.manual_seed(5)
        assert torch.equal(sample(), first), name
    fell_back = {record.operator for record in fallbacks.measured()} & samplers().keys()
    assert fell_back == samplers().keys() if on_pinned_torch() else fell_back  # a later torch may have some for MPS


@on("mps:real")
def test_the_generator_of_the_cpu_is_left_alone() -> None:
    torchdevice.activate(policy="portable")
    for name, sample in samplers().items():
        before = torch.random.get_rng_state()
        sample()
        assert torch.equal(torch.random.get_rng_state(), before), name


def test_operators_that_draw_are_known_by_their_tag() -> None:
    for name in ("aten::poisson", "aten::native_dropout", "aten::bernoulli_.float"):
        plan = read_plan(name)
        assert plan is not None
        assert plan.samples, name
    plan = read_plan("aten::add.Tensor")
    assert plan is not None
    assert not plan.samples
