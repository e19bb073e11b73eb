"""Unsupported arguments of a stand-in raise an error that names them, to avoid a wrong result."""

from __future__ import annotations

from collections.abc import Mapping

from torchdevice.errors import CudaOnlyError, explain_error


def refuse_arguments(api: str, why: str, arguments: Mapping[str, object]) -> None:
    """Raises an error if one of the arguments is set. None, False and 0 count as not set."""
    asked = [name for name, value in arguments.items() if not (value is None or _is_zero(value))]
    if asked:
        names = ", ".join(asked)
        raise CudaOnlyError(explain_error(f"{api} was called with {names}", why, f"call it without {names}"))


def _is_zero(value: object) -> bool:
    return isinstance(value, (bool, int, float)) and not value
