"""The startup overhead of TorchDevice: at `import torch` while inactive, at activation, and in memory.

Each round is a new process, because each part happens once per process. Times are processor times.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys

from torchdevice.bench.runner import Figure, emit

# torch itself looks for entry points, also without TorchDevice. The measurement starts when it loads one.
PROBE = """
import json, os, time
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch, psutil
started = time.process_time()
from torchdevice.autoload import autoload
autoload()
loaded = time.process_time()
torch.accelerator.is_available()  # finding the driver costs a program the same without us
held = psutil.Process().memory_info().rss
before = time.process_time()
import torchdevice
torchdevice.activate()
done = time.process_time()
grown = psutil.Process().memory_info().rss - held
print(json.dumps([(loaded - started) * 1e3, (done - before) * 1e3, grown / 1e6]))
"""
# torch counts NVIDIA GPUs by their management library, as an activation does. Plain torch, for comparison.
COUNTING = """
import os
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch, psutil
torch.accelerator.is_available()
held = psutil.Process().memory_info().rss
torch.cuda.device_count()
print((psutil.Process().memory_info().rss - held) / 1e6)
"""
ROWS = (
    ("added to `import torch` while inactive", "ms", 3.0),
    ("activation", "ms", 150.0),
    ("resident memory added by activation", "MB", 20.0),
)


def main() -> None:
    """Rows on stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    rounds = 3 if parser.parse_args().quick else 11
    # The first process writes the bytecode, which an installation has, and is not counted.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def last_line_of(program: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()[-1]

    samples = [json.loads(last_line_of(PROBE)) for _ in range(rounds + 1)][1:]
    for (what, unit, limit), values in zip(ROWS, zip(*samples, strict=True), strict=True):
        emit([Figure.of(what, values, unit=unit, limit=limit, note=f"{rounds} processes")])
    if (counting := statistics.median(float(last_line_of(COUNTING)) for _ in range(3))) > 0.1:  # 0 without a GPU
        emit([Figure("the same of plain `torch.cuda.device_count()`", counting, "MB", note="3 processes")])


if __name__ == "__main__":
    main()
