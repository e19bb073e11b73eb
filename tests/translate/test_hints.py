"""An error about devices that may come from a redirection ends with a hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.harness import torchdevice, write

PROGRAMS = {
    'x = torch.zeros(2)\nx + torch.zeros(2, device="meta")': True,
    "x = torch.zeros(2)\nx.numpy()[:] = 1": True,
    'torch.zeros(2, device="cpu")\nraise TypeError("expected a CPU tensor")': True,
    'torch.zeros(2)\nraise RuntimeError("out of ideas")': False,
    'torch.zeros(2)\nraise KeyError("device")': False,
    'raise RuntimeError("wrong device")': False,
}


@pytest.mark.virtual
@pytest.mark.parametrize("code", PROGRAMS)
def test_the_hint_names_the_policy_and_the_place(code: str, tmp_path: Path) -> None:
    write(tmp_path, {"program.py": f"import torch\n{code}\n"})
    done = torchdevice("run", "--virtual", "mps", "--policy", "accelerate", "program.py", cwd=tmp_path)
    assert done.returncode == 1
    said = 'policy=accelerate moved tensors made on "cpu" or without a device to mps:0, first at '
    assert (f"{said}{tmp_path}/program.py:2" in done.stderr) is PROGRAMS[code]
    assert ("Hint: try --policy portable" in done.stderr) is PROGRAMS[code]
    kept = torchdevice("run", "--virtual", "mps", "--policy", "portable", "program.py", cwd=tmp_path)
    assert "Hint: try --policy portable" not in kept.stderr


CHECKS = {
    'def check(x):\n    assert x.is_cuda, "x must be on a GPU"\ncheck(torch.ones(2).cuda())': True,
    'x = torch.ones(2, device="cuda:0")\nif x.device.type != "cuda":\n    raise ValueError(x.device)': True,
    'x = torch.ones(2, device="cuda")\nassert x.device.type in ("cuda",)': True,
    'x = torch.ones(2, device="cuda")\nassert x.sum() > 3': False,
    "x = torch.ones(2)\nassert x.is_cuda": False,
    'x = torch.ones(2).cuda()\nimport torch.utils.cpp_extension as e\ne.load("is_cuda", ["k.cu"])': False,
}


@pytest.mark.parametrize("code", CHECKS)
def test_a_program_that_checks_the_type_is_told_of_another_mode(code: str, tmp_path: Path) -> None:
    write(tmp_path, {"program.py": f"import torch\n{code}\n"})
    done = torchdevice("run", "--target", "cpu", "program.py", cwd=tmp_path)
    assert done.returncode == 1
    assert ("Hint: `torchdevice run --as cuda` gives tensors of the type cuda" in done.stderr) is CHECKS[code]
    if CHECKS[code]:
        followed = torchdevice("run", "--as", "cuda", "program.py", cwd=tmp_path)
        assert followed.returncode == 0, followed.stderr
