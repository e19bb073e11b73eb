"""docs/versions.md, from the results."""

from __future__ import annotations

from tools.versions.table import COMMANDS, PAGE, Result, in_order, load

HEAD = """# Versions of torch and of Python

Written by `make matrix` from its results. For each version of torch it creates a virtual environment, installs torch
from the package index and the wheel of this project, and runs the commands below and the tests. On Linux the index has
CUDA builds of torch. The machine has no GPU and no driver unless the column *machine* names a GPU. The tests run with
the GPU hidden, except those for a real GPU. A virtual device is refused on a host that has a real device of the same
type, so such commands are not counted.

"""
COMMON = "The commands: {commands}.\n\n"


def page(results: dict[str, Result]) -> str:
    """The text of docs/versions.md."""
    results = in_order(results)
    commands = ", ".join(f"`torchdevice {' '.join(command)}`" for command in COMMANDS)
    lines = [HEAD + COMMON.format(commands=commands)]
    lines.append("| torch | Python | machine | commands | suites | passed | failed | skipped | minutes | date |\n")
    lines.append("| --- | --- | --- | --- | --- | ---: | ---: | ---: | ---: | --- |\n")
    for each in results.values():
        worked = sum(each.commands.values())
        typed = "all ✓" if worked == len(each.commands) else f"{worked} of {len(each.commands)}"
        lines.append(
            f"| {each.build} | {each.python} | {each.machine} | {typed} | {each.suites} | {each.passed} "
            f"| {len(each.failed)} | {sum(each.skipped.values())} | {each.seconds / 60:.0f} | {each.date} |\n"
        )
    lines.append("\n## Skipped tests\n\n| torch | tests | reason |\n| --- | ---: | --- |\n")
    for each in results.values():
        lines += [f"| {each.build} | {count} | {reason} |\n" for reason, count in sorted(each.skipped.items())]
    failed = [(each.build, name) for each in results.values() for name in each.failed]
    if failed:
        lines.append("\n## Failed tests\n\n| torch | test |\n| --- | --- |\n")
        lines += [f"| {build} | `{name}` |\n" for build, name in failed]
    return "".join(lines)


def write_page(results: dict[str, Result]) -> None:
    """Writes docs/versions.md."""
    PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    write_page(load())
