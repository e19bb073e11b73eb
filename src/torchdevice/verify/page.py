"""A record as one self-contained HTML file, made from `verify.html.jinja`, to attach to an issue."""

from __future__ import annotations

from importlib.resources import files

from torchdevice.verify import summary
from torchdevice.verify.record import Record

TEMPLATE = "verify.html.jinja"


def render(record: Record) -> str:
    """The page."""
    from jinja2 import Environment, StrictUndefined

    text = files("torchdevice.verify").joinpath(TEMPLATE).read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(text).render(
        record=record,
        heading=summary.heading(record),
        lines=summary.lines(record),
        disagreements=summary.disagreements(record),
    )
