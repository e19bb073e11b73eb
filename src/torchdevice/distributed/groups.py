"""Process groups: rewrites requests for a backend, and keeps the requested names, which user code reads back.

torch itself and the report always see the real backend (`gloo`).
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from torchdevice._torch import distributed as private
from torchdevice._torch.core import RealDevice
from torchdevice.distributed import backends
from torchdevice.distributed.backends import VENDOR_TIMEOUT
from torchdevice.ledger import Redirect
from torchdevice.translate.callers import user_frame
from torchdevice.translate.engine import dress
from torchdevice.translate.translator import Translator

_getframe = sys._getframe
# Types that TorchDevice serves with gloo through copies on the CPU, in addition to those that torch lists for gloo.
STAGED = ("mps",)


class Groups:
    """The groups of this process. `used` runs when one is created; `devices` returns the reported device count."""

    def __init__(self, translator: Translator, used: Callable[[], None], devices: Callable[[], int]) -> None:
        self.translator = translator
        self._used = used
        self._devices = devices

    def asked_for(self, group: Any) -> str | None:
        """The backend that user code requested for a group, if the group has another one."""
        group = group if group is not None else dist.group.WORLD
        return backends.asked.get(private.group_name(group)) if isinstance(group, dist.ProcessGroup) else None

    def creating(self, original: Callable[..., Any], path: str) -> Callable[..., Any]:
        """A wrapper of a function that creates groups and has a parameter `backend`."""
        signature = inspect.signature(original)

        def create(*args: Any, **kwargs: Any) -> Any:
            if not self.translator.in_force:
                return original(*args, **kwargs)
            self._used()
            given = signature.bind_partial(*args, **kwargs)
            asked = self._rewrite(given.arguments, path, user_frame(_getframe(1), self.translator.roles))
            made = original(*given.args, **given.kwargs)
            self._remember(made, asked)
            return made

        return dress(create, original, path)

    def _rewrite(self, arguments: dict[str, Any], path: str, frame: Any) -> str | None:
        """Change the arguments in place. Returns the requested backend, or None if torch chooses it."""
        host = self.translator.host
        asked = arguments.get("backend")
        device = arguments.get("device_id")
        if asked is None and device is not None:
            # torch would derive the backend from the device, which has already been translated.
            kind = device.type if isinstance(device, RealDevice) else "cuda"
            asked = dist.get_default_backend_for_device("cuda" if kind == host.type else kind)
        given = asked if not isinstance(asked, str) else backends.stand_in(asked, host)
        if given != asked:
            arguments["backend"] = given
            self._record(path, str(asked), str(given), frame)
            if arguments.get("timeout") is None and "timeout" in _parameters(path):
                arguments["timeout"] = VENDOR_TIMEOUT
            arguments.pop("pg_options", None)
            if path.endswith(".init_process_group"):
                _forget_the_dead(arguments)
        if given == backends.EVERYWHERE or not host.accelerated:
            arguments.pop("device_id", None)  # binds a group to one accelerator, which gloo does not support
        if "group_size" in _parameters(path) and arguments.get("group_size") is None:
            arguments["group_size"] = max(1, self._devices())  # torch counts CUDA devices
        return None if asked is None else str(asked).lower()

    def _remember(self, made: Any, asked: str | None) -> None:
        """Groups without an explicit backend have that of the default group."""
        groups = made if isinstance(made, (list, tuple)) else [made if made is not None else dist.group.WORLD]
        for group in groups:
            if isinstance(group, (list, tuple)):
                self._remember(group, asked)
            elif isinstance(group, dist.ProcessGroup):
                name = private.group_name(group)
                inherited = asked or (self.asked_for(None) if group is not dist.group.WORLD else None)
                if inherited is not None and dist.get_backend(group) != inherited:
                    backends.asked[name] = inherited
                else:
                    backends.asked.pop(name, None)

    def _record(self, path: str, asked: str, given: str, frame: Any) -> None:
        missing = ", ".join(kind for name, kind in backends.vendors().items() if name in asked.lower())
        reason = f"no {missing} here: {given} is torch's own backend for {self.translator.host.type}"
        self.translator.ledger.count(
            frame, (path, asked, given), lambda site: Redirect(path, asked, given, reason, site)
        )

    def answer_backend(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`get_backend`: the requested name."""

        def get_backend(group: Any = None) -> Any:
            asked = self.asked_for(group)
            return original(group) if asked is None else dist.Backend(asked)

        return get_backend

    def answer_config(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`get_backend_config`: the requested configuration, without the type that gloo serves by staging."""

        def get_backend_config(group: Any = None) -> Any:
            asked = self.asked_for(group)
            if asked is not None:
                return str(dist.BackendConfig(dist.Backend(asked)))
            return ",".join(part for part in original(group).split(",") if part.partition(":")[0] not in STAGED)

        return get_backend_config


def _parameters(path: str) -> frozenset[str]:
    function = getattr(dist, path.rpartition(".")[2])
    return frozenset(inspect.signature(function).parameters)


def _forget_the_dead(arguments: dict[str, Any]) -> None:
    """torchrun keeps its store when it restarts workers, and gloo would connect to the addresses of the old workers.

    So the keys of restarted workers get a separate prefix. Expiry: torch doing that itself, as it once did.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if attempt == "0" or arguments.get("store") is not None or arguments.get("init_method") not in (None, "env://"):
        return
    found = dist.rendezvous("env://", arguments.get("rank", -1), arguments.get("world_size", -1))
    store, rank, world_size = next(found)
    arguments.pop("init_method", None)
    arguments.update(store=dist.PrefixStore(f"attempt_{attempt}", store), rank=rank, world_size=world_size)
