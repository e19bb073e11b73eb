"""The names of torch._C that the installed torch uses for devices, read from its Python sources.

Reading them takes about a second. It is done on demand only: by a test, `status()` and `torchdevice doctor`.
"""

from __future__ import annotations

import ast
import fnmatch
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchdevice._torch.core import TORCH_FOLDER
from torchdevice.answers.device import Device
from torchdevice.answers.table import CLASSES, LEFT_ALONE, answers

# The parts of torch that touch devices.
SOURCES = (
    *("cuda", "mps", "xpu", "accelerator", "backends/cuda", "backends/cudnn", "backends/mps", "amp", "profiler"),
    *("nn/parallel", "multiprocessing", "distributed", "_utils.py", "storage.py", "serialization.py", "random.py"),
    *("autograd/profiler.py", "utils/checkpoint.py", "utils/data/_utils/pin_memory.py"),
)
_ASKED = re.compile(
    r"_(cuda|xpu|mps|accelerator|nccl|cudnn)_[A-Za-z]\w*|_(Cuda|CUDA|Xpu|XPU|Mps|MPS)[A-Z]\w*"
    r"|_MemPool|_cudart|_nvtx|_(xpu_)?graph_pool_handle|_host_emptyCache|_(broadcast|scatter|gather)(_out|_coalesced)?"
)


def _is_torch_c(node: ast.expr) -> bool:
    """`torch._C` or `_C`."""
    if isinstance(node, ast.Attribute):
        return node.attr == "_C" and isinstance(node.value, ast.Name) and node.value.id == "torch"
    return isinstance(node, ast.Name) and node.id == "_C"


def names_in(source: str) -> Iterator[str]:
    """The device-related names of torch._C in a source text: attributes, imports, `hasattr` and `getattr`."""
    for node in ast.walk(ast.parse(source)):
        found: Iterable[str] = ()
        if isinstance(node, ast.Attribute) and _is_torch_c(node.value):
            found = [node.attr]
        elif isinstance(node, ast.ImportFrom) and node.module == "torch._C":
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and len(node.args) > 1 and _is_torch_c(node.args[0]):
            found = [str(each.value) for each in node.args[1:2] if isinstance(each, ast.Constant)]
        yield from (name for name in found if _ASKED.fullmatch(name))


@functools.cache
def asked_names(folder: Path = Path(TORCH_FOLDER)) -> dict[str, set[str]]:
    """Each name that torch uses, with the files that use it."""
    found: dict[str, set[str]] = {}
    for part in SOURCES:
        path = folder / part
        for file in path.rglob("*.py") if path.is_dir() else [path] if path.exists() else []:
            text = file.read_text(encoding="utf-8")
            if "_C" in text and _ASKED.search(text):
                for name in names_in(text):
                    found.setdefault(name, set()).add(file.relative_to(folder).as_posix())
    return found


def answered_names() -> frozenset[str]:
    """Each name of torch._C that the table replaces, for any namespace."""
    device = Device("cpu", 1)
    functions = {name for kind in ("cuda", "xpu", "mps") for name in answers(kind, device).functions}
    classes = {name for row in CLASSES.values() for name in row.names()}
    return frozenset(functions | classes | {"_cudart", "_nvtx"})


@functools.cache
def unanswered_names() -> tuple[str, ...]:
    """The names that torch uses and that have no replacement. Calling one raises an error that contains its name."""
    left = [pattern for pattern in LEFT_ALONE if pattern.endswith("*")]
    return tuple(
        name
        for name in sorted(asked_names().keys() - answered_names() - LEFT_ALONE.keys())
        if not any(fnmatch.fnmatch(name, pattern) for pattern in left)
    )
