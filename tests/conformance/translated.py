"""torch's operator database on a real accelerator, where the code names another: `mps` on CUDA, else `cuda`.

    PYTHONPATH=src python -m tests.conformance.translated OUTPUT.json [PROCESSES]

Each sample runs once in plain torch on the accelerator and once, translated, under the other name: results, gradients
and devices must be the same. Samples that plain torch refuses there do not count.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import torchdevice
from tests.conformance.worker import UNINITIALISED, copied, differs, outcome, samples_of

SAMPLES = 40
# torch's database keeps the functions that it finds when it is imported: they must be ours already.
CHILD = (
    "import torchdevice; torchdevice.activate(policy='portable'); "
    "from tests.conformance.translated import work; work({number}, {of})"
)


def on_device(value: Any, kind: str) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.device.type == kind for leaf in pytree.tree_leaves(value))


def check(op: Any, target: str, foreign: str) -> dict[str, Any]:
    wants_gradient = op.supports_autograd
    ran, wrong = 0, []
    with torchdevice.suspended():
        samples = list(samples_of(op, torch.float32, wants_gradient))[:SAMPLES]
    for number, sample in enumerate(samples):
        try:
            with torchdevice.suspended():
                expected = outcome(op, copied(op, sample, target), wants_gradient)
        except Exception:  # plain torch refuses this sample on the accelerator: nothing to compare with
            continue
        ran += 1
        try:
            actual = outcome(op, copied(op, sample, foreign), wants_gradient)
        except Exception as error:
            wrong.append(f"sample {number}: {type(error).__name__}: {str(error).splitlines()[:1]}")
            continue
        with torchdevice.suspended():
            for what, want, have in zip(("forward", "gradient"), expected, actual, strict=True):
                kind = target if on_device(want, target) else ""
                if text := differs(want, have, kind, op.name not in UNINITIALISED):
                    wrong.append(f"sample {number}: {what}: {text}")
                    break
    return {"op": op.formatted_name, "samples": ran, "wrong": wrong}


def work(shard: int, of: int) -> None:
    """One JSON line an operator; `started` names the one that ends the process."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    target = torch.accelerator.current_accelerator().type
    foreign = "mps" if target == "cuda" else "cuda"
    names = [op for op in op_db if torch.float32 in op.supported_dtypes("cpu")]
    for op in names[shard::of]:
        print(json.dumps(check(op, target, foreign)), flush=True)


def main() -> None:
    output, processes = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2

    def shard(number: int) -> list[dict[str, Any]]:
        command = [sys.executable, "-c", CHILD.format(number=number, of=processes)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"shard {number}: exit {done.returncode}: {done.stderr[-500:]}", file=sys.stderr)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    with ThreadPoolExecutor(processes) as pool:
        rows = [row for rows in pool.map(shard, range(processes)) for row in rows]
    samples, wrong = sum(row["samples"] for row in rows), [row for row in rows if row["wrong"]]
    failed = sum(len(row["wrong"]) for row in wrong)
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else torch.accelerator.current_accelerator().type
    found = {
        "device": name,
        "torch": str(torch.__version__),
        "operators": len(rows),
        "samples": samples,
        "wrong": wrong,
    }
    output.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(rows)} operators, {samples - failed} of {samples} samples ({(1 - failed / max(samples, 1)):.4%})")
    for row in wrong:
        print(row["op"], len(row["wrong"]), row["wrong"][0][:200])


if __name__ == "__main__":
    main()
