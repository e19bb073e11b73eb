"""Writes docs/mac.md from the reports and the outcomes that were kept.

python -m tools.mac_reports.page
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator

from tools.mac_reports import checks, table
from tools.mac_reports.table import OF_METAL, ROOT, Outcome, Report, Results
from tools.verified import seen

PAGE = ROOT / "docs" / "mac.md"
HEAD = """# What people with Macs report

Written by `make mac-reports`. TorchDevice was not tested on a Mac. The tests use a virtual `mps` that raises the errors
that a Mac raises according to torch's own lists ([virtual.md](virtual.md)). This page compares these errors with
public reports.

- **A report** is a public issue or pull request about a program that failed on MPS, or that failed because it requests
  CUDA. A short program was written for each report. It makes the calls of torch that failed and compares the results
  with those of the CPU: `tests/mac_reports/programs`. Links and error messages are in
  `tests/mac_reports/reports.json`.
- **Without TorchDevice**: the program on plain torch {torch} with a virtual `mps:real`, which represents a Mac
  with that torch. *same words*: it ends in the error of the report. *other words*: it ends in another error. *runs*:
  this torch has the feature that was missing in the report. For kinds in italics, *runs* has no meaning (see below).
- **With TorchDevice**: the program under `torchdevice run --virtual mps:real`. *runs* includes that its values are
  right.
- *Crashes, hangs, memory and wrong values* occur in Metal's kernels. A virtual device computes with the kernels of the
  CPU, so such a program always runs here. This shows that TorchDevice does not break it, and shows nothing about a Mac.
- Error messages and versions are from the parts of the threads that were read. "not said" means that these parts do not
  contain it. For a thread without an error message, the sentence that names the missing feature is quoted.

"""
WRONG = """
## Wrong values

This table lists bugs of MPS that give wrong values without an error, as the threads describe them. "not said" has the
same meaning as above. TorchDevice avoids two of the conditions: copies with `non_blocking=True` are made blocking, and
`adaptive_max_pool2d` to sizes that do not divide runs on the CPU up to torch 2.13 ([fallback.md](fallback.md)).
`torchdevice run --no-mps-workarounds` and `TORCHDEVICE_MPS_WORKAROUNDS=0` turn both off. It does not avoid the others.

| bug | seen in | fixed | condition | remedy in the thread |
| --- | --- | --- | --- | --- |"""
SUMS = """| kind | reports | refused without it | … in the same words | … that run with it | all that run with it |
| --- | ---: | ---: | ---: | ---: | ---: |"""
ROWS = """| report | thread | kind | torch | fixed, says the thread | reported | without TorchDevice | with it |
| --- | --- | --- | --- | --- | --- | --- | --- |"""
SAME, OTHER, RUNS = "same words", "other words", "runs"


def plain_words(text: str) -> str:
    """Without what differs between versions of one sentence: quotes, spaces, and a misspelling of torch's."""
    text = re.sub(r"[‘’`'\"]", "'", text).replace("not current implemented", "not currently implemented")
    return " ".join(text.split()).rstrip(".").lower()


def without_us(report: Report, outcome: Outcome) -> str:
    """What plain torch does, against the report."""
    if not outcome.plain:
        return RUNS
    return SAME if plain_words(report.error) in plain_words(outcome.plain) else OTHER


def percent(part: int, whole: int) -> str:
    """Of nothing, a dash."""
    return f"{part} ({part / whole:.0%})" if whole else "–"


def kind_name(kind: str) -> str:
    """In italics where a virtual device shows nothing."""
    return f"*{kind}*" if kind in OF_METAL else kind


def sums(results: Results) -> Iterator[str]:
    """A line per kind."""
    yield SUMS
    groups: dict[str, list[Report]] = collections.defaultdict(list)
    for report in table.reports():
        groups[report.kind].append(report)
    named = [(kind_name(kind), groups[kind]) for kind in table.KINDS if groups[kind]]
    for name, reports in [*named, ("**all**", table.reports())]:
        found = [(report, results.outcomes[report.id]) for report in reports]
        refused = [(report, outcome) for report, outcome in found if outcome.plain]
        same = sum(without_us(report, outcome) == SAME for report, outcome in refused)
        ran = sum(not outcome.ours for _, outcome in found)
        mended = sum(not outcome.ours for _, outcome in refused)
        shares = f"{percent(mended, len(refused))} | {percent(ran, len(found))}"
        yield f"| {name} | {len(found)} | {len(refused)} | {same} | {shares} |"


def cell(text: str) -> str:
    """Text that cannot end a column."""
    return text.replace("|", "\\|")


def link(address: str) -> str:
    """The thread, by its repository and number."""
    _, _, path = address.partition("github.com/")
    owner, name, _, number = path.split("/")
    return f"[{name if owner == name else f'{owner}/{name}'} {number}]({address})"


def not_running(results: Results) -> Iterator[str]:
    """Reports whose program does not run with TorchDevice, and why."""
    known = table.reasons()
    for report in table.reports():
        error = results.outcomes[report.id].ours
        if error:
            reason = known.get(report.id, "not explained yet")
            yield f"- `{report.id}` ({link(report.link)}): {reason}. It ends in `{error}`"


def rows(results: Results) -> Iterator[str]:
    """A line per report."""
    yield ROWS
    for report in table.reports():
        outcome = results.outcomes[report.id]
        told = f"{report.torch} | {report.fixed} | {cell(report.error)}"
        here = f"{without_us(report, outcome)} | {'fails' if outcome.ours else RUNS}"
        name = f"**{report.id}**: {cell(report.title)}"
        yield f"| {name} | {link(report.link)} | {kind_name(report.kind)} | {told} | {here} |"


def wrong_values() -> Iterator[str]:
    """A line per bug."""
    yield WRONG
    for bug in table.wrong_values():
        told = f"{bug.since} | {bug.fixed} | {cell(bug.condition)} | {cell(bug.remedy)}"
        yield f"| **{bug.id}** ({link(bug.link)}) | {told} |"


def text() -> str:
    """The page."""
    results = table.load()
    head = HEAD.format(torch=results.torch)
    failing = list(not_running(results))
    parts = (
        *sums(results),
        f"\nMeasured on {results.date}.\n",
        *seen.section(seen.load()),
        f"\n## Reports that do not run with TorchDevice ({len(failing)})\n",
        *failing,
        *checks.section(),
        f"\n## All reports ({len(table.reports())})\n",
        *rows(results),
        *wrong_values(),
    )
    return head + "\n".join(parts) + "\n"


def write_page() -> None:
    """To docs/."""
    PAGE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    write_page()
