"""Every relative link and anchor in the pages of the repository leads somewhere."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.conftest import ROOT
from tools.docs.links import anchors, in_html, is_relative, links, slug
from tools.docs.site import pages

PAGES = pages()
TEXT = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}


def problems(page: str, text: str) -> list[str]:
    """Links of a page that lead nowhere, and why."""
    found = []
    for link in filter(is_relative, (*links(text), *in_html(text))):
        path, _, anchor = unquote(link).partition("#")
        target = os.path.normpath(Path(page).parent / path) if path else page
        if not (ROOT / target).exists():
            found.append(f"{link}: no such file")
        elif path.startswith("/") or target.startswith(".."):
            found.append(f"{link}: outside of the repository")
        elif anchor and target.endswith(".md") and anchor not in anchors((ROOT / target).read_text(encoding="utf-8")):
            found.append(f"{link}: no such heading")
    return found


@pytest.mark.parametrize("page", PAGES)
def test_links_and_anchors_lead_somewhere(page: str) -> None:
    assert problems(page, TEXT[page]) == []


@pytest.mark.parametrize(
    "text",
    [
        "[x](docs/nothing.md)",
        "[x](docs/policy.md#nothing)",
        "[x](#nothing)",
        "![x](docs/nothing.svg)",
        '<img src="docs/nothing.svg">',
        "[x](../README.md)",
    ],
)
def test_a_broken_link_is_found(text: str) -> None:
    assert len(problems("README.md", text)) == 1


def test_what_is_code_is_no_link() -> None:
    assert problems("README.md", "`[x](nothing.md)`\n\n```\n[x](nothing.md)\n```\n") == []


def test_anchors_are_those_of_github() -> None:
    assert slug("Which policy is used?") == "which-policy-is-used"
    assert anchors("# A `run` – b\n\n## Same\n\n## Same\n") == {"a-run--b", "same", "same-1"}
