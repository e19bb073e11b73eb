"""triton.language if triton cannot be installed: names for the bodies of kernels, which are never run."""

from __future__ import annotations

from typing import Any

from torchdevice.packages.triton_stub import _refuse


class constexpr:  # noqa: N801 - the package's name
    """A constant of a kernel: an annotation, or a wrapper of a value."""

    def __init__(self, value: Any) -> None:
        self.value: Any = value.value if isinstance(value, constexpr) else value

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, constexpr) else other))

    def __hash__(self) -> int:
        return hash(self.value)


class Symbol:
    """A name of the language. It can be referenced and compared. A call outside a kernel raises an error."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __repr__(self) -> str:
        return self._path

    def __getattr__(self, name: str) -> Symbol:
        if name.startswith("__"):
            raise AttributeError(name)
        return Symbol(f"{self._path}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _refuse(self._path)


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return Symbol(f"triton.language.{name}")
