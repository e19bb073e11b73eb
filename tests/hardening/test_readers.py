"""The short form of `make fuzz`: every reader of what others wrote, on bytes and on broken versions of good files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools.hardening import readers

EXAMPLES = int(os.environ.get("TORCHDEVICE_FUZZ_EXAMPLES", "40"))
thorough = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
JSON = ("figures_of_processes", "catalogues", "notes", "cost_tables", "notebooks")
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=4,
)


@pytest.fixture(autouse=True)
def _scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "SCRATCH", tmp_path)


def test_the_list_is_whole() -> None:
    assert set(readers.SEEDS) == set(readers.READERS)
    for name, seeds in readers.SEEDS.items():
        for seed in seeds:
            readers.READERS[name](seed)


@pytest.mark.parametrize("reader", readers.READERS.values(), ids=readers.READERS)
@thorough
@given(data=st.data())
def test_broken_bytes(reader: Callable[[bytes], None], data: st.DataObject) -> None:
    seed = bytearray(data.draw(st.sampled_from([*readers.SEEDS[reader.__name__], b""])))
    for place, put in data.draw(st.lists(st.tuples(st.integers(0, 2000), st.binary(max_size=6)), max_size=4)):
        place %= len(seed) + 1
        seed[place : place + len(put)] = put
    reader(bytes(seed))


@pytest.mark.parametrize("name", JSON)
@thorough
@given(data=st.data())
def test_good_json_with_a_wrong_part(name: str, data: st.DataObject) -> None:
    whole = {"root": json.loads(readers.SEEDS[name][0])}
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(list(_places(whole))))
        if data.draw(st.booleans()) and holder is not whole:
            del holder[key]
        else:
            holder[key] = data.draw(values)
    readers.READERS[name](json.dumps(whole.get("root")).encode())


def _places(holder: Any) -> Any:
    for key, value in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
        yield holder, key
        if isinstance(value, (dict, list)):
            yield from _places(value)
