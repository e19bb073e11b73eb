"""The same questions to the CPU, to virtual mps and xpu through the masquerade, and to a virtual cuda: same shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.virtual.harness import run_python

ASK = """
import json, sys, torch
{prepare}
from tests.cuda.calls import ALONE, CALLS, answers
found = answers({{**CALLS, **ALONE}} if {alone} else CALLS)
print("ANSWERS" + json.dumps(found))
"""


def _ask(device: str, active: bool) -> dict[str, Any]:
    prepare = f"import torchdevice.virtual; torchdevice.virtual.from_environment({device!r})\n" if device else ""
    prepare += "import torchdevice; torchdevice.activate()" if active else ""
    done = run_python("-W", "ignore", "-c", ASK.format(prepare=prepare, alone=active))
    assert done.returncode == 0, done.stdout + done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("ANSWERS"))
    return json.loads(line.removeprefix("ANSWERS"))


@pytest.fixture(scope="module")
def real() -> dict[str, Any]:
    """A virtual cuda without translation: torch.cuda as on a CUDA machine."""
    found = _ask("cuda", active=False)
    assert [name for name, answer in found.items() if isinstance(answer, str) and "Error" in answer] == []
    return found


# Where an answer may differ from virtual cuda's, and why.
EXCUSED = {
    "cudart": "the runtime module of the masquerade knows more error codes",
    "cudnn": "virtual cuda has no cuDNN behind its flags",
    "get_arch_list": "one architecture here, that of the capability",
    "get_device_properties": "compared by name below",
    "reset_accumulated_memory_stats": "virtual cuda returns 0, CUDA nothing",
    "reset_peak_memory_stats": "virtual cuda returns 0, CUDA nothing",
}


@pytest.mark.virtual
@pytest.mark.parametrize("device", ["", "mps", "xpu"])
def test_answers_have_the_shape_that_cuda_gives(device: str, real: dict[str, Any]) -> None:
    found = _ask(device, active=True)
    errors = {name: answer for name, answer in found.items() if isinstance(answer, str) and "Error" in answer}
    assert errors == {}
    different = {
        name: (found[name], answer) for name, answer in real.items() if found[name] != answer and name not in EXCUSED
    }
    assert different == {}
    assert set(real["get_device_properties"][1]) <= set(found["get_device_properties"][1])
