"""Adapters for data from outside: checkpoints, batches of a `DataLoader`, safetensors files.

`session` activates worker processes; this module does not. The native code of safetensors allocates CPU memory with
torch and reads or writes it by address. It always gets CPU memory. The device of a file is decided before.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch

from torchdevice._torch.core import RealDevice, RealTensor, pin_batch, place_storage
from torchdevice._torch.imports import when_imported
from torchdevice.policy.dtypes import lacks_dtypes
from torchdevice.policy.hosts import is_accelerator
from torchdevice.policy.resolve import Caller
from torchdevice.translate.adapters import PINNABLE, arriving
from torchdevice.translate.classes import StandInType, stand_in
from torchdevice.translate.engine import Function, Replacement, apply, dress
from torchdevice.translate.translator import Translator


class Locations(dict[Any, Any]):
    """A `map_location` in the form of a dict, filled on demand. The policy decides the device of each location.

    It is a dict because torch does not accept a callable for tensors that hold other tensors. `asked` is the program's
    `map_location`.
    """

    def __init__(self, asked: Any, decide: Callable[[Any], Any]) -> None:
        super().__init__()
        self.asked = asked
        self._decide = decide

    def get(self, location: Any, default: Any = None) -> Any:
        """The device for a storage that was saved at `location`."""
        try:
            if location not in self:
                self[location] = self._decide(location if self.asked is None else self.asked.get(location, location))
            return self[location]
        except TypeError:  # unhashable: not a device, torch raises an error
            return default


def load(original: Function, path: str, translator: Translator) -> Function:
    """`torch.load`: the policy decides the device of each storage from its saved or mapped location."""

    def load_mapped(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        # torch does not accept a dict for safetensors. The adapters below translate the device of such a file.
        if translator.in_force and (map_location is not None or not _is_safetensors(f)):
            map_location = _mapped(map_location, path, translator, sys._getframe(1))
        return original(f, map_location, *args, **kwargs)

    return dress(load_mapped, original, path)


def _is_safetensors(file: Any) -> bool:
    return isinstance(file, (str, os.PathLike)) and os.fspath(file).endswith(".safetensors")


def packaged_load(original: Function, path: str, translator: Translator) -> Function:
    """`torch.package.PackageImporter.load_pickle`: the same for a resource in a package."""

    def load_pickle(self: Any, package: str, resource: str, map_location: Any = None) -> Any:
        if translator.in_force:
            map_location = _placing(_mapped(map_location, path, translator, sys._getframe(1)))
        return original(self, package, resource, map_location)

    return dress(load_pickle, original, path)


def _placing(mapped: Any) -> Any:
    """A callable `map_location`. The storages of packages are typed, and torch cannot move those to every device."""

    def place(storage: Any, location: Any) -> Any:
        return place_storage(storage, mapped.get(location, location) if isinstance(mapped, dict) else mapped)

    place.asked = getattr(mapped, "asked", mapped)  # type: ignore[attr-defined]
    return mapped if callable(mapped) else place


def packaged_script(original: Function, path: str, translator: Translator) -> Function:
    """The function with which `load_pickle` makes a script module. It takes a single device for everything, or none."""

    def unpackage(importer: Any, script_module_id: str) -> Any:
        asked = getattr(importer.last_map_location, "asked", importer.last_map_location)
        importer.last_map_location = for_script(asked, translator)
        return original(importer, script_module_id)

    return dress(unpackage, original, path)


def for_script(asked: Any, translator: Translator) -> Any:
    """The device for an archive of scripts. Without one, an archive that was saved on CUDA would require CUDA."""
    nowhere = asked is None and translator.in_force and not translator.host.accelerated
    return RealDevice("cpu") if nowhere else asked


def _mapped(map_location: Any, path: str, translator: Translator, frame: FrameType) -> Any:
    def decide(location: Any) -> Any:
        given = translator.translate_from(location, path, frame)
        return str(given) if isinstance(given, RealDevice) else given

    def by_callable(storage: Any, location: str) -> Any:
        placed = map_location(storage, location)
        return place_storage(
            storage if placed is None else placed, decide(location if placed is None else placed.device)
        )

    if map_location is None or isinstance(map_location, dict):
        return Locations(map_location, decide)
    if not callable(map_location):
        return decide(map_location)
    by_callable.asked = map_location  # type: ignore[attr-defined]
    return by_callable


def exported_load(original: Function, path: str, translator: Translator) -> Function:
    """`torch.export.load`: torch's own pass moves a program that was exported for a device that the host lacks."""

    def load(*args: Any, **kwargs: Any) -> Any:
        program = original(*args, **kwargs)
        if not translator.in_force:
            return program
        from torch.export.passes import move_to_device_pass

        frame = sys._getframe(1)
        named = {device: translator.translate_from(device, path, frame) for device in _devices_of(program)}
        moved = {str(device): str(given) for device, given in named.items() if given is not device}
        return move_to_device_pass(program, moved) if moved else program

    return dress(load, original, path)


def _devices_of(program: Any) -> set[RealDevice]:
    """The accelerators in the graphs of an exported program: in constants and in the metadata of values."""
    found = set()
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            for value in (*node.args, *node.kwargs.values(), getattr(node.meta.get("val"), "device", None)):
                if isinstance(value, RealDevice) and is_accelerator(value.type):
                    found.add(value)
    return found


def iterator_init(original: Function, path: str, translator: Translator) -> Function:
    """The start of an epoch: no pinning thread if pinning is useless, and a dataset that workers can use."""

    def __init__(self: Any, loader: Any) -> None:  # noqa: N807
        if not translator.in_force:
            original(self, loader)
            return
        asked = loader.pin_memory
        if asked and translator.host.type not in PINNABLE:
            # For this call only: torch would warn in every epoch that no accelerator needs pinned memory.
            loader.pin_memory = False
            vars(self)[_PINS] = True
        try:
            original(self, loader)
        finally:
            loader.pin_memory = asked
        if loader.num_workers > 0 and translator.fills:
            self._dataset = dataset_for_workers(self._dataset)

    return dress(__init__, original, path)


def iterator_next(original: Function, path: str, translator: Translator) -> Function:
    """Moves a batch for user code to the device of tensors without a device. Marks it as pinned if requested."""

    def __next__(self: Any) -> Any:  # noqa: N807
        batch = original(self)
        if not translator.in_force:
            return batch
        if translator.fills and translator.caller() is Caller.USER and _holds_cpu_tensor(batch):
            given = translator.translate(None, "torch.utils.data.DataLoader")
            batch = batch if given is None else moved(batch, given, translator)
        return pin_batch(batch) if _PINS in vars(self) else batch

    return dress(__next__, original, path)


def batch_follows(original: Function, path: str, translator: Translator) -> Function:
    """Collation that user code calls by itself. The result moves to the default device, as a batch does."""

    def collate(*args: Any, **kwargs: Any) -> Any:
        batch = original(*args, **kwargs)
        if not translator.in_force or translator.caller() is not Caller.USER or not _holds_cpu_tensor(batch):
            return batch
        given = translator.translate(None, path)
        return batch if given is None else moved(batch, given, translator)

    return dress(collate, original, path)


_PINS = "_torchdevice_pins"  # set on an iterator whose batches are marked as pinned, because torch does not pin them


def moved(batch: Any, device: Any, translator: Translator) -> Any:
    """The same structure with its tensors on `device`. Structures are rebuilt as torch's own collation does."""
    if isinstance(batch, RealTensor):
        return arriving(batch, device, "torch.utils.data.DataLoader", translator)
    if not isinstance(batch, (str, bytes, type)) and callable(getattr(batch, "to", None)):
        return batch.to(device)
    if isinstance(batch, Mapping):
        clone = copy.copy(batch)
        clone.update({key: moved(value, device, translator) for key, value in batch.items()})  # type: ignore[attr-defined]
        return clone
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(value, device, translator) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(moved(value, device, translator) for value in batch)
    return batch


def _holds_cpu_tensor(batch: Any) -> bool:
    if isinstance(batch, RealTensor):
        return batch.is_cpu
    if isinstance(batch, Mapping):
        return any(_holds_cpu_tensor(value) for value in batch.values())
    if isinstance(batch, Sequence) and not isinstance(batch, (str, bytes)):
        return any(_holds_cpu_tensor(value) for value in batch)
    return callable(getattr(batch, "to", None))


def dataset_for_workers(dataset: Any) -> Any:
    """The dataset with its accelerator tensors on the CPU: worker processes cannot use the accelerator.

    Searches datasets, lists, tuples and dicts. An object without such a tensor is returned unchanged.
    """
    if isinstance(dataset, RealTensor):
        return dataset if dataset.is_cpu else _on_cpu(dataset)
    if isinstance(dataset, dict):
        changed = {key: new for key, old in dataset.items() if (new := dataset_for_workers(old)) is not old}
        if not changed:
            return dataset
        clone = copy.copy(dataset)
        clone.update(changed)
        return clone
    if isinstance(dataset, (list, tuple)):
        items = [dataset_for_workers(value) for value in dataset]
        if all(new is old for new, old in zip(items, dataset, strict=True)):
            return dataset
        return type(dataset)(*items) if hasattr(dataset, "_fields") else type(dataset)(items)
    if isinstance(dataset, torch.utils.data.Dataset) and hasattr(dataset, "__dict__"):
        state = dataset_for_workers(vars(dataset))
        if state is vars(dataset):
            return dataset
        clone = copy.copy(dataset)
        vars(clone).update(state)
        return clone
    return dataset


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """A leaf of autograd stays one: a process cannot send other tensors that need gradients."""
    if not tensor.is_leaf:
        return tensor.to(RealDevice("cpu"))
    leaf = tensor.detach().to(RealDevice("cpu"))
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(leaf, tensor.requires_grad)
    return leaf.requires_grad_(tensor.requires_grad)


Undo = Callable[[], object]

_TORCH = ("pt", "torch", "pytorch")  # the names of torch in safetensors' list of frameworks
_LACKING = ("F64", "F8_")  # prefixes of safetensors' names for the dtypes in `policy.dtypes`
_OPTIONS = ("filename", "framework", "device")
_READERS = ("_to_ndarray", "_tobytes")  # they move a tensor to the CPU and take its address; each version has one


class _OnRealTorch:
    """Wraps a native object. Its methods run without translation."""

    def __init__(self, native: Any, translator: Translator) -> None:
        self._native = native
        self._translator = translator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    # `isinstance` gives the same result as for the native object.
    __class__ = property(lambda self: type(self._native))


class _Slice(_OnRealTorch):
    """The result of `get_slice`. `moved` moves a tensor that was read on the CPU to the target and narrows it."""

    def __init__(self, native: Any, translator: Translator, moved: Callable[[Any], Any] | None) -> None:
        super().__init__(native, translator)
        self._moved = moved

    def __getitem__(self, index: Any) -> Any:
        with self._translator.suspended():
            read = self._native[index]
        return read if self._moved is None else self._moved(read)


class _File(_OnRealTorch):
    """An open file. `on_cpu` is the same file opened for the CPU, for dtypes that the target lacks."""

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
        """A tensor that is read in parts."""
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
            return real(*args, **kwargs)  # safetensors raises the error for invalid arguments
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
    """A function that runs without translation."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with translator.suspended():
            return original(*args, **kwargs)

    return dress(call, original, path)


def apply_when_imported(translator: Translator) -> Iterator[Undo]:
    """Patches safetensors now, or when it is imported. Each step yields its undo."""
    yield when_imported("safetensors", "safe_open", lambda: apply(_openers(translator)).undo)
    yield when_imported("safetensors.torch", "load_file", lambda: apply(_readers(translator)).undo)


def _openers(translator: Translator) -> list[Replacement]:
    """`safe_open`, in every module that has imported it."""
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
