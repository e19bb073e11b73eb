"""Ordinary scripts, unedited: spawned, launched, killed in the middle, restarted, and out of step."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tests.distributed.harness import LAUNCH, left_running, run, torchrun

SCRIPTS = Path(__file__).parent / "scripts"
CPU = {"TORCHDEVICE": "1", "TORCHDEVICE_TARGET": "cpu"}


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def errors(text: str) -> str:
    """What the workers said; torchrun's own account of it is long."""
    return "\n".join(line for line in text.splitlines() if line.startswith("[rank") or "Error" in line)[-3000:]


@pytest.mark.parametrize(("settings", "processes"), [({"TORCHDEVICE_DEVICE_COUNT": "2"}, 2), ({}, 1)])
def test_spawn_starts_a_process_per_device(settings: dict[str, str], processes: int) -> None:
    done = run(str(SCRIPTS / "spawned.py"), free_port(), **CPU, **settings)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if not line.startswith("[Gloo]")]  # said up to torch 2.10
    assert lines == [f"{processes} processes, {6 * 4 // processes} steps, improved True", "ended"]


COUNTED = "import os; os.write(1, b'<%s>' % os.environ['WORLD_SIZE'].encode())"


@pytest.mark.parametrize("asked", ["gpu", "auto"])
def test_torchrun_counts_devices(asked: str, tmp_path: Path) -> None:
    script = tmp_path / "count.py"
    script.write_text(COUNTED)
    done = torchrun(asked, str(script), TORCHDEVICE_DEVICE_COUNT="3", CUDA_VISIBLE_DEVICES="4,5", **CPU)
    assert done.returncode == 0, errors(done.stderr)
    assert done.stdout == "<2><2>"


def test_a_killed_rank_ends_all_and_a_restart_resumes(tmp_path: Path) -> None:
    script = str(SCRIPTS / "resumable.py")
    folders = [tmp_path / name for name in ("whole", "killed", "restarted")]
    for folder in folders:
        folder.mkdir()
    whole = torchrun(2, script, str(folders[0]), **CPU)
    assert whole.returncode == 0, errors(whole.stderr)
    (final,) = re.findall(r"final loss .*", whole.stdout)

    killed = torchrun(2, script, str(folders[1]), "5", **CPU)
    assert killed.returncode != 0
    assert "final loss" not in killed.stdout
    assert "SIGKILL" in killed.stderr

    restarted = run(
        *LAUNCH, "--standalone", "--nproc-per-node=2", "--max-restarts=1", script, str(folders[2]), "5", **CPU
    )
    assert restarted.returncode == 0, errors(restarted.stderr)
    assert "rank 1 goes on at step 5" in restarted.stdout
    assert final in restarted.stdout
    assert left_running(str(tmp_path)) == []


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("dead", r"rank 0 after \d s: \[rank 0 of 2\] .*(Connection closed by peer|Connection reset)"),
        ("missing", r"rank 0 after [67] s: \[rank 0 of 2\] .*Timed out waiting 6000ms"),
        ("emulated", r"rank 0 after [67] s: \[rank 0 of 2\] .*Timed out waiting 6000ms"),
        ("mismatched", r"rank [01] after \d s: \[rank [01] of 2\] "),
    ],
)
def test_errors_come_in_time_and_name_the_rank(how: str, said: str, tmp_path: Path) -> None:
    done = torchrun(2, str(SCRIPTS / "failing.py"), how, str(tmp_path), **CPU)
    assert done.returncode != 0
    assert re.search(said, done.stdout), done.stdout + done.stderr[-2000:]
    assert left_running(str(tmp_path)) == []


ALONE = """
import datetime, os, torch.distributed as dist
try:
    dist.init_process_group("nccl", rank=1, world_size=2, init_method=f"tcp://127.0.0.1:{os.environ['PORT']}",
                            timeout=datetime.timedelta(seconds=3))
except RuntimeError as error:
    print(type(error).__name__, str(error).splitlines()[0])
"""


def test_a_rendezvous_that_nobody_comes_to_ends() -> None:
    done = run("-c", ALONE, PORT=free_port(), **CPU)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "timed out" in done.stdout
