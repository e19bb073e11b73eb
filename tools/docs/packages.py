"""docs/packages.md, printed from the table: `python -m tools.docs.packages > docs/packages.md`."""
# ruff: noqa: E501 - paragraphs of Markdown

from __future__ import annotations

import importlib
from collections.abc import Iterator

from torchdevice.packages.libraries import CHECKS
from torchdevice.packages.table import MODULES, ROWS, Names, Package

HEAD = """# Packages that compute by CUDA itself

Printed by `python -m tools.docs.packages`; do not edit.

`flash_attn`, `xformers`, `apex` and the like are fast ways to compute what torch can compute. Where such a package is not installed,
`import flash_attn` finds a stand-in under `torchdevice run`, and with `torchdevice.activate(packages=True)` or
`TORCHDEVICE_PACKAGES=1`. `torchdevice run --no-packages` turns them off.

- **A package that is installed is never replaced.** Nothing of a stand-in is loaded before a program imports it.
- **A program that insists gets it**: an import that nobody catches, or whose handler raises again; `attn_implementation="flash_attention_2"`
  in transformers; `enable_xformers_memory_efficient_attention()` in diffusers.
- **A program with another way keeps it.** `importlib.util.find_spec` and `importlib.metadata` say that the package is not there, and an
  import in `try: … except ImportError: …` that goes on fails as it does without us. So libraries choose as before. Once a program has
  insisted, the module is in `sys.modules`, and a later `import` in a `try` finds it there.
- **Every call is counted** with its line: `flash_attn_func → scaled_dot_product_attention, 48 calls`; the last line of `run` has the sum. In
  compiled code a place counts once, when it is compiled.
- Gradients flow through everything. Half precision is summed up in float32. Attention whose scores would not fit is computed in
  blocks of queries, which gradients compute again.

`torchdevice scan` and `torchdevice doctor` read the same table. What it lacks is an error that names it; so is an argument that would change a result and is not here.
"""

TRITON = """
Where Triton is installed and no NVIDIA GPU is here, `@triton.jit` kernels run in Triton's own interpreter (`TRITON_INTERPRET=1`), on
virtual devices too; tensors of an accelerator are copied to the CPU and back. `@triton.autotune` takes its first configuration.
It is correct and slow, and the first launch says so. Where Triton cannot be installed, modules with kernels can be imported, and a
launch raises `CudaOnlyError` with the kernel's name; torch itself and libraries that test for Triton do not see it. On a virtual `cuda`
or `xpu` they do not see an installed one either.
"""


def _described(offer: Names, name: str) -> str:
    """The first line of what a name says of itself."""
    found = getattr(importlib.import_module(f"torchdevice.packages.{offer.home}"), name)
    return (found.__doc__ or "").strip().partition("\n")[0]


def _section(row: Package) -> Iterator[str]:
    yield f"## {row.name}"
    yield f"As version {row.version}. Computed by {row.how}. Left out: {row.left_out}."
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


def page() -> str:
    """The whole page."""
    lines = [HEAD]
    for row in ROWS:
        lines += [*_section(row), ""]
    lines += ["## Checks of libraries that say yes", "Asked before an explicit request, and by nobody who chooses.", ""]
    lines += ["| library | check | why |", "| --- | --- | --- |"]
    for check in CHECKS:
        keys = "".join(f".{key}" if isinstance(key, str) else f"[{key}]" for key in check.keys)
        lines.append(f"| {check.module.partition('.')[0]} | `{check.module}{keys}` | {check.reason} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
