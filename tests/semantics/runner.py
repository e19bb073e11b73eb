"""Runs programs in this process and writes a line of JSON for each: `runner.py DEVICE FILE [PART OF A NAME]`."""

from __future__ import annotations

import gc
import json
import random
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch

from tests.semantics.program import NOTHING, Program, every_program


def plain(value: object) -> object:
    """As JSON can hold it. Tensors and arrays become lists of numbers."""
    if isinstance(value, torch.Tensor):
        return plain(value.detach().cpu().tolist())
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, complex):
        return {"real": value.real, "imag": value.imag}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | torch.Size):
        return [plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype):
        return str(value)
    raise TypeError(f"a program returned {type(value).__name__}, which is no plain data")


def run(program: Program, device: str) -> dict[str, object]:
    """What it returned, or what it raised and where."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    started = time.perf_counter()
    row: dict[str, object] = {"name": program.name}
    try:
        row["returned"] = plain(program.function(device))
    except Exception as error:
        row["raised"] = f"{type(error).__name__}: {error}".split("\n")[0]
        row["traceback"] = traceback.format_exc()
    row["seconds"] = round(time.perf_counter() - started, 3)
    gc.collect()  # a loader that the next program's workers inherit and collect would delay them by seconds
    gc.freeze()  # what is left is not looked at again
    return row


def main() -> None:
    device, file, part = (*sys.argv[1:], "")[:3]
    warnings.simplefilter("ignore")
    with Path(file).open("w", encoding="utf-8") as lines:
        for program in every_program():
            if part in program.name and not (device == "cpu" and program.wanted is not NOTHING):
                lines.write(json.dumps(run(program, device)) + "\n")
                lines.flush()  # what was written stays if a program ends the process


if __name__ == "__main__":
    main()
