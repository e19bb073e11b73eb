"""Each supported torch in a virtual environment of its own: the wheel, a newcomer's commands, the tests.

    python -m tools.versions.matrix                     every version, one after another; writes docs/versions.md
    python -m tools.versions.matrix 2.15.0              one of them
    python -m tools.versions.matrix --private 2.15.0    only the suites that touch private names of torch
    python -m tools.versions.matrix --here NAME         the torch of this Python, as it is; on a machine with a GPU

Needs nothing but Python. A version that was run with the same sources is not run again (`--fresh` does). Each one takes
several gigabytes, in `.matrix/`, which are deleted afterwards (`--keep` leaves them).
"""

from __future__ import annotations

import argparse
import collections
import datetime
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tools.versions.page import write_page
from tools.versions.table import COMMANDS, PRIVATE, RESULTS, ROOT, ROWS, Result, Row, load, save

FOLDER = ROOT / ".matrix"
GIGABYTES = 12  # CUDA's libraries, torch, what the tests need, and pip's copies of all that
COMMAND_SECONDS = 600
REFUSED = "this machine has a real one"  # a virtual device with the name of a real one


class VersionError(Exception):
    """Something that stops a version, in a sentence."""


def source_digest() -> str:
    """Of everything that is installed or run."""
    digest = hashlib.sha256()
    for folder in ("src", "tests", "examples", "tools"):
        for path in sorted((ROOT / folder).rglob("*.*")):
            if path.suffix in (".py", ".cpp", ".h", ".json", ".jinja") and path != RESULTS:
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def find_python(version: str) -> str:
    """An interpreter of that version; the running one where there is none."""
    homes = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *map(str, sorted(homes.glob(f"{version}.*/bin/python")))]
    for candidate in filter(None, candidates):
        done = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False)
        if done.stdout.startswith(f"Python {version}."):
            return candidate
    return sys.executable


def install(row: Row) -> Path:
    """A virtual environment with that torch, as the package index builds it, and the wheel of this checkout."""
    free = shutil.disk_usage(ROOT).free >> 30
    if free < GIGABYTES:
        raise VersionError(f"torch {row.torch} needs about {GIGABYTES} GB of disk, and {free} GB are free")
    home = FOLDER / f"torch-{row.torch}"
    shutil.rmtree(home, ignore_errors=True)
    _run([find_python(row.python), "-m", "venv", str(home)], "a virtual environment cannot be made")
    pip = [str(home / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheels = FOLDER / "wheel"
    shutil.rmtree(wheels, ignore_errors=True)
    _run([*pip, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(ROOT)], "the wheel cannot be built")
    (wheel,) = wheels.glob("*.whl")
    # `===` compares the whole text: a build for the CPU that lies on disk has another version, 2.13.0+cpu.
    _run(
        [*pip, "install", f"torch==={row.torch}", f"{wheel}[dev,mlx]"],
        f"torch {row.torch} cannot be installed: is it on the package index for this Python?",
    )
    return home / "bin" / "python"


def _run(command: list[str], problem: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise VersionError(f"{problem} ({' '.join(last[-2:])})")


def newcomer(python: Path, result: Result) -> None:
    """The commands, in a folder that is none of ours."""
    for command in COMMANDS:
        words = [str(ROOT / word) if word.endswith(".py") else word for word in command]
        done = subprocess.run(
            [str(python), "-m", "torchdevice", *words],
            cwd=FOLDER,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        text = " ".join(command)
        if done.returncode and REFUSED in done.stderr:
            print(f"  – torchdevice {text}: refused beside a real one", flush=True)
            continue
        result.commands[text] = done.returncode == 0
        print(f"  {'✓' if done.returncode == 0 else '✗'} torchdevice {text}", flush=True)
        if done.returncode:
            print(done.stdout[-1000:] + done.stderr[-3000:], flush=True)


def suites(python: Path, result: Result, chosen: tuple[str, ...]) -> None:
    """The tests, on the installed wheel: `src` is not on the path."""
    report = FOLDER / f"{result.torch}.xml"
    report.unlink(missing_ok=True)
    begun = time.monotonic()
    workers = str(min(8, os.cpu_count() or 1))
    command = [str(python), "-m", "pytest", "-n", workers, "--maxschedchunk", "1", f"--junitxml={report}"]
    subprocess.run([*command, "-p", "no:cacheprovider", *chosen], cwd=ROOT, check=False)
    if not report.exists():
        raise VersionError(f"the tests on torch {result.torch} did not come to an end")
    result.seconds = round(time.monotonic() - begun)
    skipped: collections.Counter[str] = collections.Counter()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            result.failed.append(name)
        elif (skip := case.find("skipped")) is not None:
            skipped[_reason(skip)] += 1
        else:
            result.passed += 1
    result.skipped = dict(skipped)


def _reason(skip: ElementTree.Element) -> str:
    """Why a test was skipped; of a file that was skipped the message does not say it, the text does."""
    told = re.search(r"""['"]Skipped: (.*)['"]\)$""", skip.text or "")
    return told[1] if told else str(skip.get("message"))


def _named(chosen: tuple[str, ...]) -> str:
    return ", ".join(each.removeprefix("tests/") for each in chosen) or "all"


def processor() -> str:
    """What the page calls a machine without a GPU."""
    return "no GPU" if platform.machine() in {"x86_64", "AMD64"} else f"no GPU, {platform.machine()}"


def run(name: str, python: Path, digest: str, chosen: tuple[str, ...], machine: str = "") -> Result:
    """Everything on one torch that is installed."""
    FOLDER.mkdir(exist_ok=True)
    tell = "import platform, torch; print(torch.__version__, platform.python_version())"
    said = subprocess.run([str(python), "-W", "ignore", "-c", tell], capture_output=True, text=True, check=False)
    if said.returncode:
        raise VersionError(f"torch cannot be imported: {said.stderr.strip().splitlines()[-1]}")
    build, version = said.stdout.split()
    today = datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()
    result = Result(name, build, version, digest, today, machine=machine or processor(), suites=_named(chosen))
    newcomer(python, result)
    suites(python, result, chosen)
    print(f"  {result.passed} passed, {len(result.failed)} failed, {sum(result.skipped.values())} skipped", flush=True)
    return result


def main() -> int:
    """Run what was asked for; exit status 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="tools.versions.matrix", description=__doc__)
    parser.add_argument("versions", nargs="*", help=", ".join(row.torch for row in ROWS))
    parser.add_argument("--private", action="store_true", help="only the suites that touch private names")
    parser.add_argument("--no-page", action="store_true", help="keep no results and leave docs/versions.md as it is")
    parser.add_argument("--fresh", action="store_true", help="run again what was run with these sources")
    parser.add_argument("--keep", action="store_true", help="leave the virtual environments in .matrix/")
    parser.add_argument("--here", metavar="NAME", help="run with this Python's own torch, and call the machine so")
    options = parser.parse_args()
    digest, results, ended = source_digest(), load(), True
    chosen = PRIVATE if options.private else ()
    if options.here:
        import torch

        name = f"{torch.__version__.partition('+')[0]} on {options.here}"
        results[name] = run(torch.__version__.partition("+")[0], Path(sys.executable), digest, chosen, options.here)
        save(results)
        write_page(results)
        return 0 if results[name].green else 1
    known = {row.torch: row for row in ROWS}
    rows = [known.get(version, Row(version)) for version in options.versions] or list(ROWS)
    print(f"{len(rows)} versions of torch, one after another, about {GIGABYTES} GB each in {FOLDER}", flush=True)
    for row in rows:
        former = results.get(row.torch)
        same = former is not None and (former.source, former.suites) == (digest, _named(chosen))
        if same and former is not None and former.green and not options.fresh and not options.no_page:
            print(f"torch {row.torch}: done already", flush=True)
            continue
        print(f"torch {row.torch}", flush=True)
        try:
            found = run(row.torch, install(row), digest, chosen)
        except VersionError as problem:
            print(f"  ✗ {problem}", flush=True)
            ended = False
            continue
        finally:
            if not options.keep:
                shutil.rmtree(FOLDER / f"torch-{row.torch}", ignore_errors=True)
        ended = ended and found.green
        if not options.no_page:
            results[row.torch] = found
            save(results)
            write_page(results)
    return 0 if ended else 1


if __name__ == "__main__":
    sys.exit(main())
