"""torch's operator database on a virtual device that a real accelerator computes for, against that accelerator itself.

    PYTHONPATH=src python -m tools.conformance.backed mps@cuda xpu@cuda         all dtypes
    PYTHONPATH=src python -m tools.conformance.backed cuda mps@cuda float32     these, and the accelerator with itself
    PYTHONPATH=src python -m tools.conformance.backed mps@cuda xpu@cuda a.json  another file for the figures

Each sample runs in plain torch on the accelerator; what came out is kept. Then it runs on the virtual device: values,
gradients and devices must be the same, of random operators too, because the seeds are equal. Samples that plain torch
refuses there do not count, nor operators that need CUDA's own compiler. Prints a line of figures per device and dtype,
and what went wrong. The figures of virtual devices are kept in backed.json, which `tools.docs.backed` reads.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import torchdevice.virtual
from tools.conformance import report
from tools.conformance.run import ROOT, list_names, run_worker
from tools.conformance.worker import is_refusal, samples_of
from torchdevice.verify.samples import UNINITIALISED, copied, differs, outcome
from torchdevice.virtual.installer import DEVICES

DTYPES = ("float32", "float16", "bfloat16", "int64")
RESULTS = ROOT / "build" / "backed"
KEPT = "all is kept"  # a file of that name: what follows is compared
Row = dict[str, Any]
ONE_LINE = 200
COMPILED_BY_CUDA = "jiterator"  # torch.cuda's compiler of operators, which no other device has


def kept(value: Any, kind: str) -> Any:
    """What the host can compare: a copy of a tensor, and whether it was on the device."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().to("cpu", copy=True), value.device.type == kind


def outcomes(op: Any, kind: str, dtype: torch.dtype) -> list[Any]:
    """Per sample what came out, or what was raised."""
    wants_gradient = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    found: list[Any] = []
    with (  # else the database has other samples
        mock.patch("torch.cuda.is_available", return_value=False),
        mock.patch("torch.mps.is_available", return_value=False),
    ):
        samples = list(samples_of(op, dtype, wants_gradient))
    for sample in samples:
        try:
            both = outcome(op, copied(op, sample, kind), wants_gradient)
            found.append([[kept(value, kind) for value in some] for some in both])
        except Exception as error:
            found.append(f"{type(error).__name__}: {(str(error) or ' ').splitlines()[0]}")
    return found


def difference(wanted: list[Any], got: list[Any], values: bool) -> str:
    for want, have in zip(wanted, got, strict=True):
        if isinstance(want, tuple) and isinstance(have, tuple) and want[1] != have[1]:
            return f"a result {'on' if have[1] else 'not on'} the device"
    return differs(bare(wanted), bare(got), "", values)


def bare(some: list[Any]) -> list[Any]:
    return [value[0] if isinstance(value, tuple) else value for value in some]


def identical(one: Any, other: Any) -> bool:
    tensors = [[t for t in pytree.tree_leaves(side) if isinstance(t, torch.Tensor)] for side in (one, other)]
    # Of sparse layouts the values were compared; nobody counts their bits.
    return all(bool(((a == b) | (a.isnan() & b.isnan())).all()) for a, b in zip(*tensors, strict=True) if is_dense(a))


def is_dense(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_nested


def compare(op: Any, wanted: list[Any], got: list[Any]) -> Row:
    row: Row = {"op": op.formatted_name, "status": "compared", "samples": 0, "identical": 0, "refused": [], "wrong": []}
    for number, (want, have) in enumerate(zip(wanted, got, strict=True)):
        if isinstance(want, str):
            continue  # plain torch refuses it on the accelerator
        row["samples"] += 1
        if isinstance(have, str):
            row["refused" if is_refusal(have) else "wrong"].append(f"sample {number}: {have[:ONE_LINE]}")
            continue
        values = op.name not in UNINITIALISED
        texts = [difference(*each, values) for each in zip(want, have, strict=True)]
        if any(texts):
            row["wrong"].append(f"sample {number}: " + "; ".join(text[:ONE_LINE] for text in texts if text))
        else:
            row["identical"] += not values or identical(want, have)
    return row


def work(place: str, dtype_name: str, folder: str) -> None:
    """One JSON line per operator of those on stdin: kept on the accelerator, compared on a virtual device."""
    wanted = set(sys.stdin.read().split("\n"))
    kind, _, accelerator = place.partition("@")
    keeping = not Path(folder, KEPT).exists()
    if accelerator:
        torchdevice.virtual.install(kind, on=accelerator)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for op in op_db:
        if op.formatted_name not in wanted:
            continue
        print(json.dumps({"op": op.formatted_name, "status": "started"}), flush=True)
        file = Path(folder) / f"{op.formatted_name}-{dtype_name}.pt"
        found = outcomes(op, kind, getattr(torch, dtype_name))
        if keeping:
            torch.save(found, file)
            row = {"op": op.formatted_name, "status": "kept"}
        else:
            row = compare(op, torch.load(file, weights_only=False), found)
        print(json.dumps(row), flush=True)


def run(place: str, dtype: str, names: list[str], folder: str) -> list[Row]:
    cores = os.cpu_count() or 1
    command = [sys.executable, "-m", "tools.conformance.backed", "--work", place, dtype, folder]
    with ThreadPoolExecutor(cores) as pool:
        shards = pool.map(lambda shard: run_worker(command, shard), [names[i::cores] for i in range(cores)])
        return [row for rows in shards for row in rows]


def printed(place: str, dtype: str, rows: list[Row]) -> dict[str, Any]:
    """Prints the figures of one device and dtype, and returns them."""
    compared = [row for row in rows if row["status"] == "compared"]
    samples, same = (sum(row[what] for row in compared) for what in ("samples", "identical"))
    refused, wrong = (sum(len(row[what]) for row in compared) for what in ("refused", "wrong"))
    passed = samples - wrong - refused
    print(
        f"{place} {dtype}: {passed} of {samples} samples ({passed / max(samples, 1):.3%}), {len(compared)} operators, "
        f"{same} bit for bit; {refused} refused as a real {place.partition('@')[0]} refuses them"
    )
    for row in rows:
        if row["status"] != "compared":
            print(f"  {row['op']}: {row['status']} {row.get('error', '')}")
        elif row["wrong"]:
            print(f"  {row['op']}: {len(row['wrong'])} of {row['samples']}: {row['wrong'][0]}")
    sys.stdout.flush()
    operators = {row["op"]: len(row.get("wrong", ())) for row in rows}
    return {
        "samples": samples,
        "refused": refused,
        "wrong": {op: number for op, number in operators.items() if number},
        "ended": [row["op"] for row in rows if row["status"] != "compared"],
    }


def main() -> None:
    files = [Path(word) for word in sys.argv[1:] if word.endswith(".json")] or [report.BACKED]
    words = [word for word in sys.argv[1:] if not word.endswith(".json")]
    places = [word for word in words if word.partition("@")[0] in DEVICES]
    dtypes = [word for word in words if word not in places] or DTYPES
    accelerator = places[-1].rpartition("@")[2]
    machine = {"device": torch.get_device_module(accelerator).get_device_name(), "torch": str(torch.__version__)}
    os.environ["PYTHONHASHSEED"] = "0"  # the order of some samples is that of a set
    RESULTS.mkdir(parents=True, exist_ok=True)
    for dtype in dtypes:
        names = [name for name in list_names(dtype) if not name.startswith(COMPILED_BY_CUDA)]
        with tempfile.TemporaryDirectory() as folder:
            ended = [row["op"] for row in run(accelerator, dtype, names, folder) if row["status"] != "kept"]
            if ended:
                print(f"{accelerator} {dtype}: ended their process in plain torch: {', '.join(ended)}")
            Path(folder, KEPT).touch()
            for place in places:
                rows = run(place, dtype, [name for name in names if name not in ended], folder)
                (RESULTS / f"{place.replace('@', '-on-')}-{dtype}.json").write_text(json.dumps(rows, indent=0))
                figures = printed(place, dtype, rows)
                if place != accelerator:
                    report.keep(files[0], machine, place, dtype, figures)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:5])
    else:
        main()
