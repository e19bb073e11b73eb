"""Writes the table of docs/virtual.md on devices that an accelerator backs, from recorded results (`make docs`).

The results are those of `tools.conformance.backed`, `tools.realworld.runner` and `torchdevice bench backed` on a
machine with an accelerator. Nothing is measured here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.conformance.report import BACKED
from tools.docs.sections import put_into
from tools.realworld.runner import RESULTS as PROGRAMS
from tools.realworld.runner import Results as Programs
from torchdevice.bench.runner import Figure, Results

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "virtual.md"
BEGIN, END = "<!-- backed devices: written by make docs -->", "<!-- end of the backed devices -->"
TIMES = ROOT / "benchmarks" / "results" / "cuda.json"
# Place → the mode of the programs.
PLACES = {"mps@cuda": "as mps", "xpu@cuda": "as xpu"}
# What the benchmark calls it → what the page calls it.
MEASURED = {
    "large step": "time of a training step that is limited by the GPU",
    "launch-bound step": "time of a training step that is limited by kernel launches",
    "matmul 8192x8192": "time of a product of two 8192×8192 matrices",
    "peak memory": "peak memory of a training step",
}


def samples(figures: dict[str, Any]) -> str:
    """One cell: how many samples equal those of the accelerator, and the others."""
    refused, wrong = figures["refused"], figures["wrong"]
    equal = figures["samples"] - refused - sum(wrong.values())
    parts = [f"{equal:,} of {figures['samples']:,} samples"]
    if refused:
        parts.append(f"{refused} refused as by a real device")
    parts += [f"{number} of `{operator}` differ" for operator, number in wrong.items()]
    parts += [f"`{operator}` ended the process" for operator in figures["ended"]]
    return "; ".join(parts)


def programs(results: Programs, mode: str) -> str:
    rows = [row for (_, name), row in results.rows.items() if name == mode and row["status"] != "missing"]
    failed = [row["program"] for row in rows if row["status"] != "passed"]
    but = f"; not {', '.join(f'`{name}`' for name in failed)}" if failed else ""
    return f"{len(rows) - len(failed)} of {len(rows)}{but}"


def table() -> str:
    """The section between the markers."""
    conformance = json.loads(BACKED.read_text(encoding="utf-8"))
    times = Results.from_json(json.loads(TIMES.read_text(encoding="utf-8")))
    by_name = {figure.what: figure for figure in times.figures["backed"]}
    ran = Programs(PROGRAMS)
    rows = [("what", *(f"virtual `{place.partition('@')[0]}`" for place in PLACES)), ("---",) * (len(PLACES) + 1)]
    figures = conformance["figures"]
    for dtype in figures[next(iter(PLACES))]:
        rows.append((f"torch's operator database, {dtype}", *(samples(figures[place][dtype]) for place in PLACES)))
    link = "programs that others wrote ([realworld.md](realworld.md))"
    rows.append((link, *(programs(ran, mode) for mode in PLACES.values())))
    for name, title in MEASURED.items():
        rows.append((title, *(f"{by_name[f'{name} on {place}'].value:.3f}×" for place in PLACES)))
    rows.append(("time added to a small operator", *(added(by_name, place) for place in PLACES)))
    machine = conformance["machine"]
    head = f"On an {machine['device']} (torch {machine['torch']}), virtual `mps` and `xpu` compared with real `cuda`:\n"
    return "\n".join([head, *(f"| {' | '.join(row)} |" for row in rows)])


def added(figures: dict[str, Figure], place: str) -> str:
    ending = f": added by {place}"
    limited = [each for name, each in figures.items() if name.endswith(ending) and each.limit is not None]
    most = max(limited, key=lambda figure: figure.value)
    return f"at most {most.value:.2f} µs ({len(limited)} were timed)"


def main() -> None:
    put_into(PAGE, BEGIN, END, table())


if __name__ == "__main__":
    main()
