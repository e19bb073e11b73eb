"""Writes docs/fallback.md and docs/mlx.md: text, and lists from the code and a virtual mps (`make docs`).

The conformance figures were printed by `python -m tools.conformance.sweep`; they are kept as they are on the page.
"""
# ruff: noqa: E501 - paragraphs of Markdown

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import torch

import torchdevice
import torchdevice.virtual
from tools.catalog.mlx import equivalents
from tools.catalog.mlx_names import ALONE, THERE
from torchdevice import fallback
from torchdevice.fallback.kernels import EXEMPT, GUARDED, GUARDED_IN_CPP
from torchdevice.fallback.mlx import executor

DOCS = Path(__file__).resolve().parents[2] / "docs"

FALLBACK = """# Operators that the target lacks

If the accelerator has no kernel for an operator, TorchDevice copies the arguments to the CPU (or to MLX), runs the operator there,
and copies the results back to the accelerator. Autograd works as usual. Operators that the accelerator has are not changed, except
for the few under *Guards*, whose native kernel runs first.

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
| | `mlx,cpu` | MLX where a rule is exact and faster, else the CPU ([the rules](mlx.md)) |
| | `off` | raise `FallbackRefused` (a `NotImplementedError`), which names the operator, the dtype and the line |
| `TORCHDEVICE_FLOAT64` | `downcast` (default) | float64 becomes float32, complex128 complex64, float8 float16; one warning per place |
| | `cpu` | such tensors stay on the CPU |
| | `error` | torch's own `TypeError` |

The setting for float64 applies to factories, `.to`, `.double()`, `.type`, `.cuda()`, `from_numpy`, DataLoader batches, `torch.load`,
`Module.double`/`.to`, `softmax(dtype=)` and `float_power_`. Copies to MPS with `non_blocking=True` (`.to`, `.cuda`, `Module.to`, `copy_`) are made
blocking, because on MPS such a copy can expose memory that is not written yet.

## How it works
- **Missing kernels** are read from the dispatcher's registrations when a session starts; no operator is called for this. Each gap
  gets a kernel through `torch.library`, which `deactivate()` removes. {covered}
- **Operators of extensions** (`torchvision::…`, your own by `torch.library`) that have only a CPU kernel are covered too,
  whenever they are loaded or registered. A kernel for the target that is registered later replaces the fallback.
  A Python kernel for an accelerator that the host lacks (`library.impl("f", kernel, "CUDA")`) is used for the target. If the target is
  the CPU, it is used unless the program registers a CPU kernel.
- **The fallback kernel is C++** if a library provides it: the library of virtual devices, or one that `torchdevice calibrate` builds
  for a real accelerator. It counts calls by operator, dtypes and line, and calls Python once per new line. On a virtual
  device whose memory is the host's nothing is copied; `bytes` then gives the size that a real device would copy. Python does the same
  without a library, for random numbers, for sparse tensors, for operators that MLX may run, and before torch 2.10.
- **The schema determines how arguments are copied**: functional, in-place, `out=`, views, lists, generators, devices. A storage that
  several arguments share is copied once. An argument that is written to is copied back into the caller's tensor.
- **Guards** are for kernels that exist but refuse some dtypes or sizes. The native kernel runs first. If it refuses with a known
  message (never a general `RuntimeError`, `ValueError` or out-of-memory error), the fallback runs, and the refusal is cached. These
  operators have a guard: {guarded}. `torchdevice.fallback.guard("aten::gelu")` adds one.
  `adaptive_max_pool2d` to sizes that do not divide always falls back, because up to torch 2.13 Metal silently returns
  [wrong values](https://github.com/pytorch/pytorch/issues/190064).
  With the C++ library (see above) these have one too: {in_cpp}. Models call them at every step, and a guard in
  C++ calls Python only if the device refuses. These have no guard, because the CPU refuses the same dtypes: {exempt}.
- **Compressed sparse tensors** (CSR, CSC, BSR, BSC): torch 2.13 refuses to construct one on `mps`. Here
  `x.to_sparse_csr()`, `torch.sparse_csr_tensor(…, device="mps")` and `csr.to("mps")` return an instance of a tensor subclass with that
  device, layout and gradients. Its parts are in CPU memory, and each operator on it is a fallback. `values()` returns a copy: a write
  to it does not change the tensor. A checkpoint stores it as a plain CPU tensor.
- **Quantized tensors** are not possible on `mps`: the result of `torch.quantize_per_tensor` stays on the CPU, and so do results computed
  from it. The same holds for nested tensors of the strided layout. Those with `layout=torch.jagged` can be on `mps`.
  Attention over them (`scaled_dot_product_attention`) is one call per sequence there.

## The matrix
`torchdevice.fallback.matrix()` returns the route of every aten operator. The command `torchdevice ops [--target mps] [--search TEXT]
[--route native|guarded|mlx|cpu] [--json]` prints it. For a device that the host lacks it is read from torch's own list of kernels. For torch {version} on `mps` (as `support="real"` reads it), with `mlx,cpu`:

| route | operators |
| --- | --- |
{matrix}

*nowhere*: operators of other backends (cuDNN, MKL-DNN, quantized engines), which have no CPU kernel for this layout either.

On MLX where it is faster: {on_mlx}. On the CPU: {elsewhere}.

## Conformance
`python -m tools.conformance.sweep float32` runs every OpInfo sample (at most 40 per operator), forward and gradient, on a virtual
mps that refuses what a Mac refuses, and compares it with the CPU. Figures for torch 2.13:

{figures}

The differences are intended. A Mac returns int32 from `bincount` with integer weights, the CPU a floating-point dtype: 8 samples.
`rrelu` draws random numbers, and the same seed gives other numbers on the device than on the CPU: 2 samples. The row of float16 was
measured on x86: on ARM plain torch 2.13 ends with an illegal instruction in the gradient of `interpolate`.

## Cost
`torchdevice bench fallbacks` measures the cost of a fallback beyond its copies and its computation, each call compared
with `PYTORCH_ENABLE_MPS_FALLBACK=1`, and `mlx,cpu` compared with `cpu`. The figures are in [benchmarks.md](benchmarks.md). They are for
a virtual device, where a copy by torch's own C++ fallback takes a few hundred nanoseconds. On a Mac a copy waits for the GPU, and
that wait should dominate in both fallbacks; it was not measured.
"""

MLX = """# MLX in place of the CPU

With `TORCHDEVICE_FALLBACK=mlx,cpu` (the default on a Mac with `mlx` installed) an operator that the target lacks runs on MLX if
a rule for it is exact for the call, and if MLX is expected to be faster. A rule *declines* a call that it cannot compute exactly
(a dtype, a flag, an empty tensor, two dtypes in one call). The CPU then runs it, and the record has the reason.

Every rule is verified: a test repeats the aten calls of the OpInfo samples on MLX and compares the results
(`tests/fallback/test_mlx.py`).

A table gives the number of elements from which MLX is used for each operator. The shipped table uses MLX only for large matrix products
with MLX on a GPU. With MLX on the CPU it uses none, because MLX has the same cores and adds a copy. `torchdevice calibrate` measures
every rule against the CPU at up to five sizes on your machine, including copies, and keeps its table in the cache (`--dry-run`,
`--reset`, `--json`, `--search TEXT`). An operator then runs on MLX from the smallest size from which on MLX took at most 0.9 of the CPU's
time at every size. A table of another torch, MLX or device is ignored. An operator that is never faster on MLX is not tried there,
so `mlx,cpu` then costs what `cpu` costs.

On MPS, MLX is rarely useful. Of the {count} rules, {reached} are for operators that MPS of torch {version} lacks: {on_mlx}. The
others serve other targets, and dtypes that a kernel of MPS refuses. MLX computes decompositions such as `eigh` on the CPU on every
machine. `take` on MLX took longer than on the CPU where both were measured ([benchmarks.md](benchmarks.md)). So the shipped table does
not use MLX for these operators. `torchdevice calibrate` changes that on a Mac where MLX is faster.

{count} rules:

| kind | dtypes | aten operators |
| --- | --- | --- |
{rows}

## Functions of MLX without a counterpart

{paired} functions of torch have an equivalent in MLX ([the catalogue](catalog/README.md)), and {there} more functions of MLX one
in torch (`tools/catalog/mlx_names.py`). Tests compare the values of both. These have none that could be compared:

| reason | names |
| --- | --- |
{alone}
"""

SHORT = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.complex64: "c64", torch.bool: "bool"}


def names(values: object) -> str:
    return ", ".join(f"`{str(value).removeprefix('aten::')}`" for value in sorted(values))  # type: ignore[call-overload]


def kept(path: Path, heading: str) -> str:
    """The table of a section that another program measured, copied from the page."""
    text = path.read_text() if path.exists() else ""
    rest = text.partition(heading)[2].partition("\n## ")[0]
    return "\n".join(line for line in rest.splitlines() if line.startswith("|"))


def pages() -> dict[Path, str]:
    """The text of both files. Needs a virtual mps with the Mac's own kernels and `TORCHDEVICE_FALLBACK=mlx,cpu`."""
    path = DOCS / "fallback.md"
    figures = kept(path, "## Conformance")
    torchdevice.activate(policy="portable")
    covered = Counter(gap.key for gap in fallback.coverage.covered)
    matrix = fallback.matrix()
    reached = [name for name, where in matrix.rows.items() if where == "mlx"]
    text = FALLBACK.format(
        covered="On `mps`: " + ", ".join(f"{count} under `{key}`" for key, count in covered.most_common()) + ".",
        guarded=names(GUARDED["mps"]),
        in_cpp=names(GUARDED_IN_CPP["mps"]),
        exempt=names(EXEMPT),
        version=torch.__version__.partition("+")[0],
        matrix="\n".join(f"| {where} | {count} |" for where, count in matrix.summary().items()),
        on_mlx=names(reached),
        elsewhere=names(name for name, where in matrix.rows.items() if where == "cpu"),
        figures=figures,
    )
    kinds: dict[tuple[str, str], list[str]] = {}
    for name, rule in executor.rules().items():
        dtypes = " ".join(sorted(SHORT.get(dtype, str(dtype).removeprefix("torch.")) for dtype in rule.dtypes))
        kinds.setdefault((rule.kind, dtypes), []).append(name)
    rows = "\n".join(f"| {kind} | {dtypes} | {names(members)} |" for (kind, dtypes), members in kinds.items())
    alone = "\n".join(f"| {reason} | {names(members.split())} |" for reason, members in ALONE.items())
    counts = {"count": len(executor.rules()), "paired": len(equivalents()), "there": len(THERE)}
    facts = {"reached": len(reached), "on_mlx": names(reached), "version": torch.__version__.partition("+")[0]}
    return {path: text, DOCS / "mlx.md": MLX.format(rows=rows, alone=alone, **counts, **facts)}


def main() -> None:
    os.environ["TORCHDEVICE_FALLBACK"] = "mlx,cpu"
    torchdevice.virtual.install("mps", support="real")
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
