"""docs/masquerade.md, printed from the rows: `python -m tools.docs.masquerade > docs/masquerade.md`."""

from __future__ import annotations

from collections.abc import Iterator

from torchdevice.answers.devices import CUDA_VERSION
from torchdevice.answers.lightning import CHECKS, REGISTRIES
from torchdevice.answers.outside import BUILDERS, OUTSIDE
from torchdevice.answers.rows import ANSWERS, SURFACE, TRUTH_PACKAGES, Kind

HEAD = f"""# The masquerade: what `torch.cuda` answers where there is no CUDA

Printed by `python -m tools.docs.masquerade`; do not edit.

While TorchDevice is active on a host without CUDA, every public name of `torch.cuda` answers user code, and so do
`torch.mps` on a host without Metal and `torch.xpu` on one without an Intel GPU. `TORCHDEVICE_MASQUERADE=0` switches it
off: requests for devices are still translated, and `torch.cuda.is_available()` is `False` as in plain torch.

**How.** torch's own Python functions and classes run; the C functions under them are answered by the target. So
signatures, documentation, argument checks and error messages are torch's own.

**Who is answered.** Names marked *truth* decide which code runs. They tell user code that the device is there, and the
truth to torch itself and to packages whose CUDA code needs the real thing: {", ".join(TRUTH_PACKAGES)}.

**Records.** `torchdevice.status().simulated_calls` counts the answers; with `TORCHDEVICE_LOG_LEVEL=INFO` every place in
user code is logged once.

**`torch.version.cuda`** is `{CUDA_VERSION}` where torch has none. Code that reads it mostly prints it or takes it apart
(`torch.version.cuda.split(".")`) after `is_available()` said yes, and would crash on `None`; packages that compare it
with the version that they were built for do so only if they were built for CUDA. `torch.version.hip` stays `None`.

**Limits.** Streams do not overlap where the target has one queue. On the CPU, `memory_allocated` counts tensors that
Python or the autograd graph holds (what an operator needs while it runs shows in the peak), and the peak is the growth
of the process's resident memory: a multiple of the page size, with what else the process did. On MPS the peak is
sampled every 10 ms once somebody has asked, so that a shorter one can be missed.

**Errors.** When the target is out of memory, or is asked for a device that it does not have, user code meets
`torch.cuda.OutOfMemoryError` ("CUDA out of memory. Tried to allocate …", with the target's own words at the end) or
`torch.AcceleratorError`, with the target's error as `__cause__`; `memory_stats()["num_ooms"]` counts. An operator that
the target lacks is a `NotImplementedError`, which is a `RuntimeError`, as on CUDA. From Python 3.12 on this holds for
every call, by a monitor of raised exceptions that costs nothing until one is raised. Before, it holds for what takes a
device (factories, `.to`, `.cuda()`, modules); from other operators the target's error comes as the `RuntimeError` that
it is, and `except torch.cuda.OutOfMemoryError` and `isinstance` recognise it all the same if they look the name up in
`torch` or `torch.cuda`: a class that was bound earlier (`from torch.cuda import OutOfMemoryError`) does not. The
operating system may grant memory that it does not have and end the process later: no Python error tells of that.

| kind | meaning |
| --- | --- |
| mapped | the target's own function, or torch's own, which works here |
| simulated | an object or figure with the semantics that the name has on its own device |
| no-op | nothing to do: harmless, returns what the device would |
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


def _neighbours() -> Iterator[str]:
    yield "\n## Names outside the namespaces\n"
    yield "| name | kind | answer |\n| --- | --- | --- |"
    for row in (*OUTSIDE, *BUILDERS, *CHECKS, *REGISTRIES):
        yield f"| `{row.path}` | {row.kind.value}{', truth' if row.truth else ''} | {row.answer} |"
    yield ""
    yield "Normalisations with half-precision weights run in float32 under autocast on the CPU, as under CUDA's."
    yield "On a host without an accelerator `torch.accelerator` answers as `torch.cuda` does, and calls itself `cuda`."
    yield "Names of `torch.cuda` that the target's own module lacks (`torch.mps.current_device`) are there as well."


def page() -> str:
    """The whole page."""
    counts = {kind: sum(row.kind is kind for rows in SURFACE.values() for row in rows) for kind in Kind}
    summary = ", ".join(f"{count} {kind.value}" for kind, count in counts.items())
    lines = [HEAD, f"{sum(counts.values())} names: {summary}."]
    for kind in SURFACE:
        lines.extend(_table(kind))
    lines.extend(_neighbours())
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
