"""dtypes that an accelerator lacks, and what stands for them there. Which devices exist is `hosts`."""

from __future__ import annotations

import torch

# The Metal framework has no 64-bit floats: NumPy's default dtype would otherwise stop almost every script.
_NARROWED = {"mps": {torch.float64: torch.float32, torch.complex128: torch.complex64}}


def dtype_on(device_type: str, dtype: torch.dtype) -> torch.dtype:
    """`dtype` if a device of this type has it, else the nearest that it has."""
    return _NARROWED.get(device_type, {}).get(dtype, dtype)


def lacks_dtypes(device_type: str) -> bool:
    """Whether devices of this type lack a dtype that programs ask for."""
    return device_type in _NARROWED
