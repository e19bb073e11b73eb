"""Writes docs/fallback.md and docs/mlx.md: what is generated in them comes from the code and a virtual mps.

python -m tests.fallback.write_docs
"""
# ruff: noqa: E501 - paragraphs of Markdown

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import torch

import torchdevice
import torchdevice.virtual
from torchdevice import fallback
from torchdevice.fallback.guards import EXEMPT, GUARDED
from torchdevice.fallback.mlx import executor

DOCS = Path(__file__).resolve().parents[2] / "docs"

FALLBACK = """# Operators that the target lacks

Code that calls an operator for which the accelerator has no kernel runs all the same: its arguments go to the CPU (or to
MLX), the operator runs there, its results come back to the accelerator, and gradients flow as if nothing had happened.
Operators that the accelerator has are not touched: no kernel of theirs is replaced, no wrapper stands before them.

```python
import torchdevice, torch
torchdevice.activate()
values, vectors = torch.linalg.eigh(torch.eye(3, device="mps"))      # mps has no eigh
for record, figures in torchdevice.fallback.totals().items():
    print(record.operator, record.executor, record.site, figures.calls, figures.seconds, figures.bytes)
```

## Settings
| variable | values | meaning |
| --- | --- | --- |
| `TORCHDEVICE_FALLBACK` | `auto` (default) | `mlx,cpu` on a Mac with MLX installed, else `cpu` |
| | `cpu` | the CPU |
| | `mlx,cpu` | MLX where a rule is exact and it pays, else the CPU ([the rules](mlx.md)) |
| | `off` | raise `FallbackRefused` (a `NotImplementedError`), which names operator, dtype and line |
| `TORCHDEVICE_FLOAT64` | `downcast` (default) | float64 becomes float32, complex128 becomes complex64; one warning a place |
| | `cpu` | such tensors stay on the CPU |
| | `error` | torch's own `TypeError` |

float64 is met at factories, `.to`, `.double()`, `.type`, `.cuda()`, `from_numpy`, DataLoader batches, `torch.load`,
`Module.double`/`.to` and `softmax(dtype=)`. Copies to MPS with `non_blocking=True` wait, because they can hand out memory too
early there; this holds for `.to` and `.cuda`, not for `copy_`.

## How it works
- **What is missing** is read from the dispatcher when a session starts: registered kernels, not trial. Each gap gets a
  kernel through `torch.library`, taken back by `deactivate()`. {covered}
- **The schema decides how arguments move**: functional, in-place, `out=`, views, lists, generators, devices. A storage that
  several arguments share moves once; a written argument is copied back into the tensor that the caller holds.
- **Guards** are for kernels that exist but refuse some dtypes or sizes: the native kernel is asked first, its refusal (known
  words, never a general `RuntimeError`, `ValueError` or out-of-memory) leads to the chain and is remembered. A guarded
  call costs a few microseconds, so only these have one: {guarded}. `torchdevice.fallback.guard("aten::linear")` adds one.
  Without a guard because they are called at every step: {exempt}.
- **Compressed sparse tensors** (CSR, CSC, BSR, BSC) cannot exist on `mps` in torch: they stay on the CPU, and products with
  tensors of the accelerator come back to it.

## The matrix
`torchdevice.fallback.matrix()` has every aten operator; for torch {version} on `mps` (as `support="real"` reads it), with `mlx,cpu`:

| where | operators |
| --- | --- |
{matrix}

*nowhere*: operators of other backends (cuDNN, MKL-DNN, quantized engines), which have no CPU kernel under this layout either.

On MLX where it pays: {on_mlx}. On the CPU: {elsewhere}.

## Conformance
`python -m tests.fallback.sweep float32` runs every OpInfo sample (at most 40 an operator) on a virtual mps that refuses what
a Mac refuses, forward and gradient, against the CPU. Figures of torch 2.13:

{figures}

What does not pass: results that are compressed sparse tensors are on the CPU (`sparse.sampled_addmm`, gradients of
`sparse.mm(reduce=)`; their values are right); one sample of `float_power` has no gradient; integer `linear` has no guard.

## Cost
`python benchmarks/fallback.py`, one run on two shared CPU cores, one thread. On a virtual device torch's own fallback moves no
bytes (it computes in place), so its column is a lower bound that no real device reaches.

{benchmark}
"""

MLX = """# MLX in place of the CPU

With `TORCHDEVICE_FALLBACK=mlx,cpu` (the default on a Mac with `mlx` installed) an operator that the target lacks runs on MLX if
there is a rule for it that is exact for the call, and if it pays. A rule *declines* what it cannot do exactly (a dtype, a
flag, an empty tensor, two dtypes in one call), and the CPU takes over; the reason is in the record.

Every rule is verified: the aten calls that OpInfo samples make are made again on MLX and compared (`tests/fallback/test_mlx.py`).

When it pays is a table, `PAYS_FROM` in `torchdevice/fallback/mlx/executor.py`: elements from which MLX is used, by MLX's own device.
With MLX on the CPU it never is: the same cores, and a crossing on top. With MLX on a GPU only large products are, the one kind
where it cannot be doubted; the other kinds wait for figures from a Mac.

{count} rules:

| kind | dtypes | aten operators |
| --- | --- | --- |
{rows}
"""

SHORT = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.complex64: "c64", torch.bool: "bool"}


def names(values: object) -> str:
    return ", ".join(f"`{str(value).removeprefix('aten::')}`" for value in sorted(values))  # type: ignore[call-overload]


def kept(path: Path, heading: str) -> str:
    """The lines of a section that other programs measured, as they stand."""
    text = path.read_text() if path.exists() else ""
    rest = text.partition(heading)[2].partition("\n## ")[0]
    return "\n".join(line for line in rest.splitlines() if line.startswith(("|", "Beyond"))).strip()


def main() -> None:
    path = DOCS / "fallback.md"
    figures, benchmark = kept(path, "## Conformance"), kept(path, "## Cost")
    os.environ["TORCHDEVICE_FALLBACK"] = "mlx,cpu"
    torchdevice.virtual.install("mps", support="real")
    torchdevice.activate(policy="portable")
    covered = Counter(gap.key for gap in fallback.coverage.covered)
    matrix = fallback.matrix()
    path.write_text(
        FALLBACK.format(
            covered="On `mps`: " + ", ".join(f"{count} under `{key}`" for key, count in covered.most_common()) + ".",
            guarded=names(GUARDED["mps"]),
            exempt=names(EXEMPT),
            version=torch.__version__.partition("+")[0],
            matrix="\n".join(f"| {where} | {count} |" for where, count in matrix.summary().items()),
            on_mlx=names(name for name, where in matrix.rows.items() if where == "mlx"),
            elsewhere=names(name for name, where in matrix.rows.items() if where == "cpu"),
            figures=figures,
            benchmark=benchmark,
        )
    )
    kinds: dict[tuple[str, str], list[str]] = {}
    for name, rule in executor.rules().items():
        dtypes = " ".join(sorted(SHORT.get(dtype, str(dtype).removeprefix("torch.")) for dtype in rule.dtypes))
        kinds.setdefault((rule.kind, dtypes), []).append(name)
    rows = "\n".join(f"| {kind} | {dtypes} | {names(members)} |" for (kind, dtypes), members in kinds.items())
    (DOCS / "mlx.md").write_text(MLX.format(count=len(executor.rules()), rows=rows))


if __name__ == "__main__":
    main()
