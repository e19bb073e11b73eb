"""Something of ours fails: torch is never left half patched, and `import torch` goes on."""

from __future__ import annotations

import itertools
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import torchdevice
from tests.test_session import differences, snapshot
from torchdevice import session as session_module
from torchdevice.answers.scoped import Masquerades
from torchdevice.distributed.points import Distributed
from torchdevice.translate import engine
from torchdevice.translate.translator import Translator, translator


class InjectedError(Exception):
    pass


def failing(*args: Any, **kwargs: Any) -> Any:
    raise InjectedError


STEPS: dict[str, tuple[Any, str]] = {
    "masquerade": (Masquerades, "apply"),
    "logging": (session_module.log, "apply"),
    "environment": (session_module, "apply_to_children"),
    "dynamo": (session_module.compilers, "when_dynamo_is_imported"),
    "weights_only": (session_module.core, "weights_only_cache_clear"),
    "workers": (session_module, "_worker_replacement"),
    "process groups": (Distributed, "apply"),
    "checkpoints": (session_module.loading, "apply_when_imported"),
    "listeners": (session_module, "_entered"),
    "translator": (Translator, "start"),
}


@pytest.mark.parametrize("step", STEPS)
def test_an_activation_that_fails_leaves_nothing(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot()
    with monkeypatch.context() as patch:
        patch.setattr(*STEPS[step], failing)
        with pytest.raises(InjectedError):
            torchdevice.activate()
    assert not torchdevice.is_active()
    assert differences(before, snapshot()) == []
    torchdevice.activate()
    assert torch.zeros(1, device="cuda").device.type == "cpu"
    torchdevice.deactivate()
    assert differences(before, snapshot()) == []


@pytest.mark.parametrize("number", [0, 1, 7, 60, 140])
def test_a_replacement_that_fails_takes_back_those_before_it(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before, apply = snapshot(), engine.apply

    def some(replacements: Iterable[engine.Replacement]) -> Iterator[engine.Replacement]:
        yield from itertools.islice(replacements, number)
        raise InjectedError

    with monkeypatch.context() as patch:
        patch.setattr(session_module, "apply", lambda replacements: apply(some(replacements)))
        with pytest.raises(InjectedError):
            torchdevice.activate()
    assert differences(before, snapshot()) == []


def test_an_undo_that_fails_does_not_keep_the_others_from_running() -> None:
    before = snapshot()
    torchdevice.activate()
    session_module.session._stack.callback(failing)
    with pytest.raises(InjectedError):
        torchdevice.deactivate()
    assert not torchdevice.is_active()
    assert differences(before, snapshot()) == []


def test_a_listener_that_raises_is_dropped_with_one_warning() -> None:
    with torchdevice.redirect(), translator.ledger.listening(failing):
        with pytest.warns(torchdevice.TorchDeviceWarning, match="was dropped") as caught:
            torch.zeros(1, device="cuda")
        assert len(caught) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.ones(1, device="cuda")


PROBE = "import torch; print(type(torch.zeros).__name__)"
ENVIRONMENTS: dict[str, tuple[list[str], str, str]] = {
    "nothing asked": ([], "", "builtin_function_or_method"),
    "asked": ([], "1", "function"),
    "isolated": (["-I"], "1", "builtin_function_or_method"),
    "without environment": (["-E"], "1", "builtin_function_or_method"),
    "optimised": (["-OO"], "1", "function"),
    "bad value": ([], "klingon", "builtin_function_or_method"),
    "bad value, warnings are errors": (["-W", "error::UserWarning"], "klingon", "builtin_function_or_method"),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_import_torch_goes_on_whatever_the_environment_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options, value, expected = ENVIRONMENTS[name]
    monkeypatch.setenv("TORCHDEVICE", value)
    done = subprocess.run([sys.executable, *options, "-c", PROBE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr
    assert ("torchdevice is off in this process" in done.stderr) == name.startswith("bad value")


def test_a_broken_installation_ends_import_torch_and_the_message_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch loads what is in its entry point group; docs/cli.md says what this means for a half-deleted package."""
    metadata = tmp_path / "torch_device_broken-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-device-broken\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[torch.backends]\nbroken = no_such_package.autoload:autoload\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for value, status in (("1", 1), ("0", 0)):
        monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", value)
        done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        assert ("TORCH_DEVICE_BACKEND_AUTOLOAD=0" in done.stderr) == bool(status)


def test_somebody_else_s_patch_survives_and_is_named() -> None:
    original = torch.zeros
    torchdevice.activate()
    patcher = mock.patch("torch.zeros", return_value="theirs")
    patcher.start()
    with pytest.warns(torchdevice.TorchDeviceWarning, match=r"torch\.zeros was replaced by other code"):
        torchdevice.deactivate()
    assert torch.zeros() == "theirs"
    patcher.stop()  # puts back our wrapper, which passes everything through
    assert torch.zeros(1).tolist() == [0]
    torch.zeros = original


def test_a_mock_from_before_is_left_alone() -> None:
    with mock.patch("torch.zeros", return_value="theirs") as theirs:
        torchdevice.activate()
        assert torch.zeros(2, device="cuda") == "theirs"
        torchdevice.deactivate()
        assert torch.zeros is theirs


def test_a_function_from_before_is_wrapped() -> None:
    original, asked = torch.zeros, []

    def theirs(*size: int, device: Any = None) -> torch.Tensor:
        asked.append(device)
        return original(*size, device=device)

    with mock.patch("torch.zeros", theirs):
        torchdevice.activate(target="cpu")
        assert torch.zeros(2, device="cuda").tolist() == [0, 0]
        torchdevice.deactivate()
        assert torch.zeros is theirs
    assert [torch.device(device) for device in asked] == [torch.device("cpu")]
    assert torch.zeros is original
