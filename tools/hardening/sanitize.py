"""The C++ libraries under AddressSanitizer and UBSan, warnings as errors: all tests of the virtual device on them.

    python -m tools.hardening.sanitize [arguments of pytest]

Builds libraries of its own in a temporary cache, which the tests find as they find any other. The interpreter itself is
not instrumented, so leaks are not counted; programs that torch compiles are not ours, and left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile

from tests.virtual import test_exports
from tools.hardening import figures
from torchdevice.virtual import build, library

# GCC documents that sanitizers cause false warnings about uninitialised variables; torch's own headers get one.
FLAGS = [
    "-Werror",
    "-Wno-maybe-uninitialized",
    "-g",
    "-O1",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize=vptr",
]
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0:allocator_may_return_null=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}
TESTS = ["tests/virtual", "--ignore=tests/virtual/test_install.py", "-k", "not compil"]
PRELOADED = "LD_PRELOAD"


def build_all() -> None:
    """Both libraries, with the sanitizers at compiling and at linking; this process has their runtime loaded."""
    os.environ.pop(PRELOADED)  # the compiler needs none
    flags, run = build._flags, build._run
    build._flags = lambda abi: [flag for flag in flags(abi) if flag != "-O2"] + FLAGS
    build._run = lambda command, *rest: run([*command, *FLAGS] if "-shared" in command else command, *rest)
    for recipe in (build.DEVICE, build.OPERATOR_TIMES):
        made = build.build(recipe).read_bytes()
        assert b"__asan_init" in made, recipe.what
        assert b"__ubsan_handle" in made, recipe.what


def _found_by(compiler: list[str], library: str) -> str:
    asked = [*compiler, f"-print-file-name={library}"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    compiler = build.find_compiler()
    assert compiler, "no C++ compiler"
    # libstdc++ beside it: the sanitizer looks for what throws exceptions when it starts, and Python has none of C++.
    runtime = " ".join(_found_by(compiler, name) for name in ("libasan.so", "libstdc++.so.6"))
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, **OPTIONS, "TORCHDEVICE_CACHE": cache, PRELOADED: runtime}
        environment["TORCHDEVICE_TEST_SECONDS"] = "1200"
        building = "from tools.hardening import sanitize; sanitize.build_all()"
        subprocess.run([sys.executable, "-c", building], env=environment, check=True)
        tests = [sys.executable, "-m", "pytest", "-n", "2", *TESTS, *sys.argv[1:]]
        done = subprocess.run(tests, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed)", done.stdout)}
    figures.record(
        "sanitize",
        passed=counts.get("passed", 0),
        failed=counts.get("failed", 0),
        functions=len(library._SIGNATURES),
        calls=sum(map(test_exports.combinations, library._SIGNATURES)),
    )
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
