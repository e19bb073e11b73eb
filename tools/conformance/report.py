"""Turns the results of run.py into docs/conformance.md: figures, then every operator that did not pass, and why."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

HEAD = """# Conformance of the virtual devices

Written by `make conformance`; do not edit. The table covers every operator of torch's own `op_db` that the CPU supports
for a dtype, with at most 40 samples per operator. The forward results, the gradients and the devices are compared with
those of the CPU in the same process.

*refused*: at least one sample ended in the error of the real backend, which lacks a dtype or an operator. This is the
intended result. The other samples of the operator passed. *no sample*: the CPU could not run any sample, so there was
no comparison.
"""
# Of the last run of `translated` on a real accelerator.
REAL = Path(__file__).with_name("real.json")
# Of the last run of `backed`.
BACKED = Path(__file__).with_name("backed.json")
COLUMNS = ("no sample", "passed", "refused")


def tally(rows: list[dict[str, Any]]) -> dict[str, int]:
    return dict(Counter(row["status"] for row in rows))


def write(path: Path, results: Path) -> None:
    import torch

    tables = {file.stem: json.loads(file.read_text()) for file in sorted(results.glob("*.json"))}
    lines = [HEAD, f"torch {torch.__version__}\n"]
    lines.append(f"| device, support, dtype | operators | {' | '.join(COLUMNS)} | other |")
    lines.append("|" + " --- |" * (len(COLUMNS) + 3))
    for name, rows in tables.items():
        figures = Counter(row["status"] for row in rows)
        cells = [len(rows), *(figures[column] for column in COLUMNS)]
        cells.append(cells[0] - sum(cells[1:]))
        lines.append(f"| {name.replace('-', ' ')} | {' | '.join(map(str, cells))} |")
    for name, rows in tables.items():
        rest = [row for row in rows if row["status"] not in ("passed", "no sample")]
        lines.append(f"\n## {name.replace('-', ' ')}\n")
        lines += [f"- `{row['op']}` {row['status']}: {row['error'][:160]}" for row in rest] or ["Everything passed."]
    path.write_text("\n".join([*lines, *real_accelerator()]) + "\n")


def keep(file: Path, machine: dict[str, str], place: str, dtype: str, figures: dict[str, Any]) -> None:
    """Adds the figures of `backed` for one device and dtype. Those of another machine or torch are removed."""
    kept = json.loads(file.read_text()) if file.exists() else {}
    if kept.get("machine") != machine:
        kept = {"machine": machine, "figures": {}}
    kept["figures"].setdefault(place, {})[dtype] = figures
    file.write_text(json.dumps(kept, indent=1) + "\n")


def _ends(row: dict[str, str]) -> str:
    return "ends the process as well" if row["plain torch"] != "does not end" else "does not"


def real_accelerator() -> list[str]:
    """What `python -m tools.conformance.translated` found where there is a GPU."""
    found = json.loads(REAL.read_text())
    wrong = sum(len(row["wrong"]) for row in found["wrong"])
    return [
        f"\n## On a real {found['device']}, under another device's name\n",
        f"torch {found['torch']}, {found['date']}. The code requests `mps`, and TorchDevice redirects it to CUDA. Of",
        f"{found['samples']} samples of {found['operators']} operators (float32), {found['samples'] - wrong} equal the "
        "results of plain torch on the same GPU.\n",
        *(f"- `{row['op']}`: {row['wrong'][0][:160]}" for row in found["wrong"]),
        *(f"- `{row['op']}` ended the process; without TorchDevice it {_ends(row)}." for row in found["lost"]),
        "",
        *found.get("notes", ()),
    ]
