"""Compressed sparse tensors (CSR, CSC, BSR, BSC) on a device type for which torch has none, such as `mps`.

torch refuses to construct them, so they are instances of our own tensor class with the device, the layout and the
gradients that the caller expects. Their parts are in CPU memory, and every operator on one is a fallback. `cpu` copies
other tensors; `kernels` registers the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, ClassVar

import torch

from torchdevice._torch import dispatcher
from torchdevice._torch.core import RealDevice, RealTensor
from torchdevice.fallback.plan import Plan, read_plan

LAYOUTS = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
REASON = "torch has no compressed sparse tensors for this device"
_CPU = RealDevice("cpu")
_to_copy = torch.ops.aten._to_copy.default
_copy_into = torch.ops.aten.copy_.default
_values = torch.ops.aten.values.default
_alias = torch.ops.aten.alias.default

# Runs an operator on a fallback executor: takes the plan, the reason, and the arguments.
Elsewhere = Callable[[Plan, str, tuple[Any, ...], dict[str, Any]], Any]


class CompressedTensor(RealTensor):
    """A compressed sparse tensor that reports `device`; `held` is the same tensor on the CPU.

    `values()` is a view that can be written to, as torch's own gradients do. Once values were copied to the device,
    that copy is authoritative.
    """

    _held: torch.Tensor
    _lent: torch.Tensor | None
    elsewhere: ClassVar[Elsewhere]  # set by the active session; tensors live longer than sessions

    # Results keep the class that the operators return: torch must not convert them to this class.
    __torch_function__ = dispatcher.no_torch_function

    @staticmethod
    def __new__(cls: type[CompressedTensor], held: torch.Tensor, device: RealDevice) -> CompressedTensor:
        made: CompressedTensor = dispatcher.tensor_without_memory(cls, held, device)
        made._held, made._lent = held, None
        return made

    @property
    def held(self) -> torch.Tensor:
        """The CPU tensor, including what was written to the values on the device."""
        if self._lent is not None:
            _copy_into(_values(self._held), self._lent)
        return self._held

    def was_written(self, on_cpu: torch.Tensor) -> bool:
        """Whether an operator that wrote to `on_cpu` wrote to this tensor. If so, the copy on the device is updated."""
        if on_cpu is not self._held:
            return False
        values = _values(self._held)
        if self._lent is not None and self._lent.shape == values.shape:
            _copy_into(self._lent, values)
        else:
            self._lent = None
        return True

    def _lend(self) -> torch.Tensor:
        if self._lent is None:
            self._lent = CompressedTensor.elsewhere(_plan(_values), REASON, (self,), {})
        return _alias(self._lent)  # a new tensor object each time, because autograd sets fields on it

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called below autograd for every operator with such a tensor among its arguments."""
        if operator is torch.ops.prim.layout.default:
            return args[0]._held.layout
        if operator is _values:
            return args[0]._lend()
        kwargs = kwargs or {}
        if operator is _to_copy and "device" in kwargs and kwargs["device"].type != args[0].device.type:
            return operator(args[0].held, **kwargs)
        return cls.elsewhere(_plan(operator), REASON, args, kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Saved as a plain CPU tensor, because it may be loaded on a machine with another device."""
        return self.held.detach().requires_grad_(self.requires_grad).__reduce_ex__(protocol)


@cache
def made_for(device_type: str) -> bool:
    """Whether torch constructs compressed tensors on this device type. Called before we register constructors."""
    return device_type in ("cpu", "cuda", "xpu", "meta") or dispatcher.constructs_compressed(device_type)


def constructors() -> Iterator[str]:
    """The operators that construct compressed tensors from their parts, for all layouts."""
    kinds = ("compressed", "csr", "csc", "bsr", "bsc")
    for name in dispatcher.operator_names():
        stem = name.partition(".")[0].removeprefix("aten::").lstrip("_").removesuffix("_unsafe")
        if any(stem in (f"sparse_{kind}_tensor", f"sparse_{kind}_tensor_with_dims") for kind in kinds):
            yield name


def copy_to_target(tensor: torch.Tensor, *, device: RealDevice, **options: Any) -> CompressedTensor:
    """A kernel for `_to_copy` to a device without compressed tensors. torch selects it by that device."""
    return CompressedTensor(_to_copy(tensor, device=_CPU, **options), device)


def compressing(native: Any, elsewhere: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel for `_to_sparse` of the target's tensors: the native one, unless the layout is compressed."""

    def to_sparse(keys: Any, tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
        if options.get("layout") in LAYOUTS:
            return elsewhere(tensor, *args, **options)
        return native.call_boxed(keys, tensor, *args, **options)

    return to_sparse


@cache
def _plan(operator: Any) -> Plan:
    plan = read_plan(dispatcher.name_of(operator))
    assert plan is not None  # the operator has a handle
    return plan
