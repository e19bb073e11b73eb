"""Adapters for methods that move tensors, modules and storages: `.to(...)`, `.cpu()`, `.cuda()` and others."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from torchdevice._torch.core import RealDevice, RealTensor, unseen_by_modes
from torchdevice.translate.dtypes import blocking, narrowed
from torchdevice.translate.engine import Function, dress, parameter_names
from torchdevice.translate.subclasses import PLAIN, as_torch_sees_it, has_a_say, mode_has_a_say, show, shown_again
from torchdevice.translate.translator import Translator

_ABSENT = object()


def convert_to(original: Function, path: str, translator: Translator, fills: bool = False) -> Function:
    """`.to(...)`: a device may be the first argument or a keyword. Dtypes and other tensors pass unchanged.

    `fills`: the program's CPU tensors are on the target, so a move to the target may return its input.
    """
    aliases = translator.aliases
    settled = translator.settled
    shown = path == "torch.Tensor.to"
    seen = as_torch_sees_it(original, "to") if shown else original

    def to(self: Any, asked: Any = _ABSENT, /, *args: Any, **kwargs: Any) -> Any:
        if self.__class__ is RealTensor or self.__class__ in PLAIN:
            try:
                known = asked in settled
            except TypeError:  # unhashable: not a device, torch raises an error
                known = True
            if known:
                # Fast path: a call with a single argument is the most frequent case.
                try:
                    if not args and not kwargs:
                        if not fills:
                            return original(self, asked)
                        moved = original(self, asked)
                        if moved is self and aliases.watching and isinstance(asked, (str, RealDevice)):
                            aliases.note(translator, self, path, asked, asked)
                        return moved
                    if translator.blocks:
                        args, kwargs = blocking(args, kwargs)
                    return original(self, asked, *args, **kwargs)
                except (TypeError, RuntimeError) as refusal:
                    return narrowed(refusal, original, (self, asked, *args), kwargs, path, translator)
        elif not shown and is_dynamo_compiling():  # the compiler traces this; methods of tensors inside are translated
            return original(self, *(() if asked is _ABSENT else (asked, *args)), **kwargs)
        return elsewhere(self, asked, args, kwargs)

    def elsewhere(self: Any, asked: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        by_name = asked is _ABSENT
        device = kwargs.get("device") if by_name else asked
        given = device
        if isinstance(device, (str, bytes, int, RealDevice, Integral)):
            given = translator.translate(device, path, depth=2, moving=True)
        if given is not device and by_name:
            kwargs["device"] = given
        moved = converted(self, () if by_name else (given, *args), kwargs)
        if moved is not self or given is device or not isinstance(self, RealTensor):
            return moved
        kept = kept_apart(self) if str(device).startswith("cpu") else self
        if kept is self and aliases.watching:
            aliases.note(translator, self, path, device, given, depth=2)
        return kept

    def converted(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if translator.blocks:
            args, kwargs = blocking(args, kwargs)
        try:
            return seen(self, *args, **kwargs)
        except (TypeError, RuntimeError) as refusal:
            return narrowed(refusal, seen, (self, *args), kwargs, path, translator)

    return dress(to, original, path)


def move_to_cpu(original: Function, path: str, translator: Translator, to: Function) -> Function:
    """`.cpu()`: a request for the CPU. If it is redirected, the tensor moves to the target or stays there."""

    aliases = translator.aliases
    shown = path == "torch.Tensor.cpu"

    def cpu(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not shown and is_dynamo_compiling():
            return original(self, *args, **kwargs)
        given = shown_again() if shown else None
        if given is None:
            given = translator.translate("cpu", path, moving=True)
            if given == "cpu":
                return original(self, *args, **kwargs)
            if shown and has_a_say(self):
                return show("cpu", given, self, args, kwargs)
        if shown and mode_has_a_say():
            return show("cpu", given, self, args, kwargs)
        moved = to(self, *args, device=given, **kwargs)
        if moved is not self or not isinstance(self, RealTensor):
            return moved
        kept = kept_apart(self)
        if kept is self and aliases.watching:
            aliases.note(translator, self, path, "cpu", given)
        return kept

    return dress(cpu, original, path)


def stay_on_cpu(original: Function, path: str, translator: Translator) -> Function:
    """`Tensor.cpu()` on a host with only the CPU: calls torch. Watches results that a program may take for copies."""
    aliases = translator.aliases
    seen = as_torch_sees_it(original, "cpu")

    def cpu(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs or not (self.__class__ is RealTensor or self.__class__ in PLAIN):
            return seen(self, *args, **kwargs)
        moved = original(self)
        if moved is self and aliases.watching and translator.places:  # some accelerator was redirected to the CPU
            aliases.note(translator, self, path, "cpu", "cpu")
        return moved

    return dress(cpu, original, path)


def kept_apart(self: Any) -> Any:
    """Copies a tensor that stays on the target, because on CUDA `.cpu()` makes a copy that programs may keep.

    A leaf that collects gradients is returned itself: it was made for the CPU, and a copy would not be a leaf.
    """
    return self if self.requires_grad and self.is_leaf and torch.is_grad_enabled() else self.clone()


def move_to_accelerator(original: Function, path: str, translator: Translator, to: Function, kind: str) -> Function:
    """`.cuda()`, `.xpu()` and others: the name of the method is the type, and an argument may give the index."""

    aliases = translator.aliases
    accepted = _options_of_move(original)
    shown = path == f"torch.Tensor.{kind}"

    def accelerate(self: Any, device: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not shown and is_dynamo_compiling():
            return original(self, *(() if device is None else (device, *args)), **kwargs)
        where = shown_again() if shown else None
        if where is not None:
            if mode_has_a_say():
                return show(kind, where, self, () if device is None else (device, *args), kwargs)
            return move(self, kind if device is None else device, where, args, kwargs)
        if not translator.in_force or len(args) > 1 or not kwargs.keys() <= accepted:  # torch rejects such arguments
            return original(self, device, *args, **kwargs)
        asked = kind if device is None else device
        if isinstance(asked, int) and not isinstance(asked, bool) and asked >= 0:
            asked = f"{kind}:{asked}"
        given = translator.translate(asked, path, moving=True)
        where = given if isinstance(given, RealDevice) else _device_or_none(given)
        if where is None or where.type == kind:
            where = device if given is asked else given
            given_first = () if where is None and not args else (where,)  # a packed sequence does not accept None
            try:
                moved = original(self, *given_first, *args, **kwargs)
            except (TypeError, RuntimeError) as refusal:
                return narrowed(refusal, original, (self, *given_first, *args), kwargs, path, translator)
            if moved is self and translator.fills and aliases.watching and isinstance(self, RealTensor):
                aliases.note(translator, self, path, asked, given)
            return moved
        if shown and (has_a_say(self) or mode_has_a_say()):
            return show(kind, where, self, () if device is None else (device, *args), kwargs)
        return move(self, asked, where, args, kwargs)

    def move(self: Any, asked: Any, where: RealDevice, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            kwargs["non_blocking"] = args[0]
        if translator.blocks:
            kwargs.pop("non_blocking", None)
        try:
            moved = to(self, device=where, **kwargs)
        except (TypeError, RuntimeError) as refusal:
            return narrowed(refusal, to, (self,), {"device": where, **kwargs}, path, translator)
        if moved is self and isinstance(self, RealTensor):
            aliases.note(translator, self, path, asked, where, depth=2)
        return moved

    return dress(accelerate, original, path)


def _options_of_move(method: Function) -> frozenset[str]:
    """The options of a method such as `.cuda()`. Those of a tensor's method in C cannot be read and are fixed here."""
    named = parameter_names(method)
    return named if "device" in named else frozenset({"non_blocking", "memory_format"})


def _device_or_none(asked: Any) -> Any:
    try:
        with unseen_by_modes():
            return RealDevice(asked)
    except (RuntimeError, TypeError):  # not a device: the original raises an error
        return None
