"""Compressed sparse tensors (CSR, CSC, BSR, BSC) of a device type for which torch makes none, such as `mps`.

torch refuses to construct them there, so they are a tensor class of ours with the device, the layout and the gradients
that the caller expects. Their parts are in CPU memory, and every operator on one is a fallback. How other tensors
move is `cpu`; what is registered where is `kernels`.
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
REASON = "torch makes no compressed sparse tensors for this device"
_CPU = RealDevice("cpu")
_to_copy = torch.ops.aten._to_copy.default
_copy_into = torch.ops.aten.copy_.default
_values = torch.ops.aten.values.default
_alias = torch.ops.aten.alias.default

# Runs an operator away from the target: the plan, why, and the arguments.
Elsewhere = Callable[[Plan, str, tuple[Any, ...], dict[str, Any]], Any]


class CompressedTensor(RealTensor):
    """A compressed sparse tensor that says it is on `device`; `held` is the same tensor on the CPU.

    `values()` is a look at the tensor that can be written to, which torch's own gradients do: those that were lent to
    the device are the truth from then on.
    """

    _held: torch.Tensor
    _lent: torch.Tensor | None
    elsewhere: ClassVar[Elsewhere]  # set by the session that runs; tensors live longer than sessions

    # Results are what the operators give: torch must not turn them into this class.
    __torch_function__ = dispatcher.no_torch_function

    @staticmethod
    def __new__(cls: type[CompressedTensor], held: torch.Tensor, device: RealDevice) -> CompressedTensor:
        made: CompressedTensor = dispatcher.tensor_without_memory(cls, held, device)
        made._held, made._lent = held, None
        return made

    @property
    def held(self) -> torch.Tensor:
        """With what was written to the values on the device."""
        if self._lent is not None:
            _copy_into(_values(self._held), self._lent)
        return self._held

    def was_written(self, on_cpu: torch.Tensor) -> bool:
        """Whether an operator that wrote to `on_cpu` has written to this tensor; lent values learn of it."""
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
        return _alias(self._lent)  # a tensor of its own each time: autograd writes on it

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every operator that is given one arrives here, below autograd."""
        if operator is torch.ops.prim.layout.default:
            return args[0]._held.layout
        if operator is _values:
            return args[0]._lend()
        kwargs = kwargs or {}
        if operator is _to_copy and "device" in kwargs and kwargs["device"].type != args[0].device.type:
            return operator(args[0].held, **kwargs)
        return cls.elsewhere(_plan(operator), REASON, args, kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Saved as the plain tensor on the CPU: whoever loads it may have another device."""
        return self.held.detach().requires_grad_(self.requires_grad).__reduce_ex__(protocol)


@cache
def made_for(device_type: str) -> bool:
    """Whether torch constructs compressed tensors on this device type. Asked before we register constructors."""
    return device_type in ("cpu", "cuda", "xpu", "meta") or dispatcher.constructs_compressed(device_type)


def constructors() -> Iterator[str]:
    """The operators that construct compressed tensors from their parts, with all layouts' names."""
    kinds = ("compressed", "csr", "csc", "bsr", "bsc")
    for name in dispatcher.operator_names():
        stem = name.partition(".")[0].removeprefix("aten::").lstrip("_").removesuffix("_unsafe")
        if any(stem in (f"sparse_{kind}_tensor", f"sparse_{kind}_tensor_with_dims") for kind in kinds):
            yield name


def copy_to_target(tensor: torch.Tensor, *, device: RealDevice, **options: Any) -> CompressedTensor:
    """A kernel for `_to_copy` to a device without compressed tensors; torch chooses it by that device."""
    return CompressedTensor(_to_copy(tensor, device=_CPU, **options), device)


def compressing(native: Any, elsewhere: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel for `_to_sparse` of the target's tensors: its own, unless the layout is a compressed one."""

    def to_sparse(keys: Any, tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
        if options.get("layout") in LAYOUTS:
            return elsewhere(tensor, *args, **options)
        return native.call_boxed(keys, tensor, *args, **options)

    return to_sparse


@cache
def _plan(operator: Any) -> Plan:
    plan = read_plan(dispatcher.name_of(operator))
    assert plan is not None  # it comes from an operator that has a handle
    return plan
