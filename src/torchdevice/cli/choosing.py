"""Chooses the policy for a program that `run` was given without one. The program is read, never executed.

A program that names an accelerator separates host and device itself, so it gets `portable`, which leaves its CPU
requests alone. A program that names none would stay on the CPU, so it gets `accelerate`, which moves it. This module
does not import torch, so that `run` starts fast.
"""

from __future__ import annotations

import ast
import importlib.util
import itertools
import os
import re
import sysconfig
import tokenize
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# Every accelerator that torch can parse. torch is not imported here; a test compares this list with torch's.
ACCELERATORS = (
    *("cuda", "mps", "xpu", "hpu", "mtia", "xla", "ipu", "ve", "hip", "maia", "fpga", "msnpu", "ort", "privateuseone"),
    *("npu", "musa", "mlu"),  # names that vendors give to privateuseone
)
_KIND = "|".join(ACCELERATORS)
_DEVICE = re.compile(rf"({_KIND})(:\d*)?")
_TENSOR_TYPE = re.compile(rf"torch\.({_KIND})\.\w+")
_ARGUMENT = re.compile(rf"(?:.*=)?(({_KIND})(?::\d*)?)")
# Attributes that name one: `torch.cuda`, `model.cuda()`, `x.is_cuda`, `torch.accelerator`, `torch.backends.mps`.
_ATTRIBUTES = frozenset({*ACCELERATORS, *(f"is_{kind}" for kind in ACCELERATORS), "accelerator"})
_OTHER_WORDS = {"nccl": "nccl, which is CUDA's"}
_WORDS_OF_KEYWORDS = frozenset({"gpu", "tpu"})  # Trainer(accelerator="gpu")
# Packages that look for an accelerator by themselves, and the names that do so (none: every name).
LIBRARIES = {
    "accelerate": (),
    "lightning": (),
    "lightning_fabric": (),
    "pytorch_lightning": (),
    "deepspeed": (),
    "ultralytics": (),
    "fastai": (),
    "transformers": ("Trainer", "TrainingArguments", "Seq2SeqTrainer", "Seq2SeqTrainingArguments", "pipeline"),
}
# Commands and modules that start the first program among their arguments. What follows belongs to that program.
LAUNCHERS = frozenset(
    (
        *("torchrun", "torch.distributed.run", "torch.distributed.launch"),
        *("accelerate", "accelerate-launch", "accelerate.commands.launch", "deepspeed", "deepspeed.launcher.runner"),
        *("fabric", "lightning", "horovodrun", "colossalai"),
        *("pdb", "ipdb", "pudb", "debugpy", "trace", "coverage"),
        *("cProfile", "profile", "kernprof", "line_profiler", "pyinstrument", "scalene", "memray", "viztracer"),
    )
)
# Those that start every script among their arguments, and the scripts in folders.
TEST_RUNNERS = frozenset(("pytest", "py.test", "unittest"))
OURS = ("torchdevice", "TorchDevice")
_SETTINGS = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg")
_MODULE = re.compile(r"\w{1,60}(\.\w{1,60}){0,9}")
_LARGEST = 8 << 20  # a larger file is generated
_FOLDERS_OF_PACKAGES = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True)
class Choice:
    """A policy, and why it was chosen."""

    policy: str
    reason: str


@dataclass(frozen=True)
class _Text:
    """Python source, the name shown to the user, and the folder from which it imports."""

    name: str
    code: str
    root: Path
    package: tuple[str, ...] = ()


class _UnreadableError(Exception):
    """A file that cannot be read as Python."""


def choose(program: Sequence[str]) -> Choice:
    """Choose the policy for the arguments that follow `torchdevice run`."""
    kind, rest = program[0], list(program[1:])
    if kind == "-":
        return Choice("portable", "a program on stdin cannot be read in advance")
    arguments = rest[1:] if kind in ("-m", "-c") else rest
    for word in arguments:
        if named := _ARGUMENT.fullmatch(word):
            return Choice("portable", f"an argument names {named[1]}")
    try:
        for word in arguments:
            if word.endswith(_SETTINGS) and (found := _in_settings(Path(word))):
                return Choice("portable", f"{word} names {found}")
        return _by_reading(_beginning(kind, rest, arguments))
    except _UnreadableError as problem:
        return Choice("portable", f"{problem} cannot be read")


def _by_reading(texts: Iterable[_Text]) -> Choice:
    waiting, seen, first = list(texts), set[str](), ""
    while waiting:
        text = waiting.pop(0)
        if text.name in seen:
            continue
        seen.add(text.name)
        first = first or text.name
        tree = _parsed(text)
        if (line := _line_of_ours(tree)) is not None:
            return Choice("accelerate", f"{text.name}:{line} imports torchdevice, and this is its default")
        for line, what in sorted(_named(tree)):
            return Choice("portable", f"{text.name}:{line} {what}")
        waiting += _imported(tree, text)
    others = f" and {len(seen) - 1} beside it" if len(seen) > 1 else ""
    return Choice("accelerate", f"{first}{others} name{'' if others else 's'} no accelerator")


# --- what is read --------------------------------------------------------------------------------------------------


def _beginning(kind: str, rest: Sequence[str], arguments: Sequence[str]) -> Iterator[_Text]:
    """The program itself. For an installed launcher (`-m pytest`, `bin/torchrun`), the programs in its arguments."""
    here = Path.cwd()
    if kind == "-c":
        yield _Text("the code", rest[0], here)
        return
    if kind == "-m":
        yield from _program(here, rest[0]) or _own(rest[0]) or _launched(rest[0], arguments)
    elif Path(kind).absolute().parent in folders_of_commands():
        yield from _launched(Path(kind).name, arguments)
    else:
        yield from _script(Path(kind))


def _program(root: Path, module: str) -> list[_Text]:
    """What `-m module` runs, if it is below `root`."""
    names = module.split(".")
    return [*_module(root, names), *_module(root, [*names, "__main__"])]


def _own(module: str) -> list[_Text]:
    """The same for a module that Python finds elsewhere, and that is neither Python's nor in a folder of packages."""
    try:
        found = importlib.util.find_spec(module.partition(".")[0])  # imports nothing
    except ValueError:  # `__main__`
        return []
    if found is None or not found.has_location or found.origin is None:
        return []
    place = Path(found.origin)
    root = place.parents[1] if found.submodule_search_locations else place.parent
    installed = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    if installed.intersection((root, *root.parents)) or _FOLDERS_OF_PACKAGES.intersection(root.parts):
        return []
    return _program(root, module)


def _launched(launcher: str, arguments: Sequence[str]) -> list[_Text]:
    found: list[_Text] = []
    if launcher in LAUNCHERS:
        found += _first_program(arguments)
    elif launcher in TEST_RUNNERS:
        found += _tests(arguments)
    if not found:
        raise _UnreadableError(f"the program that {launcher} starts")
    return found


def folders_of_commands() -> list[Path]:
    """Where pip puts the commands of packages: for this Python, then for this user."""
    schemes = (sysconfig.get_default_scheme(), f"{os.name}_user")
    return [Path(sysconfig.get_path("scripts", scheme)) for scheme in schemes]


def _in_settings(path: Path) -> str | None:
    """The accelerator that a file of settings names."""
    if not path.is_file() or path.stat().st_size > _LARGEST:
        return None
    named = re.search(rf"\b({_KIND})\b", path.read_text(encoding="utf-8", errors="replace"))
    return named[1] if named else None


def _first_program(arguments: Sequence[str]) -> list[_Text]:
    for option, word in itertools.pairwise(["", *arguments]):
        if option in ("-m", "--module") and _MODULE.fullmatch(word):
            return _program(Path.cwd(), word) or _own(word)
        if word.endswith(".py") and Path(word).is_file():
            return [*_script(Path(word))]
    return []


def _tests(arguments: Sequence[str]) -> Iterator[_Text]:
    for word in arguments:
        path = Path(word.partition("::")[0])  # pytest's way to name a test
        if path.suffix == ".py" and path.is_file():
            yield from _script(path)
        elif path.is_dir():
            for file in sorted(path.rglob("*.py")):
                if not _FOLDERS_OF_PACKAGES.intersection(file.parts):
                    yield _file(file, path)


def _script(path: Path) -> Iterator[_Text]:
    if path.is_dir():
        path = path / "__main__.py"
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".py"):
                    yield _Text(f"{path}/{name}", archive.read(name).decode("utf-8", "replace"), path)
        return
    if not path.is_file():
        raise _UnreadableError(str(path))
    yield _file(path, path.parent)


def _file(path: Path, root: Path) -> _Text:
    try:
        if path.stat().st_size > _LARGEST:
            raise _UnreadableError(str(path))
        with tokenize.open(path) as file:
            code = file.read()
    except (OSError, SyntaxError, UnicodeDecodeError) as error:  # no permission, an unknown encoding, no text
        raise _UnreadableError(str(path)) from error
    inside = path.parent.relative_to(root).parts if path.is_relative_to(root) else ()
    return _Text(min(os.path.relpath(path), str(path), key=len), code, root, inside)


def _parsed(text: _Text) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of invalid escapes when the program runs
        try:
            return ast.parse(text.code)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise _UnreadableError(text.name) from error


def _imported(tree: ast.Module, text: _Text) -> Iterator[_Text]:
    """The modules in its folder that it imports or names in a string, as in `import_module("models")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module(text.root, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            above = text.package[: len(text.package) - node.level + 1] if node.level else ()
            base = [*above, *(node.module or "").split(".")] if node.module else [*above]
            yield from _module(text.root, base)
            for alias in node.names:
                yield from _module(text.root, [*base, alias.name])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _MODULE.fullmatch(node.value):
            yield from _module(text.root, node.value.removesuffix(".py").split("."))


def _module(root: Path, names: Sequence[str]) -> Iterator[_Text]:
    """The files of a module and of the packages around it, below `root`."""
    for depth in range(1, len(names) + 1):
        place = root.joinpath(*names[:depth])
        for path in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if path.is_file():
                yield _file(path, root)


# --- what names an accelerator -------------------------------------------------------------------------------------


def _line_of_ours(tree: ast.Module) -> int | None:
    for node in ast.walk(tree):
        if any(module.partition(".")[0] in OURS for module in _modules_of(node)):
            return int(getattr(node, "lineno", 1))
    return None


def _modules_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level and node.module:
        return [node.module]
    return []


def _named(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each place that names an accelerator: its line, and a description."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # documentation
    for node in ast.walk(tree):
        what = None
        if isinstance(node, ast.Attribute) and node.attr in _ATTRIBUTES:
            what = f"names {node.attr.removeprefix('is_')}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            what = _in_string(node.value)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            what = _in_import(node)
        elif isinstance(node, ast.Call):
            what = _in_call(node)
        if what is not None:
            yield int(getattr(node, "lineno", 1)), what


def _in_string(value: str) -> str | None:
    if device := _DEVICE.fullmatch(value) or _TENSOR_TYPE.match(value):
        return f"names {device[1]}"
    return f"names {_OTHER_WORDS[value]}" if value in _OTHER_WORDS else None


def _in_import(node: ast.Import | ast.ImportFrom) -> str | None:
    names = [alias.name for alias in node.names]
    for module in _modules_of(node):
        parts = module.split(".")
        if parts[0] == "torch" and (kinds := [part for part in parts[1:] if part in _ATTRIBUTES]):
            return f"names {kinds[0]}"
        wanted = LIBRARIES.get(parts[0])
        if wanted is not None and (not wanted or any(name in wanted for name in names)):
            return f"imports {parts[0]}, which looks for an accelerator"
        if isinstance(node, ast.ImportFrom) and parts[0] == "torch" and (kinds := sorted(_ATTRIBUTES & {*names})):
            return f"names {kinds[0]}"
    return None


def _in_call(node: ast.Call) -> str | None:
    """`accelerator="gpu"`, and a bare number for a device: `.to(0)`, `device=0`."""
    numbered = isinstance(node.func, ast.Attribute) and node.func.attr == "to" and _number(node.args[:1])
    for keyword in node.keywords:
        if keyword.arg in ("device", "device_map") and _number([keyword.value]):
            numbered = True
        elif isinstance(keyword.value, ast.Constant) and keyword.value.value in _WORDS_OF_KEYWORDS:
            return f'says {keyword.arg}="{keyword.value.value}"'
    return "names a device by its number" if numbered else None


def _number(nodes: Sequence[ast.expr]) -> bool:
    return any(isinstance(node, ast.Constant) and type(node.value) is int and node.value >= 0 for node in nodes)
