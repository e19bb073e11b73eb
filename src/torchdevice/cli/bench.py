"""`torchdevice bench`: the overhead of TorchDevice on this machine. `torchdevice.bench` does the measuring."""

from __future__ import annotations

import json
import sys
from argparse import SUPPRESS
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchdevice.bench import BENCHMARKS
from torchdevice.cli.parsing import Parser

if TYPE_CHECKING:
    from torchdevice.bench.runner import Results


def parser() -> Parser:
    """Names of benchmarks, and the destination of the figures."""
    parser = Parser(
        "bench",
        "Measure the overhead of TorchDevice. Without a name, all benchmarks that this machine can run:\n"
        + "\n".join(f"  {name:<14} {about}" for name, about in BENCHMARKS.items()),
        ["torchdevice bench --quick", "torchdevice bench steps calls --json figures.json"],
    )
    parser.add_argument("name", nargs="*", help=SUPPRESS)  # the list above shows the names
    parser.usage = "torchdevice bench [-h] [--quick] [--json PATH] [name ...]"
    parser.add_argument("--quick", action="store_true", help="fewer rounds, less exact")
    parser.add_argument("--json", metavar="PATH", help="also write the figures to PATH ('-': to stdout, no table)")
    return parser


def main(words: Sequence[str]) -> int:
    """Measure and print. The exit status is 1 if a limit is exceeded."""
    parsing = parser()
    options = parsing.parse_args(words)
    for name in options.name:
        if name not in BENCHMARKS:
            parsing.error(f"no benchmark {name!r}; choose from {', '.join(BENCHMARKS)}")
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from torchdevice.bench.runner import run

    stderr = Console(stderr=True)
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=stderr) as progress:
        total = len(options.name or BENCHMARKS)
        task = progress.add_task("starting", total=total)
        results = run(
            options.name,
            options.quick,
            lambda name: progress.update(task, advance=1, description=f"{name}: {BENCHMARKS[name]}"),
        )
    if options.json:
        text = json.dumps(results.as_json(), indent=1, ensure_ascii=False) + "\n"
        if options.json == "-":
            sys.stdout.write(text)
        else:
            Path(options.json).write_text(text, encoding="utf-8")
    if options.json != "-":
        _print_table(results)
    return 1 if any(figure.kept is False for rows in results.figures.values() for figure in rows) else 0


def _print_table(results: Results) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(", ".join(f"{name} {value}" for name, value in results.machine.items()), highlight=False)
    table = Table("what", "measured", "limit", "", box=None, pad_edge=False)
    for rows in results.figures.values():
        for figure in rows:
            table.add_row(figure.what, str(figure), figure.limit_text, figure.mark)
    console.print(table, highlight=False)
    for name, reason in results.missing.items():
        console.print(f"{name}: not measured: {reason}", highlight=False, markup=False)
