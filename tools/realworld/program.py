"""What a row of the table is: a program, and how its text becomes one for another device. The rows are elsewhere."""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "programs"
Replacements = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Program:
    """`programs/NAME.py`, written for a CUDA machine, whose last line of output says what it did."""

    name: str
    packages: tuple[str, ...] = ()  # distributions that it needs beside torch
    fast: bool = False  # may run in `make test`, if its packages are there
    on_cpu: Replacements = (("cuda", "cpu"),)  # what makes it the same program written for the CPU
    on_mps: Replacements = (('"cuda', '"mps'), (".cuda()", '.to("mps")'))  # what makes it one written for a Mac
    # What puts torch's own functions in the place of a package. `on_cpu` begins with it, so the digest covers it.
    in_torch: Replacements = field(default=(), repr=False)
    tolerance: float = 1e-4
    refusal: str = ""  # the program cannot work, and this must be in the error that says so
    gpus: int = 1  # how many devices it was written for
    launch: tuple[str, ...] = ()  # what stands between `python` and the script: `-m accelerate.commands.launch …`

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.py"

    @property
    def purpose(self) -> str:
        """The first line of its docstring."""
        return (
            (ast.get_docstring(ast.parse(self.path.read_text(encoding="utf-8"))) or "").partition("\n")[0].rstrip(".")
        )

    def text(self, replacements: Replacements = ()) -> str:
        return replaced(self.path.read_text(encoding="utf-8"), replacements)

    def arguments(self, replacements: Replacements = ()) -> list[str]:
        """The words of `launch`; those that the replacements leave empty are dropped."""
        return [word for word in (replaced(word, replacements) for word in self.launch) if word]

    @property
    def digest(self) -> str:
        """Changes when the program or its row does: results of another one are stale."""
        return hashlib.sha256(f"{self}{self.text()}".encode()).hexdigest()[:12]

    def versions(self) -> dict[str, str]:
        """Of its packages and torch, those that are installed."""
        found = {}
        for package in ("torch", *self.packages):
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
        return found

    def missing(self) -> list[str]:
        installed = self.versions()
        return [package for package in self.packages if package not in installed]


def replaced(text: str, replacements: Replacements) -> str:
    for old, new in replacements:
        text = text.replace(old, new)
    return text


def by_package(
    name: str, packages: tuple[str, ...], in_torch: Replacements, cpu: tuple[str, str] = ("cuda", "cpu"), **more: Any
) -> Program:
    """A program of a package that computes by CUDA. `in_torch` makes it one with torch's own functions."""
    return Program(name, packages, in_torch=in_torch, on_cpu=(*in_torch, cpu), **more)
