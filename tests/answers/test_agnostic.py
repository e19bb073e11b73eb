"""`torch.accelerator` on a host that has none."""

from __future__ import annotations

import inspect

import pytest
import torch

import torchdevice
from torchdevice.answers.accelerator import ANSWERED_HERE, AS_CUDA
from torchdevice.answers.rows import SURFACE

# Not answered: no library was seen to ask a CPU for them.
LEFT = {"Graph", "get_device_capability"}
plain = pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator")


def test_every_name_is_answered_or_left() -> None:
    assert set(torch.accelerator.__all__) <= {*AS_CUDA, *ANSWERED_HERE, *LEFT}
    assert set(AS_CUDA.values()) <= {row.name for row in SURFACE["cuda"]}


@plain
@pytest.mark.usefixtures("active")
def test_it_says_what_torch_cuda_says() -> None:
    accelerator = torch.accelerator
    assert accelerator.is_available()
    found = accelerator.current_accelerator()
    assert found is not None
    assert found.type == "cuda"
    assert torch.zeros(2, device=found).device.type == "cpu"
    assert accelerator.device_count() == torch.cuda.device_count() == 1
    assert accelerator.current_device_index() == 0
    accelerator.set_device_index(0)
    accelerator.synchronize(torch.device("cuda:0"))
    accelerator.empty_cache()
    accelerator.reset_peak_memory_stats()
    assert accelerator.memory_allocated("cuda") == torch.cuda.memory_allocated()
    assert accelerator.max_memory_allocated() >= 0
    assert accelerator.current_stream() == torch.cuda.current_stream()
    with accelerator.device_index(0):
        assert inspect.isclass(accelerator.device_index)


@plain
def test_torch_itself_gets_the_truth_and_everything_comes_back() -> None:
    before = {name: getattr(torch.accelerator, name) for name in torch.accelerator.__all__}
    with torchdevice.redirect(target="cpu"):
        # A loader that pins memory asks this, from a file of torch's.
        asks = compile("torch.accelerator.is_available()", torch.utils.data.dataloader.__file__, "eval")
        assert not eval(asks)
        assert torch.accelerator.is_available()
    assert {name: getattr(torch.accelerator, name) for name in torch.accelerator.__all__} == before
    assert not torch.accelerator.is_available()


@plain
@pytest.mark.usefixtures("active")
def test_the_compiler_takes_it_as_a_constant() -> None:
    @torch.compile(backend="eager", fullgraph=True)
    def added(x: torch.Tensor) -> torch.Tensor:
        return x + torch.accelerator.device_count() if torch.accelerator.is_available() else x

    assert added(torch.zeros(2)).tolist() == [1.0, 1.0]
