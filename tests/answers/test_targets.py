"""Every row is called, on the CPU and on virtual devices, and answers in the shape that its device gives."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from tests.virtual.harness import run_python
from torchdevice.answers.rows import SURFACE, Kind

ASK = """
import json, torch
{prepare}
from tests.answers import calls
found = {{kind: calls.answers(kind) for kind in {kinds}}}
found["scenarios"] = calls.scenarios() if "cuda" in {kinds} else {{}}
import torchdevice
found["skipped"] = [skip.path for skip in torchdevice.status().skipped]
print("ANSWERS" + json.dumps(found))
"""


@functools.cache
def _ask(device: str, active: bool) -> dict[str, Any]:
    """What a process with that virtual device answers: by itself for its own namespace, active for all others."""
    own = device.partition(":")[0]
    kinds = [kind for kind in SURFACE if (kind != own) is active]
    prepare = f"import torchdevice.virtual; torchdevice.virtual.from_environment({device!r})\n" if device else ""
    if device in ("cuda", "xpu") and active:  # the generators of a device that is not initialized are read later
        prepare += f"import torch; torch.{device}.init()\n"
    prepare += "import torchdevice; torchdevice.activate()" if active else ""
    done = run_python("-W", "ignore", "-c", ASK.format(prepare=prepare, kinds=kinds))
    assert done.returncode == 0, done.stdout + done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("ANSWERS"))
    return json.loads(line.removeprefix("ANSWERS"))


def _errors(answers: dict[str, Any]) -> dict[str, str]:
    return {name: answer for name, answer in answers.items() if isinstance(answer, str) and "Error" in answer}


# Where an answer may differ from that of the device itself, and why.
EXCUSED = {
    "get_arch_list": "one architecture here, that of the capability",
    "get_device_properties": "compared by name below",
    "memory_snapshot": "only a virtual device sees what its allocator does: elsewhere there are no segments",
    "memory._snapshot": "as memory_snapshot; compared by name below",
}
EXCUSED_ON = {"mps": dict.fromkeys(("DoubleTensor", "sparse.DoubleTensor"), "mps has no float64")}
# What torch itself refuses on the device: CUDA 12 has nothing to initialise.
REFUSED_BY_TORCH = {"profiler.init"}

# What a virtual device cannot answer by itself: nothing is there to compare with.
_SENSORS = "memory_usage utilization temperature power_draw clock_rate device_memory_used"
ALONE = {
    "cuda": {*_SENSORS.split(), "nccl.unique_id", "nccl.init_rank"}
    | {row.name for row in SURFACE["cuda"] if row.name.startswith(("tunable.", "sparse."))},
    "xpu": set(_SENSORS.split()),
    "mps": set(),
}

WORLDS = [
    ("", "cuda"), ("", "xpu"), ("", "mps"),
    ("mps", "cuda"), ("mps", "xpu"), ("xpu", "cuda"), ("xpu", "mps"), ("cuda", "mps"), ("cuda", "xpu"),
]  # fmt: skip


@pytest.mark.virtual
@pytest.mark.parametrize(("device", "kind"), WORLDS)
def test_every_row_is_called(device: str, kind: str) -> None:
    found = _ask(device, active=True)
    skipped = {path.removeprefix(f"torch.{kind}.") for path in found["skipped"]}
    rows = {row.name: row for row in SURFACE[kind]}
    assert rows.keys() - found[kind].keys() <= skipped
    refused = {name for name, answer in _errors(found[kind]).items() if answer.startswith("CudaOnlyError")}
    assert refused == {name for name in found[kind] if rows[name].kind is Kind.UNSUPPORTED}
    assert _errors(found[kind]).keys() - REFUSED_BY_TORCH == refused


@pytest.mark.virtual
@pytest.mark.parametrize(("device", "kind"), WORLDS)
def test_answers_have_the_shape_that_the_device_gives(device: str, kind: str) -> None:
    found, real = _ask(device, active=True), _ask(kind, active=False)
    unsupported = {row.name for row in SURFACE[kind] if row.kind is Kind.UNSUPPORTED}
    assert _errors(real[kind]).keys() <= unsupported | ALONE[kind] | REFUSED_BY_TORCH
    excused = {*EXCUSED, *EXCUSED_ON.get(device, ()), *unsupported, *_errors(real[kind])}
    different = {
        name: (found[kind][name], answer)
        for name, answer in real[kind].items()
        if found[kind][name] != answer and name not in excused
    }
    assert different == {}
    if "get_device_properties" in real[kind]:
        assert set(real[kind]["get_device_properties"][1]) <= set(found[kind]["get_device_properties"][1])
    if "memory._snapshot" in real[kind]:
        assert real[kind]["memory._snapshot"].keys() == found[kind]["memory._snapshot"].keys()
    if kind == "cuda":
        ours, theirs = (
            {name: sorted(answer) if name in EXCUSED else answer for name, answer in each["scenarios"].items()}
            for each in (found, real)
        )
        assert ours == theirs
