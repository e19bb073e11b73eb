"""The argument parser of all commands: help ends with examples, and an error is one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from torchdevice.printable import printable


def usage_error(program: str, message: str) -> NoReturn:
    """One line on stderr, exit status 2."""
    sys.stderr.write(f"{program}: {printable(message)} (see {program} --help)\n")
    raise SystemExit(2)


class Parser(argparse.ArgumentParser):
    """argparse with examples in the help and one-line errors."""

    def __init__(self, command: str, about: str, examples: Sequence[str], **options: Any) -> None:
        super().__init__(
            prog=f"torchdevice {command}",
            description=about,
            epilog="\n".join(["examples:", *(f"  {example}" for example in examples)]),
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=28, width=100),
            allow_abbrev=False,
            **options,
        )

    def error(self, message: str) -> NoReturn:
        """Print one line instead of argparse's usage and message."""
        usage_error(self.prog, message)
