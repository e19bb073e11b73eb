"""pytest plugin: runs a test suite that was written for CUDA on this machine.

    pytest -p torchdevice.pytest_plugin --torchdevice-virtual cuda tests/

It activates before any conftest is imported, also in workers of xdist, and prints the summary line at the end.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from torchdevice.config import POLICIES
from torchdevice.environment import environment
from torchdevice.printable import printable

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

# option, variable, help; an option that is not given leaves the variable as it is
OPTIONS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("--torchdevice-target", "TORCHDEVICE_TARGET", {"metavar": "TYPE", "help": "device type to compute on"}),
    ("--torchdevice-policy", "TORCHDEVICE_POLICY", {"choices": POLICIES, "help": "which requests are redirected"}),
    (
        "--torchdevice-virtual",
        "TORCHDEVICE_VIRTUAL",
        {"metavar": "DEV[:n][:real]", "help": "n virtual devices of a type that this machine lacks"},
    ),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, in their own group."""
    group = parser.getgroup("torchdevice", "run tests written for CUDA on the device of this machine")
    for name, variable, settings in OPTIONS:
        group.addoption(name, dest=variable.lower(), **settings)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Activate before conftests and test modules import names from torch."""
    given = {variable: getattr(early_config.known_args_namespace, variable.lower()) for _, variable, _ in OPTIONS}
    os.environ.update({variable: value for variable, value in given.items() if value is not None})
    import torch  # noqa: F401  (first: its import activates if the environment asks for it)

    from torchdevice.errors import TorchDeviceError
    from torchdevice.session import session
    from torchdevice.virtual import from_environment

    try:
        if virtual := given["TORCHDEVICE_VIRTUAL"] or environment().get("TORCHDEVICE_VIRTUAL"):
            from_environment(virtual)
        session.activate(target=given["TORCHDEVICE_TARGET"], policy=given["TORCHDEVICE_POLICY"])
    except TorchDeviceError as error:
        raise pytest.UsageError(f"torchdevice: {error}") from error


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print the summary line. With xdist the workers run the tests, and there is nothing to print here."""
    from torchdevice.session import session

    report = session.report()
    if not report.empty:
        terminalreporter.write_line(printable(report.summary()))
