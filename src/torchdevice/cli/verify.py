"""`torchdevice verify`: checks the accelerator of this machine. `torchdevice.verify` does the checking."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from torchdevice.cli.parsing import Parser
from torchdevice.errors import ConfigError, TorchDeviceError, explain_error
from torchdevice.printable import printable, printable_lines
from torchdevice.verify import page, record, runner, summary
from torchdevice.verify.findings import BAD, Finding
from torchdevice.verify.parts import PARTS
from torchdevice.verify.record import Record

SECONDS_BETWEEN_WRITES = 2.0


def parser() -> Parser:
    """The time, the file, and a virtual device."""
    parser = Parser(
        "verify",
        "Check the accelerator of this machine against the CPU and against what TorchDevice predicts.\n"
        "Started again, it goes on: with the checks that were interrupted or had no time. Its parts:\n"
        + "\n".join(f"  {part.name:<13} {part.asks}" for part in PARTS),
        ["torchdevice verify", "torchdevice verify --minutes 2 --virtual mps:real"],
    )
    parser.add_argument("--minutes", type=_positive, default=8.0, metavar="M", help="time for the samples (default: 8)")
    parser.add_argument("--output", metavar="PATH", type=Path, help="the JSON file; the page is beside it")
    parser.add_argument("--virtual", metavar="DEV[:real]", default="", help="check a virtual device: the tool itself")
    return parser


def main(words: Sequence[str]) -> int:
    """Run, print the summary and write both files. The exit status is 1 if there is a disagreement."""
    options = parser().parse_args(words)
    if options.output is not None and options.output.suffix == ".html":
        parser().error("--output names the JSON file; the page is written beside it")
    try:
        machine = runner.describe_machine(options.virtual)
        if machine["device"] == "cpu":
            raise TorchDeviceError(_nothing_to_check(machine["torch"]))
        path = options.output or Path(f"torchdevice-verify-{machine['device']}-{machine['torch']}.json")
        begun = record.resume(path, machine, options.minutes)
        _write_first(path, begun)
        found = _run(begun, path)
    except ConfigError as error:
        parser().error(str(error).replace("\n", " "))
    except TorchDeviceError as error:
        raise SystemExit(f"torchdevice: {printable_lines(str(error))}") from None
    html = path.with_suffix(".html")
    html.write_text(page.render(found), encoding="utf-8")
    print(printable_lines(summary.as_text(found)))
    print()
    print(printable(f"written to {path} and {html}: attach both to an issue. They contain no names and no paths."))
    return 1 if found.disagreements() else 0


def _write_first(path: Path, begun: Record) -> None:
    """Before minutes are spent on a file that cannot be written."""
    try:
        record.write(path, begun)
    except OSError as error:
        raise TorchDeviceError(
            explain_error(f"the file {path} was requested", f"{error.strerror}", "name another one with --output")
        ) from error


def _nothing_to_check(torch: str) -> str:
    return explain_error(
        "a check of the accelerator was requested",
        f"torch {torch} finds none on this machine",
        "torchdevice verify --virtual mps:real checks the tool itself on a virtual device",
    )


def _run(begun: Record, path: Path) -> Record:
    """Run and store. After Ctrl-C the file has everything so far, and the summary is that of it."""
    latest, written, part = begun, 0.0, ""

    def save(now: Record) -> None:
        nonlocal latest, written
        latest = now
        if time.monotonic() - written >= SECONDS_BETWEEN_WRITES:
            record.write(path, now)
            written = time.monotonic()

    def tell(finding: Finding) -> None:
        nonlocal part
        if finding.part != part:
            part = finding.part
            print(f"{part} …", file=sys.stderr)
        if finding.status in BAD:
            print(printable(f"  {finding.title}: {finding.status}: {finding.detail}"), file=sys.stderr)

    try:
        runner.run(begun, save, tell)
    except KeyboardInterrupt:
        print("torchdevice: interrupted. The same command goes on from here.", file=sys.stderr)
    record.write(path, latest)
    return latest


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of minutes")
    return value
