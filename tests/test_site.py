"""The site: each page is in its navigation, its links lead somewhere, and nothing comes from another host."""

from __future__ import annotations

import importlib.util
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.conftest import ROOT
from tools.docs import site

WITHOUT_SPHINX = "Sphinx is not installed: it is in the extra `site`, which `make site` installs"
# What a browser fetches to show a page: element → attributes.
FETCHED = {
    **dict.fromkeys(("script", "iframe", "embed", "audio", "video", "track", "input"), ("src",)),
    **dict.fromkeys(("img", "source"), ("src", "srcset")),
    "link": ("href",),
    "object": ("data",),
    "use": ("href", "xlink:href"),
    "image": ("href", "xlink:href"),
}
ELSEWHERE = re.compile(r"(?:https?:)?//")
IN_STYLE = re.compile(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)""")


class Page(HTMLParser):
    """What a page fetches from other hosts, where its links lead, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = IN_STYLE.findall(text)
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in FETCHED.get(tag, ()) and ELSEWHERE.match(value or ""):
                self.fetched.append(f"<{tag} {name}={value}>")
            if name in ("href", "src") and value and not re.match(r"[a-z]+:|//", value):
                self.links.append(value)
            if name in ("id", "name"):
                self.anchors.add(value or "")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("sphinx") is None or importlib.util.find_spec("furo") is None:
        pytest.skip(WITHOUT_SPHINX)
    return site.build(tmp_path_factory.mktemp("site"))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small one, with guides."""
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/policy.md", "docs/new.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n")
    return tmp_path


def test_each_page_is_in_the_navigation_once() -> None:
    listed = [page for row in site.navigation().values() for page in row] + site.catalog()
    assert sorted(listed) == sorted(page for page in site.pages() if page != site.INDEX)
    assert {page for page in site.TITLES if page not in listed and (ROOT / page).exists()} == set()


def test_a_page_without_a_section_is_found(repository: Path) -> None:
    tree = site.navigation(repository)
    assert tree["More"] == ["docs/new.md"]
    assert "Guide" not in tree


def test_guides_are_in_the_order_of_their_index(repository: Path) -> None:
    guide = repository / "docs" / "guide"
    guide.mkdir()
    for name in ("a", "b", "c"):
        (guide / f"{name}.md").write_text(f"# {name}\n")
    assert site.navigation(repository)["Guide"] == [f"docs/guide/{name}.md" for name in ("a", "b", "c")]
    (guide / "README.md").write_text("# Guides\n\n[c](c.md#x), [out](../policy.md), [a](a.md)\n")
    assert site.navigation(repository)["Guide"] == [f"docs/guide/{name}.md" for name in ("README", "c", "a", "b")]
    (repository / "examples").mkdir()
    (repository / "examples" / "README.md").write_text("# Examples\n")
    assert site.navigation(repository)["Guide"][-1] == "examples/README.md"


def test_what_pages_link_to_is_copied(repository: Path, tmp_path: Path) -> None:
    for name in ("x.py", "docs/a.svg", "docs/b.svg", "docs/unused.svg"):
        (repository / name).write_text("")
    (repository / "docs" / "policy.md").write_text('# P\n\n[x](../x.py) ![a](a.svg) <img src="b.svg">\n')
    site.stage(tmp_path / "build", repository)
    copied = {path.relative_to(tmp_path / "build").as_posix() for path in (tmp_path / "build").rglob("*.*")}
    assert {"pages/x.py", "pages/docs/a.svg", "pages/docs/b.svg", "extra/docs/b.svg", "pages/docs/policy.md"} <= copied
    assert not any("unused" in path for path in copied)


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/x.css">',
        '<img src="http://example/x.png">',
        "<style>@font-face { src: url(https://example/x.woff) }</style>",
    ],
)
def test_a_request_to_another_host_is_found(text: str) -> None:
    assert len(Page(text).fetched) == 1


def test_a_link_is_no_request() -> None:
    assert Page('<a href="https://example.org/">x</a> <img src="a.png">').fetched == []


@pytest.mark.long
def test_the_site_asks_no_other_host_and_its_links_lead_somewhere(built: Path) -> None:
    found = {path: Page(path.read_text(encoding="utf-8")) for path in built.rglob("*.html")}
    assert len(found) > len(site.pages())
    for path, page in found.items():
        assert page.fetched == [], path
        for link in page.links:
            target, _, anchor = unquote(link).partition("#")
            there = Path(os.path.normpath(path.parent / target.partition("?")[0])) if target else path
            assert there.exists(), f"{path}: {link}"
            if anchor and there in found:
                assert anchor in found[there].anchors, f"{path}: {link}"
    for style in built.rglob("*.css"):
        assert IN_STYLE.findall(style.read_text(encoding="utf-8")) == [], style
    assert (built / "index.html").exists()
    assert (built / "searchindex.js").stat().st_size > 10_000
