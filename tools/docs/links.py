"""Links and anchors of a Markdown page, as GitHub reads it."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

MARKDOWN = MarkdownIt("commonmark").enable("table").enable("strikethrough")
HTML = ("html_block", "html_inline")
_IN_HTML = re.compile(r"""<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)\s*=\s*["']([^"']+)["']""", re.IGNORECASE)
_ID_IN_HTML = re.compile(r"""<\w+\b[^>]*?\b(?:id|name)\s*=\s*["']([^"']+)["']""", re.IGNORECASE)


def links(text: str) -> Iterator[str]:
    """Where links and pictures of Markdown lead, in their order."""
    for token in _all(MARKDOWN.parse(text)):
        if token.type == "link_open":
            yield str(token.attrs["href"])
        elif token.type == "image":
            yield str(token.attrs["src"])


def in_html(text: str) -> Iterator[str]:
    """The same for links and pictures that are written in HTML."""
    for token in _all(MARKDOWN.parse(text)):
        if token.type in HTML:
            yield from _IN_HTML.findall(token.content)


def is_relative(link: str) -> bool:
    """Whether a link stays in the repository."""
    return not re.match(r"[a-z][a-z+.-]*:|//", link, re.IGNORECASE)


def anchors(text: str) -> set[str]:
    """What may follow `#` in a link to the page: its headings, and what HTML names."""
    tokens = MARKDOWN.parse(text)
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading, content in itertools.pairwise(tokens):
        if heading.type == "heading_open":
            anchor = slug(_plain(content))
            found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
            seen[anchor] += 1
    for token in _all(tokens):
        if token.type in HTML:
            found |= set(_ID_IN_HTML.findall(token.content))
    return found


def slug(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _plain(inline: Token) -> str:
    return "".join(child.content for child in inline.children or () if child.type in ("text", "code_inline"))


def _all(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _all(token.children or [])
