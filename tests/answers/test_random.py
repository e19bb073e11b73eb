"""Generators of devices that nothing has touched yet; seeds and states are in `test_answers` and `test_virtual`."""

from __future__ import annotations

import pytest
import torch

from torchdevice.answers.device import Device
from torchdevice.answers.random import generators


class Untouched(Device):
    """Two devices that nothing has initialised."""

    def __init__(self) -> None:
        self.count = 2
        self.asked: list[int] = []

    def initialised(self) -> bool:
        return False

    def generator(self, index: int) -> torch.Generator:
        self.asked.append(index)
        return torch.default_generator


def test_generators_of_an_untouched_device_are_taken_when_asked_for() -> None:
    target = Untouched()
    later = generators(target)
    assert isinstance(later, tuple)
    assert len(later) == 2
    assert target.asked == []
    assert later[1] is later[-1] is torch.default_generator
    assert list(later) == [torch.default_generator] * 2
    assert later[:1] == (torch.default_generator,)
    assert later == (torch.default_generator,) * 2
    assert torch.default_generator in later
    assert later.__add__((1,)) == (*later, 1)
    with pytest.raises(IndexError):
        later[2]
