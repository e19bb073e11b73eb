"""Runs the programs, each in a process of its own, judges them, and keeps the verdicts in results.json.

python -m tools.realworld.runner                                all programs in the modes that this machine has
python -m tools.realworld.runner --only NAME … --mode run …     some of them
python -m tools.realworld.runner --resume                       what has no verdict yet, or an older program's
On a machine with an NVIDIA GPU and its own torch: PYTHONPATH=src python -m tools.realworld.runner --mode cuda
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.realworld import modes, table
from tools.realworld.modes import Mode
from tools.realworld.program import Program

RESULTS = Path(__file__).parent / "results.json"
SECONDS = 600  # a program takes 5 to 30 on an idle core; a busy machine is not a program that hangs
RESULT = "RESULT "
REPEATS = 2  # of a program that judges others on a GPU
# The line of a traceback that names the exception, or a launcher's or an interpreter's last word.
_ERROR = re.compile(
    r"^(?:\[rank\d+\]: *|E +)?(?:[A-Za-z_][\w.]*(?:Error|Exception|Exit|Refused|Unavailable|Interrupt))(?::|$)"
)
Row = dict[str, Any]
_RENDEZVOUS = threading.Lock()  # programs of several processes meet at a port that their text says


def run(program: Program, mode: Mode, reference: Row | None = None) -> Row:
    """One program in one mode: the row of results.json."""
    row: Row = {"program": program.name, "mode": mode.name, "digest": program.digest, "versions": program.versions()}
    if missing := program.missing():
        return {**row, "status": "missing", "error": f"not installed: {', '.join(missing)}"}
    if mode.on_gpu and (here := _gpus()) < program.gpus:
        return {**row, "status": "missing", "error": f"needs {program.gpus} GPUs, {here} here"}
    if mode.on_gpu and program.refusal:
        return {**row, "status": "missing", "error": "is about machines without CUDA"}
    with tempfile.TemporaryDirectory(prefix="realworld") as folder:
        script = Path(folder) / f"{program.name}.py"
        script.write_text(program.text(mode.replacements(program)), encoding="utf-8")
        command, variables = [*mode.command(program), str(script)], mode.variables(program, Path(folder))
        with _RENDEZVOUS if program.gpus > 1 else contextlib.nullcontext():
            started = time.monotonic()
            code, out, err = _execute(command, variables, folder)
            seconds = round(time.monotonic() - started, 1)
    said = _said(out)
    refused = program.refusal and said is None  # where a library has a way of its own, that is judged
    error = _refusal(program, code, out + err) if refused else _verdict(program, mode, code, err, said, reference)
    row |= {"status": "failed" if error else "passed", "error": error, "seconds": seconds}
    if mode.judged_by == "" and not error and said is not None:
        row["values"] = said["values"]
    return row


def measure(program: Program, mode: Mode) -> Row:
    """A mode that judges others. On a GPU repeatedly: kernels that add in no fixed order differ from themselves."""
    row = run(program, mode)
    for _ in range(REPEATS if mode.on_gpu and row["status"] == "passed" else 0):
        again = run(program, mode)
        if again["status"] == "passed":
            row["apart"] = max(row.get("apart", 0.0), _apart(again["values"], row["values"]))
    return row


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _execute(command: list[str], environment: dict[str, str], folder: str) -> tuple[int | None, str, str]:
    """Exit status (None: too late), stdout, stderr. Whatever the program started ends with it."""
    with open(os.path.join(folder, "out"), "w+b") as out, open(os.path.join(folder, "err"), "w+b") as err:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):  # nobody of its session is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        err.seek(0)
        return code, out.read().decode(errors="replace"), err.read().decode(errors="replace")


def _said(out: str) -> Row | None:
    lines = [line for line in out.splitlines() if line.startswith(RESULT)]
    return json.loads(lines[-1][len(RESULT) :]) if lines else None


def _verdict(program: Program, mode: Mode, code: int | None, err: str, said: Row | None, reference: Row | None) -> str:
    """Why the program did not pass; empty if it did."""
    if code != 0:
        return f"no end after {SECONDS} s" if code is None else error_line(err) or f"exit status {code}, nothing said"
    if said is None:
        return "exit status 0 without a result"
    if not said["steps"] > 0:
        return "no work was done"
    if not said["devices"] or any(device.split(":")[0] != mode.device for device in said["devices"]):
        return f"parameters on {', '.join(said['devices']) or 'no device'}, promised: {mode.device}"
    if not said["values"] or not all(map(math.isfinite, said["values"])):
        return f"values are not finite: {said['values'][:4]}"
    if not mode.judged_by:
        return ""
    if reference is None or "values" not in reference:
        return f"nothing to compare with: {mode.judged_by} {'did not pass' if reference else 'did not run'}"
    # A few runs tell less than the whole spread of a program that differs from itself.
    own = 3 * reference.get("apart", 0.0)
    return _difference(said["values"], reference["values"], max(program.tolerance, mode.least_tolerance, own))


def _difference(values: Sequence[float], expected: Sequence[float], tolerance: float) -> str:
    if len(values) != len(expected):
        return f"{len(values)} values, expected {len(expected)}"
    if _apart(values, expected) <= tolerance:
        return ""
    worst = max(range(len(values)), key=lambda index: _apart(values[index : index + 1], expected[index : index + 1]))
    return f"value {worst} is {values[worst]:.6g}, expected {expected[worst]:.6g} (tolerance {tolerance:g})"


def _apart(values: Sequence[float], expected: Sequence[float]) -> float:
    return max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(values, expected, strict=True))


def _refusal(program: Program, code: int | None, said: str) -> str:
    if code is None:
        return f"no end after {SECONDS} s"
    if code == 0:
        return "it ended as if it had worked"
    return "" if program.refusal in said else f"another error: {error_line(said)}"


def error_line(err: str) -> str:
    """The line that says what went wrong: the last exception's, else the last line that is not our summary."""
    lines = [line.rstrip() for line in err.splitlines() if line.strip() and not line.startswith("torchdevice:")]
    errors = [line for line in lines if _ERROR.match(line)]
    return (errors or lines or [""])[-1][:300]


class Results:
    """The rows by program and mode, written whenever one is added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        self.rows: dict[tuple[str, str], Row] = {(row["program"], row["mode"]): row for row in rows}

    def fresh(self, program: Program, mode: str) -> Row | None:
        row = self.rows.get((program.name, mode))
        return row if row is not None and row["digest"] == program.digest else None

    def add(self, row: Row) -> None:
        with self._lock:
            self.rows[row["program"], row["mode"]] = row
            programs, order = list(table.BY_NAME), list(modes.BY_NAME)
            known = [row for row in self.rows.values() if row["program"] in programs and row["mode"] in order]
            known.sort(key=lambda row: (programs.index(row["program"]), order.index(row["mode"])))
            text = ",\n".join(json.dumps(row, ensure_ascii=False) for row in known)
            self._path.write_text(f"[\n{text}\n]\n", encoding="utf-8")


def run_modes(program: Program, wanted: Sequence[Mode], results: Results, resume: bool) -> None:
    """One program in the wanted modes, after the one that judges them."""
    for mode in wanted:
        if (resume and results.fresh(program, mode.name)) or (program.refusal and not mode.judged_by):
            continue  # nothing judges by what cannot work
        judge = mode.judged_by
        if judge and judge != mode.name and results.fresh(program, judge) is None:
            _add(measure(program, modes.BY_NAME[judge]), results)
        if mode.judged_by:
            _add(run(program, mode, results.fresh(program, judge)), results)
        else:
            _add(measure(program, mode), results)


def _add(row: Row, results: Results) -> None:
    results.add(row)
    print(
        f"{row['status']:8}{row['mode']:16}{row['program']:36}{row.get('seconds', 0):6.1f} s  {row['error']}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=table.BY_NAME, help="these programs")
    parser.add_argument("--mode", nargs="+", metavar="MODE", choices=modes.BY_NAME, help="in these modes")
    parser.add_argument("--resume", action="store_true", help="only what has no verdict yet")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    on_gpu = _gpus() > 0
    wanted = [mode for mode in modes.MODES if (mode.name in options.mode if options.mode else mode.on_gpu == on_gpu)]
    programs = [table.BY_NAME[name] for name in options.only] if options.only else table.PROGRAMS
    results = Results(options.results)
    if any(mode.name.startswith("virtual") for mode in wanted):  # a compiler's minutes are not the first program's
        subprocess.run([sys.executable, "-m", "torchdevice", "virtual", "build"], check=True, stdout=subprocess.DEVNULL)
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in [pool.submit(run_modes, program, wanted, results, options.resume) for program in programs]:
            done.result()
    for mode in wanted:
        rows = [row for program in programs if (row := results.rows.get((program.name, mode.name)))]
        print(f"{mode.name}: {sum(row['status'] == 'passed' for row in rows)} of {len(rows)} passed", file=sys.stderr)


if __name__ == "__main__":
    main()
