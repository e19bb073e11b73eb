"""When `is_initialized()` becomes true. On a CPU each statement runs in a forked child of one process per host."""

from __future__ import annotations

import json

import pytest

from tests.virtual.harness import run_python

# Statements of a fresh process, with `cuda` for the device, and whether that device is initialized afterwards.
STATEMENTS = {
    "pass": False,
    "torch.cuda.is_available()": False,
    "torch.cuda.device_count()": False,
    "torch.manual_seed(1)": False,
    "torch.cuda.manual_seed(1)": False,
    "torch.cuda.manual_seed_all(1)": False,
    "torch.cuda.memory_allocated()": False,
    "torch.cuda.empty_cache()": False,
    "torch.device('cuda')": False,
    "torch.ones(2)": False,
    "torch.cuda.init()": True,
    "torch.cuda.current_device()": True,
    "torch.cuda.set_device(0)": True,
    "torch.cuda.device(0).__enter__()": True,
    "torch.cuda.synchronize()": True,
    "torch.cuda.get_device_name()": True,
    "torch.cuda.get_device_properties(0)": True,
    "torch.cuda.mem_get_info()": True,
    "torch.cuda.get_rng_state()": True,
    "torch.ones(2, device='cuda')": True,
    "torch.ones(2).cuda()": True,
    "torch.ones(2).to('cuda')": True,
    "torch.nn.Linear(2, 2).cuda()": True,
    "kept = torch.nn.Linear(2, 2).to(torch.device('cuda'))": True,
    "kept = torch.ones(2, device=torch.device('cuda'))": True,
    "torch.UntypedStorage(3, device='cuda')": True,
    "torch.ones(2, device='cuda'); torchdevice.deactivate(); torchdevice.activate()": True,
}
HOSTS = {
    "cuda on a CPU": ("cuda", {"TORCHDEVICE": "1", "TORCHDEVICE_TARGET": "cpu"}),
    "xpu on a CPU": ("xpu", {"TORCHDEVICE": "1", "TORCHDEVICE_TARGET": "cpu"}),
    "virtual cuda": ("cuda", {"TORCHDEVICE_VIRTUAL": "cuda:2"}),
    "virtual xpu": ("xpu", {"TORCHDEVICE_VIRTUAL": "xpu"}),
}
PROGRAM = """
import json, os, sys, torch, torchdevice
kind, found = sys.argv[1], {}
for statement in sys.argv[2:]:
    reader, writer = os.pipe()
    if not os.fork():
        exec(statement)
        os.write(writer, b"1" if getattr(torch, kind).is_initialized() else b"0")
        os._exit(0)
    os.close(writer)
    found[statement] = os.read(reader, 1).decode()
print(json.dumps(found))
"""


@pytest.mark.virtual
@pytest.mark.processes
@pytest.mark.parametrize("host", list(HOSTS))
def test_a_device_is_initialized_by_its_first_use(host: str) -> None:
    kind, settings = HOSTS[host]
    expected = {statement.replace("cuda", kind): "01"[begins] for statement, begins in STATEMENTS.items()}
    done = run_python("-W", "ignore", "-c", PROGRAM, kind, *expected, env=settings)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected


@pytest.mark.virtual
@pytest.mark.processes
@pytest.mark.parametrize("settings", [HOSTS["cuda on a CPU"][1], HOSTS["virtual cuda"][1]])
def test_seeds_that_were_set_before_the_first_use_count(settings: dict[str, str]) -> None:
    program = (
        "import torch; torch.cuda.manual_seed_all(3); first = torch.rand(2, device='cuda')\n"
        "torch.cuda.manual_seed_all(3); assert torch.equal(first, torch.rand(2, device='cuda'))\n"
        "generator = torch.Generator('cuda').manual_seed(3)\n"
        "assert torch.equal(first, torch.rand(2, device='cuda', generator=generator))"
    )
    done = run_python("-c", program, env=settings)
    assert done.returncode == 0, done.stderr
