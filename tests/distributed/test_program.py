"""The checks of `program`, one test each, from a few runs under torchrun: on the CPU, on virtual `cuda` and `mps`."""

from __future__ import annotations

import functools
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.collective_checks import STRIDED
from tests.distributed.harness import run, torchrun
from tests.distributed.program import CHECKS
from tests.torches import BUILT_FOR_CUDA

# How each run is started, and how many processes it has.
RUNS = {
    "cpu": (2, {"TORCHDEVICE": "1", "TORCHDEVICE_TARGET": "cpu", "NCCL_DEBUG": "INFO", "CUDA_LAUNCH_BLOCKING": "1"}),
    "cpu, 4 processes": (4, {"TORCHDEVICE": "1", "TORCHDEVICE_TARGET": "cpu"}),
    "virtual cuda": (2, {"TORCHDEVICE_VIRTUAL": "cuda:2"}),
    "virtual mps": (2, {"TORCHDEVICE": "1", "TORCHDEVICE_VIRTUAL": "mps"}),
}
DEVICES = {"cpu": "cpu", "cpu, 4 processes": "cpu", "virtual cuda": "cuda:0", "virtual mps": "mps:0"}
FSDP1 = ("fsdp1", "fsdp1_with_parameters_on_the_host")
# torch itself cannot free the storage of a tensor on MPS, which is how parameters are sharded.
REFUSED = {("virtual mps", name): "unexpected device type mps" for name in (*FSDP1, "fsdp2", "checkpoint")}
REFUSED["virtual mps", "parameters_drawn_after_sharding"] = "Event.wait() takes 1 positional argument"  # in FSDP
# Where torch has a class for streams of MPS, `fully_shard` asks it for one with a priority. It takes none.
if hasattr(torch.mps, "Stream"):
    for name in ("fsdp2", "checkpoint", "parameters_drawn_after_sharding"):
        REFUSED["virtual mps", name] = "unexpected keyword argument 'priority'"
# torch's hook waits for the stream of an accelerator, on a CPU too; a build for CUDA looks for a driver and its GPUs.
NO_GPU = "No CUDA GPUs are available" if os.path.exists("/dev/nvidiactl") else "Found no NVIDIA driver"
NO_STREAM = "none is available" if BUILT_FOR_CUDA is None else NO_GPU
REFUSED |= {(name, "ddp_with_the_optimizer_in_backward"): NO_STREAM for name in ("cpu", "cpu, 4 processes")}
SLOW = [pytest.param(name, marks=pytest.mark.distributed) for name in ("cpu, 4 processes", "virtual mps")]
EVERY_RUN = ["cpu", "virtual cuda", *SLOW]


@functools.cache
def results(name: str) -> dict[str, Any]:
    processes, settings = RUNS[name]
    path = Path(tempfile.mkdtemp()) / "results.json"
    done = torchrun(processes, "-m", "tests.distributed.program", str(path), **settings)
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    return {**json.loads(path.read_text()), "checkpoint": str(path.with_suffix(".checkpoint"))}


@pytest.mark.parametrize("name", EVERY_RUN)
@pytest.mark.parametrize("check", list(CHECKS))
def test_check(name: str, check: str) -> None:
    for rank, found in enumerate(results(name)["ranks"]):
        refusal = REFUSED.get((name, check))
        assert found[check]["ok"] is (refusal is None), f"rank {rank}: {found[check]['said']}"
        assert refusal is None or refusal in found[check]["said"]


@pytest.mark.parametrize("name", EVERY_RUN)
def test_nccl_refuses_strided_tensors_where_they_would_be_wrong(name: str) -> None:
    refused = {int(rank["strided_tensors"]["said"]) for rank in results(name)["ranks"]}
    assert refused == ({0} if name == "virtual mps" else {len(STRIDED)})


@pytest.mark.parametrize("name", EVERY_RUN)
def test_tensors_are_where_they_should_be(name: str) -> None:
    assert results(name)["device"] == DEVICES[name]


@pytest.mark.parametrize("name", [name for name in EVERY_RUN if name != "virtual cuda"])
def test_the_report_tells_the_truth(name: str) -> None:
    told = results(name)["told"]
    asked = [row[1] for row in told if row[0].endswith(("init_process_group", "new_group")) and row[2] == "gloo"]
    assert {"nccl", "NCCL", "cuda:nccl", "cpu:gloo,cuda:nccl"} <= set(asked)


def test_variables_without_meaning_are_listed_once() -> None:
    listed = [row[0] for row in results("cpu")["told"] if row[0].startswith("environ.")]
    assert listed == ["environ.CUDA_LAUNCH_BLOCKING", "environ.NCCL_DEBUG"]


LOAD = """
import sys, torch, torchdevice
import torch.distributed.checkpoint as dcp
from tests.distributed.checks import network
net = network()
state = {"model": net.state_dict()}
dcp.load(state, checkpoint_id=sys.argv[1])
print(torch.cat([value.flatten() for value in state["model"].values()]).tolist())
"""


@pytest.mark.parametrize("name", ["cpu", "virtual cuda", SLOW[0]])
def test_one_process_loads_what_several_saved(name: str) -> None:
    found = results(name)
    done = run("-c", LOAD, found["checkpoint"], **RUNS[name][1])
    assert done.returncode == 0, done.stderr[-3000:]
    loaded = [float(value) for value in json.loads(done.stdout.splitlines()[-1])]
    trained = [value for part in found["ranks"][0]["checkpoint"]["said"].values() for value in _flat(part)]
    assert loaded == pytest.approx(trained, rel=1e-4, abs=1e-5)


def _flat(value: Any) -> list[float]:
    return [each for part in value for each in _flat(part)] if isinstance(value, list) else [value]
