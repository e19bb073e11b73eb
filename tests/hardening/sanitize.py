"""The virtual device's library under AddressSanitizer and UBSan, warnings as errors: a training run, and its edges.

    python -m tests.hardening.sanitize

Builds a library of its own in a temporary cache. The interpreter itself is not instrumented, so leaks are not counted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from torchdevice.virtual import build

FLAGS = ["-Werror", "-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize=vptr"]
PROGRAM = """
import ctypes, gc, sys
from torchdevice.virtual import build
from tests.hardening import sanitize
sanitize.instrument()
import torch, torchdevice.virtual
from torch import nn
there = torchdevice.virtual.install(sys.argv[1])
kind = sys.argv[1]
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)).to(kind)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    loss = nn.functional.cross_entropy(model(torch.randn(2, 3, 8, 8, device=kind)), torch.tensor([0, 1], device=kind))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
x = torch.randn(4, 4, device=kind)
(x @ x.t()).sort().values.view(16).unfold(0, 4, 2).contiguous().resize_(64)
torch.eye(4, device=kind).to_sparse() @ x
x.cpu().numpy(); x.clone().set_(x.untyped_storage())
# Every exported function with null, closed and out-of-range arguments: an error or an answer, never a crash.
from torchdevice.virtual.library import _SIGNATURES
for name, (result, arguments) in _SIGNATURES.items():
    if name in ("td_init", "td_elapsed", "td_adopt", "td_resize", "td_usage", "td_capture_begin"):
        continue  # take addresses of objects that only our own Python passes
    function = getattr(there.library._dll, name)
    for number in (-1, 99, 2**31 - 1):
        values = [None if argument in (ctypes.c_char_p, ctypes.c_void_p) else number for argument in arguments]
        if not (arguments and arguments[0] is ctypes.c_char_p):
            function(*values)
there.library.call("set_limit", 0)
del model, optimizer, x, loss; gc.collect()
print("clean", kind)
"""


def instrument() -> None:
    """Builds of this process get the sanitizers; at compiling and at linking."""
    flags, run = build._flags, build._run
    build._flags = lambda abi: [flag for flag in flags(abi) if flag != "-O2"] + FLAGS
    build._run = lambda command, *rest: run([*command, *FLAGS] if "-shared" in command else command, *rest)


def main() -> None:
    compiler = build.find_compiler()
    assert compiler is not None, "no C++ compiler"
    asked = [compiler, "-print-file-name=libasan.so"]
    runtime = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as cache:
        for kind in ("cuda", "mps"):
            env = {
                **os.environ,
                "TORCHDEVICE_CACHE": cache,
                "LD_PRELOAD": runtime,
                "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",
                "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
            }
            done = subprocess.run([sys.executable, "-c", PROGRAM, kind], env=env, check=False)
            if done.returncode:
                raise SystemExit(f"{kind}: exit {done.returncode}")


if __name__ == "__main__":
    main()
