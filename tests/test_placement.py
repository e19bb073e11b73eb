"""`place="free"`: requests without an index go to the device with the most free memory, chosen once per process."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import torchdevice
from tests.virtual.harness import on, run_python
from torchdevice import placement
from torchdevice._torch import core
from torchdevice.policy.hosts import Host

MIB = 1 << 20


def fill(device: str, mib: int = 64) -> torch.Tensor:
    return torch.ones(mib * MIB, dtype=torch.uint8, device=device)


@on("cuda:3")
def test_candidates_and_the_most_free_one() -> None:
    kept = [fill("cuda:0", 96), fill("cuda:2", 64)]
    found = placement.candidates()
    assert [str(each.device) for each in found] == ["cuda:0", "cuda:1", "cuda:2"]
    assert [(each.free, each.total) for each in found] == [torch.cuda.mem_get_info(index) for index in range(3)]
    assert found[1].free - found[0].free >= kept[0].nbytes
    assert placement.most_free() == torch.device("cuda:1")


@on("cuda:2")
def test_of_equal_ones_the_first_is_chosen() -> None:
    assert placement.most_free() == torch.device("cuda:0")


@on("mps")
def test_the_only_device_is_the_candidate() -> None:
    (only,) = placement.candidates()
    assert placement.most_free() == only.device == torch.device("mps:0")
    torchdevice.activate(place="free")
    assert torchdevice.status().placed is None


def test_without_an_accelerator_it_is_the_cpu() -> None:
    assert placement.candidates() == []
    assert placement.most_free() == torch.device("cpu")


@pytest.mark.parametrize("policy", ["portable", "accelerate"])
@on("cuda:2")
def test_requests_without_an_index_go_to_the_free_device(policy: str) -> None:
    kept = fill("cuda:0")
    torchdevice.activate(place="free", policy=policy)
    model = nn.Linear(4, 2).cuda()
    made = {
        "cuda": torch.ones(2, device="cuda"),
        "method": torch.ones(2).cuda(),
        "to": torch.ones(2).to("cuda"),
        "module": model(torch.ones(3, 4, device="cuda")),
        "another type": torch.ones(2, device="mps"),
        "legacy": torch.cuda.FloatTensor(2),
    }
    assert {name: str(each.device) for name, each in made.items()} == dict.fromkeys(made, "cuda:1")
    assert torch.cuda.current_device() == 1
    named = [torch.ones(2, device="cuda:0"), torch.ones(2).cuda(0), torch.ones(2, device=0), kept]
    assert {str(each.device) for each in named} == {"cuda:0"}
    placed = torchdevice.status().placed
    assert placed is not None
    assert placed.startswith("cuda:1 (")
    torchdevice.deactivate()
    assert str(torch.ones(2, device="cuda").device) == "cuda:0"
    assert torchdevice.status().placed is None


@on("cuda:2")
def test_without_it_torchs_current_device_is_meant() -> None:
    kept = fill("cuda:0")
    torchdevice.activate()
    assert torch.ones(2, device="cuda").device == kept.device
    assert torchdevice.status().placed is None


@on("cuda:2")
def test_it_is_chosen_once() -> None:
    kept = [fill("cuda:0")]
    torchdevice.activate(place="free", policy="portable")
    kept.append(fill("cuda", 256))  # now the other one has more
    assert placement.most_free() == torch.device("cuda:0")
    kept.append(torch.ones(2, device="cuda"))
    torchdevice.deactivate()
    torchdevice.activate(place="free", policy="portable")
    kept.append(torch.ones(2, device="cuda"))
    assert [str(each.device) for each in kept] == ["cuda:0", "cuda:1", "cuda:1", "cuda:1"]


@on("cuda:2")
def test_a_program_that_selects_a_device_gets_it() -> None:
    kept = fill("cuda:0")
    torchdevice.activate(place="free", policy="portable")
    with torch.cuda.device(0):
        assert torch.ones(2, device="cuda").device == kept.device
    assert str(torch.ones(2, device="cuda").device) == "cuda:1"
    torch.cuda.set_device(0)
    assert torch.ones(2, device="cuda").device == kept.device


@on("cuda:2")
def test_threads_share_the_device() -> None:
    kept = fill("cuda:0")
    torchdevice.activate(place="free", policy="portable")
    weight = torch.ones(2, device="cuda")
    seen: list[str] = []

    class Worker(threading.Thread):
        def run(self) -> None:
            seen.append(str((torch.ones(2, device="cuda") * weight).device))

    def work() -> None:
        with torch.cuda.device(0):  # DataParallel does so in its threads
            seen.append(str((torch.ones(1, dtype=torch.uint8, device="cuda") * kept[:1]).device))

    own = threading.Thread()
    own.run = work  # type: ignore[method-assign]
    threads = [Worker(), threading.Thread(target=work), own]
    for thread in threads:
        thread.start()
        thread.join()
    assert seen == ["cuda:1", "cuda:0", "cuda:0"]
    assert [vars(thread).get("run") for thread in threads] == [None, None, work]
    torchdevice.deactivate()
    after = threading.Thread(target=lambda: seen.append(str(torch.ones(2, device="cuda").device)))
    after.start()
    after.join()
    assert seen[3] == "cuda:0"


@on("cuda:2")
def test_threads_of_a_forked_child_run_without_the_device() -> None:
    """Workers of a data loader start threads that send their batches."""
    kept = fill("cuda:0")
    torchdevice.activate(place="free", policy="portable")
    assert str(torch.ones(2, device="cuda").device) == "cuda:1"
    data = torch.utils.data.TensorDataset(torch.arange(8))
    loader = torch.utils.data.DataLoader(data, 4, num_workers=2, multiprocessing_context="fork", timeout=60)
    assert [batch.tolist() for (batch,) in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert kept.is_cuda


@on("cuda:2", env={"LOCAL_RANK": "0"})
def test_a_process_of_a_launcher_keeps_its_device() -> None:
    kept = fill("cuda:0")
    torchdevice.activate(place="free")
    assert torch.ones(2, device="cuda").device == kept.device
    assert torchdevice.status().placed is None


def test_it_is_chosen_at_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real device is not initialised by an activation, and what is free is asked when it is."""
    queued = []
    current = [0]
    fake = SimpleNamespace(mem_get_info=lambda index: [(10, 100), (90, 100)][index], _lazy_call=queued.append)
    monkeypatch.setattr(torch, "get_device_module", lambda kind: fake)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: current[0])
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda index: current.__setitem__(0, index))
    started = threading.Thread.start
    chooser = placement.Placement(Host("xpu", 2))
    undo = chooser.apply()
    assert chooser.chosen is None
    assert current == [0]
    (choose,) = queued
    choose()
    assert str(chooser.chosen) == "xpu:1 (90 B of 100 B free)"
    assert current == [1]
    undo()
    assert current == [0]
    assert threading.Thread.start is started
    choose()  # still in torch's queue
    assert current == [0]


def test_a_driver_that_cannot_be_asked_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid="1-2"))
    monkeypatch.setattr(core.ctypes, "CDLL", lambda name: (_ for _ in ()).throw(OSError(name)))
    assert core.cuda_memory_by_nvml(0) is None


def test_a_wrong_place_is_an_error() -> None:
    with pytest.raises(torchdevice.ConfigError, match=r"place='fast'.*\n?.*use one of current, free"):
        torchdevice.activate(place="fast")


@pytest.mark.virtual
def test_run_reports_it(tmp_path: Path) -> None:
    program, out = tmp_path / "program.py", tmp_path / "out.json"
    program.write_text("import torch\nprint(torch.ones(2, device='cuda').device)\n")
    words = ["--virtual", "cuda:2", "--place", "free", "--report", "--report", f"json:{out}", str(program)]
    done = run_python("-m", "torchdevice", "run", *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "cuda:0\n"
    assert done.stderr.splitlines()[0].startswith("torchdevice report: target virtual cuda on cpu, placed on cuda:0 (")
    assert json.loads(out.read_text())["context"]["placed"].startswith("cuda:0 (")
