"""torch's operator database on a real accelerator, where the code names another: `mps` on CUDA, else `cuda`.

    PYTHONPATH=src python -m tools.conformance.translated OUTPUT.json [PROCESSES]

Each sample runs once in plain torch on the accelerator and once, translated, under the other name: results, gradients
and devices must be the same. Samples that plain torch refuses there do not count. An operator that ends its process is
written down, the rest go on in a new one, and the same operators are run again without us: does torch end there too?
"""

from __future__ import annotations

import datetime
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
from tools.conformance.worker import samples_of
from torchdevice.verify.samples import UNINITIALISED, copied, differs, outcome

SAMPLES = 40
Row = dict[str, Any]
# torch's database keeps the functions that it finds when it is imported: they must be ours already.
TRANSLATED = (
    "import torchdevice; torchdevice.activate(policy='portable'); from tools.conformance.translated import work; "
    "work({names}, translated=True)"
)
PLAIN = "from tools.conformance.translated import work; work({names}, translated=False)"


def on_device(value: Any, kind: str) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.device.type == kind for leaf in pytree.tree_leaves(value))


def check(op: Any, target: str, foreign: str) -> Row:
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


def operators() -> dict[str, Any]:
    return {op.formatted_name: op for op in op_db if torch.float32 in op.supported_dtypes("cpu")}


def work(names: list[str], translated: bool) -> None:
    """One JSON line an operator, and its name before: the last one named ended the process."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    target = torch.accelerator.current_accelerator().type
    foreign = ("mps" if target == "cuda" else "cuda") if translated else target
    known = operators()
    for name in names:
        print(json.dumps({"started": name}), flush=True)
        print(json.dumps(check(known[name], target, foreign)), flush=True)


def in_a_process(code: str, names: list[str]) -> tuple[list[Row], str]:
    """The rows of the operators that came to an end, and how the process ended if not by itself."""
    command = [sys.executable, "-c", code.format(names=names)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not rows:
        raise SystemExit(f"no operator was reached: {done.stderr.strip()[-500:]}")
    ended = [row for row in rows if "op" in row]
    if done.returncode and len(ended) == len(rows) // 2 == len(names):
        return ended, ""  # all is said; a driver that fails while the interpreter is taken down is not an operator
    return ended, f"exit status {done.returncode}: {done.stderr.strip()[-300:]}" if done.returncode else ""


def shard(names: list[str]) -> tuple[list[Row], list[Row]]:
    """What was found, and what ended a process."""
    found: list[Row] = []
    lost: list[Row] = []
    while names:
        rows, reason = in_a_process(TRANSLATED, names)
        found += rows
        if not reason:
            break
        past = len(rows) + 1
        _, plain = in_a_process(PLAIN, names[:past])
        lost.append({"op": names[len(rows)], "reason": reason, "plain torch": plain or "does not end"})
        names = names[past:]
    return found, lost


def main() -> None:
    output, processes = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2

    names = list(operators())
    with ThreadPoolExecutor(processes) as pool:
        shards = list(pool.map(shard, [names[number::processes] for number in range(processes)]))
    rows, lost = [row for rows, _ in shards for row in rows], [row for _, lost in shards for row in lost]
    samples, wrong = sum(row["samples"] for row in rows), [row for row in rows if row["wrong"]]
    failed = sum(len(row["wrong"]) for row in wrong)
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else torch.accelerator.current_accelerator().type
    found = {
        "device": name,
        "torch": str(torch.__version__),
        "date": datetime.date.today().isoformat(),
        "operators": len(rows),
        "samples": samples,
        "wrong": wrong,
        "lost": lost,
    }
    output.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(rows)} operators, {samples - failed} of {samples} samples ({(1 - failed / max(samples, 1)):.4%})")
    for row in wrong:
        print(row["op"], len(row["wrong"]), row["wrong"][0][:200])
    for row in lost:
        print(f"{row['op']} ended its process: {row['reason']}; plain torch: {row['plain torch']}")


if __name__ == "__main__":
    main()
