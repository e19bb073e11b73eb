"""Lets the torchvision of the package index, which is built for CUDA, be imported beside a torch that is not.

Its C++ library does not load there, and torchvision then fails at the first operator that it describes. Defining
those two operators beforehand is all that it needs; calling them still fails. Nothing here knows of torchdevice.
"""

from __future__ import annotations

import importlib.abc
import sys
from typing import Any

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


KEPT: list[Any] = []  # a library that is collected takes its operators away


class _BeforeTorchvision(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name != "torchvision":
            return
        sys.meta_path.remove(self)
        import torch

        if "+cpu" in torch.__version__:
            KEPT.append(torch.library.Library("torchvision", "DEF"))
            for schema in SCHEMAS:
                KEPT[0].define(schema)


sys.meta_path.insert(0, _BeforeTorchvision())
