"""Coverage-guided bytes (Atheris) for everything of ours that reads what others wrote. One process a reader.

    python -m tools.hardening.readers [SECONDS] [NAME]

A reader may refuse with the exceptions that it documents; anything else is a finding and ends the run with its bytes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from tools.hardening import figures

SCRATCH = Path(tempfile.gettempdir()) / f"torchdevice-readers-{os.getuid()}"


def device_requests(data: bytes) -> None:
    from torchdevice.policy.hosts import invent_host
    from torchdevice.policy.resolve import parse, resolve

    try:
        request = parse(data.decode("utf-8", "surrogateescape"))
    except (RuntimeError, TypeError, ValueError):
        return
    for host in ("mps", "cuda", "cpu"):
        str(resolve(request, invent_host(host)))


def settings(data: bytes) -> None:
    from torchdevice.config import SETTINGS, resolve_config
    from torchdevice.errors import ConfigError

    words = data.decode("utf-8", "replace").split("\n")
    names = [setting.variable for setting in SETTINGS] + ["TORCHDEVICE_ENABLED", "TORCHDEVICE_MASQUERADE"]
    try:
        resolve_config(environ=dict(zip(names, words, strict=False)))
    except ConfigError:
        return


def sources(data: bytes) -> None:
    _scan(data, ".py")


def notebooks(data: bytes) -> None:
    _scan(data, ".ipynb")


def ignore_files(data: bytes) -> None:
    from torchdevice.cli.scanning.files import walk

    SCRATCH.mkdir(exist_ok=True)
    (SCRATCH / ".gitignore").write_bytes(data[:200])
    list(walk(SCRATCH))


def submodule_lists(data: bytes) -> None:
    from torchdevice.answers.packages import submodules

    SCRATCH.mkdir(exist_ok=True)
    (SCRATCH / ".gitmodules").write_bytes(data)
    assert all(name.strip() for name in submodules(SCRATCH))


def scanned_places(data: bytes) -> None:
    """Trees in which sources, lists and folders are something else: refused or read, and nothing is waited for."""
    from torchdevice.cli.scan import read_file
    from torchdevice.cli.scanning.files import Tree, walk

    root = _made(data, ("a.py", "b.ipynb", ".gitignore", ".gitmodules", "folder"))
    paths = [*walk(root), *sorted(root.iterdir())]  # also those that are found only if they are named
    for path in paths:
        try:
            read_file(path, _tables(), Tree([root], paths))
        except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
            continue


def report_paths(data: bytes) -> None:
    """Reports to whatever a path may lead to: written, or an OSError, at once; what another user links to stays."""
    from torchdevice.reporting import files

    root = _made(data, ("report", "folder", "folder/report"))
    for name in ("report", "folder/report", "folder/new/report"):
        with mock.patch.object(files, "SECONDS_TO_READ", 0.01), contextlib.suppress(OSError):
            files.write(str(root / name), "a report")
    assert (root / "kept").read_text() == "kept"


def figures_of_processes(data: bytes) -> None:
    from torchdevice.reporting.collect import Context, Report
    from torchdevice.reporting.json import render
    from torchdevice.reporting.spool import parse

    try:
        counts = parse(data.decode("utf-8", "replace"))
    except ValueError:
        return
    render(Report.of_counts(counts + counts), Context())


def catalogues(data: bytes) -> None:
    from torchdevice.catalog.changes import changes, read_rows

    try:
        rows = read_rows(data.decode("utf-8", "replace"))
    except ValueError:
        return
    changes(rows, [{"name": "torch.zeros"}]).lines()


def notes(data: bytes) -> None:
    from torchdevice.catalog.store import parse_notes

    try:
        found = parse_notes(data.decode("utf-8", "replace"))
    except ValueError:
        return
    assert all(isinstance(text, str) for text in found.values())


def cost_tables(data: bytes) -> None:
    from torchdevice.fallback.mlx.costs import read_costs

    SCRATCH.mkdir(exist_ok=True)
    path = SCRATCH / "mlx-costs.json"
    path.write_bytes(data)
    size = read_costs("cpu", {}, path).pays_from("aten::mm", "product")
    assert size is None or size > -(10**99)


def report_destinations(data: bytes) -> None:
    from torchdevice.errors import ConfigError
    from torchdevice.reporting.destinations import parse

    try:
        parse(data.decode("utf-8", "surrogateescape"))
    except ConfigError:
        return


def _link_of_another_user(path: Path) -> None:
    if os.geteuid() == 0:  # only root can make one
        path.symlink_to(SCRATCH / "places" / "kept")
        os.lchown(path, 65534, 65534)


# What may be where a file is expected.
PLACES: tuple[Callable[[Path], object], ...] = (
    lambda path: None,
    lambda path: path.write_bytes(b"x.cuda()"),
    lambda path: path.mkdir(),
    lambda path: os.mkfifo(path),
    lambda path: path.symlink_to(path.name),
    lambda path: path.symlink_to("nothing"),
    lambda path: path.symlink_to("/dev/zero"),
    lambda path: path.symlink_to("/dev/full"),
    lambda path: path.symlink_to("/proc/self"),
    lambda path: path.symlink_to("."),
    lambda path: path.touch(mode=0o400),
    _link_of_another_user,
)


def _made(data: bytes, names: tuple[str, ...]) -> Path:
    """A folder in which each name is the kind of place that a byte says."""
    root = SCRATCH / "places"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    (root / "kept").write_text("kept")
    for name, kind in zip(names, data, strict=False):
        with contextlib.suppress(OSError):  # there is no such folder by now
            if not os.path.lexists(root / name):  # the folder may be a link to its own
                PLACES[kind % len(PLACES)](root / name)
    return root


@functools.cache
def _tables() -> Any:
    from torchdevice.cli.scanning.tables import Tables

    return Tables()


def _scan(data: bytes, suffix: str) -> None:
    """In this process: a child for each would hide what is raised, and take its time."""
    from torchdevice.cli.scan import Scan, as_text, read_file
    from torchdevice.cli.scanning.files import Tree

    SCRATCH.mkdir(exist_ok=True)
    path = SCRATCH / f"x{suffix}"
    path.write_bytes(data)
    try:
        found = read_file(path, _tables(), Tree([path], [path]))
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
        return
    as_text(Scan(1, found), every_line=True)


READERS: dict[str, Callable[[bytes], None]] = {
    reader.__name__: reader
    for reader in (
        device_requests,
        settings,
        sources,
        notebooks,
        ignore_files,
        submodule_lists,
        scanned_places,
        report_paths,
        figures_of_processes,
        catalogues,
        notes,
        cost_tables,
        report_destinations,
    )
}
SEEDS: dict[str, list[bytes]] = {
    "device_requests": [b"cuda:0", b"cpu:-1", b"mps", b"privateuseone:3"],
    "settings": [b"cuda\nportable\nINFO", b"mps\naccelerate\n\n1\n0"],
    "sources": [
        b"import torch\nx = torch.zeros(2, device='cuda').cuda()\n",
        *(b"# -*- coding: " + name + b" -*-\nx.cuda()\n" for name in (b"latin-1", b"punycode", b"zip", b"utf-7")),
    ],
    "notebooks": [b'{"cells": [{"cell_type": "code", "source": ["%matplotlib inline\\n", "x.cuda()"]}]}'],
    "submodule_lists": [b'[submodule "r"]\n\tpath = sub/rasterizer\n\turl = https://example.org/r\n'],
    "scanned_places": [b"\x01\x01\x01\x01\x02", b"\x03\x06\x03\x06\x08", b"\x02\x02\x02\x02\x09"],
    "report_paths": [b"\x01\x02\x01", b"\x03\x08\x00", b"\x0b\x02\x0b", b"\x07\x09\x00"],
    "ignore_files": [b"*.py\n!x.py\n/build/\n**/a?[bc]\n"],
    "figures_of_processes": [
        b'{"records": [["Redirect", {"api": "a", "asked": "b", "given": "c", "reason": "d", "site": {"file": "e", '
        b'"line": 1}}, 2]], "fallbacks": [["Fallback", {"operator": "a", "executor": "cpu", "reason": "", "dtypes": '
        b'["f"], "site": {"file": "e", "line": 1}}, [1, 0.5, 8]]], "seconds": 1.5, "profile": {"operators": [["a", '
        b'"cpu", [1, 0.1, 0.0]]], "lines": [["e", 1, [1, 0.1, 0.0]]], "seconds": 1.0, "operators_missing": ""}}'
    ],
    "catalogues": [b'{"entries": [{"name": "torch.zeros", "status": "complete", "device_parameters": ["device"]}]}'],
    "notes": [b'{"torch.zeros": "as expected"}'],
    "cost_tables": [b'{"schema": 1, "device": "cpu", "versions": {}, "pays_from": {"aten::mm": 64, "aten::a": null}}'],
    "report_destinations": [b"text,html:a,b.html,json:x.json", b"summary"],
}


def main() -> None:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    if len(sys.argv) > 2:
        import atheris

        reader = READERS[sys.argv[2]]
        with atheris.instrument_imports(include=["torchdevice"], enable_loader_override=False):
            reader(SEEDS[sys.argv[2]][0])
        with tempfile.TemporaryDirectory() as corpus:
            for number, seed in enumerate(SEEDS[sys.argv[2]]):
                (Path(corpus) / str(number)).write_bytes(seed)
            atheris.Setup(
                [sys.argv[0], f"-max_total_time={seconds}", "-max_len=2000", "-timeout=20", "-verbosity=1", corpus],
                reader,
            )
            atheris.Fuzz()
        return
    failed, runs = [], {}
    for name in READERS:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tools.hardening.readers", str(seconds), name],
            capture_output=True,
            text=True,
            check=False,
        )
        summary = [line for line in done.stderr.splitlines() if line.startswith("Done ")] or done.stderr.splitlines()[
            -12:
        ]
        print(f"{name}: {' '.join(summary)}", flush=True)
        runs[name] = int(summary[0].split()[1]) if not done.returncode else 0
        if done.returncode:
            failed.append(name)
    figures.record("readers", readers=len(runs), runs=sum(runs.values()), failed=len(failed), each=runs)
    if failed:
        raise SystemExit(f"findings in {', '.join(failed)}")


if __name__ == "__main__":
    main()
