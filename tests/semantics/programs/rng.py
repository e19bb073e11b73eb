"""Random numbers: values differ between devices, so programs return what holds between them."""

import random

import numpy as np
import torch
from torch import nn

from tests.semantics.program import gives


def _twice(prepare, draw):
    prepare()
    first = draw()
    prepare()
    return torch.equal(first, draw())


def _sampler(draw):
    return lambda d: _twice(lambda: torch.manual_seed(3), lambda: draw(d))


# One seed, twice the same numbers: for every way to draw on the device.
ROWS = {
    "seed_rand": _sampler(lambda d: torch.rand(5, device=d)),
    "seed_randn": _sampler(lambda d: torch.randn(5, device=d)),
    "seed_randint": _sampler(lambda d: torch.randint(0, 1000, (5,), device=d)),
    "seed_randperm": _sampler(lambda d: torch.randperm(9, device=d)),
    "seed_rand_like": _sampler(lambda d: torch.rand_like(torch.zeros(4, device=d))),
    "seed_bernoulli": _sampler(lambda d: torch.bernoulli(torch.full((20,), 0.5, device=d))),
    "seed_multinomial": _sampler(lambda d: torch.multinomial(torch.ones(20, device=d), 5)),
    "seed_normal": _sampler(lambda d: torch.normal(torch.zeros(4, device=d), torch.ones(4, device=d))),
    "seed_poisson": _sampler(lambda d: torch.poisson(torch.full((9,), 4.0, device=d))),
    "seed_uniform_": _sampler(lambda d: torch.empty(4, device=d).uniform_(-1, 1)),
    "seed_normal_": _sampler(lambda d: torch.empty(4, device=d).normal_()),
    "seed_exponential_": _sampler(lambda d: torch.empty(4, device=d).exponential_()),
    "seed_cauchy_": _sampler(lambda d: torch.empty(4, device=d).cauchy_()),
    "seed_log_normal_": _sampler(lambda d: torch.empty(4, device=d).log_normal_()),
    "seed_geometric_": _sampler(lambda d: torch.empty(9, device=d).geometric_(0.3)),
    "seed_random_": _sampler(lambda d: torch.empty(4, dtype=torch.int64, device=d).random_(100)),
    "seed_bernoulli_": _sampler(lambda d: torch.empty(20, device=d).bernoulli_(0.5)),
    "seed_dropout": _sampler(lambda d: nn.functional.dropout(torch.ones(20, device=d))),
    "seed_dropout2d": _sampler(lambda d: nn.functional.dropout2d(torch.ones(1, 20, 2, 2, device=d))),
    "seed_alpha_dropout": _sampler(lambda d: nn.functional.alpha_dropout(torch.ones(20, device=d), training=True)),
    "seed_rrelu": _sampler(lambda d: nn.functional.rrelu(-torch.ones(9, device=d), training=True)),
    "seed_gumbel_softmax": _sampler(lambda d: nn.functional.gumbel_softmax(torch.zeros(9, device=d))),
    "seed_linear_init": _sampler(lambda d: nn.Linear(3, 3, device=d).weight),
    "seed_module_moved": _sampler(lambda d: nn.Linear(3, 3).to(d).weight),
    "seed_xavier": _sampler(lambda d: nn.init.xavier_normal_(torch.empty(3, 3, device=d))),
    "seed_orthogonal": _sampler(lambda d: nn.init.orthogonal_(torch.empty(3, 3, device=d))),
    "seed_trunc_normal": _sampler(lambda d: nn.init.trunc_normal_(torch.empty(3, 3, device=d))),
    "seed_distribution_normal": _sampler(
        lambda d: torch.distributions.Normal(torch.zeros(3, device=d), torch.ones(3, device=d)).sample()
    ),
    "seed_distribution_gamma": _sampler(
        lambda d: torch.distributions.Gamma(torch.ones(3, device=d), torch.ones(3, device=d)).sample()
    ),
    "seed_distribution_beta": _sampler(
        lambda d: torch.distributions.Beta(torch.ones(3, device=d), torch.ones(3, device=d)).sample()
    ),
    "seed_distribution_categorical": _sampler(
        lambda d: torch.distributions.Categorical(torch.ones(30, device=d)).sample((4,))
    ),
    "seed_distribution_binomial": _sampler(
        lambda d: torch.distributions.Binomial(20, torch.full((9,), 0.4, device=d)).sample()
    ),
}


def numbers_go_on(d):
    torch.manual_seed(0)
    return torch.equal(torch.rand(4, device=d), torch.rand(4, device=d))


def other_seeds_give_other_numbers(d):
    torch.manual_seed(1)
    a = torch.rand(4, device=d)
    torch.manual_seed(2)
    return torch.equal(a, torch.rand(4, device=d))


def the_seed_is_told(d):
    torch.manual_seed(77)
    return torch.initial_seed()


@gives([True, 5])
def the_seed_of_the_device(d):
    torch.cuda.manual_seed(5)
    a = torch.rand(3, device=d)
    torch.cuda.manual_seed_all(5)
    return [torch.equal(a, torch.rand(3, device=d)), torch.cuda.initial_seed()]


@gives(True)
def the_seed_of_the_device_leaves_the_host_alone(d):
    torch.manual_seed(4)
    a = torch.rand(3)
    torch.manual_seed(4)
    torch.cuda.manual_seed(9)
    return torch.equal(a, torch.rand(3))


def host_numbers_with_a_seed(d):
    return torch.rand(3, generator=torch.Generator().manual_seed(3)).shape


@gives(True)
def host_numbers_are_those_of_plain_torch(d):
    torch.manual_seed(0)
    return torch.rand(2).tolist() == [0.49625658988952637, 0.7682217955589294]


@gives(True)
def the_state_of_the_device_comes_back(d):
    state = torch.cuda.get_rng_state()
    a = torch.randn(4, device=d)
    torch.cuda.set_rng_state(state)
    return torch.equal(a, torch.randn(4, device=d))


@gives(["torch.uint8", "cpu", 1])
def what_a_state_is(d):
    state = torch.cuda.get_rng_state()
    return [str(state.dtype), state.device.type, len(torch.cuda.get_rng_state_all())]


def the_state_of_the_host_comes_back(d):
    state = torch.get_rng_state()
    a = torch.randn(4)
    torch.set_rng_state(state)
    return [torch.equal(a, torch.randn(4)), str(state.dtype)]


def random_module_states(d):
    state = torch.random.get_rng_state()
    a = torch.randperm(9)
    torch.random.set_rng_state(state)
    return torch.equal(a, torch.randperm(9))


def a_generator_repeats(d):
    g = torch.Generator(device=d).manual_seed(8)
    a = torch.rand(3, device=d, generator=g)
    g.manual_seed(8)
    return [
        torch.equal(a, torch.rand(3, device=d, generator=g)),
        g.initial_seed(),
        g.device.type == torch.device(d).type,
    ]


def a_generator_is_independent(d):
    torch.manual_seed(1)
    a = torch.rand(3, device=d)
    torch.manual_seed(1)
    g = torch.Generator(device=d).manual_seed(99)
    torch.rand(7, device=d, generator=g)
    return torch.equal(a, torch.rand(3, device=d))


def the_state_of_a_generator(d):
    g = torch.Generator(device=d)
    g.manual_seed(2)
    state = g.get_state()
    a = torch.randn(3, device=d, generator=g)
    g.set_state(state)
    return torch.equal(a, torch.randn(3, device=d, generator=g))


def two_generators_with_one_state(d):
    g, h = torch.Generator(device=d), torch.Generator(device=d)
    g.manual_seed(6)
    torch.rand(5, device=d, generator=g)
    h.set_state(g.get_state())
    return torch.equal(torch.rand(3, device=d, generator=g), torch.rand(3, device=d, generator=h))


def a_generator_of_the_host(d):
    g = torch.Generator().manual_seed(1)
    a = torch.randperm(10, generator=g).tolist()
    g.manual_seed(1)
    return [a == torch.randperm(10, generator=g).tolist(), sorted(a)]


def a_generator_in_place(d):
    g = torch.Generator(device=d).manual_seed(5)
    a = torch.empty(3, device=d).normal_(generator=g)
    g.manual_seed(5)
    return torch.equal(a, torch.empty(3, device=d).normal_(generator=g))


def a_generator_in_multinomial_and_bernoulli(d):
    g = torch.Generator(device=d)
    draws = []
    for _ in range(2):
        g.manual_seed(5)
        draws.append(
            [
                torch.multinomial(torch.ones(9, device=d), 4, generator=g).tolist(),
                torch.bernoulli(torch.full((9,), 0.5, device=d), generator=g).tolist(),
            ]
        )
    return draws[0] == draws[1]


def a_generator_seeds_itself(d):
    g = torch.Generator(device=d)
    seed = g.seed()
    return [seed == g.initial_seed(), isinstance(seed, int)]


def fork_rng_restores_the_device(d):
    torch.manual_seed(0)
    a = torch.rand(3, device=d)
    torch.manual_seed(0)
    with torch.random.fork_rng():
        torch.rand(50, device=d)
    return torch.equal(a, torch.rand(3, device=d))


def fork_rng_restores_the_host(d):
    torch.manual_seed(0)
    a = torch.rand(3)
    torch.manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        torch.rand(50)
    return torch.equal(a, torch.rand(3))


@gives(True)
def fork_rng_with_devices(d):
    torch.manual_seed(0)
    with torch.random.fork_rng(devices=[0]):
        a = torch.rand(3, device=d)
    return torch.equal(a, torch.rand(3, device=d))


@gives(True)
def fork_rng_with_a_device_type(d):
    torch.manual_seed(0)
    with torch.random.fork_rng(devices=[torch.cuda.current_device()], device_type="cuda"):
        a = torch.rand(3, device=d)
    return torch.equal(a, torch.rand(3, device=d))


def fork_rng_that_is_off(d):
    torch.manual_seed(0)
    with torch.random.fork_rng(enabled=False):
        a = torch.rand(3, device=d)
    return torch.equal(a, torch.rand(3, device=d))


def seeds_of_all_libraries(d):
    def draw():
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        return [random.random(), float(np.random.rand()), torch.rand(2, device=d).tolist()]

    return draw() == draw()


def the_default_generator(d):
    torch.manual_seed(6)
    return [torch.default_generator.initial_seed(), torch.default_generator.device.type]


@gives([True, 6])
def the_default_generators_of_the_device(d):
    torch.manual_seed(6)
    g = torch.cuda.default_generators[0]
    state = g.get_state()
    a = torch.rand(2, device=d, generator=g)
    g.set_state(state)
    return [torch.equal(a, torch.rand(2, device=d)), g.initial_seed()]


def statistics_are_right(d):
    x = torch.randn(20000, device=d)
    u = torch.rand(20000, device=d)
    return [abs(x.mean().item()) < 0.05, abs(x.std().item() - 1) < 0.05, u.min().item() >= 0, u.max().item() < 1]


def dropout_scales(d):
    x = nn.functional.dropout(torch.ones(1000, device=d), 0.5)
    return sorted(set(x.tolist()))


def randperm_is_a_permutation(d):
    return sorted(torch.randperm(20, device=d).tolist())


def the_random_split_repeats(d):
    split = lambda: torch.utils.data.random_split(range(10), [6, 4], torch.Generator().manual_seed(42))
    return [list(a) == list(b) for a, b in zip(split(), split(), strict=True)]
