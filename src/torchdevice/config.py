"""Settings: their values and sources, errors for invalid values, and what child processes inherit.

`policy` defines what the values mean, and `session` acts on them. Variables that are not settings of a session (for
virtual devices, reports and the command line) are read where they are used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from torchdevice.environment import environment, home
from torchdevice.errors import ConfigError, explain_error
from torchdevice.notices import LOG_LEVEL

POLICIES = ("accelerate", "portable")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
FALLBACKS = ("auto", "off", "cpu", "mlx,cpu")
FLOAT64 = ("downcast", "cpu", "error")
ON_OOM = ("retry", "cpu", "raise")
PLACES = ("current", "free")
AUTO = "auto"
POLICY_REASON = "TORCHDEVICE_POLICY_REASON"  # why `run` chose the policy
RUN_CACHE = "TORCHDEVICE_RUN_CACHE"  # the cache folder of `run`; programs may set their own XDG_CACHE_HOME
HAS_PARENT = "TORCHDEVICE_HAS_PARENT"  # set by an active process for the processes that it starts
PROFILE = "TORCHDEVICE_PROFILE"  # the switch of `run --profile`
MAX_DEVICES = 64
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"  # CUDA's own

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})


@dataclass(frozen=True)
class Setting:
    """One setting: its field in `Config`, the variable that sets it, and the allowed values (none: any text)."""

    field: str
    variable: str
    allowed: tuple[str, ...] = ()


SETTINGS = (
    Setting("target", "TORCHDEVICE_TARGET"),
    Setting("policy", "TORCHDEVICE_POLICY", POLICIES),
    Setting("log_level", LOG_LEVEL, LOG_LEVELS),
    Setting("fallback", "TORCHDEVICE_FALLBACK", FALLBACKS),
    Setting("float64", "TORCHDEVICE_FLOAT64", FLOAT64),
    Setting("on_oom", "TORCHDEVICE_ON_OOM", ON_OOM),
    Setting("place", "TORCHDEVICE_PLACE", PLACES),
)
DEVICE_COUNT = "TORCHDEVICE_DEVICE_COUNT"
PACKAGES = "TORCHDEVICE_PACKAGES"
MPS_WORKAROUNDS = "TORCHDEVICE_MPS_WORKAROUNDS"
SWITCHES = {"masquerade": "TORCHDEVICE_MASQUERADE", "packages": PACKAGES, "mps_workarounds": MPS_WORKAROUNDS}


@dataclass(frozen=True)
class Config:
    """The settings in force. `sources` has the source of each field: an argument, a variable or the default."""

    target: str = AUTO
    policy: str = "accelerate"
    log_level: str = "WARNING"
    fallback: str = AUTO
    float64: str = "downcast"
    on_oom: str = "retry"  # what happens when the target is out of memory
    place: str = "current"  # the device for requests without an index
    device_count: int = 1  # the device count that code sees on a host with one device or none
    enabled: bool = True
    masquerade: bool = True
    packages: bool = False  # stand-ins for packages with their own CUDA kernels
    mps_workarounds: bool = True  # calls for which MPS returns wrong values are made in another way
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    def source(self, name: str) -> str:
        """Where the value of the field `name` came from: "argument", the variable's name, or "default"."""
        return self.sources.get(name, "default")

    def differences(self, other: Config) -> list[str]:
        """The settings that have another value in `other`."""
        names = [each.name for each in fields(self) if each.compare]
        return [name for name in names if getattr(self, name) != getattr(other, name)]

    def all_sources(self) -> dict[str, str]:
        """The source of every field."""
        return {each.name: self.source(each.name) for each in fields(self) if each.name != "sources"}


def apply_to_children(config: Config, target: str) -> Callable[[], None]:
    """Set the environment so that child processes activate, too. Returns the undo."""
    wanted = {
        "TORCHDEVICE": "1",
        "TORCHDEVICE_TARGET": target,
        "TORCHDEVICE_POLICY": config.policy,
        "TORCHDEVICE_ON_OOM": config.on_oom,
        "TORCHDEVICE_PLACE": config.place,
        PACKAGES: str(int(config.packages)),
        MPS_WORKAROUNDS: str(int(config.mps_workarounds)),
        HAS_PARENT: "1",
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)

    def restore() -> None:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    return restore


@contextmanager
def without_settings() -> Iterator[None]:
    """Remove all TORCHDEVICE_ variables from the environment inside the block."""
    saved = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("TORCHDEVICE_")}
    try:
        yield
    finally:
        os.environ.update(saved)


def resolve_config(
    *,
    target: str | None = None,
    policy: str | None = None,
    packages: bool | None = None,
    on_oom: str | None = None,
    place: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Merge arguments over environment over defaults. An invalid value raises `ConfigError`."""
    environ = environment() if environ is None else environ
    arguments = {"target": target, "policy": policy, "on_oom": on_oom, "place": place}
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for setting in SETTINGS:
        given = arguments.get(setting.field)
        source = "argument"
        if given is None:
            given, source = environ.get(setting.variable) or None, setting.variable
        if given is None:
            continue
        values[setting.field] = _checked(setting, given, source)
        sources[setting.field] = source
    enabled, sources["enabled"] = _enabled(environ)
    for name, variable in SWITCHES.items():
        switch = environ.get(variable)
        if switch is not None:
            values[name], sources[name] = _flag(variable, switch), variable
    if packages is not None:
        values["packages"], sources["packages"] = packages, "argument"
    count = environ.get(DEVICE_COUNT)
    if count:
        values["device_count"] = _count(count)
        sources["device_count"] = DEVICE_COUNT
    return Config(enabled=enabled, sources=sources, **values)


def _checked(setting: Setting, given: object, source: str) -> str:
    where = f"{setting.field}={given!r} (from the argument)" if source == "argument" else f"{source}={given!r}"
    if not isinstance(given, str):
        raise ConfigError(
            explain_error(
                f"{where} was requested",
                "a setting must be a string, so nothing was changed",
                f"pass {setting.field} as a string, such as {(setting.allowed or ('cpu',))[0]!r}",
            )
        )
    if not setting.allowed:
        return given.strip().lower()
    for value in setting.allowed:
        if given.strip().lower() == value.lower():
            return value
    raise ConfigError(
        explain_error(
            f"{where} was requested",
            f"{setting.field} has no such value, so nothing was changed",
            f"use one of {', '.join(setting.allowed)}",
        )
    )


def _enabled(environ: Mapping[str, str]) -> tuple[bool, str]:
    """`TORCH_ALLOW_REDIRECTS=true` forces redirection on; `TORCHDEVICE_ENABLED=0` forces it off and wins."""
    given = environ.get("TORCHDEVICE_ENABLED")
    if given is not None and not _flag("TORCHDEVICE_ENABLED", given):
        return False, "TORCHDEVICE_ENABLED"
    if _redirects_allowed(environ):
        return True, "TORCH_ALLOW_REDIRECTS"
    return True, "default" if given is None else "TORCHDEVICE_ENABLED"


def _redirects_allowed(environ: Mapping[str, str]) -> bool:
    return environ.get("TORCH_ALLOW_REDIRECTS", "").strip().lower() == "true"


def _flag(variable: str, given: str) -> bool:
    value = given.strip().lower()
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise ConfigError(
        explain_error(
            f"{variable}={given!r} was requested",
            "it must be 0 or 1, so nothing was changed",
            f"set {variable} to 0 or 1",
        )
    )


def cache_folder() -> Path:
    """TORCHDEVICE_CACHE, or the cache folder of this platform."""
    if chosen := _chosen_folder("TORCHDEVICE_CACHE") or _chosen_folder(RUN_CACHE):
        return chosen
    if sys.platform == "darwin":
        return home() / "Library" / "Caches" / "torchdevice"
    return _xdg_folder("XDG_CACHE_HOME", home() / ".cache")


def data_folder() -> Path:
    """TORCHDEVICE_CACHE, or the data folder of this platform."""
    if chosen := _chosen_folder("TORCHDEVICE_CACHE"):
        return chosen
    if sys.platform == "darwin":
        return home() / "Library" / "Application Support" / "torchdevice"
    return _xdg_folder("XDG_DATA_HOME", home() / ".local" / "share")


def _chosen_folder(variable: str) -> Path | None:
    """The folder in a variable, which must be absolute: libraries below the current folder must never be loaded."""
    given = environment().get(variable)
    if not given:
        return None
    folder = Path(given).expanduser()
    if folder.is_absolute():
        return folder
    raise ConfigError(
        explain_error(
            f"{variable}={given!r} was requested",
            "it is a relative path, so it was not used",
            f"set {variable} to an absolute path",
        )
    )


def _xdg_folder(variable: str, otherwise: Path) -> Path:
    """An XDG folder. The XDG specification says that relative paths are ignored."""
    given = Path(environment().get(variable) or otherwise)
    return (given if given.is_absolute() else otherwise) / "torchdevice"


def _count(given: str) -> int:
    if given.strip().isdecimal() and 1 <= int(given) <= MAX_DEVICES:
        return int(given)
    raise ConfigError(
        explain_error(
            f"{DEVICE_COUNT}={given!r} was requested",
            "it is not a valid number of devices, so nothing was changed",
            f"set it to 1 … {MAX_DEVICES}: scripts with one process per GPU start as many processes",
        )
    )


def visible_devices(count: int, environ: Mapping[str, str] | None = None) -> int:
    """How many of `count` devices CUDA_VISIBLE_DEVICES leaves: none for `""` and `"-1"`, else as many as it names.

    Which ones does not matter: a missing index is mapped to an existing one. The variable is read on every call,
    because scripts set it after `import torch`.
    """
    listed = (os.environ if environ is None else environ).get(VISIBLE_GPUS)
    if listed is None:
        return count
    names = [name.strip() for name in listed.split(",")]
    usable = names.index("-1") if "-1" in names else len(names)  # CUDA ignores what follows an invalid number
    return min(count, sum(bool(name) for name in names[:usable]))


def switched_on(variable: str, environ: Mapping[str, str] | None = None) -> bool:
    """Whether the environment sets the switch `variable` to on; unset and empty mean off."""
    environ = environment() if environ is None else environ
    return _flag(variable, environ.get(variable, ""))


def asked_to_activate() -> bool:
    """Whether the environment asks for translation: `TORCHDEVICE=1`, or `TORCH_ALLOW_REDIRECTS=true` without it."""
    given = environment().get("TORCHDEVICE")
    return switched_on("TORCHDEVICE") if given else _redirects_allowed(environment())
