"""docs/packages.md, printed from the table: `python -m tools.docs.packages > docs/packages.md`."""
# ruff: noqa: E501 - paragraphs of Markdown

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator

from tools.imports import count
from tools.imports.packages import COUNTED, OTHERS, is_served, reason
from torchdevice.packages.libraries import CHECKS
from torchdevice.packages.table import MODULES, ROWS, Names, Package

HEAD = """# Packages that need CUDA

Printed by `python -m tools.docs.packages`; do not edit.

`flash_attn`, `xformers`, `apex` and similar packages are fast implementations of functions that torch can compute as well. If such a
package is not installed, `import flash_attn` finds a stand-in under `torchdevice run`, and with `torchdevice.activate(packages=True)` or
`TORCHDEVICE_PACKAGES=1`. `torchdevice run --no-packages` turns stand-ins off.

- **An installed package is never replaced.** A stand-in is not loaded before a program imports it.
- **A program that requires the package gets the stand-in**: by an import that is not in a `try`, or in a `try` whose `except` raises again; by
  `attn_implementation="flash_attention_2"` in transformers; by `enable_xformers_memory_efficient_attention()` in diffusers.
- **A program with an alternative keeps it.** `importlib.util.find_spec` and `importlib.metadata` do not find the package. An import in
  `try: … except ImportError: …` whose handler continues fails as it does without TorchDevice. So libraries choose as before. Once a
  program has required the package, the module is in `sys.modules`, and a later `import` in a `try` finds it there.
- **Every call is counted** with its line: `flash_attn_func → scaled_dot_product_attention, 48 calls`. The summary line of `run` has the
  total. In compiled code a place counts once, when it is compiled.
- All functions support gradients. Half precision is accumulated in float32. If the scores of attention would not fit into memory,
  attention is computed in blocks of queries, which are computed again for the gradients.

`torchdevice scan` and `torchdevice doctor` use the same table. A name that is missing here raises an error that names it. So does an argument that would change the result and is not supported.
"""

TRITON = """
If Triton is installed and there is no NVIDIA GPU, `@triton.jit` kernels run in Triton's own interpreter (`TRITON_INTERPRET=1`), also on
virtual devices. Tensors on an accelerator are copied to the CPU and back. `@triton.autotune` uses its first configuration.
The interpreter is correct and slow, and the first launch warns about this. If Triton cannot be installed, modules with kernels can still
be imported, and a launch raises `CudaOnlyError` with the kernel's name; torch itself and libraries that test for Triton do not find it.
On a virtual `cuda` or `xpu` they do not find an installed one either.
"""


def _described(offer: Names, name: str) -> str:
    """The first line of the docstring of a name."""
    found = getattr(importlib.import_module(f"torchdevice.packages.{offer.home}"), name)
    return (found.__doc__ or "").strip().partition("\n")[0]


def _section(row: Package) -> Iterator[str]:
    yield f"## {row.name}"
    yield f"Interface of version {row.version}. Implemented with {row.how}. Not supported: {row.left_out}."
    if row.name == "triton":
        yield TRITON
        modules = [name for name in MODULES if name.partition(".")[0] == row.name and MODULES[name].names]
        yield f"Modules: {', '.join(f'`{name}`' for name in modules)}."
        return
    yield ""
    yield "| name | what it does |"
    yield "| --- | --- |"
    for below, offers in row.modules.items():
        module = f"{row.name}.{below}".rstrip(".")
        for offer in offers:
            for name in offer.names:
                yield f"| `{module}.{name}` | {_described(offer, name)} |"


def counted() -> dict[str, tuple[int, int, int]]:
    """Per name: files and distributions of the wheels, and files of the source index."""
    wheels = json.loads(count.DATA.read_text(encoding="utf-8"))["names"]
    seen = json.loads(count.SEEN.read_text(encoding="utf-8"))["files"]
    return {name: (*wheels.get(name, (0, 0)), seen.get(name, 0)) for name in {*wheels, *seen}}


def is_common(files: tuple[int, int, int]) -> bool:
    """What two distributions import, or two files of the source index."""
    return files[1] >= 2 or files[2] >= 2


def _imports() -> Iterator[str]:
    data = json.loads(count.DATA.read_text(encoding="utf-8"))
    seen = json.loads(count.SEEN.read_text(encoding="utf-8"))
    yield "## What public code imports"
    yield (
        f"Counted on {data['date']}: `python -m tools.imports.count` read the imports in {len(data['distributions'])} wheels of the "
        f"package index (files, distributions); {seen['queries']} searches for exact strings in an index of public repositories gave "
        "at most ten files each, tallied by hand (index; a figure there is a lower bound). Names of two distributions or two files of the index are "
        "listed; names of triton only where they are missing."
    )
    yield ""
    yield "| name | files | distributions | index | stand-in |"
    yield "| --- | --- | --- | --- | --- |"
    rows = counted()
    for name in sorted(rows, key=lambda name: (name.partition(".")[0], *(-each for each in rows[name]), name)):
        package = name.partition(".")[0]
        if not is_common(rows[name]) or package not in COUNTED or package in OTHERS or name == package:
            continue
        if name.startswith("triton.") and is_served(name):
            continue
        says = "yes" if is_served(name) else f"no: {reason(name)}"
        yield f"| `{name}` | {' | '.join(map(str, rows[name]))} | {says} |"
    yield ""
    yield "Packages without a stand-in:"
    yield ""
    yield "| package | distributions | why |"
    yield "| --- | --- | --- |"
    for package in sorted(OTHERS):
        most = max((files[1] for name, files in rows.items() if name.partition(".")[0] == package), default=0)
        yield f"| `{package}` | {most} | {OTHERS[package]} |"


def page() -> str:
    """The whole page."""
    lines = [HEAD]
    for row in ROWS:
        lines += [*_section(row), ""]
    lines += [
        "## Checks of libraries that return true",
        "Libraries run them for an explicit request, not to choose by themselves.",
        "",
    ]
    lines += ["| library | check | why |", "| --- | --- | --- |"]
    for check in CHECKS:
        keys = "".join(f".{key}" if isinstance(key, str) else f"[{key}]" for key in check.keys)
        lines.append(f"| {check.module.partition('.')[0]} | `{check.module}{keys}` | {check.reason} |")
    lines += ["", *_imports()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
