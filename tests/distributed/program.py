"""A program of many small checks for torchrun: every rank runs all of them, rank 0 writes what came out as JSON.

    torchrun --nproc-per-node 2 -m tests.distributed.program RESULTS.json [CHECK …]

It is written as code for CUDA is: `nccl`, `cuda`, `set_device(local_rank)`. What each sharded or parallel result must
be equal to is computed by the same rank alone, from the whole.
"""

from __future__ import annotations

import json
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.distributed import collective_checks, training_checks  # noqa: F401 - they fill the table
from tests.distributed.checks import (
    CHECKS,
    HERE,
    LOCAL,
    RANK,
    WORLD,
)

TIMEOUT = timedelta(seconds=60)


def main() -> None:
    """A check that fails on one rank would leave the others out of step: then everybody starts a group anew."""
    torch.cuda.set_device(LOCAL)
    dist.init_process_group("nccl", device_id=torch.device("cuda", LOCAL), timeout=TIMEOUT)
    agreed = dist.FileStore(f"{sys.argv[1]}.store", WORLD)
    results: dict[str, Any] = {}
    for number, name in enumerate(sys.argv[2:] or CHECKS):
        try:
            results[name] = {"ok": True, "said": CHECKS[name]()}
        except Exception:
            results[name] = {"ok": False, "said": traceback.format_exc()}
        agreed.set(f"{name}/{RANK}", str(results[name]["ok"]))
        keys = [f"{name}/{rank}" for rank in range(WORLD)]
        agreed.wait(keys, TIMEOUT * 2)
        if any(agreed.get(key) == b"False" for key in keys):
            dist.destroy_process_group()
            store = dist.FileStore(f"{sys.argv[1]}.store{number}", WORLD)
            dist.init_process_group("nccl", store=store, rank=RANK, world_size=WORLD, timeout=TIMEOUT)
    everybodys: list[Any] = [None] * WORLD
    dist.all_gather_object(everybodys, results)
    if RANK == 0:
        device = str(torch.ones(1, device=HERE).device)
        Path(sys.argv[1]).write_text(json.dumps({"device": device, "ranks": everybodys, "told": _told()}))
    dist.barrier()
    dist.destroy_process_group()


def _told() -> list[list[str]]:
    import torchdevice

    return [[row.api, row.asked, row.given] for row in torchdevice.report().rows] if torchdevice.is_active() else []


if __name__ == "__main__":
    main()
