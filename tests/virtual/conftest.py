"""A cache of a test's own, and a library that is quickly built in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchdevice.virtual import build


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("TORCHDEVICE_CACHE", str(folder))
    return folder


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> build.Recipe:
    """A library that is compiled in no time, and answers 42."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "tiny.cpp").write_text('extern "C" __attribute__((visibility("default"))) int answer() { return 42; }\n')
    monkeypatch.setattr(build, "HERE", sources)
    return build.Recipe("a tiny library", ("tiny.cpp",), (), "no time")
