"""Hostile and broken checkpoints: what plain torch does with a file, the same comes out, and nothing more is run."""

from __future__ import annotations

import collections
import functools
import io
import os
import pickle
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import torchdevice
from torchdevice._torch.core import RealDevice

EXAMPLES = int(os.environ.get("TORCHDEVICE_FUZZ_EXAMPLES", "100"))


class Calling:
    """Pickles as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


class Located:
    """A storage whose location is whatever a file says."""

    def __init__(self, location: Any) -> None:
        self.location = location


def saved(thing: Any, legacy: bool = False) -> bytes:
    buffer = io.BytesIO()
    torch.save(thing, buffer, _use_new_zipfile_serialization=not legacy)
    return buffer.getvalue()


def with_pickle(data: bytes) -> bytes:
    """A checkpoint of today's format whose pickle is `data`."""
    original = zipfile.ZipFile(io.BytesIO(saved({"w": torch.arange(4.0)})))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as changed:
        for name in original.namelist():
            changed.writestr(name, data if name.endswith("/data.pkl") else original.read(name))
    return buffer.getvalue()


def tensor_pickle(location: bytes, size: int = 4, offset: int = 0, stride: int = 1, key: bytes = b"0") -> bytes:
    """What torch.save writes of one tensor, with the parts that matter chosen."""

    def text(value: bytes) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value

    number = functools.partial(struct.pack, "<Bi", ord("J"))
    where = location if location[:1] == b"(" else text(location)
    storage = b"(" + text(b"storage") + b"ctorch\nFloatStorage\n" + text(key) + where + number(size) + b"tQ"
    sizes, strides = b"(" + number(size) + b"t", b"(" + number(stride) + b"t"
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n("
        + storage
        + number(offset)
        + sizes
        + strides
        + b"\x89ccollections\nOrderedDict\n)RtR."
    )


def hostile(marker: Path) -> Iterator[tuple[str, bytes]]:
    """Names and bytes. What runs code would make the file `marker`."""
    call = Calling(os.mkdir, str(marker))
    yield "call", saved(call)
    yield "call, legacy", saved(call, legacy=True)
    yield "call among weights", saved({"w": torch.ones(2), "x": call})
    yield "eval", saved(Calling(eval, f"__import__('os').mkdir({str(marker)!r})"))
    yield "our own function", with_pickle(b"\x80\x02ctorchdevice\ndeactivate\n)R.")
    yield "torch.load itself", saved(Calling(torch.load, str(marker)))
    yield "class of the user's", saved(Located("cpu"))
    yield "partial", saved(functools.partial(print, 1))
    yield "device that is none", with_pickle(b"\x80\x02ctorch\ndevice\n(X\x05\x00\x00\x00nonentR.")
    yield "device of too many", with_pickle(b"\x80\x02ctorch\ndevice\n(X\x03\x00\x00\x00cpuK\x01K\x02tR.")
    for location in (b"cpu", b"", b"nowhere", b"cpu:99", b"x" * 300, b"../../etc/passwd", b"meta", b"\xc3\xa9"):
        yield f"location {location[:9]!r}", with_pickle(tensor_pickle(location))
    yield "location is a list", with_pickle(tensor_pickle(b"(l"))
    yield "location is a tuple", with_pickle(tensor_pickle(b"(K\x01t"))
    for name, wrong in {
        "beyond its storage": {"offset": 1000},
        "negative offset": {"offset": -4},
        "negative size": {"size": -4},
        "huge": {"size": 2**31 - 1},
        "stride beyond": {"stride": 2**30},
        "no such record": {"key": b"../../../etc/passwd"},
    }.items():
        yield f"tensor {name}", with_pickle(tensor_pickle(b"cpu", **wrong))  # type: ignore[arg-type]
    yield "empty", b""
    yield "no pickle", b"PK\x03\x04 nothing of the kind"
    yield "truncated", saved({"w": torch.arange(400.0)})[:-200]
    yield "truncated, legacy", saved({"w": torch.arange(400.0)}, legacy=True)[:-200]
    yield "bare pickle", pickle.dumps({"w": 1})
    yield "endless recursion", with_pickle(b"\x80\x02" + b"(" * 5000 + b"t" * 5000 + b".")
    yield "stack underflow", with_pickle(b"\x80\x02tR.")
    yield "memo", with_pickle(b"\x80\x02h\x99.")
    yield "build on a function", with_pickle(b"\x80\x02ctorch\nzeros\n}X\x01\x00\x00\x00aK\x01sb.")
    yield "script", _script()


def _script() -> bytes:
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), buffer)
    return buffer.getvalue()


WAYS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "mapped": {"map_location": "cpu"},
    "a table": {"map_location": {"cpu": "cpu"}},
    "weights_only": {"weights_only": True},
    "unprotected": {"weights_only": False},
    "mapped by hand, weights_only": {"map_location": lambda storage, location: storage, "weights_only": True},
}


def described(value: Any) -> str:
    """Versions of torch before 2.13 make tensors that reach beyond their memory: to print one is to crash."""
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        last = value.storage_offset() + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
        fits = 0 <= last * value.element_size() < value.untyped_storage().nbytes()
        if value.numel() > 1000 or (value.numel() and not fits):  # a storage, too, may say that it is larger than it is
            return f"{value.shape} {value.dtype} {value.device}"
    return repr(value)


def outcome(load: Callable[..., Any], data: bytes, options: dict[str, Any]) -> tuple[str, str]:
    try:
        return "value", described(load(io.BytesIO(data), **options))
    except Exception as error:
        return type(error).__name__, re.sub(r" at 0x[0-9a-f]+|operand \d+", "", str(error))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore")
def test_hostile_checkpoints_end_as_in_plain_torch(way: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    harmless = ("location", "tensor", "device", "truncated", "script", "stack", "memo")
    files = {name: data for name, data in hostile(marker) if way != "unprotected" or name.startswith(harmless)}
    plain = {name: outcome(torch.load, data, WAYS[way]) for name, data in files.items()}
    with torchdevice.redirect(target="cpu"):
        ours = {name: outcome(torch.load, data, WAYS[way]) for name, data in files.items()}
        assert torchdevice.is_active()  # no file has switched it off
    assert ours == plain
    assert not marker.exists()
    refused = [name for name, (kind, _) in plain.items() if kind == "UnpicklingError"]
    runs_code = {"call", "call, legacy", "call among weights", "eval", "our own function", "torch.load itself"}
    assert runs_code & set(files) <= set(refused)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("forced", ["TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", ""])
@pytest.mark.parametrize("asked", [True, False, None])
def test_who_decides_about_weights_only_is_torch(
    forced: str, asked: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code runs under us exactly where plain torch would run it: never more, never less."""
    if forced:
        monkeypatch.setenv(forced, "1")

    def attempt(marker: Path) -> tuple[str, bool]:
        data = saved(Calling(os.mkdir, str(marker)))
        kind, _ = outcome(torch.load, data, {"weights_only": asked})
        return kind, marker.exists()

    plain = attempt(tmp_path / "plain")
    with torchdevice.redirect(target="cpu"):
        assert attempt(tmp_path / "ours") == plain


@pytest.mark.filterwarnings("ignore")
def test_a_script_archive_loads_through_torch_load() -> None:
    with torchdevice.redirect(target="cpu"):
        for where in (None, "cuda", torch.device("cuda")):
            module = torch.load(io.BytesIO(_script()), where, weights_only=False)
            assert module.weight.device.type == "cpu"


def test_nothing_is_allowed_that_plain_torch_does_not_allow() -> None:
    from torch import _weights_only_unpickler

    allowed = _weights_only_unpickler._get_allowed_globals
    allowed.cache_clear()
    plain, safe = set(allowed()), torch.serialization.get_safe_globals()
    with torchdevice.redirect(target="cpu"):
        assert set(allowed()) == plain
        assert torch.serialization.get_safe_globals() == safe
    allowed.cache_clear()
    assert allowed()["torch.device"] is RealDevice


SEEDS = [
    saved({"w": torch.arange(6.0).reshape(2, 3), "n": collections.OrderedDict(a=1)}, legacy=legacy)
    for legacy in (False, True)
]


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.sampled_from(SEEDS),
    changes=st.lists(st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=4)), min_size=1, max_size=6),
    cut=st.one_of(st.none(), st.integers(0, 2000)),
)
@pytest.mark.filterwarnings("ignore")
def test_broken_bytes_end_as_in_plain_torch(seed: bytes, changes: list[tuple[int, bytes]], cut: int | None) -> None:
    data = bytearray(seed[:cut])
    for place, put in changes:
        place %= len(data) + 1
        data[place : place + len(put)] = put
    plain, *again = (_after_other_work(bytes(data), number) for number in range(4))
    assume(again == [plain] * 3)
    with torchdevice.redirect(target="cpu"):
        assert outcome(torch.load, bytes(data), {"weights_only": True}) == plain


def _after_other_work(data: bytes, number: int) -> tuple[str, str]:
    """Where a broken archive sends torch to memory that nobody has written, it says something else each time."""
    left_in_the_heap = [torch.full((size,), 37 * number, dtype=torch.uint8) for size in range(16, 2048, 16)]
    del left_in_the_heap
    return outcome(torch.load, data, {"weights_only": True})
