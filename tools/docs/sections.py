"""Generated parts of pages that are written by hand: the text between two markers."""

from __future__ import annotations

from pathlib import Path


def put_into(path: Path, begin: str, end: str, text: str) -> None:
    """Replace the text between the markers."""
    page = path.read_text(encoding="utf-8")
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"{path.name} lacks the markers {begin!r} and {end!r}")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
