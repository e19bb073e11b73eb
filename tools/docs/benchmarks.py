"""Writes docs/benchmarks.md and docs/overhead.svg from benchmarks/results/*.json. Measures nothing."""

from __future__ import annotations

import json
from pathlib import Path

from torchdevice.bench import BENCHMARKS
from torchdevice.bench.runner import Results

ROOT = Path(__file__).resolve().parents[2]
MEASURED, DOCS = ROOT / "benchmarks", ROOT / "docs"
HEAD = """# Benchmarks

Written by `make bench` from `benchmarks/results/`; do not edit. `torchdevice bench` measures the same on your machine.

Wall time varies on shared machines. Ratios are therefore taken between calls that alternate in one run (median, with
quartiles in parentheses). Single calls are measured in instructions, with callgrind. Startup, threads and epochs
without workers are measured in processor time. A limit that was exceeded is marked ✗ and explained below.

![What redirection costs a training step](overhead.svg)
"""
BAR_WIDTH, ROW_HEIGHT, LABEL_WIDTH = 420, 26, 290


def table(results: Results) -> list[str]:
    lines = [", ".join(f"{name} {value}" for name, value in results.machine.items()), ""]
    for name, rows in results.figures.items():
        lines += [f"### {BENCHMARKS[name].capitalize()} (`{name}`)", ""]
        lines += ["| what | measured | limit | | |", "| --- | ---: | ---: | --- | --- |"]
        for figure in rows:
            what = figure.what if name != "calls" else f"`{figure.what}`"
            lines.append(f"| {what} | {figure} | {figure.limit_text} | {figure.mark} | {figure.note} |")
        lines.append("")
    return lines + [f"Not measured: `{name}`: {reason}\n" for name, reason in results.missing.items()]


def chart(steps: dict[str, float]) -> str:
    """Bars of time added to a training step, in percent; colours that are readable on white and on black."""
    added = {name: (ratio - 1) * 100 for name, ratio in steps.items()}
    largest = max(*added.values(), 1.0)
    height = ROW_HEIGHT * len(added) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LABEL_WIDTH + BAR_WIDTH + 90} {height}" '
        'font-family="sans-serif" font-size="13" fill="#7a7a7a">',
        '<text x="4" y="18" font-weight="bold">Time added to a training step, percent</text>',
    ]
    for row, (name, percent) in enumerate(added.items()):
        y = 32 + row * ROW_HEIGHT
        width = max(1.0, percent / largest * BAR_WIDTH)
        colour = "#2e9e5b" if "active" in name else "#c0662b"
        parts.append(f'<text x="{LABEL_WIDTH - 8}" y="{y + 14}" text-anchor="end">{name}</text>')
        parts.append(f'<rect x="{LABEL_WIDTH}" y="{y}" width="{width:.1f}" height="{ROW_HEIGHT - 8}" fill="{colour}"/>')
        parts.append(f'<text x="{LABEL_WIDTH + width + 6:.1f}" y="{y + 14}">{percent:+.1f}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Write both files from the recorded results."""
    machines = {
        file.stem: Results.from_json(json.loads(file.read_text())) for file in sorted(MEASURED.glob("results/*.json"))
    }
    steps = {
        figure.what.removeprefix("training step on "): figure.value
        for results in machines.values()
        for figure in results.figures.get("steps", [])
        if figure.what.startswith("training step on ")
    }
    (DOCS / "overhead.svg").write_text(chart(steps), encoding="utf-8")
    lines = [HEAD]
    for results in machines.values():
        lines += [f"## {results.machine['device']}", "", *table(results)]
    notes = MEASURED / "notes.md"
    lines.append(notes.read_text(encoding="utf-8").rstrip())
    (DOCS / "benchmarks.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
