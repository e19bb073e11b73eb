"""Every exception and warning that TorchDevice raises. Nothing else lives here.

    TorchDeviceError
    ├── ConfigError (ValueError)              an unknown target, policy or environment value
    ├── AlreadyActive (RuntimeError)          a second activation with another configuration
    ├── FallbackRefused (NotImplementedError) the target lacks an operator, and nothing may or can stand in for it
    ├── TargetUnavailable (RuntimeError)      the target that was asked for is not on this machine
    ├── VirtualDeviceUnavailable (RuntimeError)   a virtual device cannot be built or installed here
    ├── InterpreterUnsupported (RuntimeError) a sub-interpreter, or a free-threaded Python without its lock
    ├── CollectiveUnsupported (NotImplementedError)   a collective that the backend here has no way to do
    └── CudaOnlyError (NotImplementedError)   a feature of CUDA (or Metal) that no other device has
        └── CudaExtensionRefused (OSError)    CUDA sources were to be compiled: torch without nvcc raises OSError

    TorchDeviceWarning (UserWarning)          something changes meaning, or a setting was ignored

Each message says what was asked, what was decided and by which setting, and ends in a `Hint:`.
"""

from __future__ import annotations


class TorchDeviceError(Exception):
    """The root of the tree: `except TorchDeviceError` catches whatever this library raises by itself."""


class ConfigError(TorchDeviceError, ValueError):
    """A setting has a value that means nothing."""


class AlreadyActive(TorchDeviceError, RuntimeError):  # noqa: N818 - reads as the state it reports
    """`activate()` was called with settings that differ from those in force."""


class FallbackRefused(TorchDeviceError, NotImplementedError):  # noqa: N818
    """The target lacks an operator, and the settings or the executors do not let it run elsewhere."""


class TargetUnavailable(TorchDeviceError, RuntimeError):  # noqa: N818
    """The requested target does not exist on this machine."""


class VirtualDeviceUnavailable(TorchDeviceError, RuntimeError):  # noqa: N818
    """A virtual device cannot be built, loaded or installed in this process."""


class InterpreterUnsupported(TorchDeviceError, RuntimeError):  # noqa: N818
    """This Python interpreter cannot run translation: a sub-interpreter, or one without its global lock."""


class CollectiveUnsupported(TorchDeviceError, NotImplementedError):  # noqa: N818
    """A collective was asked for that neither the backend here nor a combination of others can do."""


class CudaOnlyError(TorchDeviceError, NotImplementedError):
    """A feature was asked for that exists only on the hardware that the code was written for."""


class CudaExtensionRefused(CudaOnlyError, OSError):  # noqa: N818
    """CUDA sources were to be compiled. Programs with another way catch what torch raises without nvcc: OSError."""


class TorchDeviceWarning(UserWarning):
    """What TorchDevice warns about: settings that it ignored, requests whose meaning it had to change."""


def explain_error(asked: str, decided: str, hint: str) -> str:
    """The one shape of a message: what was asked; what was decided, and by which setting; what to do."""
    return f"{asked}; {decided}.\nHint: {hint}"
