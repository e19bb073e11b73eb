"""Records for tests: an invented Mac, and what was found on it."""

from __future__ import annotations

from torchdevice.verify.findings import AGREES, AS, CRASHED, DIFFERS, PLAIN, SKIPPED, Finding
from torchdevice.verify.record import Record, Stage

MACHINE = {
    "torchdevice": "0.1.0",
    "torch": "2.13.0",
    "python": "3.12.1",
    "system": "macOS 15.1",
    "architecture": "arm64",
    "cores": 8,
    "memory_gib": 16.0,
    "device": "mps",
    "device_name": "Apple M2",
    "device_count": 1,
    "virtual": "",
}


def refusal(check: str, operator: str, dtype: str, predicted: str, seen: str) -> Finding:
    row = {"operator": operator, "dtype": dtype, "predicted": predicted, "reason": "", "seen": seen}
    calls = {"ran": [f"{operator} {dtype}"] if seen == "runs" else []}
    calls["refused"] = [] if calls["ran"] else [f"{operator} {dtype}"]
    text = f"{operator} of {dtype}: predicted: {predicted}; seen: {seen}"
    return Finding("refusals", PLAIN, check, DIFFERS, text, {**calls, "disagreements": [row]})


RECORD = Record(
    MACHINE,
    8.0,
    "2026-11-17",
    (
        Stage("coherence", PLAIN, 2, 1.0),
        Stage("steps", PLAIN, 1, 1.0),
        Stage("steps", AS, 1, 1.0),
        Stage("refusals", PLAIN, 9, 1.0),
        Stage("operators", PLAIN, 3, 2.0),
    ),
    (
        Finding("coherence", PLAIN, "device names", AGREES),
        Finding("coherence", PLAIN, "views", DIFFERS, "the base: <b>values</b> differ"),
        Finding("wrong values", PLAIN, "argmax", DIFFERS, "present: argmax", {"state": "present"}),
        Finding("wrong values", PLAIN, "randn", AGREES, "absent: randn", {"state": "absent"}),
        Finding("steps", PLAIN, "time of a step", AGREES, "", {"milliseconds": 10.0}),
        Finding("steps", AS, "time of a step", AGREES, "", {"milliseconds": 11.0}),
        refusal("mode float32", "aten::mode", "float32", "refused", "runs"),
        refusal("mode int64", "aten::mode", "int64", "refused", "runs"),
        refusal("sort float32", "aten::sort", "float32", "runs", "refused"),
        Finding("refusals", PLAIN, "add float32", AGREES, "", {"ran": ["aten::add.Tensor float32"], "refused": []}),
        Finding("operators", PLAIN, "add float32", AGREES),
        Finding("operators", PLAIN, "sort float32", CRASHED, "signal 6"),
        Finding("operators", PLAIN, "eig float32", SKIPPED, "the device refuses all 3 samples"),
    ),
)
