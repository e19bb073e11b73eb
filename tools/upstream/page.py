"""Writes docs/upstream.md from the outcomes that were kept.

python -m tools.upstream.page
"""

from __future__ import annotations

import collections
from collections.abc import Iterator

from tools.conformance.run import ROOT
from tools.upstream.archive import RELEASE
from tools.upstream.table import Results, Run, load, reason_for, reasons

PAGE = ROOT / "docs" / "upstream.md"
REAL = "real"
HEAD = f"""# PyTorch's own tests on virtual devices

Written by `make upstream`. The tests are PyTorch's, of release {RELEASE} (from Debian's source package: the wheels have
none), run by the torch that the table names. Each runs in a process that it cannot take others down with, for at most a
minute. A test counts if it passes on the real device; of those, the table says how many pass on a virtual one that the
CPU computes for. Some tests of {RELEASE} fail on a newer torch with the real device too: they do not count.

"""


def compared(real: Run, ours: Run) -> dict[str, list[str]]:
    """The tests that pass on the real device, by what they do on ours."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    for name in real.names["passed"]:
        found[ours.outcome(name)].append(name)
    return found


def rows(results: Results) -> Iterator[str]:
    """A line per file and mode."""
    yield "| file | mode | pass on the real device | of those pass | fail | crash or take too long | skipped | torch |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"
    for mode, files in results.items():
        for file, ours in files.items():
            if mode == REAL or file not in results[REAL]:
                continue
            real = results[REAL][file]
            found = compared(real, ours)
            passed, all_of_them = len(found["passed"]), len(real.names["passed"])
            left = [len(found[outcome]) for outcome in ("failed", "crashed", "skipped")]
            figures = " | ".join(map(str, left))
            yield (
                f"| {file} | {mode} | {all_of_them} | {passed} ({passed / all_of_them:.0%}) | {figures} "
                f"| {ours.torch}; real: {real.torch}, {real.machine} |"
            )


def whys(results: Results) -> Iterator[str]:
    """Tests that pass on the real device and not on ours, by reason."""
    known = reasons()
    for mode, files in results.items():
        for file, ours in files.items():
            if mode == REAL or file not in results[REAL]:
                continue
            grouped: dict[str, list[str]] = collections.defaultdict(list)
            for outcome, names in compared(results[REAL][file], ours).items():
                for name in names if outcome != "passed" else ():
                    grouped[reason_for(name, known.get(file, {})) or "not explained yet"].append(name)
            if grouped:
                yield f"\n### {file} on {mode}\n"
            for reason, names in sorted(grouped.items(), key=lambda item: -len(item[1])):
                shown = ", ".join(f"`{name.rpartition('.')[2]}`" for name in sorted(names))
                yield f"- **{reason}** ({len(names)}): {shown}"


def write_page(results: Results) -> None:
    """The page."""
    text = (
        HEAD + "\n".join(rows(results)) + "\n\n## Tests that pass on the real device only\n" + "\n".join(whys(results))
    )
    PAGE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_page(load())
