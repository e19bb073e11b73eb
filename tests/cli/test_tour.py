"""A newcomer's tour: the built wheel in a fresh environment, and the commands in the order in which one tries them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.checkout import installed_packages
from tests.cli.harness import SECONDS, clean_environment, write
from tests.cli.test_run import SPAWN, TORCHRUN

ROOT = Path(__file__).resolve().parents[2]

TRAIN = """
import torch
from torch import nn
torch.manual_seed(0)
device = torch.device("cuda")
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cuda")
x = torch.randn(64, 4, device=device)
y = x.sum(1, keepdim=True)
for step in range(50):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = (model(x) - y).pow(2).mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step == 0:
        first = loss.item()
print("trained", loss.item() < 0.1 * first, next(model.parameters()).device.type)
"""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a new environment's commands: our wheel is installed there, torch is lent by this environment."""
    folder = tmp_path_factory.mktemp("tour")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, folder], check=True, timeout=SECONDS
    )
    (wheel,) = folder.glob("torch_device-*.whl")
    venv.create(folder / "env", symlinks=True)
    fresh = folder / "env" / "bin" / "python"
    # Paths in a .pth file lend packages without what their own .pth files add: not the checkout that is tested.
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    (site / "lent.pth").write_text("".join(f"{folder}\n" for folder in installed_packages()))
    install = ["--python", str(fresh), "install", "--no-deps", "--no-index", "--ignore-installed", str(wheel)]
    subprocess.run([*pip, *install], check=True, timeout=SECONDS)
    return fresh.parent


@pytest.mark.long
def test_tour(commands: Path, tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "train.py": TRAIN,
            "spawned.py": SPAWN,
            "ddp.py": TORCHRUN,
            "kernels/k.cu": "",
            "fails.py": "import torch\n1 / torch.tensor(0)[3]\n",
        },
    )

    environment = clean_environment()
    environment.pop("PYTHONPATH", None)  # it would find a checkout before the wheel

    def call(*words: str, name: str = "torchdevice") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [commands / name, *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            timeout=SECONDS,
            check=False,
        )

    where = call("-c", "import torchdevice; print(torchdevice.__file__)", name="python").stdout
    assert where.startswith(str(commands.parent)), "the tour must try the wheel, not this checkout"

    doctor = call("doctor")
    assert (doctor.returncode, "✓ translation" in doctor.stdout) == (0, True), doctor.stdout

    plain = call("train.py", name="python")
    assert plain.returncode == 1, "the example needs help on a machine without CUDA"
    trained = call("run", "--report", "html:report.html", "train.py")
    assert trained.stdout == "trained True cpu\n", trained.stderr
    assert "redirected" in trained.stderr.splitlines()[-1]
    assert "torch.autocast(device.type, dtype=torch.bfloat16)" in (tmp_path / "report.html").read_text()

    if shutil.which("chromium") is not None:
        shot = tmp_path / "report.png"
        browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
        page = [f"--screenshot={shot}", "--window-size=1200,900", (tmp_path / "report.html").as_uri()]
        subprocess.run([*browser, *page], capture_output=True, timeout=SECONDS, check=True)
        assert shot.stat().st_size > 20_000, "an empty page is a few kilobytes"

    spawned = call("run", "spawned.py", str(tmp_path))
    assert (spawned.returncode, spawned.stdout) == (0, "ended\n"), spawned.stderr
    assert (tmp_path / "0.txt").read_text() == "cpu 20 True\n", "it must really have trained"
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    distributed = call("run", *torchrun, "ddp.py", str(tmp_path))
    assert distributed.returncode == 0, distributed.stderr
    assert [(tmp_path / f"{rank}.txt").read_text() for rank in (0, 1)] == ["[3.0, 3.0] cpu\n"] * 2

    failed, expected = call("run", "-q", "fails.py"), call("fails.py", name="python")
    assert (failed.stderr, failed.returncode) == (expected.stderr, 1)

    scanned = call("scan", ".", "--fail-on", "unsupported")
    assert (scanned.returncode, "kernels/k.cu:1" in scanned.stdout) == (1, True)
