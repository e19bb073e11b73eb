"""pytest plugin: run a test-suite that was written for CUDA on this machine.

    pytest -p torchdevice.pytest_plugin --torchdevice-virtual cuda tests/

It activates before any conftest is imported, in xdist's workers too, and ends with the summary line.
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
        {"metavar": "DEV[:n][:real]", "help": "give the tests n devices of a type that this machine lacks"},
    ),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, in a group of their own."""
    group = parser.getgroup("torchdevice", "run CUDA-written tests on the device that is here")
    for name, variable, settings in OPTIONS:
        group.addoption(name, dest=variable.lower(), **settings)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Activate: conftests and test modules import torch, and take names from it."""
    given = {variable: getattr(early_config.known_args_namespace, variable.lower()) for _, variable, _ in OPTIONS}
    os.environ.update({variable: value for variable, value in given.items() if value is not None})
    import torch  # noqa: F401  (first: it starts us by itself where the environment now asks for it)

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
    """One line; with xdist the workers do the asking, so there is nothing to tell here."""
    from torchdevice.session import session

    report = session.report()
    if not report.empty:
        terminalreporter.write_line(printable(report.summary()))
