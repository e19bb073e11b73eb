"""Graphs of a virtual cuda and the generators that they draw from."""

from __future__ import annotations

import torch

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
