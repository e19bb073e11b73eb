"""Programs that were traced, scripted or exported on a CUDA machine run where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchdevice
from tests.cli.harness import clean_environment

# What a machine with CUDA writes; a virtual one stands in.
MAKE = """
import sys, torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
    def forward(self, x):
        return self.layer(x) + torch.arange(2, device=x.device)
class Explicit(Model):
    def forward(self, x):
        return self.layer(x) + torch.arange(2, device="cuda") + torch.zeros(2).cuda()
x = torch.ones(1, 2, device="cuda")
folder = sys.argv[1]
for model in (Model(), Explicit()):
    for parameter in model.parameters():
        torch.nn.init.ones_(parameter)
    model.cuda().eval()
    name = type(model).__name__
    torch.jit.trace(model, (x,)).save(f"{folder}/{name}.traced.pt")
    torch.export.save(torch.export.export(model, (x,)), f"{folder}/{name}.pt2")
    torch.jit.script(model).save(f"{folder}/{name}.scripted.pt")
"""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archives")
    (folder / "make.py").write_text(MAKE)
    command = [sys.executable, "-W", "ignore", str(folder / "make.py"), str(folder)]
    environment = {**clean_environment(), "TORCHDEVICE_VIRTUAL": "cuda"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.virtual
@pytest.mark.parametrize("model", ["Model", "Explicit"])
@pytest.mark.parametrize("form", ["traced.pt", "scripted.pt", "pt2"])
@pytest.mark.filterwarnings("ignore")
def test_an_archive_from_a_cuda_machine(archives: Path, model: str, form: str, active: None) -> None:
    path = str(archives / f"{model}.{form}")
    loaded = torch.export.load(path).module() if form == "pt2" else torch.jit.load(path)
    x = torch.ones(1, 2, device="cuda")
    assert loaded(x).tolist() == [[3.0, 4.0]]
    assert {str(each.device) for each in loaded.parameters()} == {"cpu"}
    if form != "pt2":
        assert torch.jit.load(path, map_location="cuda")(x).tolist() == [[3.0, 4.0]]
        assert torch.load(path, weights_only=False)(x).tolist() == [[3.0, 4.0]]
    assert torchdevice.is_active()
