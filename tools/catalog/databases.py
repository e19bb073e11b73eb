"""Calls from torch's own databases: operators (`op_db`), modules (`module_db`), optimizers (`optim_db`).

Which public name a row of a database answers for, and the results of its samples on a device, as digests.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tools.catalog.bench import digest
from torchdevice.catalog.signatures import device_parameters
from torchdevice.catalog.surface import CLASS, METHOD, Found

OPINFO, MODULEINFO, OPTIMINFO = "OpInfo", "ModuleInfo", "OptimizerInfo"
SAMPLES = 4
DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64, torch.float64, torch.float16)


@cache
def operators() -> dict[str, list[Any]]:
    """OpInfo rows by each name that they go under, without `torch.`."""
    from torch.testing._internal.common_methods_invocations import op_db

    rows: dict[str, list[Any]] = {}
    for op in op_db:
        for name in {op.name, op.aten_name, *(alias.name for alias in op.aliases)}:
            rows.setdefault(name, []).append(op)
    return rows


@cache
def modules() -> dict[type, Any]:
    """ModuleInfo rows by class."""
    from torch.testing._internal.common_modules import module_db

    return {info.module_cls: info for info in module_db}


@cache
def optimizers() -> dict[type, Any]:
    """OptimizerInfo rows by class."""
    from torch.testing._internal.common_optimizers import optim_db

    return {info.optim_cls: info for info in optim_db}


def load() -> None:
    """Seconds that the first call would take otherwise."""
    operators(), modules(), optimizers()


def rows_for(name: str) -> list[Any]:
    """The OpInfo rows whose samples fit a public function or tensor method."""
    for prefix in ("torch.Tensor.", "torch."):
        if name.startswith(prefix):
            rest = name.removeprefix(prefix)
            break
    else:
        return []
    known = operators()
    plain = rest.removesuffix("_")
    for candidate in (rest, plain, rest.replace(".", "_"), f"nn.functional.{plain}", f"linalg.{plain}"):
        if candidate in known and ("." not in candidate or "." in rest or prefix == "torch."):
            return known[candidate][:2]
    return []


def source_of(found: Found) -> str:
    """Which database has samples for it; empty if none."""
    if found.kind == CLASS:
        if found.value in modules():
            return MODULEINFO
        return OPTIMINFO if found.value in optimizers() else ""
    if found.kind == METHOD and found.owner != "torch.Tensor":
        return ""
    return OPINFO if rows_for(found.name) else ""


def run(found: Found, source: str, device: str, call: Any) -> Iterator[Any]:
    """The results of each sample on `device`, as digests; an exception is given in its place."""
    torch.manual_seed(0)
    if source == OPINFO:
        for op in rows_for(found.name):
            dtype = next((d for d in DTYPES if d in op.supported_dtypes("cpu")), None)
            if dtype is not None:
                yield from _operator(op, call, dtype, device)
    elif source == MODULEINFO:
        yield from _module(found, modules()[found.value], device, call)
    else:
        yield from _optimizer(optimizers()[found.value], device, call)


def _moved(value: Any, device: str) -> Any:
    def move(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return item.detach().clone().to(device).requires_grad_(item.requires_grad)
        if isinstance(item, torch.device) or (isinstance(item, str) and item == "cpu"):
            return device
        return item

    return pytree.tree_map(move, value)


def _operator(op: Any, call: Any, dtype: torch.dtype, device: str) -> Iterator[Any]:
    in_place = str(getattr(call, "__name__", "")).endswith("_")
    gradient = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu") and not in_place
    for sample in islice(op.sample_inputs("cpu", dtype, requires_grad=gradient), SAMPLES):
        try:
            first = _moved(sample.input, device)
            # Indices of tensor_split must be on the CPU, in torch itself.
            on_cpu = op.name == "tensor_split"
            args, kwargs = (sample.args, sample.kwargs) if on_cpu else _moved((sample.args, sample.kwargs), device)
            torch.manual_seed(1)
            results = call(first, *args, **kwargs)
            leaves = [t for t in pytree.tree_leaves((first, args, kwargs)) if _requires(t)]
            roots = [t for t in pytree.tree_leaves(results) if _requires(t) and t.layout is torch.strided]
            gradients = []
            if gradient and leaves and roots:
                ones = [torch.ones_like(root) for root in roots]
                gradients = list(torch.autograd.grad(roots, leaves, ones, allow_unused=True))
            yield [digest(results), digest(gradients)]
        except Exception as error:  # the caller compares: what plain torch refuses too is no failure
            yield error


def _requires(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _module(found: Found, info: Any, device: str, call: Any) -> Iterator[Any]:
    takes_device = "device" in device_parameters(found)
    samples = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=True)
    for sample in islice(samples, SAMPLES):
        try:
            made, given = sample.constructor_input, sample.forward_input
            torch.manual_seed(1)
            args, kwargs = _moved((made.args, made.kwargs), device)
            module = call(*args, **kwargs, **({"device": device} if takes_device else {})).to(device)
            if given is None:
                yield [digest(module)]
                continue
            args, kwargs = _moved((given.args, given.kwargs), device)
            torch.manual_seed(2)
            if not any(isinstance(p, torch.nn.UninitializedParameter) for p in module.parameters()):
                with torch.no_grad():  # the same weights everywhere, whichever generator made them
                    for parameter in module.parameters():
                        parameter.copy_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape).to(device))
            results = module(*args, **kwargs)
            roots = [t for t in pytree.tree_leaves(results) if _requires(t)]
            parameters = [p for p in module.parameters() if p.requires_grad]
            gradients = []
            if roots and parameters:
                ones = [torch.ones_like(root) for root in roots]
                gradients = list(torch.autograd.grad(roots, parameters, ones, allow_unused=True))
            yield [digest(results), digest(gradients)]
        except Exception as error:
            yield error


def _optimizer(info: Any, device: str, call: Any) -> Iterator[Any]:
    for sample in islice(info.optim_inputs_func(device="cpu"), SAMPLES):
        try:
            weights = [torch.linspace(-1, 1, 9).reshape(3, 3).to(device).requires_grad_()]
            optimizer = call(weights, **_moved(sample.kwargs, device))

            def closure(optimizer: Any = optimizer, weights: Any = weights) -> torch.Tensor:
                optimizer.zero_grad()
                loss = sum((w * w).sum() for w in weights)
                loss.backward()
                if call is torch.optim.SparseAdam or getattr(info, "only_supports_sparse_grads", False):
                    for w in weights:
                        w.grad = w.grad.to_sparse()
                return loss

            for _ in range(2):
                if info.step_requires_closure:
                    optimizer.step(closure)
                else:
                    closure()
                    optimizer.step()
            yield [digest([w.detach() for w in weights])]
        except Exception as error:
            yield error
