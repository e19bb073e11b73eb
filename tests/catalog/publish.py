"""Turns the rows of a finished run into the data, docs/catalog, docs/gaps.md and the map in docs/architecture.md."""

from __future__ import annotations

from typing import Any

from tests.catalog import pool, values
from tests.catalog.worker import HOSTS, PLAIN
from torchdevice.catalog.codemap import codebase_map, put_into
from torchdevice.catalog.gaps import gaps
from torchdevice.catalog.pages import write_all
from torchdevice.catalog.status import Measured
from torchdevice.catalog.store import Results, save_results
from torchdevice.cli.catalog import answering_modules, catalogue, torch_version

DOCS = pool.ROOT / "docs"
Row = dict[str, Any]


def measured(rows: dict[str, dict[str, Row]], name: str) -> Measured:
    """What was found about one name, in short."""
    from tests.catalog.run import verdict

    plain = rows[PLAIN].get(name)
    can = plain is not None and bool(plain["results"])
    verdicts = {host: verdict(plain, rows[host][name], host) for host in HOSTS}
    here = plain if can and plain is not None else rows["cpu"][name]
    why = {host: text for host, (_, text) in verdicts.items() if text}
    if not can and len(set(why.values())) == 1 and len(why) == len(HOSTS):
        why = {"cpu": why["cpu"]}  # the same everywhere
    return Measured(here["by"], here["call"], can, {host: found for host, (found, _) in verdicts.items()}, why)


def write(rows: dict[str, dict[str, Row]], names: list[str]) -> None:
    """Everything that is printed from a run."""
    agreeing, wrong = values.verified()
    for name, text in wrong.items():
        print(f"MLX: {name}: {text}")
    save_results(Results(torch_version(), {name: measured(rows, name) for name in names}, agreeing))
    write_docs()


def write_docs() -> None:
    """The pages, from the data."""
    entries, _ = catalogue()
    write_all(DOCS, entries, gaps(entries), torch_version())
    put_into(DOCS / "architecture.md", codebase_map(entries, answering_modules(entries)))


if __name__ == "__main__":
    write_docs()
