"""What torch changed from release to release: computed from catalogues, and printed from the data."""

from __future__ import annotations

from typing import Any

import pytest

from tools.catalog.torches import PAGE, _parameters, load, page, steps


def catalogue(torch: str, **signatures: str) -> dict[str, Any]:
    rows = [{"name": f"torch.{name}", "kind": "function", "signature": text} for name, text in signatures.items()]
    return {"torch": torch, "entries": rows}


def test_what_came_what_went_and_what_belongs_to_a_build() -> None:
    found = steps(
        [
            catalogue("1", old="(x)", nccl="(x)", same="(x)", more="(x)", typed="(x)"),
            catalogue("2", same="(x)", more="(x, y=1)", typed="(x: int)", new="()"),
            catalogue("3", same="(x)", more="(y=1)", typed="(x: int)", new="()", nccl="(x)"),
        ]
    )
    assert [(step["added"], step["removed"]) for step in found] == [(["torch.new"], ["torch.old"]), ([], [])]
    assert [step["parameters"] for step in found] == [{"torch.more": [["y"], []]}, {"torch.more": [[], ["x"]]}]
    assert [(step["written otherwise"], step["build"]) for step in found] == [(1, 1), (0, 1)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("(self, x: dict[str, int] = {'a': 1}, *args, y=(1, 2)) -> None", ["self", "x", "args", "y"]),
        ("f(Tensor self, *, ScalarType? dtype=None) -> Tensor", ["self", "dtype"]),
        ("(x, /, opts: A = <A object>)", ["x", "opts"]),
        ("()", []),
        ("", []),
    ],
)
def test_parameters_are_read_from_the_text(text: str, names: list[str]) -> None:
    assert _parameters(text) == names


def test_the_page_is_printed_from_the_data() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(load()), "run: python -m tools.catalog.torches"
    assert [step["to"].partition("+")[0] for step in load()] == ["2.13.0", "2.15.0"]
    assert "torch.cholesky" in load()[1]["removed"]
