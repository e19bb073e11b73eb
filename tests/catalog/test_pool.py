"""A call that crashes or hangs costs that call; a run that is interrupted goes on where it stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools.catalog import pool, run

FINE = {"name": "torch.sin", "known": {"by": "call", "call": "torch.sin(T(3))"}}


def expression(name: str, call: str) -> dict[str, Any]:
    return {"name": name, "known": {"by": "call", "call": call}}


def test_a_crash_and_a_hang_cost_one_call_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SECONDS_A_CALL", 5)
    rows: dict[str, Any] = {}
    jobs = [
        expression("torch.cos", "os.abort()"),
        FINE,
        expression("torch.tan", "__import__('time').sleep(100)"),
        expression("torch.exp", "1 / 0"),
    ]
    pool.run_all("plain", jobs, 1, lambda row: rows.update({row["name"]: row}))
    assert rows["torch.cos"]["errors"]["0"].startswith("crashed: exit code -6")
    assert rows["torch.tan"]["errors"]["0"].startswith("hung")
    assert rows["torch.exp"]["errors"]["0"] == "ZeroDivisionError: division by zero"
    assert len(rows["torch.sin"]["results"]) == 1


def test_what_is_kept_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str]]] = []

    def made(host: str, jobs: list[Any], workers: int, report: Any, shard: int = 1) -> None:
        asked.append((host, [job["name"] for job in jobs]))
        for each in jobs[:1] if len(asked) == 1 else jobs:
            report({"name": each["name"], "by": "call", "call": "x", "results": [[0, 1]], "errors": {}, "seconds": 0})
        if len(asked) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(pool, "run_all", made)
    with pytest.raises(KeyboardInterrupt):
        run.run(["a", "b"], tmp_path, 1, show=False)
    with (tmp_path / "plain.jsonl").open("a") as file:
        file.write('{"name": "b", "by"')  # the line that was being written
    run.run(["a", "b"], tmp_path, 1, show=False)
    assert asked == [
        ("plain", ["a", "b"]),
        ("plain", ["b"]),
        ("cpu", ["a", "b"]),
        ("mps", ["a", "b"]),
        ("cuda", ["a", "b"]),
    ]
    asked.clear()
    asked.append(("", []))
    run.run(["a", "b"], tmp_path, 1, show=False)
    assert [names for _, names in asked] == [[]] * 5


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        ({"results": [[0, 1]], "errors": {}}, "passed"),
        ({"results": [[0, 2]], "errors": {}}, "differs"),
        ({"results": [], "errors": {"0": "ValueError: no"}}, "raised"),
    ],
)
def test_verdicts(here: Any, expected: str) -> None:
    plain = {"results": [[0, 1]], "errors": {"1": "refused by plain torch too"}}
    assert run.verdict(plain, here, "cpu")[0] == expected


def test_what_neither_can_call_is_none() -> None:
    nothing = {"results": [], "errors": {"0": "TypeError: ?"}}
    assert run.verdict(nothing, nothing, "cpu") == ("none", "TypeError: ?")
    assert run.verdict(nothing, {"results": [[0, 1]], "errors": {}}, "cpu") == ("passed", "")


def test_a_worker_that_cannot_start_is_heard_of() -> None:
    with pytest.raises(RuntimeError, match="before its first call"):
        pool.run_all("nowhere", [FINE], 1, lambda row: None)
