"""Every exception and warning that TorchDevice raises.

    TorchDeviceError
    ├── ConfigError (ValueError)              an unknown target, policy or environment value
    ├── AlreadyActive (RuntimeError)          a second activation with another configuration
    ├── FallbackRefused (NotImplementedError) the target lacks an operator, and no fallback is allowed or possible
    ├── TargetUnavailable (RuntimeError)      this machine does not have the requested target
    ├── VirtualDeviceUnavailable (RuntimeError)   a virtual device cannot be built or installed here
    ├── InterpreterUnsupported (RuntimeError) a sub-interpreter, or a free-threaded Python without the GIL
    ├── CollectiveUnsupported (NotImplementedError)   a collective that the available backend cannot do
    └── CudaOnlyError (NotImplementedError)   a feature of CUDA (or Metal) that no other device has
        └── CudaExtensionRefused (OSError)    a build of CUDA sources; torch without nvcc raises OSError, too

    TorchDeviceWarning (UserWarning)          a request changed its meaning, or a setting was ignored

Each message says what was requested, what was decided and by which setting, and ends with a `Hint:`.
"""

from __future__ import annotations


class TorchDeviceError(Exception):
    """The base class: `except TorchDeviceError` catches every exception that TorchDevice itself raises."""


class ConfigError(TorchDeviceError, ValueError):
    """A setting has an invalid value."""


class AlreadyActive(TorchDeviceError, RuntimeError):  # noqa: N818 - reads as the state it reports
    """`activate()` was called with settings that differ from those in force."""


class FallbackRefused(TorchDeviceError, NotImplementedError):  # noqa: N818
    """The target lacks an operator, and the settings or the executors do not allow a fallback."""


class TargetUnavailable(TorchDeviceError, RuntimeError):  # noqa: N818
    """The requested target does not exist on this machine."""


class VirtualDeviceUnavailable(TorchDeviceError, RuntimeError):  # noqa: N818
    """A virtual device cannot be built, loaded or installed in this process."""


class InterpreterUnsupported(TorchDeviceError, RuntimeError):  # noqa: N818
    """This Python interpreter cannot run translation: it is a sub-interpreter, or its GIL is off."""


class CollectiveUnsupported(TorchDeviceError, NotImplementedError):  # noqa: N818
    """A collective was requested that the available backend cannot do, not even by combining other collectives."""


class CudaOnlyError(TorchDeviceError, NotImplementedError):
    """A feature was requested that exists only on the hardware that the code was written for."""


class CudaExtensionRefused(CudaOnlyError, OSError):  # noqa: N818
    """A program tried to compile CUDA sources. It is an OSError because torch raises OSError without nvcc."""


class TorchDeviceWarning(UserWarning):
    """A warning of TorchDevice: a setting was ignored, or a request changed its meaning."""


def explain_error(asked: str, decided: str, hint: str) -> str:
    """Format a message: what was requested; what was decided, and by which setting; what to do."""
    return f"{asked}; {decided}.\nHint: {hint}"
