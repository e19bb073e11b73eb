"""`make catalog`: calls every public name of torch on plain torch and on three hosts, and writes down what came of it.

python -m tools.catalog.run                     everything; goes on where an interrupted run stopped
python -m tools.catalog.run --fresh             from the start
python -m tools.catalog.run --only torch.fft    these names alone; prints, writes nothing
python -m tools.catalog.run --stale             what did not pass everywhere, and what is written otherwise now
    with --merge                                the rows of these names replace the old ones, and the pages are written
python -m tools.catalog.run --elsewhere         which operators of the recorded calls MPS lacks; the pages are written

What differs or fails is called once more in a process of its own before it counts.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from functools import cache
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tools.catalog import pool
from tools.catalog.compare import differs
from tools.catalog.worker import HOSTS, PLAIN

RESULTS = pool.ROOT / "build" / "catalog"
FINISHED = RESULTS / "finished"
Row = dict[str, Any]


class Kept:
    """The rows of one host, in a file that grows line by line."""

    def __init__(self, folder: Path, host: str) -> None:
        self._path = folder / f"{host}.jsonl"
        self.rows: dict[str, Row] = {}
        if self._path.exists():
            text = self._path.read_text()
            if text and not text.endswith("\n"):
                self._path.write_text(text + "\n")
            for line in text.splitlines():
                try:
                    row = json.loads(line)
                except ValueError:  # the line at which the last run was interrupted
                    continue
                self.rows[row["name"]] = row

    def add(self, row: Row) -> None:
        """Keep a row, now."""
        self.rows[row["name"]] = row
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def names_to_call() -> list[str]:
    """Every public name. Read in this process, which makes no calls."""
    from torchdevice.catalog.surface import read_surface

    return list(read_surface().found)


@cache
def answering() -> frozenset[str]:
    """Names that tell of a device: where TorchDevice answers, plain torch on a machine without one is no measure."""
    from tools.catalog.rows import entries
    from torchdevice.catalog.signatures import MEMORY, QUERY, STREAM
    from torchdevice.catalog.treatment import SIMULATED

    spaces = ("torch.cuda.", "torch.mps.", "torch.xpu.")
    return frozenset(
        entry.name
        for entry in entries()
        if entry.treatment == SIMULATED or entry.role in (QUERY, STREAM, MEMORY) or entry.name.startswith(spaces)
    )


def verdict(plain: Row | None, here: Row, host: str) -> tuple[str, str]:
    """`passed`, `differs`, `raised` or `none` (nothing to run), and why."""
    if plain is None or not plain["results"]:
        if here["results"]:
            return "passed", ""
        return "none", next(iter(here["errors"].values()), "no call known")
    answers = dict(here["results"])
    for number, want in plain["results"]:
        if number not in answers:
            return "raised", here["errors"].get(str(number)) or here["errors"].get("0", "no answer")
        if plain.get("name") in answering():
            continue
        # Random numbers are a device's own: the same seed gives others there, in plain torch as well.
        open_values = plain.get("volatile", False) or (plain.get("random", False) and host != "cpu")
        text = differs(want, answers[number], host == "mps", not open_values)
        if text:
            return "differs", text
    return "passed", ""


def job(name: str, plain: Row | None) -> Row:
    """What a host is asked: the call that plain torch could make, if it could."""
    known = plain is not None and bool(plain["results"])
    return {"name": name, "known": {"by": plain["by"], "call": plain["call"]}} if known and plain else {"name": name}


def run(names: list[str], folder: Path, workers: int, show: bool = True) -> dict[str, Kept]:
    """All hosts; rows that are kept already are not made again."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {host: Kept(folder, host) for host in (PLAIN, *HOSTS)}
    columns = (TextColumn("{task.description:<14}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, disable=not show) as progress:
        for host, store in kept.items():
            plain = kept[PLAIN].rows
            jobs = [job(name, plain.get(name)) for name in names if name not in store.rows]
            task = progress.add_task(host, total=len(names), completed=len(names) - len(jobs))

            def report(row: Row, store: Kept = store, task: Any = task) -> None:
                store.add(row)
                progress.advance(task)

            pool.run_all(host, jobs, workers, report)
            if host != PLAIN:
                _again(host, store, plain, names, workers, progress)
    return kept


def _again(host: str, store: Kept, plain: dict[str, Row], names: list[str], workers: int, progress: Progress) -> None:
    """What failed among others may work alone: then what others left behind was the reason."""
    failed = [
        name
        for name in names
        if not store.rows[name].get("alone")
        and plain[name]["results"]
        and verdict(plain[name], store.rows[name], host)[0] != "passed"
    ]
    if not failed:
        return
    task = progress.add_task(f"{host}, again", total=len(failed))

    def report(row: Row) -> None:
        store.add(row | {"alone": True})
        progress.advance(task)

    pool.run_all(host, [job(name, plain[name]) for name in failed], workers, report, shard=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--stale", action="store_true")
    parser.add_argument("--merge", action="store_true")
    parser.add_argument("--elsewhere", action="store_true")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    options = parser.parse_args()
    if options.elsewhere:
        from tools.catalog import publish

        publish.place(elsewhere(options.workers))
        return
    names = names_to_call()
    if options.only or options.stale:
        folder = RESULTS / "only"
        for file in folder.glob("*.jsonl"):
            file.unlink()
        old = stale(names) if options.stale else frozenset()
        names = [name for name in names if name in old or name.startswith(tuple(options.only))]
        kept = run(names, folder, options.workers)
        if options.merge:
            from tools.catalog import publish

            publish.merge({host: store.rows for host, store in kept.items()}, names)
        _print(kept, names)
        return
    stamp = f"{torch.__version__}"
    if options.fresh or FINISHED.exists() or _stamp() not in ("", stamp):
        for file in (*RESULTS.glob("*.jsonl"), FINISHED):
            file.unlink(missing_ok=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "torch").write_text(stamp)
    began = time.time()
    try:
        kept = run(names, RESULTS, options.workers)
    except KeyboardInterrupt:
        raise SystemExit("interrupted: `make catalog` goes on from here") from None
    from tools.catalog import publish

    publish.write({host: store.rows for host, store in kept.items()}, names)
    FINISHED.write_text(str(round(time.time() - began)))
    _print(kept, names)


def elsewhere(workers: int) -> dict[str, tuple[str, ...]]:
    """For every call of an operator that was made on MPS: the operators of it that ran elsewhere."""
    from tools.catalog import results
    from torchdevice.catalog.signatures import operator_name
    from torchdevice.virtual import supported

    bases = {name.partition(".")[0] for name in supported.operators()}
    jobs = [
        {"name": name, "known": {"by": called.by, "call": called.call}}
        for name, called in results.load().called.items()
        if called.outcomes.get("mps") == "passed" and (called.by == "OpInfo" or operator_name(name) in bases)
    ]
    found: dict[str, tuple[str, ...]] = {}
    pool.run_all("mps", jobs, workers, lambda row: found.update({row["name"]: tuple(row.get("elsewhere", ()))}))
    return found


def stale(names: list[str]) -> frozenset[str]:
    """Names that did not pass everywhere, and those whose written call is not the one that was made."""
    from tools.catalog import results
    from tools.catalog.written import WRITTEN

    made = results.load().called
    return frozenset(
        name
        for name in names
        if name not in made
        or set(made[name].outcomes.values()) != {"passed"}
        or made[name].call != WRITTEN.get(name, made[name].call)
    )


def _stamp() -> str:
    path = RESULTS / "torch"
    return path.read_text() if path.exists() else ""


def _print(kept: dict[str, Kept], names: list[str]) -> None:
    plain = kept[PLAIN].rows
    able = [name for name in names if plain[name]["results"]]
    print(f"{len(names)} names; plain torch can call {len(able)}")
    for host in HOSTS:
        rows = kept[host].rows
        bad = [(name, *verdict(plain[name], rows[name], host)) for name in able]
        bad = [row for row in bad if row[1] != "passed"]
        more = [name for name in names if not plain[name]["results"] and rows[name]["results"]]
        share = 100 * (len(able) - len(bad)) / max(len(able), 1)
        print(
            f"{host}: {len(able) - len(bad)}/{len(able)} ({share:.2f}%), and {len(more)} that plain torch cannot call"
        )
        for name, what, why in bad:
            print(f"  {name}: {what}: {why}  [{plain[name]['call'][:100]}]")


if __name__ == "__main__":
    main()
