"""`torchdevice explain`: what a request becomes on this or a hypothetical host, and why. The policy is in `policy`."""

from __future__ import annotations

from collections.abc import Sequence

from torchdevice.cli.parsing import Parser
from torchdevice.config import POLICIES
from torchdevice.errors import TorchDeviceError

# The rows of the policy table, in its order. Only types that this torch can parse are shown.
REQUESTS = (None, "cpu", "cpu:-1", "mps", "mps:1", "cuda", "cuda:0", "cuda:1", "xpu", "npu", "hpu", "mtia", "meta")


def parser() -> Parser:
    """Without a request: the whole table."""
    parser = Parser(
        "explain",
        "Show what a device request becomes on this machine, or on another one, and why.\n"
        "Without a request, print the whole table.",
        ["torchdevice explain cuda:1", "torchdevice explain --host cuda:4 --policy portable"],
    )
    parser.add_argument("request", nargs="?", help="a device as in torch: cuda:1, cpu, mps, none")
    parser.add_argument("--host", metavar="TYPE[:n]", help="a hypothetical machine: mps, cuda:4, xpu, cpu")
    parser.add_argument("--policy", choices=POLICIES, help="the policy to explain (default: the one in force)")
    return parser


def main(words: Sequence[str]) -> int:
    """Print one decision, or all."""
    parsing = parser()
    options = parsing.parse_args(words)
    from torchdevice._torch.core import device_types
    from torchdevice.policy.hosts import invent_host, this_host
    from torchdevice.policy.resolve import parse
    from torchdevice.reporting.collect import columns
    from torchdevice.session import explain

    if options.request is None:
        known = device_types()
        requests = [request for request in REQUESTS if request is None or request.partition(":")[0] in known]
    else:
        requests = [None if options.request == "none" else options.request]
    try:
        host = invent_host(options.host) if options.host else this_host()
        decisions = [(str(parse(request)), explain(request, host, options.policy)) for request in requests]
    except TorchDeviceError as error:
        parsing.error(str(error).replace("\n", " "))
    except RuntimeError:  # torch's own message for an invalid string is long
        parsing.error(f"{options.request!r} is not a device that torch knows")
    if options.request is not None:
        asked, decision = decisions[0]
        print(f"{asked} → {decision.device}: {decision.reason}")
        return 0
    print(f"on a machine with {host.type}" + (f" ({host.count} devices)" if host.count > 1 else ""))
    table: list[tuple[str, ...]] = [("request", "becomes", "why")]
    table += [(asked, str(decision.device), decision.reason) for asked, decision in decisions]
    print("\n".join(columns(table)))
    return 0
