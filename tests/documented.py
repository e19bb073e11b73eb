"""Commands and programs in Markdown pages: found, run as a reader would run them, compared with what the page shows.

A page is one session in an empty folder, from top to bottom:

- A block whose first line is a comment with a file name (`# train.py`) is that file.
- A `python` block without a file name is a program that is run.
- In a `console` block a line after `$ ` is a command of the shell; the lines up to the next one are what it prints.
- An `ipython` block is a cell of one notebook; a `text` block after it is what the cell puts out.
- `<!-- not run: REASON -->` before a block says why its commands are not run; `<!-- exit status 1 -->` says how the
  last command of the block ends, if not by 0.
- Blocks of other languages are for reading.

What is shown is what must be printed, standard output and standard error together, with these exceptions:

- `…` stands for anything, in a line with the spaces around it, or as a line of its own for any number of lines.
- A number with a decimal point, or with a unit of time or memory or a percent sign, stands for any number.
- Empty lines and the width of spaces do not count.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cli.harness import SECONDS, clean_environment

BLOCK = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run:(?P<reason>[^\n]*?)-->\s*\Z")
STATUS = re.compile(r"<!-- exit status (?P<status>\d+) -->\s*\Z")
FILE = re.compile(r"# (?P<name>[\w./-]+\.\w+)\n")
TIME = r"\d+(?:\.\d+)? (?:ns|µs|ms|s)\b"
NUMBER = r"\d+(?:\.\d+)+(?:\+\w+)?|\d+(?= ?(?:ns|µs|ms|s|%|B|[kMGT]i?B)\b)|\d+(?=%)"
ANYTHING = "…"
# What a reader has installed, by the module that Python runs for it.
COMMANDS = {
    "python": (),
    "torchdevice": ("-m", "torchdevice"),
    "pytest": ("-m", "pytest"),
    "torchrun": ("-m", "torch.distributed.run"),
}


@dataclass(frozen=True)
class Block:
    """A block of code of a page."""

    language: str
    text: str
    line: int  # in the page, of its first line of code
    reason: str | None = None  # why it is not run
    status: int = 0

    @property
    def file(self) -> str | None:
        """The name of the file that it is, if it is one."""
        named = FILE.match(self.text)
        return named["name"] if named else None

    def commands(self) -> Iterator[Command]:
        """What is run, in order."""
        if self.language == "python" and not self.file:
            yield Command(f"python - <<'END OF PROGRAM'\n{self.text}END OF PROGRAM\n", None, self.status, self.line)
        if self.language != "console":
            return
        _, *parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)
        line = self.line
        for number, part in enumerate(parts):
            words, _, shown = re.sub(r"\\\n", "", part).partition("\n")
            yield Command(words, shown, self.status if number == len(parts) - 1 else 0, line)
            line += part.count("\n")


@dataclass(frozen=True)
class Command:
    """A command of a page and what the page says about it."""

    words: str
    shown: str | None  # None: the page does not show what is printed
    status: int
    line: int

    def complaint(self, status: int, printed: str, compare: bool = True) -> str | None:
        """In what a run differs from what the page says, or None; `compare` what it printed as well."""
        if status != self.status:
            return f"ended with status {status}, not {self.status}:\n{printed}"
        if compare and self.shown is not None and not matches(self.shown, printed):
            return f"the page shows\n{self.shown}\nbut this was printed:\n{printed}"
        return None


def blocks(page: str) -> list[Block]:
    """All blocks of code of a page."""
    found = []
    for each in BLOCK.finditer(page):
        before = page[: each.start()]
        reason, status = NOT_RUN.search(before), STATUS.search(before)
        found.append(
            Block(
                each["language"],
                each["text"],
                page.count("\n", 0, each.start("text")) + 1,
                reason["reason"].strip() if reason else None,
                int(status["status"]) if status else 0,
            )
        )
    return found


def matches(shown: str, printed: str) -> bool:
    """Whether a page may show this of what was printed."""
    lines = [_pattern(line) for line in shown.splitlines() if line.strip()]
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in _lines(printed))) is not None


def _lines(text: str) -> Iterator[str]:
    yield from (" ".join(line.split()) for line in text.splitlines() if line.strip())


def _pattern(line: str) -> str:
    words = " ".join(line.split())
    if words == ANYTHING:
        return r"(?:.*\n)*?"
    parts = re.split(f"( ?{ANYTHING} ?|{TIME}|{NUMBER})", words)  # every second one was found
    parts[::2] = map(re.escape, parts[::2])
    parts[1::2] = map(_pattern_of_found, parts[1::2])
    return "".join(parts) + r"\n"


def _pattern_of_found(part: str) -> str:
    if ANYTHING in part:
        return r".*"
    return TIME if re.fullmatch(TIME, part) else r"\d+(?:\.\d+)*(?:\+\w+)?"  # 900 ms on another machine is 1.2 s


def install_commands(folder: Path) -> Path:
    """A folder for PATH in which a reader's commands are, run by this Python."""
    folder.mkdir()
    for name, arguments in COMMANDS.items():
        command = folder / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {" ".join(arguments)} "$@"\n', encoding="utf-8")
        command.chmod(0o755)
    return folder


def run(command: Command, folder: Path, path: Path) -> tuple[int, str]:
    """Its exit status and what it printed; run in this folder, with the commands in `path`."""
    environment = clean_environment(PYTHONUNBUFFERED="1", NO_COLOR="1", COLUMNS="200")
    own = Path(sys.executable).parent  # where the commands of packages are: jupyter
    environment["PATH"] = f"{path}:{own}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command.words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=environment,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout
