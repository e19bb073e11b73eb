"""`make fuzz`, its first part: the tests with many more examples, and the record of how many that were.

python -m tools.hardening.fuzz [EXAMPLES]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tools.hardening import figures

TESTS = ["tests/hardening/test_junk.py", "tests/hardening/test_readers.py", "tests/hardening/test_checkpoints.py"]
DRAWN = "not list_is_whole and not hostile and not who_decides and not archive and not allowed"  # what draws examples


def main() -> None:
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    command = [sys.executable, "-m", "pytest", "-n", "2", *TESTS, "-k", DRAWN]
    environment = {**os.environ, "TORCHDEVICE_FUZZ_EXAMPLES": str(examples)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed)", done.stdout)}
    tests, failed = sum(counts.values()), counts.get("failed", 0)
    figures.record("hypothesis", tests=tests, examples=examples, total=tests * examples, failed=failed)
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
