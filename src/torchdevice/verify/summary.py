"""A record in words: a line per part, and every disagreement once. Pure: prints and reads nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from torchdevice.verify.findings import AGREES, AS, BAD, DIFFERS, PLAIN, STATUSES, Finding
from torchdevice.verify.parts import PARTS, Part
from torchdevice.verify.record import Record
from torchdevice.verify.worker import START

PLURAL = {AGREES: "agree", DIFFERS: "differ"}
GOOD_MARK, BAD_MARK, NO_MARK = "✓", "✗", "–"


@dataclass(frozen=True)
class Line:
    """The results of one part."""

    mark: str
    part: str
    asks: str
    text: str


@dataclass(frozen=True)
class Disagreement:
    """What was expected and what was seen, with the checks that show it."""

    part: str
    text: str
    checks: tuple[str, ...]


def heading(record: Record) -> str:
    """The device and the versions in one line."""
    machine = record.machine
    name = f"{machine['device_name']} ({machine['virtual'] or machine['device']})"
    versions = f"torch {machine['torch']}, torchdevice {machine['torchdevice']}, Python {machine['python']}"
    return f"{name}, {machine['system']} {machine['architecture']}, {versions}"


def lines(record: Record) -> list[Line]:
    """A line per part."""
    return [_line(record, part) for part in PARTS]


def _line(record: Record, part: Part) -> Line:
    found = [finding for finding in record.findings if finding.part == part.name]
    counts = Counter(finding.status for finding in found)
    texts = [f"{counts[status]} {PLURAL.get(status, status)}" for status in STATUSES if counts[status]]
    total = sum(stage.checks for stage in record.stages if stage.part == part.name)
    if len(found) < total:
        texts.append(f"{total - len(found)} of {total} not run yet")
    texts += [_why_nothing(found)] if _why_nothing(found) else []
    texts += _ratio(found) if part.name == "steps" else []
    bad = any(finding.status in BAD for finding in found)
    mark = BAD_MARK if bad else GOOD_MARK if counts[AGREES] else NO_MARK
    return Line(mark, part.name, part.asks, ", ".join(texts) or "not run yet")


def _why_nothing(found: list[Finding]) -> str:
    """The reason, if no check of a part could be made."""
    return next((finding.detail for finding in found if finding.check == START and finding.status not in BAD), "")


def _ratio(found: list[Finding]) -> Iterator[str]:
    for finding in found:
        if isinstance(finding.figures.get("ratio"), float):
            yield f"redirected step {finding.figures['ratio']:.2f}×"
    times = {finding.way: finding.figures["milliseconds"] for finding in found if finding.figures.get("milliseconds")}
    if {PLAIN, AS} <= times.keys():
        yield f"step on a virtual device {times[AS] / times[PLAIN]:.2f}×"


def disagreements(record: Record) -> list[Disagreement]:
    """Every disagreement once, although several checks show it. Refusals are grouped by operator."""
    texts: dict[tuple[str, str], list[str]] = {}
    dtypes: dict[tuple[str, str, str, str], dict[str, list[str]]] = {}
    for finding in record.disagreements():
        rows = finding.figures.get("disagreements", ())
        for row in rows:
            key = (row["operator"], row["predicted"], row["reason"], row["seen"])
            dtypes.setdefault(key, {}).setdefault(row["dtype"], []).append(finding.title)
        if not rows:
            text = f"{finding.title}: {finding.detail}" if finding.status == DIFFERS else _ended(finding)
            texts.setdefault((finding.part, text), []).append(finding.title)
    grouped = [
        Disagreement(
            "refusals",
            f"{operator} of {', '.join(sorted(by_dtype))}: predicted: {predicted}"
            + (f" ({reason})" if reason else "")
            + f"; seen: {seen}",
            tuple(dict.fromkeys(check for checks in by_dtype.values() for check in checks)),
        )
        for (operator, predicted, reason, seen), by_dtype in sorted(dtypes.items())
    ]
    single = [Disagreement(part, text, tuple(checks)) for (part, text), checks in texts.items()]
    order = [part.name for part in PARTS]
    return sorted([*single, *grouped], key=lambda each: order.index(each.part))


def _ended(finding: Finding) -> str:
    return f"{finding.title}: {finding.status}: {finding.detail}"


def as_text(record: Record) -> str:
    """The summary that is printed."""
    rows = lines(record)
    width = max(len(row.part) for row in rows)
    told = [heading(record), "", *(f"{row.mark} {row.part:<{width}}  {row.text}" for row in rows), ""]
    found = disagreements(record)
    told.append(f"Disagreements: {len(found)}")
    told += [f"  {each.part:<{width}}  {each.text}{_more(each)}" for each in found]
    return "\n".join(told)


def _more(each: Disagreement) -> str:
    if each.part != "refusals":
        return ""
    rest = f" and {len(each.checks) - 1} more" if len(each.checks) > 1 else ""
    return f" [{each.checks[0]}{rest}]" if each.checks else ""
