"""Dtypes that an accelerator lacks, and their replacements. The devices of a host are in `hosts`."""

from __future__ import annotations

import torch

# Metal has no 64-bit floats. They are NumPy's default dtype, so many scripts would fail without a replacement. Metal
# has no 8-bit floats either, in which large models are published. float16 is the smallest type that holds their values.
_FLOAT8 = [
    dtype for name, dtype in vars(torch).items() if name.startswith("float8_") and isinstance(dtype, torch.dtype)
]
_NARROWED = {
    "mps": {torch.float64: torch.float32, torch.complex128: torch.complex64, **dict.fromkeys(_FLOAT8, torch.float16)}
}


def dtype_on(device_type: str, dtype: torch.dtype) -> torch.dtype:
    """Returns `dtype` if devices of this type support it, else the nearest supported dtype."""
    return _NARROWED.get(device_type, {}).get(dtype, dtype)


def narrowed_dtypes(device_type: str) -> list[tuple[str, str]]:
    """The names of the dtypes that devices of this type lack, each with the name of its replacement."""
    pairs = _NARROWED.get(device_type, {}).items()
    return [(str(lacking).removeprefix("torch."), str(there).removeprefix("torch.")) for lacking, there in pairs]


def refused_dtype(name: str) -> torch.dtype | None:
    """The dtype that torch's C++ code calls `name` (`Double`, `Float8_e4m3fn`), if some device lacks it."""
    named = {"Double": torch.float64, "ComplexDouble": torch.complex128}
    dtype = named.get(name, getattr(torch, name.lower(), None))
    return dtype if any(dtype in lacking for lacking in _NARROWED.values()) else None


def lacks_dtypes(device_type: str) -> bool:
    """Whether devices of this type lack a dtype that programs commonly use."""
    return device_type in _NARROWED
