"""Turns the results of run.py into docs/conformance.md: figures, then every operator that did not pass, and why."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

HEAD = """# Conformance of the virtual devices

Written by `make conformance`; do not edit. Every operator of torch's own `op_db` that the CPU supports for a dtype, at
most 40 samples each, forward, gradient and device, against the CPU in the same process.

*refused* is the real backend's own refusal (a dtype or an operator that it lacks): the intended result.
"""
REFUSALS = (
    "TypeError: Cannot convert a MPS Tensor to float64",
    "TypeError: Trying to convert ComplexDouble to the MPS",
    "NotImplementedError: The operator '",
    "NotImplementedError: Could not run 'new_compressed_tensor' from the 'mps:0' device",
)


def status(row: dict[str, Any]) -> str:
    if row["status"] == "raised" and (row["error"].startswith(REFUSALS) or row["error"].endswith("on the MPS device.")):
        return "refused"
    return str(row["status"])


def tally(rows: list[dict[str, Any]]) -> dict[str, int]:
    return dict(Counter(status(row) for row in rows))


def write(path: Path, results: Path) -> None:
    import torch

    tables = {file.stem: json.loads(file.read_text()) for file in sorted(results.glob("*.json"))}
    lines = [HEAD, f"torch {torch.__version__}\n", "| device, support, dtype | operators | passed | refused | other |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for name, rows in tables.items():
        figures = Counter(status(row) for row in rows)
        tried = len(rows) - figures["no sample"]
        other = tried - figures["passed"] - figures["refused"]
        lines.append(f"| {name.replace('-', ' ')} | {tried} | {figures['passed']} | {figures['refused']} | {other} |")
    for name, rows in tables.items():
        rest = [row for row in rows if status(row) not in ("passed", "no sample")]
        lines.append(f"\n## {name.replace('-', ' ')}\n")
        lines += [f"- `{row['op']}` {status(row)}: {row['error'][:160]}" for row in rest] or ["Everything passed."]
    path.write_text("\n".join(lines) + "\n")
