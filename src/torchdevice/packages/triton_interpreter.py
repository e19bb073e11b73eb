"""An installed Triton on a host without a GPU that it supports: kernels run in Triton's own interpreter, on the CPU.

The interpreter copies tensors of an accelerator to the CPU for a kernel, and back. This module enables the interpreter,
provides a driver for queries of programs, selects the first configuration instead of autotuning, and counts launches.
"""

from __future__ import annotations

import ast
import functools
import importlib.abc
import math
import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType, SimpleNamespace
from typing import Any

import torch

from torchdevice._torch.imports import Undo, when_imported
from torchdevice.errors import CudaOnlyError, explain_error
from torchdevice.notices import warn
from torchdevice.packages.choices import is_choice
from torchdevice.packages.counting import count_at
from torchdevice.packages.finder import finder
from torchdevice.translate.callers import user_frame
from torchdevice.translate.engine import Replacement, apply
from torchdevice.translate.translator import translator

SWITCH = "TRITON_INTERPRET"  # Triton's own
_SLOW = "Triton's kernels run in its interpreter here, which is slow: it is for tests, not for training"
_LIBDEVICE = "triton.language.extra.libdevice"
_BY_NUMPY = {
    **{name: name for name in ("cbrt", "ceil", "copysign", "cos", "cosh", "exp", "exp2", "expm1", "floor", "fmod")},
    **{name: name for name in ("hypot", "log", "log10", "log1p", "log2", "rint", "sin", "sinh", "sqrt", "tan", "tanh")},
    "abs": "abs",
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "nearbyint": "rint",
    "pow": "power",
    "round": "round",
    "trunc": "trunc",
}
# Properties that programs read to choose sizes of blocks and grids: those of an Ampere GPU, as torch.cuda reports.
_PROPERTIES = {"max_shared_mem": 166912, "multiprocessor_count": 108, "warpSize": 32, "max_num_regs": 65536}


class Driver:
    """The object `triton.runtime.driver.active`."""

    utils = SimpleNamespace(get_device_properties=lambda device=0: dict(_PROPERTIES))

    def __init__(self, device: str) -> None:
        self._device = device

    @staticmethod
    def is_active() -> bool:
        """Whether the driver can be used."""
        return True

    def get_current_device(self) -> int:
        """The device index."""
        return 0

    def set_current_device(self, device: int) -> None:
        """No effect: there is one device."""

    def get_current_stream(self, device: int = 0) -> int:
        """The default stream."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """The device of tensors for kernels."""
        return torch.device(self._device)

    def get_current_target(self) -> Any:
        """The compilation target: an Ampere GPU, as torch.cuda reports."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 80, 32)

    def get_device_interface(self) -> Any:
        """torch's module for the device."""
        return torch.cuda

    def get_benchmarker(self) -> Any:
        """A function that returns the same time for every kernel."""
        return _same_for_all


def _same_for_all(*args: Any, **kwargs: Any) -> list[float]:
    return [0.0, 0.0, 0.0]


class _Hider(importlib.abc.MetaPathFinder):
    """On a virtual device an installed Triton is hidden from optional imports and from torch."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname == "triton" and is_choice(sys._getframe(1)):
            raise ModuleNotFoundError("No module named 'triton'", name="triton")


def _unhide() -> Iterator[Undo]:
    """Virtual devices block every import of Triton. Allows required imports."""
    del sys.modules["triton"]
    yield lambda: sys.modules.setdefault("triton", None)  # type: ignore[arg-type]
    hider = _Hider()
    sys.meta_path.insert(0, hider)
    yield lambda: sys.meta_path.remove(hider)
    finder.hidden.add("triton")
    yield lambda: finder.hidden.discard("triton")


def engage(device: str) -> Iterator[Undo]:
    """Takes effect now, or when Triton is imported. Yields an undo function after each step."""
    if SWITCH in os.environ:  # a value that the user has set is kept
        return
    if sys.modules.get("triton", ...) is None:
        yield from _unhide()
    os.environ[SWITCH] = "1"
    yield lambda: os.environ.pop(SWITCH, None)
    yield when_imported("triton.runtime.driver", "driver", functools.partial(_give_driver, device))
    yield when_imported("triton.runtime.autotuner", "autotune", _take_first)
    yield when_imported("triton.runtime.interpreter", "InterpretedFunction", _count_launches)
    yield when_imported("triton.runtime.interpreter", "_patch_lang_tensor", _read_one_element)
    yield when_imported(_LIBDEVICE, "", _compute_libdevice)


def _read_one_element() -> Undo:
    """Lets an array of one element be an index. Triton 3.6 calls `int` for that, which NumPy 2.5 refuses."""
    module = sys.modules["triton.runtime.interpreter"]
    prepare = module._patch_lang_tensor

    @functools.wraps(prepare)
    def call(tensor: Any, *scope: Any) -> None:
        prepare(tensor, *scope)
        tensor.__index__ = lambda self: self.handle.data.item()

    return apply([Replacement("triton.runtime.interpreter", module, "_patch_lang_tensor", call)]).undo


def _compute_libdevice() -> Undo:
    """Implements functions of NVIDIA's math library with NumPy. In the interpreter their bodies are empty."""
    import numpy as np

    module = sys.modules[_LIBDEVICE]
    names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    known = {name: getattr(np, by) for name, by in _BY_NUMPY.items()}
    known |= {name: np.vectorize(getattr(math, name), otypes=[float]) for name in ("erf", "erfc", "lgamma")}
    known |= {"rsqrt": lambda x: 1 / np.sqrt(x), "exp10": lambda x: np.power(10.0, x)}
    known |= {
        f"fast_{name}f": known[name] for name in ("cosh", "exp", "exp10", "log", "log10", "log2", "pow", "sin", "tanh")
    }
    return apply(
        Replacement(f"{_LIBDEVICE}.{name}", module, name, _on_arrays(name, known.get(name))) for name in names
    ).undo


def _on_arrays(name: str, compute: Callable[..., Any] | None) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        if compute is None:
            raise CudaOnlyError(
                explain_error(
                    f"libdevice.{name} was called in a Triton kernel",
                    "it is a function of NVIDIA's library, and it is not implemented for the interpreter",
                    "replace it by functions of triton.language",
                )
            )
        language, interpreter = sys.modules["triton.language"], sys.modules["triton.runtime.interpreter"]
        like = next(arg for arg in args if hasattr(arg, "handle"))
        given = (arg.handle.data if hasattr(arg, "handle") else arg for arg in args)
        data = compute(*given).astype(like.handle.data.dtype)
        return language.tensor(interpreter.TensorHandle(data, like.dtype.scalar), like.type)

    return call


def _give_driver(device: str) -> Undo:
    config = sys.modules["triton.runtime.driver"].driver
    driver = Driver(device)
    return apply(
        [Replacement(f"triton.runtime.driver.{name}", config, name, driver) for name in ("_default", "_active")]
    ).undo


def _take_first() -> Undo:
    """Autotuning uses the first configuration, because times of the interpreter are not those of a GPU."""
    tuner = sys.modules["triton.runtime.autotuner"].Autotuner
    return apply([Replacement("triton.autotune", tuner, "_bench", _same_for_all)]).undo


def _launching_frame() -> FrameType:
    """The frame that launches a kernel: the nearest frame of user code outside Triton."""
    inside = os.path.dirname(str(sys.modules["triton"].__file__)) + os.sep
    frame = user_frame(sys._getframe(2), translator.roles)
    while frame.f_code.co_filename.startswith(inside) and frame.f_back is not None:
        frame = user_frame(frame.f_back, translator.roles)
    return frame


def _count_launches() -> Undo:
    executor = sys.modules["triton.runtime.interpreter"].GridExecutor
    launch = executor.__call__
    told: list[str] = []

    @functools.wraps(launch)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        frame = _launching_frame()
        count_at(frame, f"triton.{self.fn.__name__}", "Triton's interpreter")
        if not told:
            told.append(_SLOW)
            warn(f"torchdevice: {_SLOW}", (frame.f_code.co_filename, frame.f_lineno))
        with translator.suspended():  # requests for the CPU are not redirected here
            return launch(self, *args, **kwargs)

    module = sys.modules["triton.runtime.interpreter"]
    return apply(
        [
            Replacement("triton.runtime.interpreter.GridExecutor", executor, "__call__", call),
            Replacement("triton.runtime.interpreter", module, "_implicit_cvt", _with_floats(module)),
            Replacement("triton.runtime.interpreter", module.ASTTransformer, "visit_For", _count_by_tensors),
        ]
    ).undo


def _count_by_tensors(self: Any, node: ast.For) -> ast.AST:
    """Makes the counter of `for i in range(n)` a tensor, as in a compiled kernel, so that `i.to(tl.int64)` works."""
    self.generic_visit(node)
    called = node.iter.func if isinstance(node.iter, ast.Call) else None
    name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    if name == "range" and isinstance(node.target, ast.Name):
        again = ast.Assign([ast.Name(node.target.id, ast.Store())], ast.Name(node.target.id, ast.Load()))
        node.body.insert(0, self.visit_Assign(ast.copy_location(again, node)))
    return node


def _with_floats(module: Any) -> Any:
    """Converts floats to tensors, as in a compiled kernel. The interpreter converts only integers."""
    convert = module._implicit_cvt

    def implicit_cvt(argument: Any) -> Any:
        if not isinstance(argument, float):
            return convert(argument)
        kind = module.tl.float32
        return module.tl.tensor(module.TensorHandle(module.np.array([argument], dtype=module.np.float32), kind), kind)

    return implicit_cvt
