"""Arguments that a stand-in cannot honour: an error that names them, instead of a wrong result."""

from __future__ import annotations

from collections.abc import Mapping

from torchdevice.errors import CudaOnlyError, explain_error


def refuse_arguments(api: str, why: str, arguments: Mapping[str, object]) -> None:
    """Raise if one of them asks for something; None, False and 0 do not."""
    asked = [name for name, value in arguments.items() if not (value is None or _is_zero(value))]
    if asked:
        names = ", ".join(asked)
        raise CudaOnlyError(explain_error(f"{api} was called with {names}", why, f"call it without {names}"))


def _is_zero(value: object) -> bool:
    return isinstance(value, (bool, int, float)) and not value
