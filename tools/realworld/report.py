"""Writes docs/realworld.md from results.json: `python -m tools.realworld.report`. Runs nothing."""

from __future__ import annotations

import platform
from pathlib import Path

from tools.realworld import modes, table
from tools.realworld.modes import Mode
from tools.realworld.program import Program
from tools.realworld.runner import RESULTS, Results, Row

PAGE = Path(__file__).resolve().parents[2] / "docs" / "realworld.md"
REFERENCE = "reference"
LONGEST = 90

HEAD = """# Programs that we did not write

<!-- written by make realworld -->
Each program uses a library from the package index as the documentation of the library does on a CUDA machine, or is a
script in the style of the tutorials. No program contains code for TorchDevice (`tools/realworld/programs`). The models
are small and have random weights, and the data is synthetic, so nothing is downloaded.

A program passes if it ends with exit status 0, does its steps, has its parameters on the device of the mode, and has
the losses or logits of the same program written for the CPU and run on plain torch. A program that cannot work (a CUDA
extension) passes if it ends in the documented error.

| mode | what is run |
| --- | --- |
| plain torch | the program, on this machine without CUDA; the cell shows the error |
| `torchdevice run` | the program, on the CPU |
| `--virtual cuda` | the program, on a virtual CUDA device |
| virtual `mps:real` | the program, translated to a virtual MPS device with the operators of a Mac; others fall back |
| as written, on a GPU | the program on plain torch with an NVIDIA GPU |
| written for `mps`, on CUDA | the program requests `mps`, and `torchdevice run` redirects it to CUDA; finite values |
| the same, `--policy portable` | values equal those of the program as written on that GPU, within its variation |
| `--as mps`, `--as xpu` on CUDA | the program on a virtual device that the GPU backs; the same comparison |

With the default policy, random numbers come from the GPU, so only the values of `portable` can be compared there. On a
GPU the order of additions is not fixed, so the values of a program vary between runs. The program as written runs
several times, and a difference of up to three times its variation passes. The mark – means that the program needs two
GPUs, needs a package that is not installed on the machine with the GPU, or tests a machine without CUDA.

The torchvision of the package index is built for CUDA and cannot be imported with a CPU build of torch unless its
operators `nms` and `qnms` are declared first. A `sitecustomize` does this in every mode (`tools/realworld/prelude`).
`make realworld` measures all programs again, `make realworld RESUME=--resume` those that changed. The causes of
failures are in [limits.md](limits.md).
"""


def _shown(results: Results) -> list[Mode]:
    """The modes that were measured, without the reference mode."""
    measured = {mode for _, mode in results.rows}
    return [mode for mode in modes.MODES if mode.name in measured and mode.name != REFERENCE]


def main() -> None:
    results = Results(RESULTS)
    parts = [HEAD, _totals(results), *_unmeasured(results), _programs(results)]
    if table.UNAVAILABLE:
        rows = "\n".join(f"- **{package}**: {reason}" for package, reason in sorted(table.UNAVAILABLE.items()))
        parts.append(f"## Packages that do not install beside this torch\n\n{rows}\n")
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    print(_totals(results))


def _totals(results: Results) -> str:
    lines = ["## Totals\n", "| mode | passed | of | share |", "| --- | --- | --- | --- |"]
    for mode in _shown(results):
        rows = [row for program in table.PROGRAMS if (row := results.rows.get((program.name, mode.name)))]
        tried = [row for row in rows if row["status"] != "missing"]
        lines.append(_share(mode.title, sum(row["status"] == "passed" for row in tried), len(tried)))
    ours = [mode.name for mode in _shown(results) if mode.run is not None]
    anywhere = sum(any(_passed(results, program, name) for name in ours) for program in table.PROGRAMS)
    lines.append(_share("at least one mode with TorchDevice", anywhere, len(table.PROGRAMS)))
    return "\n".join([*lines, ""])


def _unmeasured(results: Results) -> list[str]:
    left = [mode.title for mode in modes.MODES if mode not in _shown(results) and mode.name != REFERENCE]
    return [f"Not measured yet: {'; '.join(left)}.\n"] if left else []


def _share(title: str, passed: int, tried: int) -> str:
    return f"| {title} | {passed} | {tried} | {f'{100 * passed / tried:.0f}%' if tried else '–'} |"


def _passed(results: Results, program: Program, mode: str) -> bool:
    row = results.rows.get((program.name, mode))
    return row is not None and row["status"] == "passed"


def _programs(results: Results) -> str:
    python = f"Python {platform.python_version()}"
    shown = _shown(results)
    lines = [
        f"## The programs\n\n{python}; the versions are those of the machine without a GPU.{_on_gpu(results)}\n",
        f"| program | packages | what it exercises | {' | '.join(mode.title for mode in shown)} |",
        f"| --- | --- | --- |{' --- |' * len(shown)}",
    ]
    for program in table.PROGRAMS:
        rows = [results.rows.get((program.name, mode.name)) for mode in shown]
        versions: dict[str, str] = next((row["versions"] for row in rows if row), {})
        packages = ", ".join(f"{name} {versions.get(name, '?')}" for name in program.packages or ("torch",))
        link = f"[{program.name}](../tools/realworld/programs/{program.name}.py)"
        lines.append(f"| {link} | {packages} | {_cell(program.purpose)} | {' | '.join(map(_verdict, rows))} |")
    return "\n".join([*lines, ""])


def _on_gpu(results: Results) -> str:
    """The versions on the machine with a GPU."""
    found: dict[str, str] = {}
    for (_, mode), row in results.rows.items():
        if modes.BY_NAME[mode].on_gpu and row["status"] != "missing":
            found |= row["versions"]
    return f" With a GPU: {', '.join(f'{name} {found[name]}' for name in sorted(found))}." if found else ""


def _verdict(row: Row | None) -> str:
    if row is None:
        return ""
    if row["status"] == "passed":
        return "✓"
    error = row["error"] if len(row["error"]) <= LONGEST else row["error"][: LONGEST - 1] + "…"
    return f"– {_cell(error)}" if row["status"] == "missing" else f"✗ {_cell(error)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("_", "\\_")


if __name__ == "__main__":
    main()
