"""triton if it cannot be installed: modules with kernels can be imported. A launch raises an error."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from torchdevice.errors import CudaOnlyError, explain_error
from torchdevice.packages.counting import count_refusal


def _refuse(asked: str) -> NoReturn:
    raise CudaOnlyError(
        explain_error(
            f"{asked} was called",
            "it needs Triton, which is not installed and runs on GPUs of NVIDIA and AMD",
            "use the program's code path for plain PyTorch, or install triton, whose interpreter runs kernels",
        )
    )


class KernelInterface:
    """An object that can be launched: `kernel[grid](…)`."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self.run, grid=grid, warmup=False)

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        """Raises an error with the kernel's name."""
        raise NotImplementedError


class JITFunction(KernelInterface):
    """A kernel that is not compiled."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        functools.update_wrapper(self, fn)
        self.arg_names = [*inspect.signature(fn).parameters]

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        count_refusal(f"triton.{self.fn.__name__}")
        _refuse(f"the kernel {self.fn.__module__}.{self.fn.__name__}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)


def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """A kernel, or a decorator that returns one."""
    return JITFunction(fn) if fn is not None else JITFunction


class Config:
    """A configuration of a kernel. It only stores its arguments."""

    def __init__(
        self,
        kwargs: dict[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Any = None,
        **options: Any,
    ) -> None:
        self.kwargs, self.num_warps, self.num_stages, self.num_ctas = kwargs, num_warps, num_stages, num_ctas
        self.maxnreg, self.pre_hook = maxnreg, pre_hook


class Tuned(KernelInterface):
    """A kernel with configurations or heuristics."""

    def __init__(self, fn: Any, configs: Sequence[Config] = ()) -> None:
        self.fn, self.configs, self.arg_names = fn, configs, fn.arg_names
        self.base_fn = getattr(fn, "base_fn", fn.fn)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn.run(*args, **kwargs)


def autotune(configs: Sequence[Config], key: Sequence[str], **options: Any) -> Callable[[Any], Tuned]:
    """A decorator that stores the configurations."""
    return lambda fn: Tuned(fn, configs)


def heuristics(values: dict[str, Any]) -> Callable[[Any], Tuned]:
    """A decorator without effect, because heuristics are used only at a launch."""
    return lambda fn: Tuned(fn)


def cdiv(x: int, y: int) -> int:
    """x / y, rounded up."""
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


def do_bench(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Raises an error, because a kernel cannot run."""
    _refuse("triton.testing.do_bench")


class OutOfResources(Exception):  # noqa: N818 - the package's name
    """An error of the compiler."""


class CompilationError(Exception):
    """An error of the compiler."""


class CompiledKernel:
    """The result of a compiler."""


def triton_key() -> str:
    """The cache key of compiled kernels, which do not exist here."""
    return ""


class _Driver:
    """There is no driver; queries raise an error."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f"triton.runtime.driver.{name}")


driver = _Driver()
