"""`import TorchDevice` imports and activates TorchDevice in one line, as a drop-in for the older library of that name.

It also exports the public names of `torchdevice`.
"""

from torchdevice import *  # noqa: F403
from torchdevice import __all__  # noqa: F401
from torchdevice.session import activate_or_warn

activate_or_warn()
