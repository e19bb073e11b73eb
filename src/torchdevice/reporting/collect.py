"""A report as data: counts, rows, places, the one-line summary, plain columns.

Counts can be added over processes and subtracted between points in time. The table `KINDS` lists the kinds of records.
The formats are in `text`, `json` and `html`. `spool` passes counts from child processes to the process that reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torchdevice.ledger import (
    REFUSED,
    UNSUPPORTED,
    Changed,
    Fallback,
    FallbackTotals,
    Redirect,
    Shortage,
    Simulated,
    Site,
    StandIn,
)
from torchdevice.printable import printable

PREFIX = "torchdevice: "  # of the summary
Record = Redirect | Simulated | StandIn | Shortage  # `Changed` is a `Redirect`
Totals = Mapping[Record, int]
V = TypeVar("V", int, FallbackTotals, "Timed", "Memory")


@dataclass(frozen=True, slots=True)
class Timed:
    """The time of an operator or of a line.

    - `calls`: how often it was called, or sampled.
    - `seconds`: the total time.
    - `elsewhere`: the part of `seconds` in fallbacks.
    - `first_use`: the time in which a library imported further modules. It is not part of `seconds`.
    """

    calls: int = 0
    seconds: float = 0.0
    elsewhere: float = 0.0
    first_use: float = 0.0

    def __add__(self, other: Timed) -> Timed:
        return Timed(
            self.calls + other.calls,
            self.seconds + other.seconds,
            self.elsewhere + other.elsewhere,
            self.first_use + other.first_use,
        )


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of an operator or of a line, in bytes.

    - `allocated`: the sum of all allocations on the device of its tensors, memory that was freed again included.
    - `held`: the most that was in use on that device when one of its calls ended.
    - `copied`: copied between devices.
    """

    allocated: int = 0
    held: int = 0
    copied: int = 0

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.allocated + other.allocated, max(self.held, other.held), self.copied + other.copied)


@dataclass(frozen=True, slots=True)
class Moment:
    """An interval of a run. The first one of a process has no length: it is the start.

    - `process`: the number of the process.
    - `seconds`: when the interval ended, in seconds since 1970.
    - `held`: the most bytes in use on the target; -1 if that is unknown.
    - `busy`: seconds in operators, in this interval, of all threads together.
    """

    process: int
    seconds: float
    held: int
    busy: float


@dataclass(frozen=True, slots=True)
class Event:
    """One call of an operator.

    - `operator`: its name, such as `aten::mm`; `device`: the device type of its tensors.
    - `process`, `thread`: the numbers of the process and of the thread in it.
    - `start`: when it started, in seconds since 1970; `seconds`: how long it took.
    """

    operator: str
    device: str
    process: int
    thread: int
    start: float
    seconds: float


@dataclass(frozen=True)
class Profile:
    """Where the time and the memory went.

    - `operators`: time by operator and the device that it ran on.
    - `lines`: time by line of user code.
    - `operator_memory`, `line_memory`: their memory.
    - `timeline`: memory and work over time. `events`: single calls, if a trace was requested.
    - `seconds`: how long lines were sampled.
    - `operators_missing`: why there is no time by operator, else empty.
    - `half_seconds`: seconds of operators with float16 on a CPU.
    - `batches`, `samples`: how much data loaders yielded to the program.
    """

    operators: Mapping[tuple[str, str], Timed] = field(default_factory=dict)
    lines: Mapping[Site, Timed] = field(default_factory=dict)
    seconds: float = 0.0
    operators_missing: str = ""
    half_seconds: float = 0.0
    batches: int = 0
    samples: int = 0
    operator_memory: Mapping[tuple[str, str], Memory] = field(default_factory=dict)
    line_memory: Mapping[Site, Memory] = field(default_factory=dict)
    timeline: tuple[Moment, ...] = ()
    events: tuple[Event, ...] = ()

    def __add__(self, other: Profile) -> Profile:
        return Profile(
            added(self.operators, other.operators),
            added(self.lines, other.lines),
            self.seconds + other.seconds,
            self.operators_missing or other.operators_missing,
            self.half_seconds + other.half_seconds,
            self.batches + other.batches,
            self.samples + other.samples,
            added(self.operator_memory, other.operator_memory),
            added(self.line_memory, other.line_memory),
            self.timeline + other.timeline,
            self.events + other.events,
        )


@dataclass(frozen=True)
class Counts:
    """All figures of one process, or of several together. `seconds`: the sum of their run times.

    `unreadable`: number of processes whose figures could not be read.
    """

    records: Totals = field(default_factory=dict)
    fallbacks: Mapping[Fallback, FallbackTotals] = field(default_factory=dict)
    seconds: float = 0.0
    profile: Profile | None = None
    processes: int = 1
    unreadable: int = 0

    def __add__(self, other: Counts) -> Counts:
        profiles = [part for part in (self.profile, other.profile) if part is not None]
        return Counts(
            added(self.records, other.records),
            added(self.fallbacks, other.fallbacks),
            self.seconds + other.seconds,
            profiles[0] + profiles[1] if len(profiles) == 2 else profiles[0] if profiles else None,
            self.processes + other.processes,
            self.unreadable + other.unreadable,
        )

    def since(self, before: Counts) -> Counts:
        """The difference to `before`, the counts of the same process at an earlier time."""
        return Counts(
            {
                record: calls - before.records.get(record, 0)
                for record, calls in self.records.items()
                if calls > before.records.get(record, 0)
            },
            {
                fallback: totals - before.fallbacks.get(fallback, NO_FALLBACK)
                for fallback, totals in self.fallbacks.items()
                if totals.calls > before.fallbacks.get(fallback, NO_FALLBACK).calls
            },
            self.seconds - before.seconds,
            self.profile,
        )

    def __bool__(self) -> bool:
        return bool(self.records or self.fallbacks or self.profile)


NO_FALLBACK = FallbackTotals(0, 0.0, 0)


def added(*parts: Mapping[Any, V]) -> dict[Any, V]:
    """The sum of several mappings, per key."""
    whole: dict[Any, V] = {}
    for part in parts:
        for key, figure in part.items():
            before = whole.get(key)
            whole[key] = figure if before is None else before + figure
    return whole


REDIRECTED, CHANGED, SIMULATED = "redirected", "changed", "simulated"
STAND_IN, SHORTAGE = "stand-in", "shortage"


@dataclass(frozen=True)
class Kind:
    """One kind of event: the heading of its table, and the wording of its count in the summary."""

    title: str
    counted: str


# In the order of their tables in a report.
KINDS: Mapping[str, Kind] = {
    REDIRECTED: Kind("Redirected", "redirected"),
    SIMULATED: Kind("Answered for a missing device", "answered"),
    STAND_IN: Kind("Computed for missing packages", "computed by stand-ins"),
    CHANGED: Kind("Changed meaning", "changed meaning"),
    SHORTAGE: Kind("Out of memory", "relieved"),
    UNSUPPORTED: Kind("Unsupported", "unsupported"),
}


# How a call about a missing device was answered, by the kind of its record.
HOW: Mapping[str, str] = {
    "mapped": "answered by a function of torch for {}",
    "simulated": "answered by TorchDevice for {}",
    "no-op": "does nothing on {}",
}


@dataclass(frozen=True)
class Context:
    """Facts about the run as a whole, given by the caller."""

    target: str = ""
    policy: str = ""
    command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    processes: int = 1
    seconds: float = 0.0
    process_seconds: float = 0.0  # of all processes together: the 100 % of shares
    policy_reason: str = ""  # set if `run` chose the policy
    placed: str = ""  # the device that `--place free` chose
    computed_by: str = ""  # the device that computes for the target, if the target is a virtual device

    @property
    def device(self) -> str:
        """The target: `mps`, or `virtual cuda on mps`."""
        return f"virtual {self.target} on {self.computed_by}" if self.computed_by else self.target

    def summary(self, report: Report) -> str:
        """The summary of the report. It names the virtual device of the run, if there is one."""
        if not self.computed_by:
            return report.summary()
        return f"{PREFIX}{self.device} · {report.summary().removeprefix(PREFIX)}"

    @property
    def chosen(self) -> list[str]:
        """The part of the last line that says which policy `run` chose and why; empty if the user chose it."""
        return [f"policy {self.policy}: {self.policy_reason}"] if self.policy_reason else []


@dataclass(frozen=True)
class Row:
    """One kind of event in a report.

    - `api`: the function or class of torch that was called.
    - `asked`, `given`: the device that the code asked for, and what it got.
    - `calls`, `places`: how many calls, from how many lines of code; `first`: the first of these lines.
    - `reason`: why, or how it was answered.
    - `kind`: `"redirected"`, `"simulated"`, `"stand-in"`, `"changed"`, `"shortage"` or `"unsupported"`.
    """

    api: str
    asked: str
    given: str
    calls: int
    places: int
    first: Site
    reason: str
    kind: str = REDIRECTED


@dataclass(frozen=True)
class Place:
    """What one line of user code (`site`) asked for and got.

    `kind`, `api`, `asked`, `given`, `calls` and `reason` are those of a `Row`.
    """

    site: Site
    kind: str
    api: str
    asked: str
    given: str
    calls: int
    reason: str


@dataclass(frozen=True)
class FallbackRow:
    """One operator that fell back, at one line of user code.

    - `operator`: such as `aten::_linalg_eigh`; `dtypes`: of its tensors.
    - `executor`: what ran it: `"cpu"` or `"mlx"`; `reason`: why.
    - `site`: the line of user code.
    - `calls`, `seconds`, `bytes`: the number of calls, their time, and the bytes copied to the executor and back.
    """

    operator: str
    executor: str
    reason: str
    dtypes: tuple[str, ...]
    site: Site
    calls: int
    seconds: float
    bytes: int


@dataclass(frozen=True)
class OperatorRow:
    """One operator that fell back, summed over all its `places`; `first` is the first of them.

    `operator`, `executor`, `reason`, `calls`, `seconds` and `bytes` are those of a `FallbackRow`.
    """

    operator: str
    executor: str
    reason: str
    calls: int
    places: int
    seconds: float
    bytes: int
    first: Site


@dataclass(frozen=True)
class Report:
    """What was changed. `str(report)` is a table.

    - `rows`: one per API and direction, most calls first.
    - `calls`, `places`: how many calls were redirected, from how many lines of code.
    - `by_place`: one per line of user code, in the order of files and lines.
    - `fallbacks`: operators that fell back, the slowest first.
    - `profile`: where the time went, if it was measured (`torchdevice run --profile`), else None.
    """

    rows: tuple[Row, ...]
    calls: int
    places: int
    by_place: tuple[Place, ...] = ()
    fallbacks: tuple[FallbackRow, ...] = ()
    profile: Profile | None = None

    @staticmethod
    def of(
        totals: Totals,
        fallbacks: Mapping[Fallback, FallbackTotals] | None = None,
        profile: Profile | None = None,
    ) -> Report:
        """Make a report: group records by API and direction. The first place is the lowest line.

        `totals` are the records with their counts, `fallbacks` the operators that fell back, `profile` the times.
        The order of the records does not matter.
        """
        ran = {fallback: figures for fallback, figures in (fallbacks or {}).items() if fallback.executor != REFUSED}
        refused = {fallback: figures for fallback, figures in (fallbacks or {}).items() if fallback not in ran}
        each = [
            *(_place(record, calls) for record, calls in totals.items()),
            *(_refusal(fallback, figures.calls) for fallback, figures in refused.items()),
        ]
        each.sort(key=lambda place: (*_order(place.site), place.api, place.asked, place.given))
        rows = _rows(each)
        elsewhere = [
            FallbackRow(f.operator, f.executor, f.reason, f.dtypes, f.site, t.calls, t.seconds, t.bytes)
            for f, t in ran.items()
        ]
        elsewhere.sort(key=lambda row: (-row.seconds, row.operator, *_order(row.site), row.dtypes))
        redirected = [place for place in each if place.kind == REDIRECTED]
        calls, places = sum(place.calls for place in redirected), len({place.site for place in redirected})
        return Report(tuple(rows), calls, places, tuple(each), tuple(elsewhere), profile)

    @staticmethod
    def of_counts(counts: Counts) -> Report:
        """Make the report of everything that `counts` holds."""
        return Report.of(counts.records, counts.fallbacks, counts.profile)

    @property
    def empty(self) -> bool:
        """True if nothing was changed."""
        return not self.rows and not self.fallbacks

    @property
    def fallback_seconds(self) -> float:
        """The time in seconds of operators that fell back."""
        return sum(row.seconds for row in self.fallbacks)

    def by_operator(self) -> list[OperatorRow]:
        """List the operators that fell back, one row per operator and executor, the slowest first."""
        groups: dict[tuple[str, str], list[FallbackRow]] = {}
        for row in self.fallbacks:
            groups.setdefault((row.operator, row.executor), []).append(row)
        rows = [
            OperatorRow(
                operator,
                executor,
                reason=members[0].reason,
                calls=sum(row.calls for row in members),
                places=len({row.site for row in members}),
                seconds=sum(row.seconds for row in members),
                bytes=sum(row.bytes for row in members),
                first=min((row.site for row in members), key=_order),
            )
            for (operator, executor), members in groups.items()
        ]
        return sorted(rows, key=lambda row: (-row.seconds, row.operator))

    def of_kind(self, name: str) -> tuple[Row, ...]:
        """Select the rows whose kind is `name`, such as `"redirected"`."""
        return tuple(row for row in self.rows if row.kind == name)

    def count(self, kind: str) -> tuple[int, int]:
        """Count the calls of a `kind`, such as `"redirected"`, and the lines of code that they came from."""
        members = [place for place in self.by_place if place.kind == kind]
        return sum(place.calls for place in members), len({place.site for place in members})

    def summary(self) -> str:
        """Give one line: redirections, their calls and places, operators that fell back, unsupported calls."""
        if self.empty:
            return f"{PREFIX}nothing was redirected"
        ways: dict[str, str] = {}
        for row in self.of_kind(REDIRECTED):
            ways.setdefault(f"{row.asked.partition(':')[0]} → {row.given}", row.given)
        parts = [", ".join(_shown(ways))] if ways else []
        for kind in (REDIRECTED, SIMULATED, STAND_IN, CHANGED, SHORTAGE):
            calls, places = self.count(kind)
            if calls or kind == REDIRECTED:
                parts.append(f"{counted(calls, 'call')} {KINDS[kind].counted} at {counted(places, 'place')}")
        parts.append(f"{counted(len({row.operator for row in self.fallbacks}), 'op')} fell back")
        parts.append(f"{self.count(UNSUPPORTED)[0]} unsupported")
        return f"{PREFIX}{' · '.join(parts)}"

    def __str__(self) -> str:
        table: list[tuple[str, ...]] = [("API", "asked", "given", "calls", "first place")]
        table += [(row.api, row.asked, row.given, str(row.calls), str(row.first)) for row in self.rows]
        elsewhere: list[tuple[str, ...]] = [("operator", "ran on", "calls", "ms", "kB", "place")]
        elsewhere += [
            (f.operator, f.executor, str(f.calls), f"{f.seconds * 1e3:.1f}", f"{f.bytes / 1e3:.1f}", str(f.site))
            for f in self.fallbacks
        ]
        lines = [*(columns(table) if self.rows else ()), *(columns(elsewhere) if self.fallbacks else ())]
        return "\n".join([*lines, printable(self.summary())])


def _shown(ways: Mapping[str, str], most: int = 3) -> list[str]:
    """The ways to show: at least one per destination, so that `nccl → gloo`, once per run, is not lost."""
    first = {given: way for way, given in reversed(list(ways.items()))}
    others = [way for way in ways if way not in first.values()]
    kept = {*first.values(), *others[: max(0, most - len(first))]}
    return [way for way in ways if way in kept]


def columns(rows: list[tuple[str, ...]]) -> list[str]:
    """Lines with aligned cells."""
    table = [tuple(map(printable, row)) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]


def counted(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _rows(places: Iterable[Place]) -> list[Row]:
    groups: dict[tuple[str, str, str, str], list[Place]] = {}
    for place in places:
        groups.setdefault((place.kind, place.api, place.asked, place.given), []).append(place)
    rows = [
        Row(
            api,
            asked,
            given,
            calls=sum(place.calls for place in members),
            places=len({place.site for place in members}),
            first=members[0].site,
            reason=members[0].reason,
            kind=kind,
        )
        for (kind, api, asked, given), members in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row.calls, row.api, row.asked, row.given))


def _place(record: Record, calls: int) -> Place:
    api = record.api.removesuffix(".__init__").removesuffix(".__new__")  # as the user calls it
    if isinstance(record, Simulated):
        kind = UNSUPPORTED if record.kind == UNSUPPORTED else SIMULATED
        space = record.api.split(".")[1] if record.api.startswith("torch.") else "cuda"  # `import flash_attn`
        if kind == UNSUPPORTED:
            return Place(record.site, kind, api, space, REFUSED, calls, f"{record.target} cannot do it")
        return Place(record.site, kind, api, space, record.target, calls, HOW[record.kind].format(record.target))
    if isinstance(record, StandIn):
        package, _, name = api.partition(".")
        return Place(record.site, STAND_IN, name, package, record.by, calls, f"{package} is not installed")
    if isinstance(record, Shortage):
        return Place(record.site, SHORTAGE, api, record.target, record.given, calls, f"{record.target} was full")
    kind = CHANGED if isinstance(record, Changed) else REDIRECTED
    return Place(record.site, kind, api, record.asked, record.given, calls, record.reason)


def _refusal(fallback: Fallback, calls: int) -> Place:
    asked = ", ".join(fallback.dtypes)
    return Place(fallback.site, UNSUPPORTED, fallback.operator, asked, REFUSED, calls, fallback.reason)


def _order(site: Site) -> tuple[str, int]:
    return site.file, site.line
