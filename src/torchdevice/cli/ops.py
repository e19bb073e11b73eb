"""`torchdevice ops`: where each operator runs on this machine or on another. The matrix is in `fallback.matrix`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchdevice.cli.parsing import Parser
from torchdevice.errors import TorchDeviceError

if TYPE_CHECKING:
    from torchdevice.fallback.table import Matrix

ROUTES = ("native", "guarded", "mlx", "cpu", "nowhere")


def parser() -> Parser:
    """Filters, and the device."""
    parser = Parser(
        "ops",
        "List where each aten operator runs: native (the device's own kernel), guarded (its own kernel,\n"
        "and a fallback for calls that it rejects), mlx or cpu (a fallback, because the device has no\n"
        "kernel), nowhere (an operator of another backend).",
        ["torchdevice ops --search linalg", "torchdevice ops --target mps --route cpu --json"],
    )
    parser.add_argument("--target", metavar="TYPE", help="a device type (default: the accelerator of this machine)")
    parser.add_argument("--search", metavar="TEXT", default="", help="only operators whose name contains this")
    parser.add_argument("--route", choices=ROUTES, help="only operators with this route")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def main(words: Sequence[str]) -> int:
    """Print the selected operators; without a filter, those that are not native."""
    parsing = parser()
    options = parsing.parse_args(words)
    try:
        whole = find(options.target)
    except TorchDeviceError as error:
        parsing.error(str(error).replace("\n", " "))
    chosen = whole.select(options.search, options.route)
    if options.json:
        print(json.dumps({"schema": 1, **chosen.to_json()}, indent=2))
        return 0
    print(f"{whole.target}, from {whole.source}: " + ", ".join(f"{n} {route}" for route, n in whole.summary().items()))
    filtered = bool(options.search or options.route)
    rows: list[tuple[str, ...]] = [
        (name, route) for name, route in chosen.rows.items() if filtered or route not in ("native", "nowhere")
    ]
    from torchdevice.reporting.collect import columns

    print("\n".join(columns(rows)) if rows else "no such operator" if filtered else "every operator is native")
    return 0


def find(target: str | None) -> Matrix:
    """The matrix of a device type: read from the device if this machine has it, else from torch's list of kernels."""
    from torchdevice import activate, fallback
    from torchdevice.policy.hosts import invent_host, this_host

    here = this_host()
    kind = here.type if target is None else invent_host(target).type
    if kind == here.type and here.accelerated:
        activate(policy="portable")
    return fallback.matrix(kind)
