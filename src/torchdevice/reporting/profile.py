"""The tables of `run --profile`. `torchdevice.profiling` measures the figures."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torchdevice.ledger import Site
from torchdevice.reporting.collect import Memory, Profile, Timed, added
from torchdevice.reporting.units import size, took

SHOWN = 15
DOMINATES = 0.5
Cells = list[tuple[str, ...]]


@dataclass(frozen=True)
class Table:
    """A table of a report. A note may stand alone."""

    title: str
    headings: tuple[str, ...]
    rows: Cells
    note: str = ""


def operator_rows(profile: Profile) -> list[tuple[str, dict[str, Timed]]]:
    """Each operator with its figures by device, the slowest first."""
    found: dict[str, dict[str, Timed]] = {}
    for (name, device), timed in profile.operators.items():
        found.setdefault(name, {})[device] = timed
    return sorted(found.items(), key=lambda item: (-_total(item[1]).seconds, item[0]))


def devices(profile: Profile) -> list[str]:
    """Where operators ran, the busiest first."""
    busy = added(*({device: timed} for (_, device), timed in profile.operators.items()))
    return sorted(busy, key=lambda device: (-busy[device].seconds, device))


def line_rows(profile: Profile) -> list[tuple[Site, Timed]]:
    """Each line with its figures, the slowest first."""

    def order(item: tuple[Site, Timed]) -> tuple[float, float, str, int]:
        site, timed = item
        return -timed.seconds, -timed.first_use, site.file, site.line

    return sorted(profile.lines.items(), key=order)


def operator_table(profile: Profile) -> tuple[tuple[str, ...], Cells]:
    """Headings and the first rows, with one column per device."""
    places = devices(profile)
    memory: dict[str, Memory] = {}
    for (name, _), each in profile.operator_memory.items():
        memory[name] = memory.get(name, Memory()) + each
    everything = sum(timed.seconds for timed in profile.operators.values()) or 1.0
    rows = operator_rows(profile)
    cells: Cells = [
        (
            name,
            str(_total(figures).calls),
            *(took(figures[place].seconds) if place in figures else "" for place in places),
            f"{_total(figures).seconds / everything:.0%}",
            *((size(memory[name].allocated) if name in memory else "",) if memory else ()),
        )
        for name, figures in rows[:SHOWN]
    ]
    rest = rows[SHOWN:]
    if rest:
        sums = added(*(figures for _, figures in rest))
        cells.append(
            (
                f"{len(rest)} more",
                str(_total(sums).calls),
                *(took(sums[place].seconds) if place in sums else "" for place in places),
                f"{_total(sums).seconds / everything:.0%}",
                *((size(sum(memory[name].allocated for name, _ in rest if name in memory)),) if memory else ()),
            )
        )
    allocated = ("allocated",) if memory else ()
    return ("operator", "calls", *(f"on {place}" for place in places), "share", *allocated), cells


def operator_note(profile: Profile) -> str:
    """The note below the operators: why there are none, or a hint about float16 on a CPU."""
    whole = sum(timed.seconds for timed in profile.operators.values())
    if not profile.half_seconds or profile.half_seconds < whole * DOMINATES:
        return profile.operators_missing
    share = f"{profile.half_seconds / whole:.0%}" if whole else "all"
    return f"Hint: float16 is slow on a CPU and took {share} of this time; bfloat16 and float32 are faster there"


def operators_per_second(profile: Profile) -> float | None:
    """Calls of operators per second of a process; None if they were not counted."""
    calls = sum(timed.calls for timed in profile.operators.values())
    return None if profile.operators_missing or not profile.seconds else calls / profile.seconds


def samples_per_second(profile: Profile) -> float | None:
    """Samples of data loaders per second of a process; None if no data loader was used."""
    return profile.samples / profile.seconds if profile.batches and profile.seconds else None


def throughput(profile: Profile) -> str:
    """Operators and samples per second as text; empty if neither is known."""
    operators, samples = operators_per_second(profile), samples_per_second(profile)
    parts = [] if operators is None else [f"{operators:,.0f} operators per second"]
    if samples is not None:
        loaded = f"{profile.samples:,} in {profile.batches:,} batches of data loaders"
        parts.append(f"{samples:,.1f} samples per second ({loaded})")
    return ", ".join(parts)


def line_table(profile: Profile, place: Callable[[Site], str]) -> tuple[tuple[str, ...], Cells]:
    """Headings and the first rows: the time and the source of each line."""
    whole = profile.seconds or 1.0
    rows = line_rows(profile)[:SHOWN]
    imports = any(timed.first_use for _, timed in rows)
    cells: Cells = [
        (
            place(site),
            took(timed.seconds),
            f"{timed.seconds / whole:.0%}",
            took(timed.elsewhere) if timed.elsewhere else "",
            *((took(timed.first_use) if timed.first_use else "",) if imports else ()),
            linecache.getline(site.file, site.line).strip()[:80],
        )
        for site, timed in rows
    ]
    return ("place", "time", "share", "in fallbacks", *(("first use",) if imports else ()), "line"), cells


def memory_rows(profile: Profile) -> list[tuple[Site, Memory]]:
    """Each line that allocated memory or copied between devices, the largest amounts first."""
    return sorted(
        profile.line_memory.items(),
        key=lambda item: (-item[1].allocated, -item[1].copied, item[0].file, item[0].line),
    )


def memory_table(profile: Profile, place: Callable[[Site], str]) -> tuple[tuple[str, ...], Cells]:
    """Headings and the first rows: the memory and the source of each line."""
    rows = memory_rows(profile)[:SHOWN]
    copies = any(memory.copied for _, memory in rows)
    cells: Cells = [
        (
            place(site),
            size(memory.allocated),
            size(memory.held) if memory.held else "",
            *((size(memory.copied) if memory.copied else "",) if copies else ()),
            linecache.getline(site.file, site.line).strip()[:80],
        )
        for site, memory in rows
    ]
    return ("place", "allocated", "in use", *(("copied",) if copies else ()), "line"), cells


def tables(profile: Profile, place: Callable[[Site], str]) -> Iterator[Table]:
    """All tables of a profile that have content."""
    yield Table("Time by operator", *operator_table(profile), operator_note(profile))
    headings, rows = line_table(profile, place)
    yield Table("Time by line", headings, rows, "" if rows else "no line was sampled")
    headings, rows = memory_table(profile, place)
    if rows:
        yield Table("Memory by line", headings, rows)
    if told := throughput(profile):
        yield Table("Throughput", (), [], told)


def _total(figures: dict[str, Timed]) -> Timed:
    return sum(figures.values(), Timed())
