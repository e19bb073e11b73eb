"""`torchdevice calibrate`: makes fallbacks faster on this machine.

On an accelerator it builds the C++ fallback kernel. With MLX it measures MLX against the CPU and stores the table that
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
    """Which operators, how long, and where the result goes."""
    parser = Parser(
        "calibrate",
        "Build the C++ fallback kernel for an accelerator. Then measure MLX against the CPU and store the\n"
        "table. With TORCHDEVICE_FALLBACK=mlx,cpu each fallback then runs on the faster of the two.",
        ["torchdevice calibrate", "torchdevice calibrate --search linalg --dry-run --json"],
    )
    parser.add_argument("--search", metavar="TEXT", default="", help="only operators whose name contains this")
    parser.add_argument(
        "--seconds", type=_positive, default=0.02, metavar="S", help="time for each measurement (default: 0.02)"
    )
    parser.add_argument("--dry-run", action="store_true", help="measure, but do not store the table")
    parser.add_argument("--reset", action="store_true", help="remove the stored table and use the shipped one again")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    return parser


def main(words: Sequence[str]) -> int:
    """Measure with a progress bar on stderr; print what was found."""
    parsing = parser()
    options = parsing.parse_args(words)
    from torchdevice.fallback.mlx import costs, executor

    if options.reset:
        path = costs.table_path()
        print(f"removed {path}" if path.exists() else "there is no stored table for this machine")
        path.unlink(missing_ok=True)
        return 0
    from torchdevice.policy.hosts import this_host

    if this_host().type != "cpu" and not options.dry_run:
        _build_kernel()
    if not executor.installed():
        raise SystemExit("torchdevice: MLX is not installed, so all fallbacks run on the CPU.\nHint: pip install mlx")
    from torchdevice.fallback.mlx import calibration, costs

    target = this_host().type
    work = calibration.jobs(name for name in sorted(executor.rules()) if options.search in name)
    if not work:
        parsing.error(f"no operator with an MLX rule has {options.search!r} in its name")
    measured = [row for row in _watched(calibration.measure(work, target, options.seconds), len(work)) if row]
    table = calibration.as_table(measured, target)
    if options.search:  # the other operators keep their earlier figures
        kept = costs.read_costs(costs.device_kind(), costs.versions()).by_operator
        table["pays_from"] = {**kept, **table["pays_from"]}
    print(json.dumps(table, indent=2) if options.json else as_text(table))
    if not options.dry_run:
        kept_in = costs.write_costs(table)
        if not options.json:
            print(f"stored in {kept_in}")
    return 0


def _build_kernel() -> None:
    """Build the kernel if possible. Without it fallbacks are slower but correct."""
    from torchdevice.errors import VirtualDeviceUnavailable
    from torchdevice.virtual import build

    try:
        print(f"the fallback kernel is {build.build(build.FALLBACK)}", file=sys.stderr)
    except VirtualDeviceUnavailable as error:  # no compiler, or no folder to store it in
        print(f"torchdevice: {error}", file=sys.stderr)


def as_text(table: dict[str, Any]) -> str:
    """One line per measured operator: for each size, the time of MLX divided by the time of the CPU."""
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
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value
