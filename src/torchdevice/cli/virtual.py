"""`torchdevice virtual`: builds, shows and removes the library of virtual devices. `virtual.build` does the work."""

from __future__ import annotations

from collections.abc import Sequence

from torchdevice.cli.parsing import Parser
from torchdevice.errors import VirtualDeviceUnavailable
from torchdevice.printable import printable, printable_lines


def parser() -> Parser:
    """One action."""
    parser = Parser(
        "virtual",
        "Build, show or remove the C++ library of virtual devices. It is built once per version of torch,\n"
        "on first use or by this command.",
        ["torchdevice virtual build", "torchdevice virtual info"],
    )
    parser.add_argument("action", choices=("build", "info", "clean"), help="build it, show it, or remove all builds")
    parser.add_argument("--force", action="store_true", help="build again even if it exists")
    return parser


def main(words: Sequence[str]) -> int:
    """Run the action and print the result."""
    parsing = parser()
    options = parsing.parse_args(words)
    if options.force and options.action != "build":
        parsing.error("--force is an option of build only")
    from torchdevice.virtual import build, info

    if options.action == "info":
        for name, value in info().items():
            print(f"{name:<17} {printable(', '.join(value) if isinstance(value, list) else str(value))}")
        return 0
    try:
        if options.action == "clean":
            removed = build.clean()
            print("\n".join(printable(f"removed {path}") for path in removed) or "nothing to remove")
        else:
            print(printable(str(build.build(force=options.force))))
    except VirtualDeviceUnavailable as error:
        raise SystemExit(f"torchdevice: {printable_lines(str(error))}") from None
    return 0
