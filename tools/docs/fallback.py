"""Writes docs/fallback.md and docs/mlx.md: what is generated in them comes from the code and a virtual mps (`make docs`).

The figures of conformance are what `python -m tools.conformance.sweep` printed; they are kept as they stand.
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
from torchdevice.fallback.kernels import EXEMPT, GUARDED
from torchdevice.fallback.mlx import executor

DOCS = Path(__file__).resolve().parents[2] / "docs"

FALLBACK = """# Operators that the target lacks

Code that calls an operator for which the accelerator has no kernel runs all the same: its arguments go to the CPU (or to
MLX), the operator runs there, its results come back to the accelerator, and gradients flow as if nothing had happened.
Operators that the accelerator has are not touched, but for the few under *Guards*, whose own kernel is asked first.

```python
import torchdevice, torch

torchdevice.activate()
values, vectors = torch.linalg.eigh(torch.eye(3, device="mps"))  # mps has no eigh
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
| `TORCHDEVICE_FLOAT64` | `downcast` (default) | float64 becomes float32, complex128 complex64, float8 float16; one warning a place |
| | `cpu` | such tensors stay on the CPU |
| | `error` | torch's own `TypeError` |

float64 is met at factories, `.to`, `.double()`, `.type`, `.cuda()`, `from_numpy`, DataLoader batches, `torch.load`,
`Module.double`/`.to`, `softmax(dtype=)` and `float_power_`. Copies to MPS with `non_blocking=True` wait, because they can hand out memory too
early there: `.to`, `.cuda`, `Module.to`, `copy_`.

## How it works
- **What is missing** is read from the dispatcher when a session starts: registered kernels, not trial. Each gap gets a
  kernel through `torch.library`, taken back by `deactivate()`. {covered}
- **Operators of extensions** (`torchvision::…`, your own by `torch.library`) with a kernel for the CPU only are covered too,
  whenever they are loaded or registered; a kernel for the target that comes later takes its place.
  A kernel in Python for an accelerator that is not here (`library.impl("f", kernel, "CUDA")`) serves the target, also the CPU, where the
  program has none for the CPU.
- **The kernel is C++** where a library has it: the library of virtual devices, or one that `torchdevice calibrate` builds for a
  real accelerator. Calls are counted there by operator, dtypes and line; Python is called once per new line. On a virtual
  device whose memory is the host's nothing is copied: `bytes` then says what would have been. Without a library, for random
  numbers, sparse tensors and operators that MLX may take, and before torch 2.10 the same is done by Python.
- **The schema decides how arguments move**: functional, in-place, `out=`, views, lists, generators, devices. A storage that
  several arguments share moves once; a written argument is copied back into the tensor that the caller holds.
- **Guards** are for kernels that exist but refuse some dtypes or sizes: the native kernel is asked first, its refusal (known
  words, never a general `RuntimeError`, `ValueError` or out-of-memory) leads to the chain and is remembered. A guarded
  call costs a few microseconds, so only these have one: {guarded}. `torchdevice.fallback.guard("aten::linear")` adds one.
  `adaptive_max_pool2d` to sizes that do not divide is not even asked: up to torch 2.13 Metal's values are
  [wrong there](https://github.com/pytorch/pytorch/issues/190064), without a word.
  Without a guard because they are called at every step: {exempt}.
- **Compressed sparse tensors** (CSR, CSC, BSR, BSC): torch 2.13 refuses to construct one on `mps`. Here
  `x.to_sparse_csr()`, `torch.sparse_csr_tensor(…, device="mps")` and `csr.to("mps")` give a tensor of a class of ours with that device,
  layout and gradients; its parts are in CPU memory and each operator on it is a fallback. `values()` is a copy there: a write
  to it does not reach the tensor. A checkpoint holds it as a plain CPU tensor.
- **Quantized tensors** cannot be on `mps`: what `torch.quantize_per_tensor` gives stays on the CPU, and so does what is computed of it.
  Nested tensors of the strided layout cannot be there either: those that are made of tensors on `mps` stay on the CPU too.
  `layout=torch.jagged` can.

## The matrix
`torchdevice.fallback.matrix()` has every aten operator, and so has the command `torchdevice ops [--target mps] [--search TEXT]
[--route native|guarded|mlx|cpu] [--json]`; for a device that is not here it is read from torch's own list of kernels. For torch {version} on `mps` (as `support="real"` reads it), with `mlx,cpu`:

| where | operators |
| --- | --- |
{matrix}

*nowhere*: operators of other backends (cuDNN, MKL-DNN, quantized engines), which have no CPU kernel under this layout either.

On MLX where it pays: {on_mlx}. On the CPU: {elsewhere}.

## Conformance
`python -m tools.conformance.sweep float32` runs every OpInfo sample (at most 40 an operator) on a virtual mps that refuses what
a Mac refuses, forward and gradient, against the CPU. Figures of torch 2.13:

{figures}

What does not pass: integer `linear`, 18 samples of int64. The Metal kernel refuses integers, and a guard would add microseconds
to every `linear` of every model (the dispatcher cannot choose by dtype, and a guard is Python): `torchdevice.fallback.guard("aten::linear")`
switches it on for programs that need it, and with it 4361 of 4361 samples pass (`python -m tools.conformance.sweep int64 aten::linear`).

## Cost
`torchdevice bench fallbacks` measures it; [benchmarks.md](benchmarks.md) has the figures: what a fallback costs beyond its copies and its
computation, each call against `PYTORCH_ENABLE_MPS_FALLBACK=1`, and asking MLX first against the CPU alone. torch's own fallback is C++; on the
virtual device a copy costs it a few hundred nanoseconds, on a Mac it waits for the GPU, and waiting is what both would be made of.
"""

MLX = """# MLX in place of the CPU

With `TORCHDEVICE_FALLBACK=mlx,cpu` (the default on a Mac with `mlx` installed) an operator that the target lacks runs on MLX if
there is a rule for it that is exact for the call, and if it pays. A rule *declines* what it cannot do exactly (a dtype, a
flag, an empty tensor, two dtypes in one call), and the CPU takes over; the reason is in the record.

Every rule is verified: the aten calls that OpInfo samples make are made again on MLX and compared (`tests/fallback/test_mlx.py`).

When it pays is a table: the number of elements from which MLX is used. The shipped one is careful: with MLX on the CPU nothing
(the same cores, and a crossing on top), with MLX on a GPU large products only. `torchdevice calibrate` measures every rule against the
CPU at up to five sizes on your machine, crossings included, and keeps its table in the cache (`--dry-run`, `--reset`, `--json`, `--search TEXT`). An
operator then runs on MLX from the smallest size at which MLX took at most 0.9 of the CPU's time there and at every larger one;
a table of another torch, MLX or device does not count. An operator that never pays is not asked for, so `mlx,cpu` costs what `cpu` costs.

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
    return "\n".join(line for line in rest.splitlines() if line.startswith("|"))


def pages() -> dict[Path, str]:
    """Both files as they should be. Needs a virtual mps with the Mac's own kernels and `TORCHDEVICE_FALLBACK=mlx,cpu`."""
    path = DOCS / "fallback.md"
    figures = kept(path, "## Conformance")
    torchdevice.activate(policy="portable")
    covered = Counter(gap.key for gap in fallback.coverage.covered)
    matrix = fallback.matrix()
    text = FALLBACK.format(
        covered="On `mps`: " + ", ".join(f"{count} under `{key}`" for key, count in covered.most_common()) + ".",
        guarded=names(GUARDED["mps"]),
        exempt=names(EXEMPT),
        version=torch.__version__.partition("+")[0],
        matrix="\n".join(f"| {where} | {count} |" for where, count in matrix.summary().items()),
        on_mlx=names(name for name, where in matrix.rows.items() if where == "mlx"),
        elsewhere=names(name for name, where in matrix.rows.items() if where == "cpu"),
        figures=figures,
    )
    kinds: dict[tuple[str, str], list[str]] = {}
    for name, rule in executor.rules().items():
        dtypes = " ".join(sorted(SHORT.get(dtype, str(dtype).removeprefix("torch.")) for dtype in rule.dtypes))
        kinds.setdefault((rule.kind, dtypes), []).append(name)
    rows = "\n".join(f"| {kind} | {dtypes} | {names(members)} |" for (kind, dtypes), members in kinds.items())
    return {path: text, DOCS / "mlx.md": MLX.format(count=len(executor.rules()), rows=rows)}


def main() -> None:
    os.environ["TORCHDEVICE_FALLBACK"] = "mlx,cpu"
    torchdevice.virtual.install("mps", support="real")
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
