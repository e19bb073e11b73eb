"""One adapter per kind of signature: it finds the device among the arguments and calls torch with another one.

An adapter takes the original, its public path and the translator, and returns the wrapper. On the fast path, a wrapper
only looks the request up in `translator.settled`. The order is: factories, functions with a device parameter, then
functions and tensor methods without one. `points` assigns adapters to functions. Methods that move tensors are in
`moves`, classes in `classes`, checkpoints and batches in `loading`.
"""

from __future__ import annotations

import inspect
import sys
import threading
from typing import Any

import torch

from torchdevice._torch.core import RealDevice, RealTensor, forget_default_device, unseen_by_modes
from torchdevice.errors import explain_error
from torchdevice.policy.dtypes import dtype_on
from torchdevice.policy.hosts import is_accelerator
from torchdevice.policy.resolve import Caller
from torchdevice.translate import changes
from torchdevice.translate.dtypes import narrowed, note
from torchdevice.translate.engine import Function, dress
from torchdevice.translate.sharing import is_writable, told_of_copy
from torchdevice.translate.subclasses import PLAIN, modes, shown_to
from torchdevice.translate.translator import Translator
from torchdevice.twins import any_tensor

# Copies from the host to these can be asynchronous, so pinned memory is useful.
PINNABLE = frozenset({"cuda", "xpu"})
# Factories whose result shares the memory of an array on the CPU.
SHARING = frozenset({"torch.as_tensor", "torch.asarray"})
# A factory in C that torch does not pass to function modes.
UNSHOWN = frozenset({"torch.range"})


# --- factories: `device` is a keyword ---------------------------------------------------------------------------


def fresh_tensor(original: Function, path: str, translator: Translator, like_tensors: bool = False) -> Function:
    """A factory. No device means "none given", unless a generator or (`like_tensors`) a tensor argument implies one."""
    settled = translator.settled

    def factory(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        try:
            known = device in settled
        except TypeError:  # unhashable: not a device, torch raises an error
            known = True
        try:
            if known and "pin_memory" not in kwargs:
                return seen(*args, **kwargs) if modes else original(*args, **kwargs)
            return elsewhere(device, args, kwargs)
        except (TypeError, RuntimeError) as refusal:
            if kwargs.get("generator") is not None and translator.fills and translator.in_force:
                return sampled_elsewhere(refusal, args, kwargs)
            return narrowed(refusal, original, args, kwargs, path, translator)

    def sampled_elsewhere(refusal: TypeError | RuntimeError, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A CPU generator, and a device that was `cpu` in the source: sample on the CPU, then move the result."""
        where, device = kwargs["generator"].device, kwargs.get("device")
        if device is None or kwargs.get("out") is not None or RealDevice(device).type == where.type:
            return narrowed(refusal, original, args, kwargs, path, translator)
        return original(*args, **{**kwargs, "device": where}).to(device)

    def elsewhere(device: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if device is None and translator.in_force:
            if kwargs.get("out") is not None or (like_tensors and any_tensor(args, kwargs)):
                return seen(*args, **kwargs)
            generator = kwargs.get("generator")
            if generator is not None:  # sample on the generator's device, then move to the device for "none given"
                made = seen(*args, **{**kwargs, "device": generator.device})
                given = translator.translate(None, path, depth=2)
                return made if given is None or made.device.type == given.type else made.to(given)
        given = translator.translate(device, path, depth=2)
        if given is not device:
            kwargs["device"] = given
        if kwargs.get("pin_memory") and translator.in_force and not can_pin(translator, given):
            del kwargs["pin_memory"]
            if path not in SHARING:
                return marked_as_pinned(seen(*args, **kwargs))
        if path in SHARING and given is not device and not kwargs.get("copy") and (device is None or _is_cpu(device)):
            _tell_of_copy(args, kwargs, path, given, translator)
        return seen(*args, **kwargs) if modes else original(*args, **kwargs)

    seen = original if path in UNSHOWN or inspect.isfunction(original) else shown_to(factory, original, inputs=0)
    return dress(factory, original, path)


def tensor_like(original: Function, path: str, translator: Translator, function: bool = False) -> Function:
    """`*_like` and `new_*`. No device means the device of the input, so only an explicit device is translated.

    `function`: it is a function, not a method. torch looks methods up by name when it passes them to classes and modes.
    """
    settled = translator.settled

    def factory(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            device = kwargs.get("device")
            try:
                known = device is None or device in settled
            except TypeError:
                known = True
            if not known:
                kwargs["device"] = translator.translate(device, path)
            if kwargs.get("pin_memory") and translator.in_force and not can_pin(translator, kwargs.get("device")):
                del kwargs["pin_memory"]
                return marked_as_pinned(factory(*args, **kwargs))
        try:
            if args and args[0].__class__ in PLAIN and not modes:
                return original(*args, **kwargs)
            return seen(*args, **kwargs)
        except (TypeError, RuntimeError) as refusal:
            return narrowed(refusal, original, args, kwargs, path, translator)

    seen = shown_to(factory, original, inputs=1) if function else original
    return dress(factory, original, path)


def _is_cpu(device: Any) -> bool:
    with unseen_by_modes():
        return RealDevice(device).type == "cpu"


def can_pin(translator: Translator, device: Any) -> bool:
    """Whether torch is asked to pin memory for a tensor on `device`. It refuses tensors of an accelerator.

    If requests for the CPU are redirected, a tensor on the accelerator may have been requested on the CPU.
    """
    return translator.host.type in PINNABLE and (device is None or _is_cpu(device) or not translator.fills)


def convert_generator(original: Function, path: str, translator: Translator) -> Function:
    """An in-place sampler whose generator is on another device: sample on that device, then copy."""

    def sample(self: Any, *args: Any, **kwargs: Any) -> Any:
        generator = kwargs.get("generator")
        if generator is None or generator.device.type == self.device.type or not translator.in_force:
            return original(self, *args, **kwargs)
        return self.copy_(original(torch.empty_like(self, device=generator.device), *args, **kwargs))

    return dress(sample, original, path)


def sample_on_generator(original: Function, path: str, translator: Translator) -> Function:
    """A sampler with an input (`torch.multinomial`) and a generator on another device: sample there, then move back."""

    def sample(input: Any, *args: Any, **kwargs: Any) -> Any:
        generator = kwargs.get("generator")
        if generator is None or generator.device.type == input.device.type or not translator.in_force:
            return original(input, *args, **kwargs)
        where = generator.device
        there = input.to(where, dtype_on(where.type, input.dtype))
        return original(there, *args, **kwargs).to(input.device)

    return dress(sample, original, path)


# --- functions with a device parameter -----------------------------------------------------------------------


def parameter(original: Function, path: str, translator: Translator, name: str, as_type: bool = False) -> Function:
    """A Python function with a device parameter. `as_type`: the parameter is only the name of a type.

    A default that names a device (`GradScaler(device="cuda")`) counts as a request.
    """
    parameters = list(inspect.signature(original).parameters.values())
    position = next(index for index, each in enumerate(parameters) if each.name == name)
    default = parameters[position].default
    if parameters[position].kind is inspect.Parameter.KEYWORD_ONLY:
        position = sys.maxsize

    def translated(asked: Any) -> Any:
        if asked is None or asked is inspect.Parameter.empty:
            return asked
        if as_type and isinstance(asked, str):
            return translator.redirected_type(asked, path, depth=2)
        return translator.translate(asked, path, depth=2)

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position:
            given = translated(args[position])
            args = (*args[:position], given, *args[position + 1 :])
        elif name in kwargs:
            kwargs[name] = translated(kwargs[name])
        elif isinstance(default, str):
            kwargs[name] = translated(default)
        return original(*args, **kwargs)

    return dress(call, original, path)


def kernel_types(original: Function, path: str, translator: Translator) -> Function:
    """`torch.library.custom_op(device_types=...)`: a kernel for a type that the host lacks also runs on the target."""

    def define(*args: Any, **kwargs: Any) -> Any:
        asked = kwargs.get("device_types")
        if asked is not None and translator.in_force:
            types = (asked,) if isinstance(asked, str) else tuple(asked)
            served = [translator.redirected_type(kind, path) for kind in types if is_accelerator(kind)]
            kwargs["device_types"] = tuple(dict.fromkeys((*types, *served)))
        return original(*args, **kwargs)

    return dress(define, original, path)


def autocast_init(original: Function, path: str, translator: Translator) -> Function:
    """`torch.autocast(device_type)`: the target's autocast with the default dtype of the requested type."""

    def __init__(self: Any, device_type: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if isinstance(device_type, str) and translator.in_force:
            given = translator.redirected_type(device_type, path)
            if given != device_type and dtype is None:
                dtype = torch.get_autocast_dtype(device_type)
            if is_accelerator(device_type):
                vars(self)[_MEANS] = given
                if given == "cpu":
                    vars(self)[_STANDS_FOR] = device_type
            elif given in _casting.types and translator.caller() is Caller.USER:
                # The program's accelerator and its CPU are the same device, and autocast for the accelerator is on
                # there. A request for the CPU must not change it.
                dtype, args = torch.get_autocast_dtype(given), (torch.is_autocast_enabled(given), *args[1:])
                kwargs.pop("enabled", None)
            device_type = given
        original(self, device_type, dtype, *args, **kwargs)

    return dress(__init__, original, path)


class _Casting(threading.local):
    """The devices for which this thread has entered autocast with an accelerator's name, innermost last."""

    def __init__(self) -> None:
        self.types: list[str] = []


_casting = _Casting()
_MEANS = "_torchdevice_means"  # set on an autocast for an accelerator: the device for which it casts
_STANDS_FOR = "_torchdevice_stands_for"  # set if that device is the CPU: the requested accelerator
_WAS_ON = "_torchdevice_was_on"


def autocast_enter(original: Function, path: str, translator: Translator) -> Function:
    """Enters an autocast for an accelerator. Requests for the CPU inside the block do not change it.

    If it casts on the CPU, the accelerator's switch is turned on as well. No tensor has that type, so torch casts
    nothing for it. The switch is per thread and compiled code keeps it. `answers.precision` reads it to choose the list
    of operators.
    """
    is_on, switch = torch.is_autocast_enabled, torch.set_autocast_enabled

    def __enter__(self: Any) -> Any:  # noqa: N807
        asked = vars(self).get(_STANDS_FOR)
        if asked is not None:
            vars(self)[_WAS_ON] = is_on(asked)
            switch(asked, self._enabled)
        entered = original(self)
        if _MEANS in vars(self):
            _casting.types.append(vars(self)[_MEANS])
        return entered

    return dress(__enter__, original, path)


def autocast_exit(original: Function, path: str, translator: Translator) -> Function:
    """Leaves such an autocast."""
    switch = torch.set_autocast_enabled

    def __exit__(self: Any, *exception: Any) -> Any:  # noqa: N807
        if vars(self).get(_MEANS) in _casting.types:
            _casting.types.remove(vars(self)[_MEANS])
        if _WAS_ON in vars(self):
            switch(vars(self)[_STANDS_FOR], vars(self).pop(_WAS_ON))
        return original(self, *exception)

    return dress(__exit__, original, path)


def any_autocast(original: Function, path: str, translator: Translator) -> Function:
    """Whether autocast is on for any device. torch's compiler reads it: compiled code must run without autocast."""
    is_on = torch.is_autocast_enabled

    def enabled() -> bool:
        return bool(original()) or (translator.in_force and is_on(translator.host.type))

    return dress(enabled, original, path)


def types_with_target(original: Function, path: str, translator: Translator) -> Function:
    """Device types that support a feature. The target is added, because it replaces the requested type."""

    def types(*args: Any, **kwargs: Any) -> list[str]:
        known = list(original(*args, **kwargs))
        return [*known, translator.host.type] if translator.in_force else known

    return dress(types, original, path)


def supported_on_target(original: Function, path: str, translator: Translator) -> Function:
    """Whether a device supports a feature. True for the target, because it replaces the requested type."""

    def supports(device: Any) -> bool:
        return bool(original(device)) or (translator.in_force and device.type == translator.host.type)

    return dress(supports, original, path)


def attention_kernels(original: Function, path: str, translator: Translator) -> Function:
    """A choice of attention kernels. The target lacks CUDA's, so the kernel that all targets have is always allowed."""

    def choose(backends: Any, *args: Any, **kwargs: Any) -> None:
        everywhere = torch.nn.attention.SDPBackend.MATH
        if translator.in_force and translator.host.type != "cuda" and everywhere not in backends:
            backends = [*backends, everywhere]
        original(backends, *args, **kwargs)

    return dress(choose, original, path)


def fork_rng(original: Function, path: str, translator: Translator) -> Function:
    """`torch.random.fork_rng`. If the target is the CPU, there are no device generators to save."""

    def fork(*args: Any, **kwargs: Any) -> Any:
        asked = kwargs.get("device_type", "cuda")
        if isinstance(asked, str) and translator.in_force:
            given = translator.redirected_type(asked, path)
            kwargs["device_type"] = given
            if given == "cpu":
                del kwargs["device_type"]
                args, kwargs["devices"] = (), ()
            elif given != asked and (args or kwargs.get("devices")):
                count = translator.host.count
                folded = dict.fromkeys(index % count for index in (args[0] if args else kwargs["devices"]))
                args, kwargs["devices"] = args[1:], tuple(folded)
        return original(*args, **kwargs)

    return dress(fork, original, path)


def device_module(original: Function, path: str, translator: Translator) -> Function:
    """`torch.get_device_module`: returns the target's module to user code.

    torch itself gets the original: it checks for its accelerator, and the module of the CPU would return True.
    """

    def get_device_module(device: Any = None) -> Any:
        return original(device if device is None else translator.translate(device, path, naming=True))

    return dress(get_device_module, original, path)


def set_default(original: Function, path: str, translator: Translator) -> Function:
    """`torch.set_default_device`. torch's mode for a default device is slow and not needed for the current default."""

    def set_default_device(device: Any) -> None:
        given = device if device is None else translator.translate(device, path)
        if given is not device and given == translator.settled_default:
            given = None
        original(given)
        if given is None:
            forget_default_device()

    return dress(set_default_device, original, path)


def get_default(original: Function, path: str, translator: Translator) -> Function:
    """`torch.get_default_device`: the device of a tensor that is made without a device."""

    def get_default_device() -> Any:
        given = translator.translate(None, path)
        return original() if given is None else given

    return dress(get_default_device, original, path)


def arriving(tensor: torch.Tensor, device: RealDevice, path: str, translator: Translator) -> torch.Tensor:
    """Moves a tensor to `device`, in the nearest dtype that the device supports."""
    dtype = dtype_on(device.type, tensor.dtype)
    if dtype is not tensor.dtype and translator.situation.float64 != "error":
        note(path, tensor.dtype, dtype if translator.situation.float64 == "downcast" else "cpu", translator)
        if translator.situation.float64 == "cpu":
            return tensor
        return tensor.to(device, dtype)
    return tensor.to(device)


def result_follows(original: Function, path: str, translator: Translator) -> Function:
    """A function without a device that makes a CPU tensor (`from_numpy`). The result moves to the default device."""

    def make(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        given = translator.translate(None, path)
        if given is None or made.device.type == given.type:
            return made
        _tell_of_copy(args, kwargs, path, given, translator)
        return arriving(made, given, path, translator)

    return dress(make, original, path)


def _tell_of_copy(args: tuple[Any, ...], kwargs: dict[str, Any], path: str, given: Any, translator: Translator) -> None:
    """Warns that a function has copied its first argument, with which it shares memory on the CPU."""
    source = args[0] if args else next(iter(kwargs.values()), None)
    if is_writable(source):
        reason, message = told_of_copy(path, given)
        changes.tell(translator, path, "shared memory", "a copy", reason, message)


def numpy_from_anywhere(original: Function, path: str, translator: Translator, to: Function) -> Function:
    """`.numpy()` on a tensor that a redirected `.cpu()` left on the accelerator: returns an array of a copy.

    On the CPU, the two would share memory. The array is read-only, so that NumPy raises an error for a lost write.
    """

    def numpy(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_cpu or not translator.in_force:
            return original(self, *args, **kwargs)
        array = original(to(self, RealDevice("cpu")), *args, **kwargs)
        if not kwargs.get("force"):  # with `force` a program expects a copy
            array.flags.writeable = False
        return array

    return dress(numpy, original, path)


def share_memory(original: Function, path: str, translator: Translator) -> Function:
    """`share_memory_()` on a device whose memory torch cannot share, if the policy put the tensor there."""

    def share(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except RuntimeError as refusal:
            if self.device.type == "cpu" or not translator.in_force:
                raise
            raise RuntimeError(
                explain_error(
                    f"share_memory_() was called for memory on {self.device}",
                    f"processes cannot share the memory of {self.device.type}, and "
                    f"policy={translator.situation.policy} put it there",
                    'run with --policy portable, or make the tensor with device="cpu:-1"',
                )
            ) from refusal

    return dress(share, original, path)


def cpu_argument(original: Function, path: str, translator: Translator, name: str) -> Function:
    """A function that requires a CPU tensor, or a tuple of them, for one argument: the argument is moved to the CPU."""
    try:
        names = list(inspect.signature(original).parameters)
    except ValueError:
        names = []
    # A function in C has no parameter names, or in some builds "object". The argument is its second one.
    position = names.index(name) if name in names else 1

    def call(*args: Any, **kwargs: Any) -> Any:
        if translator.in_force:
            if len(args) > position:
                args = (*args[:position], _on_cpu(args[position]), *args[position + 1 :])
            elif name in kwargs:
                kwargs[name] = _on_cpu(kwargs[name])
        return original(*args, **kwargs)

    return dress(call, original, path)


def get_rng_state(original: Function, path: str, translator: Translator) -> Function:
    """`torch.get_rng_state()` if the target draws numbers for the CPU: returns the states of both generators."""

    def state() -> Any:
        mine = original()
        if not translator.in_force or translator.caller() is not Caller.USER:
            return mine
        return torch.cat([mine, torch.get_device_module(translator.host.type).get_rng_state()])

    return dress(state, original, path)


def set_rng_state(original: Function, path: str, translator: Translator) -> Function:
    """`torch.set_rng_state()` for both generators. A state from plain torch sets only the CPU's generator."""

    def restore(new_state: Any) -> None:
        state = _on_cpu(new_state) if translator.in_force else new_state
        if translator.in_force and translator.caller() is Caller.USER:
            own = torch.default_generator.get_state().numel()
            module = torch.get_device_module(translator.host.type)
            if state.numel() == own + module.get_rng_state().numel():
                state, theirs = state[:own].clone(), state[own:].clone()
                module.set_rng_state(theirs)
        original(state)

    return dress(restore, original, path)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, RealTensor):
        return value.to(RealDevice("cpu"))
    return tuple(map(_on_cpu, value)) if type(value) is tuple else value


def pin_memory(original: Function, path: str, translator: Translator) -> Function:
    """`.pin_memory()`: a marked copy if the target cannot use pinned memory or already holds the tensor."""

    def pin(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not translator.in_force or can_pin(translator, self.device):
            return original(self, *args, **kwargs)
        return self if _is_marked(self) else marked_as_pinned(self.clone())

    return dress(pin, original, path)


_PINNED = "_torchdevice_pinned"


def marked_as_pinned(value: Any) -> Any:
    """Marks the memory of a tensor or storage as pinned, so that `is_pinned()` returns True. Nothing else changes."""
    space = _space_of_memory(value)
    if space is not None:
        space[_PINNED] = True
    return value


def _is_marked(value: Any) -> bool:
    return bool((_space_of_memory(value) or {}).get(_PINNED))


def _space_of_memory(value: Any) -> dict[str, Any] | None:
    """The attributes of a tensor's storage, which live as long as its memory; None without storage (sparse)."""
    try:
        return vars(value.untyped_storage() if isinstance(value, RealTensor) else value)
    except (NotImplementedError, RuntimeError):
        return None


def is_pinned(original: Function, path: str, translator: Translator) -> Function:
    """`.is_pinned()`: also True for tensors that are only marked as pinned."""

    def pinned(self: Any, *args: Any, **kwargs: Any) -> bool:
        if translator.in_force and _is_marked(self):
            return True
        return bool(original(self, *args, **kwargs))

    return dress(pinned, original, path)


def record_stream(original: Function, path: str, translator: Translator) -> Function:
    """`.record_stream(s)`: a hint to a caching allocator. It is ignored on a device without one."""

    def record(self: Any, stream: Any) -> None:
        if self.device.type in PINNABLE or not translator.in_force:
            original(self, stream)

    return dress(record, original, path)


def get_device(original: Function, path: str, translator: Translator) -> Function:
    """`.get_device()`: user code expects an index that it can pass on, so for the CPU as target the index is 0."""

    def ordinal(self: Any) -> int:
        index: int = original(self)
        if index >= 0 or not translator.in_force or translator.host.accelerated or self.device.type != "cpu":
            return index
        return 0 if translator.caller() is Caller.USER else index

    return dress(ordinal, original, path)
