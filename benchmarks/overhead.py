"""Instructions per call, with translation active against plain torch, counted by callgrind in one run.

Instruction counts do not depend on what else the machine does. Beside each row stand the same calls under an empty
TorchFunctionMode and under `torch.set_default_device`, the two other ways to redirect devices. Needs valgrind.

    python benchmarks/overhead.py [--markdown FILE]
"""

from __future__ import annotations

import argparse
import glob
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PLAIN = "import torch; x = torch.zeros(2, 2); d = torch.device('cpu')"
SETUPS = {
    "plain": PLAIN,
    "active": f"import torch, torchdevice; torchdevice.activate(target='cpu'); {PLAIN}",
    "mode": f"""{PLAIN}
from torch.overrides import TorchFunctionMode
class Empty(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {{}}))
mode = Empty()
mode.__enter__()""",
    "default": f"{PLAIN}; torch.set_default_device('cpu')",
}
CALLS = 1_000


@dataclass(frozen=True)
class Question:
    """A call, the limit for active / plain, and what plain torch runs where it cannot run the same."""

    statement: str
    limit: float | None
    plain: str = ""


QUESTIONS = (
    Question("torch.zeros(2, 2, device='cpu')", 1.30),
    Question("torch.zeros(2, 2, device=d)", 1.30),
    Question("torch.zeros(2, 2)", 1.40),
    Question("torch.tensor([1.0, 2.0])", 1.40),
    Question("torch.randn(2, 2)", 1.40),
    Question("torch.zeros_like(x)", 1.40),
    Question("x.to(d)", 1.60),
    Question("x.to('cpu')", 1.60),
    Question("x.to(torch.float32)", 1.60),
    Question("x.cpu()", 2.00),
    Question("torch.device('cuda')", 2.00),
    Question("torch.device('cpu')", 2.00),
    Question("torch.add(x, x)", 1.00),
    Question("x.add(x)", 1.00),
    Question("torch.nn.functional.relu(x)", 1.00),
    Question("torch.zeros(2, 2, device='cuda')", None, "torch.zeros(2, 2, device='cpu')"),
    Question("x.to('cuda')", None, "x.to('cpu')"),
)


# Run under valgrind: each statement in a loop between two toggles of the instrumentation, one dump each.
CHILD = """
import json, sys
setup, statements, calls = json.loads(sys.argv[1])
space = {}
exec(setup, space)
from torch._C import _valgrind_supported_platform, _valgrind_toggle, _valgrind_toggle_and_dump_stats
assert _valgrind_supported_platform()
for statement in statements:
    source = f"def loop():\\n for _ in range({calls}):\\n  {statement}\\n"
    exec(compile(source, "<statement>", "exec"), space)
    loop = space["loop"]
    loop()
    _valgrind_toggle()
    loop()
    _valgrind_toggle_and_dump_stats()
"""


def instructions(setup: str, statements: list[str]) -> list[float]:
    """Instructions of one call of each statement, the loop around it taken off."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/callgrind"
        arguments = json.dumps([setup, ["pass", *statements], CALLS])
        command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--callgrind-out-file={out}"]
        subprocess.run([*command, sys.executable, "-c", CHILD, arguments], check=True, capture_output=True)
        dumps = sorted(glob.glob(f"{out}.*"), key=lambda name: int(name.rpartition(".")[2]))
        totals = [int(re.search(r"^(?:totals|summary): (\d+)", Path(dump).read_text(), re.M)[1]) for dump in dumps]
    empty, *counted = totals[: len(statements) + 1]
    return [(total - empty) / CALLS for total in counted]


def main() -> int:
    """Print the table; exit 1 if a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", help="write the table there as well")
    options = parser.parse_args()
    asked = [question.statement for question in QUESTIONS]
    runnable = [question.plain or question.statement for question in QUESTIONS]
    counts = {name: instructions(setup, asked if name == "active" else runnable) for name, setup in SETUPS.items()}
    lines = [
        "| call | plain, instructions | active / plain | limit | empty TorchFunctionMode | set_default_device |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    passed = True
    for row, question in enumerate(QUESTIONS):
        plain = counts["plain"][row]
        ratio, mode, default = (counts[name][row] / plain for name in ("active", "mode", "default"))
        limit = "redirected" if question.limit is None else f"{question.limit:.2f}"
        passed &= question.limit is None or ratio <= question.limit + 0.005
        lines.append(f"| `{question.statement}` | {plain:,.0f} | {ratio:.2f} | {limit} | {mode:.2f} | {default:.2f} |")
    print("\n".join(lines))
    if options.markdown:
        Path(options.markdown).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
