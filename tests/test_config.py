from __future__ import annotations

import sys
from pathlib import Path

import pytest

import torchdevice
from torchdevice.cli import main
from torchdevice.config import cache_folder, data_folder, resolve_config
from torchdevice.errors import ConfigError


def test_arguments_win_over_environment_over_defaults() -> None:
    environ = {"TORCHDEVICE_POLICY": "portable", "TORCHDEVICE_TARGET": "CUDA"}
    config = resolve_config(target="cpu", environ=environ)
    assert (config.target, config.policy, config.log_level) == ("cpu", "portable", "WARNING")
    assert [config.source(name) for name in ("target", "policy", "log_level")] == [
        "argument",
        "TORCHDEVICE_POLICY",
        "default",
    ]


@pytest.mark.parametrize(
    ("environ", "enabled", "source"),
    [
        ({}, True, "default"),
        ({"TORCH_ALLOW_REDIRECTS": "TRUE"}, True, "TORCH_ALLOW_REDIRECTS"),
        ({"TORCH_ALLOW_REDIRECTS": "no"}, True, "default"),
        ({"TORCHDEVICE_ENABLED": "0"}, False, "TORCHDEVICE_ENABLED"),
        ({"TORCHDEVICE_ENABLED": "0", "TORCH_ALLOW_REDIRECTS": "true"}, False, "TORCHDEVICE_ENABLED"),
        ({"TORCHDEVICE_ENABLED": "1"}, True, "TORCHDEVICE_ENABLED"),
    ],
)
def test_the_switches(environ: dict[str, str], enabled: bool, source: str) -> None:
    config = resolve_config(environ=environ)
    assert (config.enabled, config.source("enabled")) == (enabled, source)


@pytest.mark.parametrize(
    ("environ", "allowed"),
    [
        ({"TORCHDEVICE_POLICY": "fast"}, "accelerate, portable"),
        ({"TORCHDEVICE_LOG_LEVEL": "LOUD"}, "DEBUG, INFO, WARNING, ERROR"),
        ({"TORCHDEVICE_ENABLED": "maybe"}, "0 or 1"),
    ],
)
def test_bad_values_name_the_allowed_ones(environ: dict[str, str], allowed: str) -> None:
    with pytest.raises(torchdevice.ConfigError, match=allowed) as raised:
        resolve_config(environ=environ)
    assert next(iter(environ)) in str(raised.value)
    assert "Hint:" in str(raised.value)


def test_a_setting_that_is_no_string_is_refused() -> None:
    with pytest.raises(torchdevice.ConfigError, match="must be a string"):
        resolve_config(policy=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environ", "platform", "folder"),
    [
        ({}, "linux", "/home/.local/share/torchdevice"),
        ({"XDG_DATA_HOME": "/data"}, "linux", "/data/torchdevice"),
        ({"XDG_DATA_HOME": "data"}, "linux", "/home/.local/share/torchdevice"),
        ({"XDG_DATA_HOME": "/data"}, "darwin", "/home/Library/Application Support/torchdevice"),
        ({"XDG_DATA_HOME": "/data", "TORCHDEVICE_CACHE": "/mine"}, "linux", "/mine"),
    ],
)
def test_where_what_a_user_wrote_is_kept(
    environ: dict[str, str], platform: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_DATA_HOME", "TORCHDEVICE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home", **environ}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert data_folder() == Path(folder)


def test_a_cache_below_the_current_folder_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be loaded from what somebody's repository came with. XDG says to ignore such a path."""
    monkeypatch.delenv("TORCHDEVICE_CACHE", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", "/home")
    for given, folder in (("cache", "/home/.cache"), ("./cache", "/home/.cache"), ("/cache", "/cache")):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert cache_folder() == Path(folder) / "torchdevice"
    for given in ("cache", "./cache", "../cache"):
        monkeypatch.setenv("TORCHDEVICE_CACHE", given)
        with pytest.raises(ConfigError, match=r"relative.*\nHint: set TORCHDEVICE_CACHE to an absolute path"):
            cache_folder()
    with pytest.raises(SystemExit, match="2"):
        main(["virtual", "clean"])
    assert len(capsys.readouterr().err.splitlines()) == 1
