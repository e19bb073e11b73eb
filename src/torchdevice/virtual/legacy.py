"""`torch.cuda.FloatTensor` and its kin, which torch has in C only when built for CUDA: classes of Python stand in."""

from __future__ import annotations

from typing import Any

import torch

from torchdevice._torch import builds
from torchdevice._torch.core import legacy_tensor_types

# Of the types that every build names, those of CUDA: `Float` → float32.
DTYPES = {
    name.removesuffix("Tensor"): getattr(torch, name).dtype
    for module, name in legacy_tensor_types()
    if module is torch.cuda
}
VIEWED = (torch.Tensor, torch.UntypedStorage, torch.TypedStorage)


class LegacyType(type):
    """The type of those classes: `isinstance(x, torch.cuda.FloatTensor)` asks for device and dtype, as torch's does."""

    dtype: torch.dtype
    is_cuda = True
    is_sparse = False
    layout = torch.strided

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype == cls.dtype and not value.is_sparse

    def __call__(cls, *arguments: Any, **options: Any) -> torch.Tensor:
        """FloatTensor(), (2, 3), (sequence), (storage), (tensor): a new tensor on the current device."""
        device = torch.device(options.get("device", "cuda"))
        if not arguments:
            return torch.empty(0, dtype=cls.dtype, device=device)
        first = arguments[0]
        if isinstance(first, torch.Tensor):
            return first.to(device=device, dtype=cls.dtype)
        if isinstance(first, (torch.UntypedStorage, torch.TypedStorage)):
            return torch.empty(0, dtype=cls.dtype, device=device).set_(first)
        if isinstance(first, int):
            return torch.empty(*arguments, dtype=cls.dtype, device=device)
        if isinstance(first, torch.Size):
            return torch.empty(first, dtype=cls.dtype, device=device)
        return torch.tensor(first, dtype=cls.dtype, device=device)

    def __repr__(cls) -> str:
        return f"<class 'torch.cuda.{cls.__name__}'>"


def install() -> None:
    """Puts the classes into torch.cuda, and teaches `Tensor.type` and `set_default_tensor_type` about them."""
    for prefix, dtype in DTYPES.items():
        name = f"{prefix}Tensor"
        made = LegacyType(name, (), {"dtype": dtype, "__module__": "torch.cuda"})
        setattr(torch.cuda, name, made)
    original_type = torch.Tensor.type
    original_default = builds.set_default_tensor_type
    original_new = torch.Tensor.__new__
    default_is_here = False
    by_name = {f"torch.cuda.{name}Tensor": dtype for name, dtype in DTYPES.items()}

    def tensor_type(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **options: Any) -> Any:
        wanted = (
            dtype.dtype if isinstance(dtype, LegacyType) else by_name.get(dtype) if isinstance(dtype, str) else None
        )
        if wanted is None:
            return original_type(self, dtype, non_blocking, **options) if dtype is not None else original_type(self)
        return self.to(device=self.device if self.is_cuda else "cuda", dtype=wanted, non_blocking=non_blocking)

    def new(cls: Any, *arguments: Any, **options: Any) -> Any:
        """`torch.Tensor(2, 3)` is of the default type; of a tensor or a storage it is a view."""
        made = original_new(cls, *arguments, **options)
        if not default_is_here or cls is not torch.Tensor or (arguments and isinstance(arguments[0], VIEWED)):
            return made
        return made.to("cuda")

    def set_default_tensor_type(kind: Any) -> None:
        nonlocal default_is_here
        default_is_here = isinstance(kind, LegacyType)
        if isinstance(kind, LegacyType):
            torch.set_default_dtype(kind.dtype)
            torch.set_default_device("cuda")
        else:
            original_default(kind)
            torch.set_default_device(None)

    vars(new)["__wrapped__"] = original_new  # torch's compiler compares signatures
    torch.Tensor.__new__ = staticmethod(new)
    torch.Tensor.type = tensor_type
    builds.replace_set_default_tensor_type(set_default_tensor_type)
