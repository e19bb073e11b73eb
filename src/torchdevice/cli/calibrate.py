"""`torchdevice calibrate`: makes fallbacks fast on this machine.

On an accelerator it builds their kernel in C++. With MLX it measures MLX against the CPU and keeps the table that
routing then uses.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torchdevice.cli.parsing import Parser


def parser() -> Parser:
    """How long, for what, and where the result goes."""
    parser = Parser(
        "calibrate",
        "Build the C++ kernel of fallbacks for an accelerator. Then measure MLX against the CPU and keep the\n"
        "table: with TORCHDEVICE_FALLBACK=mlx,cpu an operator that the device lacks runs where it is faster.",
        ["torchdevice calibrate", "torchdevice calibrate --search linalg --dry-run --json"],
    )
    parser.add_argument("--search", metavar="TEXT", default="", help="only operators whose name contains this")
    parser.add_argument(
        "--seconds", type=_positive, default=0.02, metavar="S", help="time for each measurement (default: 0.02)"
    )
    parser.add_argument("--dry-run", action="store_true", help="keep nothing")
    parser.add_argument("--reset", action="store_true", help="remove the kept table; the shipped one counts again")
    parser.add_argument("--json", action="store_true", help="the table for programs")
    return parser


def main(words: Sequence[str]) -> int:
    """Measure with a progress bar on stderr; print what was found."""
    parsing = parser()
    options = parsing.parse_args(words)
    from torchdevice.fallback.mlx import costs, executor

    if options.reset:
        path = costs.table_path()
        print(f"removed {path}" if path.exists() else "there is no table of this machine")
        path.unlink(missing_ok=True)
        return 0
    from torchdevice.policy.hosts import this_host

    if this_host().type != "cpu" and not options.dry_run:
        _build_kernel()
    if not executor.installed():
        raise SystemExit(
            "torchdevice: MLX is not installed, so everything falls back to the CPU.\nHint: pip install mlx"
        )
    from torchdevice.fallback.mlx import calibration, costs

    target = this_host().type
    work = calibration.jobs(name for name in sorted(executor.rules()) if options.search in name)
    if not work:
        parsing.error(f"no rule's name contains {options.search!r}")
    measured = [row for row in _watched(calibration.measure(work, target, options.seconds), len(work)) if row]
    table = calibration.as_table(measured, target)
    if options.search:  # the others keep what was measured before
        kept = costs.read_costs(costs.device_kind(), costs.versions()).by_operator
        table["pays_from"] = {**kept, **table["pays_from"]}
    print(json.dumps(table, indent=2) if options.json else as_text(table))
    if not options.dry_run:
        kept_in = costs.write_costs(table)
        if not options.json:
            print(f"kept in {kept_in}")
    return 0


def _build_kernel() -> None:
    """Fallbacks are slower without it, and right."""
    from torchdevice.errors import VirtualDeviceUnavailable
    from torchdevice.virtual import build

    try:
        print(f"the fallback kernel is {build.build(build.FALLBACK)}", file=sys.stderr)
    except VirtualDeviceUnavailable as error:  # no compiler, or no folder to keep it in
        print(f"torchdevice: {error}", file=sys.stderr)


def as_text(table: dict[str, Any]) -> str:
    """One line an operator that was measured: at each size, how many times as long as the CPU MLX took."""
    from torchdevice.reporting.collect import columns

    rows: dict[str, list[dict[str, Any]]] = {}
    for row in table["measured"]:
        rows.setdefault(row["operator"], []).append(row)
    lines: list[tuple[str, ...]] = [("operator", "MLX / CPU (elements)", "MLX from")]
    for name, found in rows.items():
        ratios = "  ".join(f"{row['mlx_us'] / row['cpu_us']:.2f} ({row['elements']})" for row in found)
        least = table["pays_from"][name]
        lines.append((name, ratios, "never" if least is None else f"{least} elements"))
    chosen = sum(table["pays_from"][name] is not None for name in rows)
    where = f"MLX on the {table['device'].upper()}, target {table['target']}"
    return "\n".join([*columns(lines), f"{where}: faster for {chosen} of {len(rows)} operators, from the size given"])


def _watched(steps: Iterable[Any], total: int) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import track

    console = Console(file=sys.stderr)
    yield from track(steps, "measuring", total, console=console, transient=True, disable=not console.is_terminal)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds")
    return value
