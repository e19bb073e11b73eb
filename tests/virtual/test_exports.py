"""Every exported C function with null, closed and out-of-range arguments: an error or an answer, never a crash.

`make sanitize` runs this with a library that is built with AddressSanitizer and UBSan.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import torchdevice.virtual
from tests.torches import BUILT_FOR_CUDA
from tests.virtual.harness import on
from torchdevice._torch import dispatcher
from torchdevice.profiling import _typed
from torchdevice.virtual import build
from torchdevice.virtual.library import _SIGNATURES, Library

NUMBERS = {
    ctypes.c_int: (-(2**31), -129, -2, -1, 0, 1, 64, 127, 128, 255, 256, 300, 2**31 - 1),
    ctypes.c_int64: (-(2**63), -1, 0, 1, 99, 2**63 - 1),
    ctypes.c_uint64: (0, 1, 2**63, 2**64 - 1),
    ctypes.c_char_p: (None, b"", b"nothing", b"::", b"a::", b"::b", b"aten::", b"\xff::\xff", b"x" * 5000),
    ctypes.c_void_p: (None,),
    ctypes.c_double: (math.nan, math.inf, -math.inf, -1.0, 1e300, 0.0),
}
MOST = 3000  # combinations of one function


def hostile(name: str) -> Iterator[tuple[Any, ...]]:
    """Arguments for one function, of every kind in every place."""
    _, arguments = _SIGNATURES[name]
    for values in itertools.islice(itertools.product(*(NUMBERS[argument] for argument in arguments)), MOST):
        if name != "td_init" or values[0] is None:  # a device is asked for again below
            yield values


def combinations(name: str) -> int:
    return sum(1 for _ in hostile(name))


def exported(source: str, word: str) -> set[str]:
    text = (Path(build.HERE) / source).read_text()
    return set(re.findall(rf"^{word} [\w\s*]+?\*?(td_\w+)\(", text, re.MULTILINE))


def test_the_list_is_whole() -> None:
    assert exported("api.cpp", "API") == set(_SIGNATURES)
    assert exported("observe.cpp", "EXPORT") == {
        "td_observe",
        "td_observe_stop",
        "td_observe_push",
        "td_observe_pop",
        "td_observe_memory",
        "td_observe_lines",
        "td_observe_events",
        "td_observed",
        "td_observed_half",
        "td_observed_busy",
        "td_observed_held",
        "td_observed_lines",
        "td_observed_events",
    }


@pytest.mark.parametrize("device", ["cuda:2", "mps"])
def test_every_function_survives(device: str) -> None:
    {"cuda:2": survive_on_cuda, "mps": survive_on_mps}[device]()


def survive(kind: str) -> None:
    there = torchdevice.virtual.installed()
    assert there is not None
    library = there.library
    _tables(library, kind)
    before = torch.arange(4.0, device=kind)
    for name in _SIGNATURES:
        function = getattr(library.dll, name)
        for values in hostile(name):
            function(*values)
    # Nothing that was refused has changed anything: what a good value sets is put back by hand.
    for device in range(there.count):
        library.call("set_limit", device, 0)
    library.call("set_device", 0)
    library.call("default_generators", 0)
    library.call("sync_debug_mode", 0)
    library.call("record_history", 0, 0, 0, 0, 1)
    for device, owner, pool in itertools.product(
        range(there.count), NUMBERS[ctypes.c_uint64], NUMBERS[ctypes.c_uint64]
    ):
        library.call("end_pool", device, owner, pool)
    assert not library.dll.td_capturing()
    assert (before + 1).tolist() == [1, 2, 3, 4]
    _refusals(library, kind)
    _closed(library, kind)


def _tables(library: Library, kind: str) -> None:
    """What Python asks instead of repeating it."""
    functionalities = library.functionalities()
    assert functionalities[0] == ""
    assert all(dispatcher.kernels_under(f"{each}CPU") for each in functionalities)
    native = library.native_kernels()
    assert {(kind.upper(), "copy_"), (f"Autograd{kind.upper()}", "scaled_dot_product_attention")} <= native
    dense = {f"aten::{name}" for key, name in native if key == kind.upper()}
    assert dense <= set(dispatcher.kernels_under(kind.upper()))


def _refusals(library: Library, kind: str) -> None:
    """Where an answer would be a lie there is an error, with a message."""
    wrong: list[tuple[Any, ...]] = [
        ("init", kind, "cpu", 1, "", 0, 0),
        ("init", None, "cpu", 1, "", 0, 0),
        ("init", "cpu", "cpu", 1, "", 0, 0),
        ("init", kind, None, 1, "", 0, 0),
        ("init", kind, kind, 1, "", 0, 0),
        ("register", None, "", "", "", ""),
        ("register", "no operator", "", "", "", ""),
        ("register", "aten::add.Tensor", "Dense", "", "", ""),
        ("register", "aten::add.Tensor", None, "", "", ""),
        ("register", "aten::add.Tensor", "", "deny,", "float63", ""),
        ("register", "aten::add.Tensor", "", "denied", "", ""),
        ("register", "aten::add.Tensor", "", ",deny", "", ""),
        ("register", "aten::add.Tensor", "", "", "", None),
        ("guard_dtypes", None, ""),
        ("guard_dtypes", "add.Tensor", None),
        ("fallback", "Denser", ""),
        ("fallback", "", "none"),
        ("set_device", 300),
        ("set_device", 256),
        ("current_stream", 256),
        ("set_stream", -1, 0),
        ("set_stream", 0, 256),
        ("sync_debug_mode", 3),
        ("sync_debug_mode", -1),
        ("keep_busy", math.nan),
        ("keep_busy", -1.0),
        ("pin", None, 8),
        ("pin", 8, 2**63),
        ("unpin", None),
        ("observe_out_of_memory", None),
        ("usage", 256, None),
        ("usage", 0, None),
        ("set_limit", 256, 0),
        ("set_limit", -1, 0),
        ("limit", 256),
        ("reset_peak", 256),
        ("reset_accumulated", -1),
        ("resize", None, 8),
        ("adopt", None, None),
        ("capture_begin", 0, 1, None),
        ("begin_pool", 256, 0, 1, 0),
        ("end_pool", -1, 0, 1),
        ("keep_pool", 256, 0, 1),
        ("drop_pool", 256, 0, 1),
        ("restore_pool", 0, 0, 1, None),
        ("restore_pool", 0, 0, 1, "G 4096"),
        ("restore_pool", 0, 0, 1, "P 512 1 1"),
        ("point", None, None, 8),
        ("own", None),
        ("disown", None),
        ("free", 0, None),
        ("free", 0, 4096),
        ("capture_end", 12345),
        ("capture_replay", 12345),
    ]
    for name, *arguments in wrong:
        with pytest.raises(RuntimeError) as refusal:
            library.call(name, *arguments)
        assert str(refusal.value), name
    for pair in ((0, 0), (1, 2), (-1, 2**62)):
        with pytest.raises(RuntimeError, match="must be recorded"):
            library.elapsed(*pair)


def _closed(library: Library, kind: str) -> None:
    """What existed and does not any more; and storages of the wrong device."""
    graph = library.capture_begin((0, 1))
    with pytest.raises(RuntimeError):
        library.call("capture_replay", graph)  # still open
    with pytest.raises(RuntimeError):
        library.capture_begin((0, 1))
    library.call("capture_end", graph)
    library.call("capture_replay", graph)
    library.call("capture_drop", graph)
    for name in ("capture_end", "capture_replay"):
        with pytest.raises(RuntimeError):
            library.call(name, graph)
    dropped = library.capture_begin((0, 1))
    library.call("capture_drop", dropped)  # while it is open
    torch.ones(2, device=kind).add_(1)
    start, end = torch.Event(kind, enable_timing=True), torch.Event(kind, enable_timing=True)
    start.record()
    end.record()
    first, last = start.event_id, end.event_id
    assert library.elapsed(first, last) >= 0
    del start
    assert math.isnan(library.dll.td_elapsed(first, last))
    here, there = torch.ones(2).untyped_storage(), torch.ones(2, device=kind).untyped_storage()
    for name, *arguments in (
        ("resize", here._cdata, 8),
        ("resize", there._cdata, 2**64 - 1),
        ("resize", there._cdata, 2**62),
        ("adopt", here._cdata, there._cdata),
        ("adopt", there._cdata, there._cdata),
    ):
        with pytest.raises(RuntimeError):
            library.call(name, *arguments)
    assert there.nbytes() == 8
    library.call("resize", there._cdata, 0)
    library.call("resize", there._cdata, 16)
    assert there.nbytes() == 16


@on("cuda:2")
def survive_on_cuda() -> None:
    survive("cuda")


@on("mps")
def survive_on_mps() -> None:
    survive("mps")


@on("")
def observe_survives() -> None:
    library = ctypes.CDLL(str(build.build(build.OPERATOR_TIMES)))
    _typed(library)
    library.td_observe_memory(None, None)
    library.td_observe_lines(None, b"", b"\n\n\xff")
    for number in (-1, 0, 2**63 - 1):
        library.td_observe_events(number)
    for device in (None, b"", b"cpu", b"cuda", b"mps:99", b"nothing", b"\xff" * 500):
        unused = 0 if device == b"cuda" and BUILT_FOR_CUDA else -1  # such a build has an allocator for it
        assert library.td_observed_held(device) == unused
    library.td_observe_pop()
    library.td_observe_stop()
    for _ in range(2):
        library.td_observe()
    for label in (None, b"", b"cpu", b"\xff\t\n", b"x" * 5000):
        library.td_observe_push(label)
        torch.ones(2) + 1
        library.td_observe_pop()
    library.td_observe_push(b"never popped")
    torch.ones(2) + 1
    for _ in range(3):
        library.td_observe_pop()
    torch.ones(2) + 1
    assert b"aten::add\tcpu\t1\t" in library.td_observed()
    assert b"test_exports.py" not in library.td_observed_lines()  # no memory is counted
    assert b"aten::add\tcpu\t" in library.td_observed_events()
    assert library.td_observed_busy() > 0
    for _ in range(2):
        library.td_observe_stop()


def test_the_timer_of_operators_survives() -> None:
    observe_survives()
