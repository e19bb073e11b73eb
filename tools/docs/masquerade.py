"""docs/masquerade.md, printed from the rows: `python -m tools.docs.masquerade > docs/masquerade.md`."""

from __future__ import annotations

from collections.abc import Iterator

from torchdevice.answers.devices import CUDA_VERSION
from torchdevice.answers.lightning import CHECKS, REGISTRIES
from torchdevice.answers.outside import BUILDERS, OUTSIDE
from torchdevice.answers.rows import ANSWERS, LOSSES, SURFACE, TRUTH_PACKAGES, Kind

HEAD = f"""# The masquerade: what `torch.cuda` answers where there is no CUDA

Printed by `python -m tools.docs.masquerade`; do not edit.

While TorchDevice is active on a host without CUDA, every public name of `torch.cuda` works in user code. So does
`torch.mps` on a host without Metal, and `torch.xpu` on one without an Intel GPU. `TORCHDEVICE_MASQUERADE=0` turns this
off: requests for devices are still translated, but `torch.cuda.is_available()` is `False` as in plain torch.

**How it works.** torch's own Python functions and classes run on C functions that TorchDevice implements for the
target. Signatures, documentation, argument checks and error messages are therefore torch's own.

**Callers.** Programs use names marked *truth* to decide which code to run. User code is told that the device is
present. torch itself gets the real answer, and so do packages whose CUDA code needs a real device:
{", ".join(TRUTH_PACKAGES)}.

**One kind of device.** `torch.backends.mps.is_available()`, `torch.mps.is_available()` and `torch.xpu.is_available()`
give the real answer. Programs that support several device types check each of them, in different orders, and use
fewer features in their branches for MPS and XPU (no mixed precision, fewer kernels). They must find exactly one type,
and that is `cuda`. A program that checks only for `mps` takes its CPU branch, which the policy `accelerate` redirects
to the accelerator. To run its MPS branch, use `torchdevice run --as mps`, which provides an `mps` device that computes
on the accelerator, or `--virtual mps`, which provides one that computes on the CPU.

**Records.** `torchdevice.status().simulated_calls` counts the answers. With `TORCHDEVICE_LOG_LEVEL=INFO` every place in
user code is logged once. Where an answer lacks something that CUDA has, the place is logged at `WARNING`, which is the
default: see "What is lost" below.

**`torch.version.cuda`** is `{CUDA_VERSION}` where torch has none. Most code that reads it prints or splits it
(`torch.version.cuda.split(".")`) after `is_available()` returned true, and would crash on `None`. Packages that compare
it with the version that they were built for do so only if they were built for CUDA. `torch.version.hip` stays `None`.

**Limits.** Streams do not overlap where the target has one queue. On the CPU, `memory_allocated` counts tensors that
Python or the autograd graph holds. The temporary memory of operators shows only in the peak, which is the growth of the
resident memory of the whole process, a multiple of the page size. On MPS the peak is sampled every 10 ms after the
first query, so a shorter peak can be missed.

**Errors.** If the target is out of memory, user code gets `torch.cuda.OutOfMemoryError` ("CUDA out of memory. Tried to
allocate …", with the target's own message at the end). If it asks for a device that the target does not have, it gets
`torch.AcceleratorError`. The target's error is the `__cause__`; `memory_stats()["num_ooms"]` counts. An operator that
the target lacks raises a `NotImplementedError`, which is a `RuntimeError`, as on CUDA.

- From Python 3.12 on this holds for every call. It uses a monitor of raised exceptions, which runs only when one is
  raised.
- Before Python 3.12 it holds for calls that take a device (factories, `.to`, `.cuda()`, modules). Other operators raise
  the target's own `RuntimeError`. `except torch.cuda.OutOfMemoryError` and `isinstance` still recognise it if they look
  up the name in `torch` or `torch.cuda`. A class that was imported earlier (`from torch.cuda import OutOfMemoryError`)
  does not match.

The operating system may grant memory that it does not have and end the process later. Python raises no error then.

| kind | meaning |
| --- | --- |
| mapped | the target's own function, or torch's own where it works |
| simulated | an object or figure with the semantics that the name has on its own device |
| no-op | does nothing and returns what the device would return |
| unsupported | raises `torchdevice.CudaOnlyError`, a `NotImplementedError` |
"""


def _table(kind: str) -> Iterator[str]:
    yield f"\n## torch.{kind}\n"
    yield "| name | kind | on MPS | on XPU | on the CPU |\n| --- | --- | --- | --- | --- |"
    for row in sorted(SURFACE[kind], key=lambda row: row.name.lower()):
        answer = ANSWERS[row.answer]
        texts = [answer.mps, answer.xpu, answer.cpu]
        cells = [texts[0], "as on MPS", "as on MPS"] if len(set(texts)) == 1 else texts
        label = f"{row.kind.value}, truth" if row.truth else row.kind.value
        yield f"| `{row.name}` | {label} | {' | '.join(cells)} |"


def _losses() -> Iterator[str]:
    yield "\n## What is lost\n"
    yield "These names work, but do not give all that they give on their own device. The logger `torchdevice` warns"
    yield "once per place. `TORCHDEVICE_LOG_LEVEL=ERROR` turns the warnings off.\n"
    yield "| name | what a program does not get | on |\n| --- | --- | --- |"
    for kind, rows in SURFACE.items():
        for row in rows:
            if row.loses:
                lost = {target: text for target, text in vars(LOSSES[row.loses]).items() if text}
                for text in dict.fromkeys(lost.values()):
                    targets = ", ".join(target for target in lost if lost[target] == text)
                    yield f"| `torch.{kind}.{row.name}` | {text} | {targets} |"


def _neighbours() -> Iterator[str]:
    yield "\n## Names outside the namespaces\n"
    yield "| name | kind | answer |\n| --- | --- | --- |"
    for row in (*OUTSIDE, *BUILDERS, *CHECKS, *REGISTRIES):
        yield f"| `{row.path}` | {row.kind.value}{', truth' if row.truth else ''} | {row.answer} |"
    yield ""
    yield "Under autocast on the CPU, normalisations with half-precision weights run in float32, as on CUDA."
    yield "On the CPU and on MPS, attention over jagged nested tensors is one call per sequence, and can be causal."
    yield "On a host without an accelerator `torch.accelerator` gives the answers of `torch.cuda` and reports `cuda`."
    yield "Names of `torch.cuda` that the target's own module lacks (`torch.mps.current_device`) are added to it."


def page() -> str:
    """The whole page."""
    counts = {kind: sum(row.kind is kind for rows in SURFACE.values() for row in rows) for kind in Kind}
    summary = ", ".join(f"{count} {kind.value}" for kind, count in counts.items())
    lines = [HEAD, f"{sum(counts.values())} names: {summary}."]
    for kind in SURFACE:
        lines.extend(_table(kind))
    lines.extend(_losses())
    lines.extend(_neighbours())
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
