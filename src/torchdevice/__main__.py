"""`python -m torchdevice …` is the command `torchdevice …`."""

from __future__ import annotations

import sys

from torchdevice.cli import main

if __name__ == "__main__":
    sys.exit(main())
