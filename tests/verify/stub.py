"""A worker that speaks the protocol and has no torch: checks that end, crash, hang, or end the process afterwards.

stub.py SCENARIO LOG PART WAY VIRTUAL
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

NAMES = ("first", "second", "third", "fourth")


def say(**line: object) -> None:
    print(json.dumps(line), flush=True)


def main(scenario: str, log: str, part: str) -> None:
    done = json.loads(sys.stdin.read())
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(done)}\n")
    print("words of a library that are no JSON")
    if scenario == "no start":
        sys.exit("ModuleNotFoundError: No module named 'torch' in /Users/somebody/venv")
    if part == "machine":
        say(machine=json.loads(scenario))
        return
    say(checks=len(NAMES))
    for name in NAMES:
        if name in done:
            continue
        say(started=name)
        if name == "second" and scenario == "crash":
            os.kill(os.getpid(), 9)
        if name == "second" and scenario == "exit":
            os._exit(0)
        if name == "second" and scenario == "hang":
            time.sleep(600)
        say(check=name, status="agrees", detail="", figures={})
        if name == "second" and scenario == "unusable":
            return
        if name == "second" and scenario == "late hang":
            time.sleep(600)
        if name == "second" and scenario == "late crash":
            os.kill(os.getpid(), 9)
        if name == "third" and scenario == "slow":
            time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:4])
