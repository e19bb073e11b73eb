"""The lock files of development: whole, with digests, and what pyproject.toml asks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools import lock

FILES = {
    "ruff-1.2-py3-none-any.whl": "a" * 64,
    "ruff-1.2.tar.gz": "b" * 64,
    "ruff-1.20-py3-none-any.whl": "c" * 64,
    "ruff_lsp-1.2.tar.gz": "d" * 64,
}
PAGE = "".join(f'<a href="https://x/a/{name}#sha256={digest}">{name}</a>\n' for name, digest in FILES.items())


def pins(path: Path) -> dict[str, tuple[str, int]]:
    """Package → version, and the number of digests."""
    found = {}
    for block in path.read_text(encoding="utf-8").replace("\\\n", "").splitlines():
        if match := re.fullmatch(r"([a-z0-9-]+)==(\S+)((?:\s+--hash=sha256:[0-9a-f]{64})*)\s*", block):
            found[match[1]] = match[2], match[3].count("--hash")
        else:
            assert block.startswith("#"), block
    return found


@pytest.mark.parametrize("version", lock.VERSIONS)
def test_a_lock_has_all_that_is_asked_for_and_digests(version: str) -> None:
    pinned = pins(lock.FOLDER / f"python{version}.txt")
    assert "torch" not in pinned
    assert all(digests for _, digests in pinned.values())
    environment = {"python_version": version, "python_full_version": f"{version}.0", "sys_platform": "linux"}
    for asked in map(Requirement, lock.requirements()):
        if asked.marker is None or asked.marker.evaluate(environment):
            name = re.sub(r"[-_.]+", "-", asked.name).lower()
            assert asked.specifier.contains(pinned[name][0]), asked


def test_digests_are_those_of_that_version() -> None:
    assert lock.digests(PAGE, "ruff", "1.2") == ["a" * 64, "b" * 64]
    assert lock.digests(PAGE, "ruff-lsp", "1.2") == ["d" * 64]


def test_make_installs_by_them() -> None:
    text = (lock.ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--require-hashes -r $(LOCK)" in text
