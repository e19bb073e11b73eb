"""Compilers on a virtual device: inductor must not look for Triton, fusers not for NVRTC, builders not for nvcc."""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch

from torchdevice._torch import builds
from torchdevice._torch.imports import when_imported
from torchdevice.errors import explain_error


def _inductor(kind: str) -> None:
    """`torch.compile()` without a backend compiles graphs of the virtual device ahead of time and runs them eagerly."""
    wrapper = builds.Inductor
    compile_with_inductor = wrapper.__call__

    @functools.wraps(compile_with_inductor)
    def compile_graph(self: Any, model: Any, inputs: Any) -> Any:
        if not _touches(kind, model, inputs):
            return compile_with_inductor(self, model, inputs)
        return builds.compile_without_inductor(model, inputs)

    wrapper.__call__ = compile_graph


def _touches(kind: str, model: Any, inputs: Any) -> bool:
    def on_device(value: Any) -> bool:
        device = getattr(value, "device", value)
        return isinstance(device, torch.device) and device.type == kind

    if any(on_device(value) for value in inputs):
        return True
    if any(on_device(t) for t in (*model.parameters(), *model.buffers())):
        return True
    nodes = getattr(model, "graph", None)
    values = [v for node in nodes.nodes for v in (*node.args, *node.kwargs.values())] if nodes is not None else []
    return any(on_device(v) or (isinstance(v, str) and v.partition(":")[0] == kind) for v in values)


def _hide_toolkit() -> None:
    """Extension builders see no nvcc and take their own fallback; those that have none are told why."""
    vars(sys.modules["torch.utils.cpp_extension"]).update(CUDA_HOME=None, CUDNN_HOME=None, _join_cuda_home=_no_toolkit)


def _no_toolkit(*paths: str) -> str:
    """In torch's class and first words, which builders may look for."""
    raise OSError(
        explain_error(
            "CUDA_HOME environment variable is not set, and a CUDA extension was to be built",
            "the cuda device here is a virtual one, which cannot run CUDA sources",
            "build the extension's C++ sources alone (CppExtension), or use its pure PyTorch path",
        )
    )


def _no_native_kernels() -> None:
    """Operators of torch's own that are written in Triton or CuteDSL: where those are installed, torch uses them."""
    import torch.backends.python_native as kernels

    for language in kernels.available_dsls:
        getattr(kernels, language).disable()


def _hide_triton() -> None:
    """Nobody who asks finds it: libraries that have a path beside it take that one."""
    sys.modules.setdefault("triton", None)  # type: ignore[arg-type]


def install(kind: str) -> None:
    _inductor(kind)
    if kind != "mps":
        _hide_triton()
    when_imported("torch._native", "", _no_native_kernels)
    builds.fuse_nothing_on_gpus()
    if kind == "cuda":
        when_imported("torch.utils.cpp_extension", "", _hide_toolkit)
