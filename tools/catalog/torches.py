"""What changed between releases of torch, from their catalogues: the data, and docs/torch-changes.md.

torchdevice catalog --json > 2.11.json          in an environment of each release
python -m tools.catalog.torches 2.11.json 2.13.json 2.15.json
python -m tools.catalog.torches                 writes the page again from the data

A name that one release lacks between two others that have it is the build's: one for the CPU has no ProcessGroupNCCL.
It counts neither as removed nor as added.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.catalog import pool
from torchdevice.catalog.changes import changes
from torchdevice.catalog.entries import namespace_of
from torchdevice.catalog.markdown import table_row

DATA = Path(__file__).with_name("torches.json")
PAGE = pool.ROOT / "docs" / "torch-changes.md"
Step = dict[str, Any]


def steps(catalogues: Sequence[dict[str, Any]]) -> list[Step]:
    """What each release changed, in order: names that came and went, parameters that did, and other signatures."""
    names = [{row["name"] for row in each["entries"]} for each in catalogues]
    lacking = set.intersection(names[0], names[-1]) - set.intersection(*names)
    found = []
    for old, new in itertools.pairwise(catalogues):
        change = changes(old["entries"], new["entries"])
        signatures = {name: fields["signature"] for name, fields in change.changed.items() if "signature" in fields}
        parameters = {name: moved for name, pair in signatures.items() if any(moved := _moved(*pair))}
        found.append(
            {
                "from": old["torch"],
                "to": new["torch"],
                "names": [len(old["entries"]), len(new["entries"])],
                "added": [name for name in change.added if name not in lacking],
                "removed": [name for name in change.removed if name not in lacking],
                "build": len(lacking),
                "parameters": parameters,
                "written otherwise": len(signatures) - len(parameters),
            }
        )
    return found


def _moved(old: str, new: str) -> list[list[str]]:
    """Parameters that only the new signature has, and those that only the old one has."""
    before, after = _parameters(old), _parameters(new)
    if not before or not after:  # one of them is not known: a function that became one of C, or ceased to be
        return [[], []]
    return [[each for each in after if each not in before], [each for each in before if each not in after]]


def _parameters(signature: str) -> list[str]:
    """The names, from the text: at the outermost level, what stands before a colon or an equals sign."""
    depth, parts, current = 0, [], ""
    for letter in signature[signature.find("(") + 1 :]:
        if letter == "," and depth == 0:
            parts.append(current)
            current = ""
            continue
        depth += (letter in "([{<") - (letter in ")]}>")
        if depth < 0:
            break
        current += letter
    words = [re.split(r"[:=]", part)[0].split() for part in (*parts, current)]
    return [each[-1].strip("*/") for each in words if each and each[-1].strip("*/")]


def page(found: Sequence[Step]) -> str:
    """docs/torch-changes.md."""
    lines = ["# What torch changed\n", "Written by `python -m tools.catalog.torches`; do not edit.\n"]
    lines += [
        "This page compares the public names of one release of torch with those of the next, as",
        "`torchdevice catalog diff` does. Public names are defined as in [the catalogue](catalog/README.md).\n",
        "| from | to | names | added | removed | parameters changed | only types or defaults changed |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for step in found:
        counts = [len(step[each]) for each in ("added", "removed", "parameters")]
        cells = [step["from"], step["to"], " → ".join(map(str, step["names"])), *counts, step["written otherwise"]]
        lines.append(table_row(map(str, cells)))
    lines += [
        f"\nThe {found[0]['build']} names that only torch's CUDA build has are not counted, because 2.13.0+cpu is a "
        "CPU build.",
    ]
    for step in found:
        lines += [f"\n## {step['from']} → {step['to']}\n", *_lists(step)]
    return "\n".join(lines) + "\n"


def _lists(step: Step) -> Iterator[str]:
    for what in ("added", "removed"):
        yield f"### {what.capitalize()}\n"
        spaces: dict[str, list[str]] = {}
        for name in step[what]:
            space = namespace_of(name)
            spaces.setdefault(space, []).append(name.removeprefix(f"{space}."))
        yield from (
            f"- `{space}`: " + ", ".join(f"`{name}`" for name in names) for space, names in sorted(spaces.items())
        )
        yield ""
    yield "### Parameters\n"
    yield "| function | new parameters | parameters that are gone |"
    yield "| --- | --- | --- |"
    for name, (new, gone) in step["parameters"].items():
        yield table_row((f"`{name}`", *(", ".join(f"`{each}`" for each in some) or "–" for some in (new, gone))))


def load() -> list[Step]:
    """The data of the page."""
    return list(json.loads(DATA.read_text(encoding="utf-8")))


def main(paths: Sequence[str]) -> None:
    if paths:
        catalogues = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
        DATA.write_text(json.dumps(steps(catalogues), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(load()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
