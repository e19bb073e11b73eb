"""Calls a list of public names on one host, one JSON line each on stdout. Runs in a process of its own (see run.py).

python -m tools.catalog.worker HOST < names and, for a host that is not plain, the calls that plain torch could make

A host is `plain` (no TorchDevice, "cpu"), or TorchDevice active with requests for "cuda": `cpu`, `mps` (virtual, with
the real backend's gaps and fallbacks on), `cuda` (virtual). `started` lines let the parent name the call that hung or
crashed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from torchdevice.catalog.surface import CLASS, FUNCTION, METHOD, Found

HOSTS = ("cpu", "mps", "cuda")
PLAIN = "plain"
TRIES = 10
VIRTUAL = {"mps": ("mps", 1, "real"), "cuda": ("cuda", 1, "all")}
# What calls are given: operators that these need are no part of the call.
MAKERS = (
    "P()",
    "sparse()",
    "P().to_sparse_csr()",
    "P().to_sparse_csc()",
    "opt()",
    "deep()(T(4, 3))",
    "backward(net()(T(2, 3)))",
)
# Memory that nobody has written to, addresses, how far somebody else is, archives with an id.
VOLATILE = frozenset(
    {
        *("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "new", "resize_"),
        *("fbgemm_pack_gemm_matrix_fp16", "data_ptr", "const_data_ptr", "is_completed", "save_to_buffer"),
    }
)


def prepare(host: str) -> str:
    """Make this process that host; the device that calls ask for."""
    if host == PLAIN:
        return "cpu"
    import torchdevice
    import torchdevice.virtual

    if host in VIRTUAL:
        torchdevice.virtual.install(*VIRTUAL[host])  # type: ignore[arg-type]
        torchdevice.activate(policy="portable")
    else:
        torchdevice.activate(target="cpu", policy="portable")
    return "cuda"


class Caller:
    """Makes calls on one host."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.device = prepare(host)
        # After activation: torch's databases and these modules hold on to the functions that they find.
        from tools.catalog import bench, databases, guess
        from torchdevice.catalog.surface import read_surface

        self.databases, self.guess, self.digest = databases, guess, bench.digest
        self.surface = read_surface().found
        self.names = bench.Bench(self.device).names()
        self.preparing: frozenset[str] = frozenset()
        if host != PLAIN:
            for maker in MAKERS:
                self.evaluated(maker)
            self.preparing = frozenset(ran_elsewhere())

    def row(self, name: str, known: dict[str, Any] | None) -> dict[str, Any]:
        """By which call, with which results, and which operators of it ran elsewhere."""
        if self.host == PLAIN:
            return self.outcome(name, known)
        ran_elsewhere()
        row = self.outcome(name, known)
        prepared = self.preparing if row["by"] == "call" else frozenset()
        return row | {"elsewhere": sorted(set(ran_elsewhere()) - prepared)}

    def outcome(self, name: str, known: dict[str, Any] | None) -> dict[str, Any]:
        """What plain torch could do is done again, else a call is looked for."""
        found = self.surface.get(name) or self.found_now(name)
        source = known["by"] if known else self.databases.source_of(found)
        if source and source != "call" and (known or name not in self.guess.WRITTEN):
            row = self.from_database(found, source)
            if known or row["results"]:
                return row
        tries = None if self.host == PLAIN else TRIES  # what plain torch cannot call at all is not worth more elsewhere
        expressions = [known["call"]] if known else list(self.guess.expressions(found, self.surface))[:tries]
        return self.from_expressions(expressions)

    def from_database(self, found: Any, source: str) -> dict[str, Any]:
        call = self.resolved(found.name)
        row: dict[str, Any] = {"by": source, "call": found.name, "results": [], "errors": {}}
        for number, result in enumerate(self.databases.run(found, source, self.device, call)):
            if isinstance(result, Exception):
                row["errors"][str(number)] = said(result)
            else:
                row["results"].append([number, result])
        if self.host == PLAIN and row["results"]:
            again = [r for r in self.databases.run(found, source, self.device, call) if not isinstance(r, Exception)]
            row["volatile"] = again != [r for _, r in row["results"]] or found.name.rpartition(".")[2] in VOLATILE
        return row

    def from_expressions(self, expressions: list[str]) -> dict[str, Any]:
        row: dict[str, Any] = {"by": "call", "call": expressions[0] if expressions else "", "results": [], "errors": {}}
        for expression in expressions:
            result = self.evaluated(expression)
            if isinstance(result, BaseException):
                row["errors"].setdefault("0", said(result))
                continue
            row |= {"call": expression, "results": [[0, result]], "errors": {}}
            if self.host == PLAIN:
                called = set(re.findall(r"(\w+)\(", expression))
                row["volatile"] = self.evaluated(expression) != result or not VOLATILE.isdisjoint(called)
                row["random"] = self.evaluated(expression, seed=1) != result
            break
        return row

    def evaluated(self, expression: str, seed: int = 0) -> Any:
        self.reset(seed)
        try:
            if "torch.distributed" in expression:
                self.names["group"]()  # whichever call came before
            value = eval(expression, dict(self.names))
            return self.digest(value)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # whatever a call raises is its result
            return error
        finally:
            self.reset()

    def reset(self, seed: int = 0) -> None:
        """Settings that calls change, as they were."""
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        torch.set_grad_enabled(True)
        torch.set_deterministic_debug_mode("default")
        torch.set_num_threads(1)
        torch.set_flush_denormal(False)
        torch.autograd.set_detect_anomaly(False)
        torch.manual_seed(seed)

    def found_now(self, name: str) -> Any:
        """A name that replacements have parted from its aliases: what stands there now."""
        value, owner = self.resolved(name), self.resolved(name.rpartition(".")[0])
        inside = isinstance(owner, type)
        kind = CLASS if isinstance(value, type) else METHOD if inside else FUNCTION
        return Found(name, kind, value, name.rpartition(".")[0] if inside else "")

    def resolved(self, name: str) -> Any:
        """The object as user code finds it now: patched, where it is."""
        value: Any = torch
        for part in name.split(".")[1:]:
            value = getattr(value, part)
        return value


def ran_elsewhere() -> list[str]:
    """Operators that the target had no kernel for since the last time of asking."""
    from torchdevice import fallback

    operators = [record.operator for record in fallback.totals()]
    fallback.clear()
    return operators


def said(error: BaseException) -> str:
    """The first line, without folders of this run."""
    text = str(error).strip().splitlines()
    first = re.sub(rf"{re.escape(tempfile.gettempdir())}/catalog-\w+/?", "", text[0]) if text else ""
    return f"{type(error).__name__}: {first}"[:300]


@contextlib.contextmanager
def silenced() -> Iterator[Any]:
    """Our lines go to the real stdout; what calls print goes nowhere."""
    real = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    with os.fdopen(real, "w", encoding="utf-8") as stream, contextlib.redirect_stdout(io.StringIO()):
        yield stream


def main() -> None:
    host = sys.argv[1]
    if host not in (PLAIN, *HOSTS):
        raise SystemExit(f"no host {host}")
    jobs = [json.loads(line) for line in sys.stdin]
    warnings.simplefilter("ignore")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    folder = tempfile.mkdtemp(prefix="catalog-")
    os.chdir(folder)
    with silenced() as stream:
        torch.set_num_threads(1)
        caller = Caller(host)
        if any(job.get("known", {}).get("by") != "call" for job in jobs):
            caller.databases.load()
        faulthandler.disable()
        for job in jobs:
            name = job["name"]
            print(json.dumps({"name": name, "started": True}), file=stream, flush=True)
            began = time.process_time()
            row = caller.row(name, job.get("known"))
            row["seconds"] = round(time.process_time() - began, 2)
            print(json.dumps({"name": name, **row}), file=stream, flush=True)
        stream.flush()
        os._exit(0)  # threads that calls have left running must not keep this process


if __name__ == "__main__":
    main()
