"""Writes docs/upstream.md from the outcomes that were kept.

python -m tools.upstream.page
"""

from __future__ import annotations

import collections
from collections.abc import Iterator

from tools.conformance.run import ROOT
from tools.upstream.archive import RELEASE
from tools.upstream.table import GENERATED, REAL, TOO_LONG, Results, Run, counted, load, real_of, reasons

PAGE = ROOT / "docs" / "upstream.md"
HEAD = f"""# PyTorch's own tests on virtual devices

Written by `make upstream`. The wheels of torch contain no tests, so the tests are those of PyTorch {RELEASE} from
Debian's source package. The time limit is one minute per test. After a crash the run continues with the next test.
A test counts if it passes on the real device, because some tests of {RELEASE} fail on a newer torch on every device.
The table gives the number of these tests that pass on a virtual device. The tests were not run on a Mac or on a machine
with two GPUs; for `mps` and `cuda:2` all tests that ran count.

"""


def compared(ours: Run, real: Run | None) -> dict[str, list[str]]:
    """The tests that count, by what they do on ours."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    for name in counted(ours, real):
        found[ours.outcome(name)].append(name)
    return found


def pairs(results: Results) -> Iterator[tuple[str, str, Run | None, Run]]:
    """Mode, file, the run on the real device if there is one, and the one on ours."""
    for mode, files in results.items():
        for file, ours in files.items():
            if mode != REAL:
                yield mode, file, real_of(results, mode, file), ours


def by_origin(file: str, found: dict[str, list[str]]) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Tests that were written by hand, and apart from them those that torch generates, each with a title."""
    classes = GENERATED.get(file, ())
    for title, generated in (
        ((f"{file}, by hand", False), (f"{file}, generated", True)) if classes else ((file, False),)
    ):
        yield (
            title,
            collections.defaultdict(
                list,
                {
                    outcome: [name for name in names if (name.partition(".")[0] in classes) == generated]
                    for outcome, names in found.items()
                },
            ),
        )


def rows(results: Results) -> Iterator[str]:
    """A line per file and mode."""
    yield "| file | mode | tests that count | pass | fail | crash | too long | skipped | torch | compared with |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |"
    for mode, file, real, ours in pairs(results):
        kind, _, _ = mode.partition(" ")
        other = f"{real.torch}, {real.machine}" if real else "nothing"
        for part, found in by_origin(file, compared(ours, real)):
            passed, all_of_them = len(found["passed"]), sum(map(len, found.values()))
            figures = " | ".join(str(len(found[outcome])) for outcome in ("failed", "crashed", TOO_LONG, "skipped"))
            yield (
                f"| {part} | {kind} | {all_of_them} | {passed} ({passed / all_of_them:.1%}) | {figures} "
                f"| {ours.torch} | {other} |"
            )
    waiting = results[REAL].keys() - {file for _, file, _, _ in pairs(results)}
    if waiting:
        yield f"\nRun on the real device only, so far: {', '.join(sorted(waiting))}."


def whys(results: Results) -> Iterator[str]:
    """Tests that count and do not pass on ours, by reason."""
    known = reasons()
    for mode, file, real, ours in pairs(results):
        grouped: dict[str, list[str]] = collections.defaultdict(list)
        for outcome, names in compared(ours, real).items():
            for name in names if outcome != "passed" else ():
                grouped[known.get(file, {}).get(name, "not explained yet")].append(name)
        if grouped:
            yield f"\n### {file} on {mode}\n"
        for reason, names in sorted(grouped.items(), key=lambda item: -len(item[1])):
            shown = ", ".join(f"`{name.rpartition('.')[2]}`" for name in sorted(names))
            yield f"- **{reason}** ({len(names)}): {shown}"


def write_page(results: Results) -> None:
    """The page."""
    parts = (HEAD, *rows(results), "\n## Tests that do not pass", *whys(results))
    PAGE.write_text(parts[0] + "\n".join(parts[1:]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_page(load())
