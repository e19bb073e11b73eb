"""What counts as shown and printed alike, and how pages are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documented import Command, blocks, install_commands, matches, run

PAGE = """
Text.

```python
# train.py
print(1)
```

<!-- not run: needs a Mac -->
```console
$ pip install x
```

<!-- exit status 3 -->
```console
$ echo one \\
  two
one two
$ exit 3
```

```python
print(2)
```
"""


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("loss 0.25 in 3 ms\n", "loss 1.5 in 12 ms\n"),
        ("loss 0.25 in 933.2 ms\n", "loss 1.5 in 1.31 s\n"),
        ("a   b\n", "a b\n\n"),
        ("first\n…\nlast\n", "first\nlast\n"),
        ("first\n…\nlast\n", "first\n2\n3\nlast\n"),
        (".. … [100%]\n", "..      [100%]\n"),
        ("at …/x.py:5\n", "at /tmp/x.py:5\n"),
        ("torch 2.13.0+cpu\n", "torch 2.9.1\n"),
        ("(0.0%) of 5%\n", "(12.5%) of 100%\n"),
        ("", ""),
    ],
)
def test_alike(shown: str, printed: str) -> None:
    assert matches(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("2 calls at 1 place\n", "3 calls at 1 place\n"),
        ("first\nlast\n", "first\nmore\nlast\n"),
        ("first\n", "first\nmore\n"),
        ("first\nmore\n", "first\n"),
        ("last\nfirst\n", "first\nlast\n"),
        ("x.py:5\n", "x.py:6\n"),
        ("loss 0.25\n", "loss nan\n"),
        ("cuda:0\n", "cpu\n"),
    ],
)
def test_different(shown: str, printed: str) -> None:
    assert not matches(shown, printed)


def test_blocks_of_a_page() -> None:
    file, left_out, session, program = blocks(PAGE)
    assert (file.file, list(file.commands())) == ("train.py", [])
    assert (left_out.reason, session.reason, program.file) == ("needs a Mac", None, None)
    echo, leave = session.commands()
    assert (echo.words.split(), echo.shown, echo.status) == (["echo", "one", "two"], "one two\n", 0)
    assert (leave.words, leave.shown, leave.status) == ("exit 3", "", 3)
    assert PAGE.splitlines()[leave.line - 1] == "$ exit 3"
    (last,) = program.commands()
    assert last.shown is None


@pytest.mark.parametrize(
    ("words", "shown", "status", "complaint"),
    [
        ("echo a; echo b >&2", "a\nb\n", 0, None),
        ("echo a", "b\n", 0, "the page shows"),
        ("exit 2", "", 0, "ended with status 2, not 0"),
        ("true", "", 1, "ended with status 0, not 1"),
        ("python -c 'print(6 * 7)'", "42\n", 0, None),
    ],
)
def test_a_command(words: str, shown: str, status: int, complaint: str | None, tmp_path: Path) -> None:
    command = Command(words, shown, status, 1)
    said = command.complaint(*run(command, tmp_path, install_commands(tmp_path / "bin")))
    assert said is None if complaint is None else said and said.startswith(complaint)
