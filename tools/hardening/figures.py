"""The figures of `make fuzz`, `make soak` and `make sanitize`: kept in figures.json, shown in docs/reliability.md.

python -m tools.hardening.figures        (writes the page again)
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import torch

KEPT = Path(__file__).with_name("figures.json")
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- figures: written by make fuzz, make soak and make sanitize -->\n", "<!-- end of the figures -->"
# section: what was done, what came out; the fields are those that the target records.
ROWS = {
    "hypothesis": (
        "invalid devices, broken checkpoints and files (Hypothesis), `make fuzz`",
        "{tests} tests of {examples:,} examples each: {total:,} tried, {failed} failed",
    ),
    "readers": (
        "random bytes for every reader (Atheris), `make fuzz`",
        "{readers} readers, {runs:,} runs: {failed} failed",
    ),
    "soak": (
        "a long run of mixed work, `make soak`",
        "{minutes:.0f} minutes, {rounds:,} rounds, {redirected:,} calls redirected, {fallbacks:,} fallbacks: "
        "memory {growth:+.1f} MB from the first third to the last, the time of a round {slowing:.2f}×",
    ),
    "sanitize": (
        "virtual devices under AddressSanitizer and UBSan, `make sanitize`",
        "{passed} tests passed, {failed} failed; {functions} exported functions, {calls:,} hostile calls",
    ),
}


def load() -> dict[str, dict[str, Any]]:
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}


def record(section: str, **values: Any) -> None:
    """Keep what a target measured, and write the page."""
    kept = load()
    kept[section] = {**values, "torch": str(torch.__version__), "day": datetime.date.today().isoformat()}
    KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    write()


def rendered(kept: dict[str, dict[str, Any]]) -> str:
    lines = ["| what | result | torch |", "| --- | --- | --- |"]
    for section, (what, result) in ROWS.items():
        if section in kept:
            lines.append(
                f"| {what} | {result.format(**kept[section])} | {kept[section]['torch']}, {kept[section]['day']} |"
            )
    details = kept.get("readers", {}).get("each", {})
    if details:
        lines += ["", "Runs per reader: " + ", ".join(f"`{name}` {runs:,}" for name, runs in details.items()) + "."]
    return "\n".join(lines) + "\n"


def write() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + rendered(load()) + END + after, encoding="utf-8")


if __name__ == "__main__":
    write()
