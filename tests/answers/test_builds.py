"""A torch that was built with CUDA, on a machine without a driver: no class of C++ is reached."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchdevice.answers.audience import Audience
from torchdevice.answers.real import target_of
from torchdevice.answers.scoped import Masquerade
from torchdevice.policy.hosts import Host
from torchdevice.translate.translator import translator

CPP = type(torch._C.Graph)  # pybind11's metaclass: every class of C++ has it
REBUILT = [(torch.cuda.graphs, "CUDAGraph"), (torch.cuda.memory, "MemPool")]
if hasattr(torch.xpu, "graphs"):  # since 2.10
    REBUILT.append((torch.xpu.graphs, "XPUGraph"))


@pytest.mark.parametrize(("module", "name"), REBUILT, ids=[name for _, name in REBUILT])
def test_classes_of_cpp_are_rebuilt(module: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built = CPP(name, (torch._C.Graph,), {"__module__": module.__name__})
    assert type(built) is not type
    kind = module.__name__.split(".")[1]
    for place in (module, getattr(torch, kind)):
        if hasattr(place, name):
            monkeypatch.setattr(place, name, built)
    masquerade = Masquerade(kind, target_of(Host("cpu")), Audience(translator))
    answer = next(each.value for each in masquerade.replacements() if each.name == name)
    assert not issubclass(answer, torch._C.Graph)
    answer()
