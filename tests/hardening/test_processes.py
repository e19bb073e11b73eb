"""Children of every kind, while translation is active: each computes where it should, and their counts arrive."""

from __future__ import annotations

import ctypes
import functools
import json
import multiprocessing
import os
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import torchdevice
from tests.cli.harness import torchdevice as command
from tests.cli.harness import write
from tests.virtual.harness import on
from torchdevice._torch import core
from torchdevice.config import visible_devices

# Every way to start a child, in one program; each child redirects once and proves where its tensor is.
EVERY_WAY = """
import concurrent.futures, multiprocessing, os, sys, torch
import torch.multiprocessing as sharing
from torch.utils.data import DataLoader, Dataset, TensorDataset

def work(number):
    made = torch.full((2,), float(number), device="cuda")
    assert made.device.type == "cpu", made.device
    return made.sum().item()

def add_one(shared):
    shared.add_(torch.ones(2, device="cuda"))

class Nested(Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        inner = DataLoader(TensorDataset(torch.arange(4.0)), 2)      # a loader inside a worker of a loader
        return sum(batch.to("cuda").sum() for (batch,) in inner) + index

if __name__ == "__main__":
    child = os.fork()
    if not child:
        sys.exit(int(work(21)))                                      # by way of atexit: the child's counts are left
    print("os.fork", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    for method in ("fork", "forkserver"):
        context = multiprocessing.get_context(method)
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            print("futures", method, list(pool.map(work, range(3))))
    shared = torch.zeros(2).share_memory_()
    with sharing.get_context("spawn").Pool(1) as pool:
        pool.map(add_one, [shared, shared])
        print("spawn", pool.map(work, range(3)))
        pool.close()
        pool.join()
    print("shared", shared.tolist())
    sharing.set_sharing_strategy("file_system")
    shared = torch.zeros(2).share_memory_()
    other = sharing.get_context("fork").Process(target=add_one, args=(shared,))
    other.start()
    other.join()
    print("file_system", shared.tolist(), other.exitcode)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        print("threads", list(pool.map(work, range(3))))
    from joblib.externals.loky import get_reusable_executor
    print("loky", list(get_reusable_executor(max_workers=1).map(work, range(3))))
    print("nested", torch.cat([batch for batch in DataLoader(Nested(), 1, num_workers=1)]).tolist())
"""

EXPECTED = """os.fork 42
futures fork [0.0, 2.0, 4.0]
futures forkserver [0.0, 2.0, 4.0]
spawn [0.0, 2.0, 4.0]
shared [2.0, 2.0]
file_system [1.0, 1.0] 0
threads [0.0, 2.0, 4.0]
loky [0.0, 2.0, 4.0]
nested [6.0, 7.0]
"""


def test_every_way_to_start_a_child(tmp_path: Path) -> None:
    write(tmp_path, {"ways.py": EVERY_WAY})
    # Python 3.12 warns of every fork in a process with threads, and torch may have some.
    quiet = {"PYTHONWARNINGS": "ignore::DeprecationWarning"}
    done = command("run", "-q", "--report", "json:report.json", "ways.py", cwd=tmp_path, environment=quiet)
    assert (done.returncode, done.stdout) == (0, EXPECTED), done.stderr[-3000:]
    assert done.stderr == ""
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    calls = {row["api"]: row["calls"] for row in report["rows"]}
    # os.fork 1, futures 2 × 3, spawn 3, threads 3; loky may end its workers by a signal, which leaves no figures.
    assert calls["torch.full"] in (13, 16)
    assert calls["torch.ones"] == 3
    assert calls["torch.Tensor.to"] == 4


def bad_forks(kind: str) -> None:
    """Let torch say of children what it says of them on hardware: a virtual device itself survives a fork."""
    parent = os.getpid()
    getattr(torch, kind)._is_in_bad_fork = lambda: os.getpid() != parent


def in_child(work: Any) -> None:
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_a_forked_child_without_its_accelerator_stays_on_the_cpu_and_says_so(kind: str) -> None:
    (on_cuda if kind == "cuda" else on_mps)()


def confined(kind: str) -> None:
    torchdevice.activate()
    assert torch.ones(2).device.type == kind
    in_child(functools.partial(_goes_on, kind))
    bad_forks(kind)

    def work() -> None:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = torch.nn.Linear(2, 1).cuda()
            model(torch.ones(1, 2)).sum().backward()
            assert {p.device.type for p in model.parameters()} == {"cpu"}
            assert torch.ones(2, device="mps").cuda().device.type == "cpu"
            torch.cuda.synchronize()
            torch.cuda.manual_seed_all(1)
            torch.mps.synchronize()
        ours = [each for each in said if issubclass(each.category, torchdevice.TorchDeviceWarning)]
        assert len(ours) == 1
        assert f"a forked process cannot use {kind} after its parent has used it" in str(ours[0].message)
        assert ours[0].filename == __file__
        assert torchdevice.status().target == "cpu"
        assert any("a forked process cannot use" in row.reason for row in torchdevice.report().rows)
        warnings.simplefilter("ignore")
        with torchdevice.redirect(policy="portable"):
            assert torch.ones(2, device="cuda").device.type == "cpu"
        torchdevice.deactivate()
        torchdevice.activate(target=kind)  # as the environment of the parent says
        assert torch.ones(2, device="cuda").device.type == "cpu"

    in_child(work)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_device_of_ones) == "cpu"
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(4.0)), 2, num_workers=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # workers stay on the CPU by design: nothing to say
        assert [batch.device.type for (batch,) in loader] == [kind, kind]
        told = torch.utils.data.DataLoader(Told(), batch_size=None, num_workers=2)
        assert [tuple(each) for each in told] == [("cpu", "cpu", "cpu", kind != "cuda")] * 4
        torch.mps.manual_seed(1)  # a program that is not about CUDA alone
        told = torch.utils.data.DataLoader(Told(), batch_size=None, num_workers=2)
        assert [tuple(each) for each in told] == [("cpu", "cpu", "cpu", True)] * 4
        pools = torch.utils.data.DataLoader([1], batch_size=None, collate_fn=_target_in_a_pool)
        assert [*pools] == ["cpu"]  # forked below a loader, and no worker of it
    assert torch.ones(2, device="cuda").device.type == kind  # the parent goes on


class Told(torch.utils.data.Dataset[Any]):
    """Devices as a worker sees them, and whether torch.cuda was exchanged there: an epoch should not wait for that."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[str, str, str, bool]:
        torch.cuda.manual_seed_all(index)
        asked = (torch.ones(2, device="cuda"), torch.ones(2).cuda(), torch.ones(2))
        types = [tensor.device.type for tensor in asked]
        return types[0], types[1], types[2], torchdevice.is_patched("torch.cuda.synchronize")


def _goes_on(kind: str) -> None:
    """A virtual device has no driver to lose."""
    assert (torch.ones(2, device="cuda") + 1).device.type == kind


def _target_in_a_pool(_: Any) -> str:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return str(pool.apply(_target))


def _target() -> str:
    return str(torchdevice.status().target)


def _device_of_ones() -> str:
    warnings.simplefilter("ignore")
    return torch.ones(2, device="cuda").device.type


@on("cuda")
def on_cuda() -> None:
    confined("cuda")


@on("mps")
def on_mps() -> None:
    confined("mps")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_no_child_begins_with_half_of_an_activation() -> None:
    """Forks while another thread activates and deactivates: a child sees all of it or nothing, and can do it itself."""
    stop = threading.Event()

    def switch() -> None:
        while not stop.is_set():
            with torchdevice.redirect(target="cpu"):
                pass

    def work() -> None:
        if torchdevice.is_active():
            assert torch.empty(1, device="cuda").device.type == "cpu"
        torchdevice.deactivate()
        torchdevice.activate(target="cpu")
        with torchdevice.suspended(), torchdevice.cpu_override():
            assert torch.empty(1).device.type == "cpu"
        assert torch.empty(1, device="cuda").device.type == "cpu"

    thread = threading.Thread(target=switch)
    thread.start()
    try:
        for _ in range(10):
            in_child(work)
    finally:
        stop.set()
        thread.join()


def untouched_gpus(count: int) -> None:
    """Let a virtual device look as GPUs do before their first use: counted by NVIDIA's library, if they are visible."""

    class Nvml:
        def nvmlSystemGetCudaDriverVersion_v2(self, answer: Any) -> int:  # noqa: N802
            answer._obj.value = 99000
            return 0

    load = ctypes.CDLL
    ctypes.CDLL = lambda name, *args, **kwargs: (  # type: ignore[assignment, misc]
        Nvml() if "nvidia" in str(name) else load(name, *args, **kwargs)
    )
    core.virtual_types.clear()
    assert not torch.cuda.is_initialized()
    torch.cuda._device_count_nvml = lambda: visible_devices(count)


@pytest.mark.parametrize("policy", ["accelerate", "portable"])
def test_a_script_may_hide_its_gpus_after_the_import(policy: str) -> None:
    hidden(policy=policy)


@on("cuda")
def hidden(policy: str) -> None:
    untouched_gpus(1)
    torchdevice.activate(policy=policy)
    assert torchdevice.status().target == "cuda"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    assert torch.ones(2, device="mps").device.type == "cpu"
    assert torch.ones(2).to("cpu").device.type == "cpu"
    assert torchdevice.status().target == "cpu"
    assert not torch.cuda.is_available()
    torchdevice.deactivate()
    del os.environ["CUDA_VISIBLE_DEVICES"]
    torchdevice.activate(policy=policy)
    assert torchdevice.status().target == "cuda"
    assert torch.ones(2, device="mps").device.type == "cuda"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # too late: they are in use
    assert torch.ones(2, device="mps").device.type == "cuda"


@pytest.mark.parametrize("policy", ["accelerate", "portable"])
def test_activation_asks_nothing_of_untouched_gpus(policy: str) -> None:
    asked_nothing(policy=policy)


@on("cuda:2")
def asked_nothing(policy: str) -> None:
    """Not even the functions of C through which torch would start CUDA."""
    untouched_gpus(2)

    def touched(*_: Any) -> Any:
        raise AssertionError("a GPU was touched")

    names = [
        name for name in vars(torch._C) if name.startswith("_cuda_") and not isinstance(vars(torch._C)[name], type)
    ]
    kept = {name: vars(torch._C)[name] for name in names}
    assert {"_cuda_init", "_cuda_getDeviceCount"} <= kept.keys()
    vars(torch._C).update(dict.fromkeys([name for name in names if callable(kept[name])], touched))
    starts = torch.cuda.init, torch.cuda._lazy_init
    torch.cuda.init = torch.cuda._lazy_init = touched
    try:
        torchdevice.activate(policy=policy)
    finally:
        vars(torch._C).update(kept)
        torch.cuda.init, torch.cuda._lazy_init = starts
    assert torchdevice.status().target == "cuda"
    assert torch.ones(2, device="mps").device.type == "cuda"
