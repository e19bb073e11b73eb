"""Two hosts: network namespaces with a cable between them, each running its own torchrun."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.distributed.harness import LAUNCH, ROOT, environment
from tests.distributed.test_scripts import CPU, SCRIPTS

pytestmark = pytest.mark.distributed
HOSTS = {"tdhost0": "10.77.0.1", "tdhost1": "10.77.0.2"}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    try:
        for name in HOSTS:
            ip("netns", "add", name)
        ip(
            "link",
            "add",
            "tdcable0",
            "netns",
            "tdhost0",
            "type",
            "veth",
            "peer",
            "name",
            "tdcable1",
            "netns",
            "tdhost1",
        )
        for number, (name, address) in enumerate(HOSTS.items()):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", f"tdcable{number}")
            ip("-n", name, "link", "set", f"tdcable{number}", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield list(HOSTS)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces need the right to make them: {error}")
    finally:
        for name in HOSTS:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def test_two_hosts_train_together(hosts: list[str], tmp_path: Path) -> None:
    """The interface is told to NCCL, as a cluster's scripts do; the snapshot is on a disk that both see."""
    workers = []
    for number, host in enumerate(hosts):
        launch = [*LAUNCH, "--nnodes=2", f"--node-rank={number}", "--nproc-per-node=1", "--master-port=29555"]
        command = [sys.executable, *launch, "--master-addr=10.77.0.1", str(SCRIPTS / "resumable.py"), str(tmp_path)]
        settings = environment(NCCL_SOCKET_IFNAME="tdcable", **CPU)
        started = subprocess.Popen(
            ["ip", "netns", "exec", host, *command], cwd=ROOT, env=settings, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        workers.append(started)
    said = [worker.communicate(timeout=240) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], said[0][1][-2000:] + said[1][1][-2000:]
    assert re.search(r"final loss \d\.\d+ of 2 processes", said[0][0])
    assert os.path.exists(tmp_path / "snapshot.pt")
