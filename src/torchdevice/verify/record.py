"""The file of a run: what is in it, reading and checking it, and how a run goes on with it. Does not import torch."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from torchdevice.errors import ConfigError, explain_error
from torchdevice.reading import read_regular
from torchdevice.reporting import files
from torchdevice.verify.findings import BAD, STATUSES, WAYS, Finding
from torchdevice.verify.parts import PARTS

SCHEMA = 1
LARGEST = 64 << 20
# The facts of `machine.describe`, with their types. `DECIDING`: a run goes on only with a file in which these agree.
MACHINE: dict[str, tuple[type, ...]] = {
    "torchdevice": (str,),
    "torch": (str,),
    "python": (str,),
    "system": (str,),
    "architecture": (str,),
    "cores": (int,),
    "memory_gib": (int, float),
    "device": (str,),
    "device_name": (str,),
    "device_count": (int,),
    "virtual": (str,),
}
DECIDING = ("torchdevice", "torch", "system", "device", "device_name", "virtual")
_FINDING: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("part", "way", "check", "status", "detail"), (str,)),
    "figures": (dict,),
}
_DISAGREEMENT = ("operator", "dtype", "predicted", "reason", "seen")
_ALLOWED = {"part": tuple(part.name for part in PARTS), "way": WAYS, "status": STATUSES}
_STAGE: dict[str, tuple[type, ...]] = {"part": (str,), "way": (str,), "checks": (int,), "seconds": (int, float)}


@dataclass(frozen=True)
class Stage:
    """A part in one way: how many checks it has, and how long it ran so far."""

    part: str
    way: str
    checks: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Record:
    """Everything that is known of a device. `minutes`: the time that was given to its last run."""

    machine: dict[str, Any]
    minutes: float
    date: str = dataclasses.field(default_factory=lambda: date.today().isoformat())
    stages: tuple[Stage, ...] = ()
    findings: tuple[Finding, ...] = ()

    def stage(self, part: str, way: str) -> Stage:
        """The stage of that name; an empty one if it has not begun."""
        found = (stage for stage in self.stages if (stage.part, stage.way) == (part, way))
        return next(found, Stage(part, way))

    def with_stage(self, stage: Stage) -> Record:
        """With this stage in the place of an earlier one."""
        kept = tuple(each for each in self.stages if (each.part, each.way) != (stage.part, stage.way))
        return replace(self, stages=(*kept, stage))

    def with_finding(self, finding: Finding) -> Record:
        """With this finding in the place of an earlier one of the same check."""
        return replace(self, findings=(*self.without(*finding.key).findings, finding))

    def without(self, *key: str) -> Record:
        """Without the finding of this part, way and check."""
        return replace(self, findings=tuple(finding for finding in self.findings if finding.key != key))

    def disagreements(self) -> list[Finding]:
        """What is not as expected."""
        return [finding for finding in self.findings if finding.status in BAD]

    def as_json(self) -> dict[str, Any]:
        """For `from_json`."""
        return {
            "schema": SCHEMA,
            "date": self.date,
            "minutes": self.minutes,
            "machine": self.machine,
            "stages": [dataclasses.asdict(stage) for stage in self.stages],
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Record:
        """The reverse of `as_json`, for data without `problems`."""
        return cls(
            data["machine"],
            data["minutes"],
            data["date"],
            tuple(Stage(**row) for row in data["stages"]),
            tuple(Finding(**row) for row in data["findings"]),
        )


def problems(data: Any) -> Iterator[str]:
    """Why data are not those of a run, in words. Nothing if they are."""
    if not isinstance(data, dict):
        yield "it is not an object"
        return
    if data.get("schema") != SCHEMA:
        yield f"its schema is {data.get('schema')!r}, and this version reads {SCHEMA}"
        return
    kinds: dict[str, tuple[type, ...]] = {"date": (str,), "minutes": (int, float)}
    yield from _fields("", data, {**kinds, "machine": (dict,), "stages": (list,), "findings": (list,)}, 1)
    if isinstance(data.get("machine"), dict):
        yield from _fields("machine.", data["machine"], MACHINE)
    for name, fields in (("stages", _STAGE), ("findings", _FINDING)):
        rows = data.get(name)
        for number, row in enumerate(rows if isinstance(rows, list) else ()):
            where = f"{name}[{number}]"
            if not isinstance(row, dict):
                yield f"{where} is not an object"
                continue
            yield from _fields(f"{where}.", row, fields)
            for field, allowed in _ALLOWED.items():
                if field in fields and row.get(field) not in allowed:
                    yield f"{where}.{field} is {row.get(field)!r}, which is none of {', '.join(allowed)}"
            yield from _disagreements(where, row.get("figures"))


def _disagreements(where: str, figures: Any) -> Iterator[str]:
    """What `summary` and `tools.verified` read of the figures."""
    rows = figures.get("disagreements", []) if isinstance(figures, dict) else []
    if not isinstance(rows, list):
        yield f"{where}.figures.disagreements is not a list"
        return
    for row in rows:
        if not isinstance(row, dict):
            yield f"{where}.figures.disagreements has a row that is not an object"
        else:
            yield from _fields(f"{where}.figures.disagreements.", row, dict.fromkeys(_DISAGREEMENT, (str,)))


def _fields(where: str, data: dict[str, Any], kinds: dict[str, tuple[type, ...]], others: int = 0) -> Iterator[str]:
    for name, kind in kinds.items():
        if not isinstance(data.get(name), kind) or isinstance(data.get(name), bool):
            yield f"{where}{name} is missing or has a wrong type"
    if len(data) > len(kinds) + others:
        yield f"{where or 'the file: '}unknown fields: {', '.join(sorted(map(str, set(data) - {*kinds, 'schema'})))}"


def read(path: Path) -> Record:
    """The record in a file. Raises ConfigError if it is not one."""
    try:
        data = json.loads(read_regular(path, LARGEST))
        found = list(problems(data))
    except (ValueError, OSError) as error:
        found = [f"it cannot be read: {error}"]
    if found:
        raise ConfigError(
            explain_error(
                f"{path} was given as a file of `torchdevice verify`",
                f"{found[0]}" + (f" (and {len(found) - 1} more problems)" if len(found) > 1 else ""),
                "give a file that `torchdevice verify` wrote",
            )
        )
    return Record.from_json(data)


def write(path: Path, record: Record) -> None:
    """Replace the file at once, so that an interruption leaves the old or the new one."""
    files.write(str(path), json.dumps(record.as_json(), indent=1, ensure_ascii=False) + "\n")


def resume(path: Path, machine: dict[str, Any], minutes: float) -> Record:
    """The record to go on with: the one in the file, or a new one. Raises ConfigError for one of another device."""
    if not path.exists():
        return Record(machine, minutes)
    record = read(path)
    for name in DECIDING:
        if record.machine[name] != machine[name]:
            raise ConfigError(
                explain_error(
                    f"{path} was to be continued",
                    f"it was made with {name} {record.machine[name]!r}, and here it is {machine[name]!r}",
                    "name another file with --output, or delete this one",
                )
            )
    return replace(record, minutes=minutes, date=date.today().isoformat())
