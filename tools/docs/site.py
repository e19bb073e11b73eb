"""Builds the site from the pages of the repository, offline: `make site`. The look is in `tools/docs/sphinx`.

The pages are copied with their folders, so that relative links are the same on GitHub and on the site.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

from tools.docs.links import in_html, is_relative, links

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
CONFIGURATION = Path(__file__).with_name("sphinx")
INDEX = "README.md"
GUIDE, CATALOG, EXAMPLES = Path("docs/guide"), Path("docs/catalog"), Path("examples")

# Section → pages, in the order of the navigation. Other pages below docs/ are in a section of their own.
SECTIONS = {
    "Reference": ("docs/reference.md", "docs/cli.md", "docs/policy.md", "docs/catalog/README.md"),
    "Topics": (
        *("docs/masquerade.md", "docs/fallback.md", "docs/mlx.md", "docs/packages.md", "docs/virtual.md"),
        "docs/memory.md",
        *("docs/distributed.md", "docs/reliability.md", "docs/limits.md"),
    ),
    "Measurements": (
        *("docs/benchmarks.md", "docs/conformance.md", "docs/realworld.md", "docs/upstream.md", "docs/versions.md"),
        "docs/gaps.md",
    ),
    "Project": ("docs/architecture.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"),
}
# Where a heading is too long for the navigation.
TITLES = {
    "examples/README.md": "Examples",
    "docs/guide/README.md": "Overview",
    "docs/cli.md": "Command line",
    "docs/policy.md": "Policies",
    "docs/catalog/README.md": "Catalogue of torch",
    "docs/masquerade.md": "What torch.cuda answers",
    "docs/fallback.md": "Missing operators",
    "docs/packages.md": "Packages that need CUDA",
    "docs/memory.md": "Memory",
    "docs/conformance.md": "Conformance",
    "docs/realworld.md": "Real programs",
    "docs/upstream.md": "PyTorch's own tests",
    "docs/versions.md": "Versions",
    "docs/gaps.md": "The gap log",
    "docs/limits.md": "Limits",
    "docs/architecture.md": "Architecture",
}


def pages(root: Path = ROOT) -> list[str]:
    """Every page, relative to the repository."""
    top = [INDEX, *(page for pages in SECTIONS.values() for page in pages if "/" not in page)]
    folders = [path.relative_to(root) for folder in ("docs", EXAMPLES) for path in (root / folder).rglob("*.md")]
    return [*top, *sorted(path.as_posix() for path in folders)]


def navigation(root: Path = ROOT) -> dict[str, list[str]]:
    """Section → its pages; each page is in one, but for the first page and those of the catalogue below its index."""
    there = [page for page in pages(root) if page != INDEX]
    guide = [page for page in there if Path(page).parent in (GUIDE, EXAMPLES)]
    listed = {title: [page for page in row if page in there] for title, row in SECTIONS.items()}
    known = {*guide, *catalog(root), *(page for row in listed.values() for page in row)}
    tree = {
        "Guide": _in_order_of_index(guide, root),
        "More": [page for page in there if page not in known],
        **listed,
    }
    order = ("Guide", "Reference", "Topics", "Measurements", "More", "Project")
    return {title: tree[title] for title in order if tree[title]}


def catalog(root: Path = ROOT) -> list[str]:
    """The pages below the index of the catalogue."""
    return [page for page in pages(root) if Path(page).parent == CATALOG and Path(page).name != INDEX]


def _in_order_of_index(names: list[str], root: Path) -> list[str]:
    """The index page, then what it links to in its order, then the rest."""
    index = GUIDE / INDEX
    first = [index.as_posix()]
    if (root / index).exists():
        text = (root / index).read_text(encoding="utf-8")
        first += [os.path.normpath(GUIDE / link.partition("#")[0]) for link in links(text) if is_relative(link)]
    return [*(name for name in dict.fromkeys(first) if name in names), *(name for name in names if name not in first)]


def _contents(sections: Mapping[str, Iterable[str]], folder: str = "") -> str:
    """Sphinx wants the navigation inside of pages."""
    lines = []
    for caption, names in sections.items():
        entries = [os.path.relpath(name, folder or ".").removesuffix(".md") for name in names]
        titled = [
            f"{TITLES[name]} <{entry}>" if name in TITLES else entry for name, entry in zip(names, entries, strict=True)
        ]
        lines += ["", "```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), "", *titled, "```"]
    return "\n".join([*lines, ""])


def linked_files(page: str, root: Path = ROOT) -> Iterator[tuple[str, bool]]:
    """What a page links to and is no page, relative to the repository; whether the link is in HTML."""
    text = (root / page).read_text(encoding="utf-8")
    for link, raw in ((link, raw) for found, raw in ((links(text), False), (in_html(text), True)) for link in found):
        path = os.path.normpath(Path(page).parent / unquote(link.partition("#")[0]))
        if is_relative(link) and not path.endswith(".md") and (root / path).is_file():
            yield path, raw


def stage(where: Path, root: Path = ROOT) -> None:
    """Copy what the site is made of: `pages` with what they link to, and in `extra` what Sphinx may not see in HTML."""
    for folder in ("pages", "extra"):
        shutil.rmtree(where / folder, ignore_errors=True)
        (where / folder).mkdir(parents=True)
    for page in pages(root):
        text = (root / page).read_text(encoding="utf-8")
        if page == INDEX:
            text += _contents(navigation(root))
        elif page == (CATALOG / INDEX).as_posix():
            text += _contents({"": catalog(root)}, str(CATALOG))
        _written(where / "pages" / page).write_text(text, encoding="utf-8")
        for path, raw in linked_files(page, root):
            for folder in ("pages", "extra") if raw else ("pages",):
                shutil.copyfile(root / path, _written(where / folder / path))


def _written(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def build(where: Path = BUILD, root: Path = ROOT) -> Path:
    """Build the site below `where`; its folder. Anything that Sphinx warns about is an error."""
    stage(where, root)
    site = where / "site"
    shutil.rmtree(site, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-c", str(CONFIGURATION)]
    command += ["-D", f"html_extra_path={where / 'extra'}", "-d", str(where / "doctrees")]
    subprocess.run([*command, str(where / "pages"), str(site)], check=True)
    for readme in site.rglob("README.html"):  # what a server shows of a folder
        shutil.copyfile(readme, readme.with_name("index.html"))
    return site


if __name__ == "__main__":
    print(f"{(build() / 'index.html').relative_to(ROOT)}")
