"""Turns the rows of a finished run into the data, docs/catalog, docs/gaps.md and the map in docs/architecture.md."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tools.catalog import pool, results, rows, values
from tools.catalog.codemap import BEGIN, END, answering_modules, codebase_map
from tools.catalog.gaps import gaps
from tools.catalog.pages import write_all
from tools.catalog.results import Called, Run
from tools.catalog.worker import HOSTS, PLAIN
from tools.docs.sections import put_into
from torchdevice.cli.catalog import torch_version

DOCS = pool.ROOT / "docs"
Row = dict[str, Any]


def called(made: dict[str, dict[str, Row]], name: str) -> Called:
    """What was found about one name, in short."""
    from tools.catalog.run import verdict

    plain = made[PLAIN].get(name)
    can = plain is not None and bool(plain["results"])
    verdicts = {host: verdict(plain, made[host][name], host) for host in HOSTS}
    here = plain if can and plain is not None else made["cpu"][name]
    why = {host: text for host, (_, text) in verdicts.items() if text}
    if not can and len(set(why.values())) == 1 and len(why) == len(HOSTS):
        why = {"cpu": why["cpu"]}  # the same everywhere
    elsewhere = tuple(made["mps"][name].get("elsewhere", ()))
    return Called(here["by"], here["call"], can, {host: found for host, (found, _) in verdicts.items()}, why, elsewhere)


def write(made: dict[str, dict[str, Row]], names: list[str]) -> None:
    """Everything that is printed from a run."""
    agreeing, wrong = values.verified()
    for name, text in wrong.items():
        print(f"MLX: {name}: {text}")
    results.save(Run(torch_version(), {name: called(made, name) for name in names}, agreeing))
    write_docs()


def merge(made: dict[str, dict[str, Row]], names: list[str]) -> None:
    """The rows of these names instead of the old ones."""
    run = results.load()
    run.called.update({name: called(made, name) for name in names})
    results.save(run)
    write_docs()


def place(elsewhere: dict[str, tuple[str, ...]]) -> None:
    """What ran elsewhere on MPS, measured anew for these names."""
    run = results.load()
    for name, operators in elsewhere.items():
        run.called[name] = replace(run.called[name], elsewhere=operators)
    results.save(run)
    write_docs()


def write_docs() -> None:
    """The package's data and the pages, from what was measured."""
    run = results.load()
    results.ship(run.shipped())
    entries = rows.entries()
    write_all(DOCS, entries, gaps(entries, run.called), torch_version())
    put_into(DOCS / "architecture.md", BEGIN, END, codebase_map(entries, answering_modules(entries)))


if __name__ == "__main__":
    write_docs()
