"""Installs a virtual device in this process: checks the request, runs the steps in order, then a self-test.

The functions behind torch's Python namespaces are in `answers`. The operators of real backends are in `supported`.
"""

from __future__ import annotations

import atexit
import os
import re
import time
from dataclasses import dataclass
from typing import Literal

import torch

from torchdevice._torch import core, dispatcher
from torchdevice.answers.installed import BUILDS
from torchdevice.answers.installed import install as install_answers
from torchdevice.answers.virtual import Virtual
from torchdevice.environment import environment
from torchdevice.errors import AlreadyActive, ConfigError, VirtualDeviceUnavailable, explain_error
from torchdevice.notices import warn
from torchdevice.policy.hosts import this_host
from torchdevice.virtual import build, build_parts, supported
from torchdevice.virtual.library import Library


def self_test(device: str, count: int) -> None:
    """Raises VirtualDeviceUnavailable if the device does not compute. Frees its memory and starts no threads."""
    try:
        for index in range(count):
            place = f"{device}:{index}"
            # Called by its own name, an operator does not initialize the device in Python. The program does that.
            x = torch.ops.aten._to_copy(torch.arange(6, dtype=torch.float32), device=place).view(2, 3)
            y = (x @ x.t() + 1).sum()
            passed = str(x.device) == place and y.item() == 87.0 and x.cpu().device.type == "cpu"
            if not passed:
                raise RuntimeError(f"wrong result on {place}: {y.item()} on {x.device}")
    except RuntimeError as error:
        raise VirtualDeviceUnavailable(
            explain_error(
                f"The virtual {device} device was loaded into torch {torch.__version__}",
                f"its self-test failed: {error}",
                "delete the cached library with `torchdevice virtual clean`. If that does not help, this torch version "
                "is not supported.",
            )
        ) from error


Support = Literal["all", "real"]
DEVICES = tuple(BUILDS)
BACKINGS = ("cpu", *DEVICES)
MAX_COUNT = 64
LIMIT_VARIABLE = "TORCHDEVICE_VIRTUAL_MEMORY"
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
# Dtypes that no tensor of the device can have. MPS has no float64, complex128, float8 or quantized types.
DENIED_DTYPES = {
    "mps": "float64,complex128,float8_e5m2,float8_e4m3fn,float8_e5m2fnuz,float8_e4m3fnuz,float8_e8m0fnu",
}
# Operators that accept tensors of both devices: copies, those that get the sizes of a nested tensor, which are CPU
# tensors, and those that copy the scales of a quantized tensor.
CROSS_DEVICE = frozenset(
    {
        "copy_",
        "_to_copy",
        "copy_sparse_to_sparse_",
        "_copy_from",
        "_copy_from_and_resize",
        "_nested_view_from_buffer",
        "_nested_from_padded",
        "empty_quantized",
        "_empty_per_channel_affine_quantized",
    }
)


# Operators whose CUDA kernels take a 0-dim tensor of another GPU as a number.
MOVES_NUMBERS = frozenset({"fill_.Tensor", "index_put_", "index_put", "_index_put_impl_"})


@dataclass(frozen=True)
class Installation:
    """The virtual devices of this process.

    - `device`, `count`, `support`: the arguments of `install`.
    - `on`: the type of the device that computes.
    - `library`: the loaded C++ library.
    - `refused`: pairs of operator and dispatch functionality whose kernel only raises an error.
    """

    device: str
    count: int
    support: Support
    on: str
    library: Library
    refused: frozenset[tuple[str, str]] = frozenset()


_installation: Installation | None = None


def installed() -> Installation | None:
    """The virtual device of this process, if it has one."""
    return _installation


def install(device: str, count: int = 1, support: Support = "all", on: str = "cpu") -> Installation:
    """Installs `count` virtual devices of a type that this machine lacks.

    `on` is the device that holds their memory and computes: "cpu", an accelerator of this machine ("cuda", "mps",
    "xpu"), or "auto" for the accelerator if there is one and the CPU otherwise. Call it before the first backward of
    the process, best right after `import torch`. Repeating the same call does nothing.
    """
    global _installation
    _check_request(device, count, support, on)
    if _installation is not None:
        return _same_again(_installation, device, count, support, _installation.on if on == "auto" else on)
    on = _accelerator() if on == "auto" else on
    _check_no_real_device(device)
    _check_backing(device, on)
    library = Library(build.load())
    limit = limit_from_environment()
    capacity = memory_of(on)
    library.call("init", device, on, count, DENIED_DTYPES.get(device, ""), limit, capacity)
    core.virtual_types[device] = on
    refused = _register(library, device, support, on)
    _decompose(device, on)
    install_answers(device, Virtual(device, count, library, limit or capacity, limit), on)
    _install_the_rest(device, library, on)
    self_test(device, count)
    if library.call("repair_autograd"):
        warn(
            f"The virtual {device} device was installed after the first backward of this process, so autograd's "
            "threads were started a second time. Install it earlier to avoid this.",
            stacklevel=3,
        )
    _forget_self_test(library, count, on)
    atexit.register(_let_autograd_finish, library)
    _installation = Installation(device, count, support, on, library, refused)
    return _installation


def parse_size(text: str, asked: str = "") -> int:
    """`2GiB`, `512M`, `1e9`, `1073741824` → bytes. GB and GiB both mean 1024³, as in torch's messages."""
    match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(?:i?b)?\s*", text, re.I)
    if match is None:
        raise ConfigError(
            explain_error(
                asked or f"{LIMIT_VARIABLE}={text!r}",
                "that is not a size",
                "write for example 2GiB, 512MiB or 1000000.",
            )
        )
    return int(float(match[1]) * 1024 ** _UNITS[match[2].lower()])


def limit_from_environment() -> int:
    """The memory limit per device in bytes; 0 for no limit."""
    text = environment().get(LIMIT_VARIABLE, "")
    return parse_size(text) if text else 0


_GPU_PAGE = 2 << 20  # the memory of a GPU is a multiple of it


def memory_of(on: str) -> int:
    """The total memory of the device that computes, in bytes."""
    if on in ("cuda", "xpu"):
        return int(getattr(torch, on).get_device_properties(0).total_memory)
    if on == "mps":
        return int(torch.mps.recommended_max_memory())
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _GPU_PAGE * _GPU_PAGE


def _forget_self_test(library: Library, count: int, on: str) -> None:
    """Resets the counts, so that they do not include the calls and allocations of the self-test."""
    library.call("reset_counts")
    if on == "cpu":
        library.call("empty_cache", 0, 0)
        for index in range(count):
            library.call("reset_peak", index)
            library.call("reset_accumulated", index)


def _install_the_rest(device: str, library: Library, on: str) -> None:
    """Installs what a torch build for the device implements in C outside its namespace."""
    build_parts.install_storages(device, library, on)
    build_parts.install_compilers(device)
    build_parts.install_settings(device)
    build_parts.install_attention(device)
    if device == "cuda":
        build_parts.install_legacy_types()
    if device in build_parts.VENDOR:
        build_parts.install_collectives(device, on)


def _let_autograd_finish(library: Library) -> None:
    """Waits for autograd's device threads, which drop Python objects shortly after a backward returns.

    An interpreter that exits before they do so aborts, also with real devices.
    """
    if library.call("autograd_threads_run"):
        time.sleep(0.05)


def _accelerator() -> str:
    found = this_host().type
    return found if found in BACKINGS else "cpu"


def _check_request(device: str, count: int, support: str, on: str) -> None:
    asked = f"virtual.install({device!r}, count={count!r}, support={support!r}, on={on!r})"
    if device not in DEVICES:
        raise ConfigError(
            explain_error(asked, "there is no virtual device of that type", f"choose one of {', '.join(DEVICES)}.")
        )
    if not isinstance(count, int) or not 1 <= count <= MAX_COUNT:
        raise ConfigError(explain_error(asked, "the count is out of range", f"choose 1 to {MAX_COUNT} devices."))
    if device == "mps" and count != 1:
        raise ConfigError(
            explain_error(
                asked, "no machine has more than one MPS device, and torch.mps knows only one", "leave count out."
            )
        )
    if on != "auto" and (on not in BACKINGS or on == device):
        others = ", ".join(name for name in ("auto", *BACKINGS) if name != device)
        raise ConfigError(
            explain_error(asked, "that device cannot compute for a virtual device", f"choose one of {others} for `on`.")
        )
    if support not in ("all", "real"):
        raise ConfigError(
            explain_error(
                asked, "support must be 'all' (every operator) or 'real' (what the real backend has)", "pick one."
            )
        )


def _same_again(there: Installation, device: str, count: int, support: str, on: str) -> Installation:
    if (there.device, there.count, there.support, there.on) == (device, count, support, on):
        return there
    raise AlreadyActive(
        explain_error(
            f"virtual.install({device!r}, count={count}, support={support!r}, on={on!r})",
            f"this process already has virtual.install({there.device!r}, count={there.count}, "
            f"support={there.support!r}, on={there.on!r}), which cannot be removed or replaced",
            "use a separate process per virtual device.",
        )
    )


def is_real(device: str) -> bool:
    """Whether this machine has a real device of that type."""
    real = {"mps": torch.backends.mps, "cuda": torch.cuda, "xpu": torch.xpu}.get(device)
    return _installation is None and real is not None and bool(real.is_available())


def _check_no_real_device(device: str) -> None:
    if is_real(device):
        hiding = {"cuda": "hide it with CUDA_VISIBLE_DEVICES=", "xpu": "hide it with ZE_AFFINITY_MASK="}
        raise VirtualDeviceUnavailable(
            explain_error(
                f"A virtual {device} device was requested",
                "this machine has a real one, whose kernels would receive memory of the wrong device",
                f"use the real device, or {hiding.get(device, 'run on a machine without it')}.",
            )
        )


def _check_backing(device: str, on: str) -> None:
    found = _accelerator()
    if on not in ("cpu", found):
        raise VirtualDeviceUnavailable(
            explain_error(
                f"A virtual {device} device on {on} was requested",
                f"this machine's accelerator is {found}" if found != "cpu" else "this machine has no accelerator",
                'write on="auto" to use the accelerator of this machine, or the CPU if it has none.',
            )
        )


# Operators that torch calls only on a GPU, so the CPU has neither a kernel nor a composite for them.
DECOMPOSED = ("aten::_fused_rms_norm_backward",)
_decomposed = dispatcher.Registrations()  # kept alive: a kernel is removed with the last reference to it


def _decompose(device: str, on: str) -> None:
    for name in DECOMPOSED:
        if dispatcher.find_operator(name) is not None and not dispatcher.runs_on(name, on.upper()):
            _decomposed.add(name, dispatcher.backend_key(device), dispatcher.decomposition_of(name))


def _loses_gradients(name: str) -> bool:
    """Whether a kernel of the backing would replace the parts of a composite, which autograd knows."""
    return dispatcher.has_kernel(name, "CompositeImplicitAutograd") and not dispatcher.has_kernel(name, "Autograd")


def _register(library: Library, device: str, support: Support, on: str) -> frozenset[tuple[str, str]]:
    """Registers our kernel for every operator of the backing device and every operator of the virtual type.

    The second group matters on builds that contain real kernels for the type: none of them may be reachable. Returns
    the operators whose kernel only raises an error, because the dispatcher cannot tell these from other kernels.
    """
    refused = set()
    key = device.upper()
    real = support == "real"
    fallback_wanted = device == "mps" and os.environ.get("PYTORCH_ENABLE_MPS_FALLBACK", "0") == "1"
    refusal = {"warn", "no_device_check"} if fallback_wanted else {"deny", "any_device"}
    native = library.native_kernels()
    for functionality in library.functionalities():
        own = dispatcher.kernels_under(f"{functionality}{key}")
        whole = supported.whole(functionality, key, real)
        known = supported.listed(f"{functionality}{key}") | {name.partition("::")[2] for name in own}
        names = {*dispatcher.kernels_under(f"{functionality}{on.upper()}"), *own, *(f"aten::{name}" for name in whole)}
        for name in sorted(names):
            space, _, short = name.partition("::")
            if space == "aten" and (f"{functionality}{key}", short) in native:
                continue
            if name not in own and on != "cpu" and _loses_gradients(name):
                continue
            flags = set() if supported.needs_device_check(short) else {"no_device_check"}
            if short in CROSS_DEVICE or space != "aten":
                flags.add("any_device")
            if short in MOVES_NUMBERS:
                flags.add("moves_numbers")
            if real and short in supported.even_sizes_only(key):
                flags.add("even_sizes")
            reached = on == "cuda" and short.startswith(supported.REACHED_ON_CUDA)
            if real and space == "aten" and not reached and supported.lacks_kernel(short, known, whole):
                if supported.decomposes(short):
                    continue
                flags = refusal
                refused.add((name, functionality))
            dtypes, kernel = supported.refusal_of(short if space == "aten" else "", key, real)
            library.call("register", name, functionality, ",".join(flags), ",".join(dtypes), kernel)
        library.call("fallback", functionality, ",".join(refusal) if real else "no_device_check")
    for short, dtypes in supported.denied_dtypes().items() if real and key == "MPS" else ():
        if dispatcher.has_kernel(f"aten::{short}", "CompositeImplicitAutograd"):
            library.call("guard_dtypes", short, ",".join(dtypes))
    return frozenset(refused)
