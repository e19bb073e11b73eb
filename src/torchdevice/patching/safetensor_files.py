"""safetensors: native code that asks torch for memory on the CPU, and reads or writes it by its address.

It gets what it asks for, or the address would be a GPU's; the device that a file is opened for is decided before.
Checkpoints of torch's own are in `loading`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torchdevice.compat_compilers import when_imported
from torchdevice.patching.adapters import Function, dress
from torchdevice.patching.engine import Replacement, apply
from torchdevice.patching.standins import StandInType, stand_in
from torchdevice.patching.translator import Translator
from torchdevice.policy.dtypes import lacks_dtypes

Undo = Callable[[], object]

_TORCH = ("pt", "torch", "pytorch")  # its names for us among the frameworks that it makes tensors for
_LACKING = ("F64", "F8_")  # how its names of the dtypes in `policy.dtypes` begin
_OPTIONS = ("filename", "framework", "device")
_READERS = ("_to_ndarray", "_tobytes")  # move a tensor to the CPU and take its address; one of them is there


class _OnRealTorch:
    """A native object; what it is asked is answered on real torch."""

    def __init__(self, native: Any, translator: Translator) -> None:
        self._native = native
        self._translator = translator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    # So that `isinstance` says what it says of the native object.
    __class__ = property(lambda self: type(self._native))


class _Slice(_OnRealTorch):
    """What `get_slice` gives; `moved` takes what was read from the CPU to the target, narrowed."""

    def __init__(self, native: Any, translator: Translator, moved: Callable[[Any], Any] | None) -> None:
        super().__init__(native, translator)
        self._moved = moved

    def __getitem__(self, index: Any) -> Any:
        with self._translator.suspended():
            read = self._native[index]
        return read if self._moved is None else self._moved(read)


class _File(_OnRealTorch):
    """An open file; `on_cpu` is the same for the CPU, to read what the target has no dtype for."""

    def __init__(self, native: Any, translator: Translator, device: Any, on_cpu: Any) -> None:
        super().__init__(native, translator)
        self._device = device
        self._on_cpu = on_cpu

    def __enter__(self) -> _File:
        for each in filter(None, (self._native, self._on_cpu)):
            each.__enter__()
        return self

    def __exit__(self, *exception: Any) -> Any:
        if self._on_cpu is not None:
            self._on_cpu.__exit__(*exception)
        return self._native.__exit__(*exception)

    def get_tensor(self, name: str) -> Any:
        """One tensor."""
        if self._has_no_dtype_there(name):
            return self.get_slice(name)[...]
        with self._translator.suspended():
            return self._native.get_tensor(name)

    def get_tensors(self) -> Any:
        """All tensors by name."""
        names = list(self._native.keys())
        if any(map(self._has_no_dtype_there, names)):
            return {name: self.get_tensor(name) for name in names}
        with self._translator.suspended():
            return self._native.get_tensors()

    def get_slice(self, name: str) -> _Slice:
        """A tensor to take parts of."""
        if self._has_no_dtype_there(name):
            return _Slice(self._on_cpu.get_slice(name), self._translator, lambda read: read.to(self._device))
        return _Slice(self._native.get_slice(name), self._translator, None)

    def _has_no_dtype_there(self, name: str) -> bool:
        return self._on_cpu is not None and self._native.get_slice(name).get_dtype().startswith(_LACKING)


def open_file(real: type, path: str, translator: Translator) -> StandInType:
    """`safe_open`: the device is the third argument or a keyword."""

    def construct(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        options = dict(zip(_OPTIONS, args, strict=False))
        if not translator.in_force or len(args) > len(_OPTIONS) or options.keys() & kwargs.keys():
            return real(*args, **kwargs)  # the latter two are refused there
        options |= kwargs
        if options.get("framework") not in _TORCH:
            return real(**options)
        asked = options.get("device", "cpu")
        given = translator.translate(asked, path, depth=2)
        if given is not asked:
            options["device"] = str(given)
        with translator.suspended():
            narrow = lacks_dtypes(str(given).partition(":")[0])
            on_cpu = real(**{**options, "device": "cpu"}) if narrow else None
            return _File(real(**options), translator, given, on_cpu)

    return stand_in(real, path, construct)


def truthful(original: Function, path: str, translator: Translator) -> Function:
    """A function that runs on real torch."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with translator.suspended():
            return original(*args, **kwargs)

    return dress(call, original, path)


def start(translator: Translator) -> list[Undo]:
    """From now on, or from when safetensors is imported. The ways back."""
    ways_back: list[Undo] = []

    def replace(find: Callable[[Translator], list[Replacement]]) -> None:
        ways_back.append(apply(find(translator)).undo)

    waiting = [
        when_imported("safetensors", "safe_open", functools.partial(replace, _openers)),
        when_imported("safetensors.torch", "load_file", functools.partial(replace, _readers)),
    ]
    return [lambda: [undo() for undo in reversed(ways_back)], *waiting]


def _openers(translator: Translator) -> list[Replacement]:
    """`safe_open`, wherever a module has imported it from there."""
    real = sys.modules["safetensors"].safe_open
    ours = open_file(real, "safetensors.safe_open", translator)
    holders = [each for each in list(sys.modules.items()) if getattr(each[1], "__dict__", {}).get("safe_open") is real]
    return [Replacement(f"{name}.safe_open", module, "safe_open", ours) for name, module in holders]


def _readers(translator: Translator) -> list[Replacement]:
    module = sys.modules["safetensors.torch"]
    found = [name for name in _READERS if hasattr(module, name)]
    paths = {name: f"safetensors.torch.{name}" for name in found}
    return [
        Replacement(path, module, name, truthful(getattr(module, name), path, translator))
        for name, path in paths.items()
    ]
