"""The same examples in every `make test`; `make fuzz` looks for new ones."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True)
if "TORCHDEVICE_FUZZ_EXAMPLES" not in os.environ:
    settings.load_profile("same")
