"""The tool that counts instructions: the attribution to libraries, and the plugin of the emulator."""

from __future__ import annotations

import subprocess

from tools.instructions.__main__ import HERE
from tools.instructions.places import UNKNOWN, Block, blocks_of, by_library, bytes_of_code, code_of

MAPS = """\
1000-2000 r-xp 00000000 08:01 1 /lib/libc.so.6
2000-3000 r--p 00001000 08:01 1 /lib/libc.so.6
5000-6000 r-xp 00000000 08:01 2 /cache/libraries/torchdevice-2.13.0-12ab.so
7000-8000 r-xp 00000000 00:00 0
"""


def test_instructions_belong_to_the_library_of_their_address() -> None:
    code = code_of(MAPS.splitlines())
    assert code == [(0x1000, 0x2000, "libc.so.6"), (0x5000, 0x6000, "torchdevice")]
    blocks = blocks_of(["1000 20 5 1", "1ffc 4 1 2", "2000 12 3 1", "5004 28 7 1", "fff 4 1 1", "7000 8 2 2"])
    assert by_library(blocks, code) == {"libc.so.6": 7, "torchdevice": 7, UNKNOWN: 8}


def test_the_code_of_a_call_is_counted_in_cache_lines() -> None:
    inside, across, again = Block(64, 64, 16, 9), Block(120, 16, 4, 1), Block(132, 4, 1, 1)
    assert [bytes_of_code(blocks) for blocks in ([], [inside], [inside, across], [across, again])] == [0, 64, 128, 128]


def test_the_plugin_compiles_without_a_warning() -> None:
    command = ["cc", "-Wall", "-Wextra", "-Werror", "-O2", "-c", "-o", "/dev/null", str(HERE / "counter.c")]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""
