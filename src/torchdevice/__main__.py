"""`python -m torchdevice script.py`: run a script with translation active."""

from __future__ import annotations

import runpy
import sys


def main() -> None:
    """Run the script named first, as Python would, then say in one line on stderr what was changed."""
    import torchdevice

    if len(sys.argv) < 2:
        sys.exit("usage: python -m torchdevice script.py [arguments…]")
    sys.argv = sys.argv[1:]
    torchdevice.activate()
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        print(torchdevice.report().summary(), file=sys.stderr)


if __name__ == "__main__":
    main()
