"""The tool that counts instructions: the attribution to libraries, and the plugin of the emulator."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tools.instructions.__main__ import HERE
from tools.instructions.places import UNKNOWN, by_library, code_of

MAPS = """\
1000-2000 r-xp 00000000 08:01 1 /lib/libc.so.6
2000-3000 r--p 00001000 08:01 1 /lib/libc.so.6
5000-6000 r-xp 00000000 08:01 2 /cache/libraries/torchdevice-2.13.0-12ab.so
7000-8000 r-xp 00000000 00:00 0
"""


def test_instructions_belong_to_the_library_of_their_address() -> None:
    code = code_of(MAPS.splitlines())
    assert code == [(0x1000, 0x2000, "libc.so.6"), (0x5000, 0x6000, "torchdevice")]
    counts = ["1000 5", "1ffc 2", "2000 3", "5004 7", "fff 1", "7000 4"]
    assert by_library(counts, code) == {"libc.so.6": 7, "torchdevice": 7, UNKNOWN: 8}


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_plugin_compiles_without_a_warning(tmp_path: Path) -> None:
    command = [
        "cc",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        str(HERE / "counter.c"),
        "-o",
        str(tmp_path / "x"),
    ]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""
