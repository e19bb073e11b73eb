"""`import TorchDevice` imports and activates in one line: a drop-in for the older library of that name.

Everything else is `torchdevice`, whose public names are here too.
"""

from torchdevice import *  # noqa: F403
from torchdevice import __all__  # noqa: F401
from torchdevice.session import activate_or_warn

activate_or_warn()
