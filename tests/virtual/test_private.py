"""What another user puts into the cache, or in its way, never runs in this process."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.users import as_root
from torchdevice.cli import main
from torchdevice.errors import VirtualDeviceUnavailable
from torchdevice.virtual import build, private

NOBODY = 65534


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def give_away(path: Path) -> None:
    os.lchown(path, NOBODY, NOBODY)


@pytest.mark.parametrize("mode", [0o770, 0o720, 0o777, 0o1777, 0o702])
def test_a_cache_that_others_can_write_to_is_refused_and_left_as_it_is(mode: int, cache: Path) -> None:
    """Nothing is loaded from it, and nothing is deleted in it."""
    cache.chmod(mode)
    with pytest.raises(VirtualDeviceUnavailable, match=f"others can write to {cache}.*\n?.*chmod go-w"):
        private.folder()
    assert stat.S_IMODE(cache.stat().st_mode) == mode
    assert list(cache.iterdir()) == []
    (cache / "libraries").mkdir()
    with pytest.raises(SystemExit, match="others can write to"):
        main(["virtual", "clean"])


@pytest.mark.parametrize("mode", [0o770, 0o1777])
def test_so_is_our_own_folder_in_it(mode: int, cache: Path) -> None:
    private.folder().chmod(mode)
    with pytest.raises(VirtualDeviceUnavailable, match=f"others can write to {cache / 'libraries'}"):
        private.folder()


@pytest.mark.parametrize(("mode", "refused"), [(0o777, True), (0o770, True), (0o1777, False), (0o755, False)])
def test_every_folder_above_is_looked_at(mode: int, refused: bool, cache: Path) -> None:
    """The sticky bit, as on /tmp, is enough above: nobody else can exchange a folder of ours there."""
    cache.parent.chmod(mode)
    if refused:
        with pytest.raises(VirtualDeviceUnavailable, match=f"others can write to {cache.parent}"):
            private.folder()
    else:
        assert private.folder() == cache / "libraries"


@as_root
@pytest.mark.parametrize("whose", ["", "libraries", ".."])
def test_a_folder_of_another_user_is_refused(whose: str, cache: Path) -> None:
    private.folder()
    give_away(cache / whose)
    with pytest.raises(VirtualDeviceUnavailable, match="belongs to another user"):
        private.folder()


@as_root
def test_links_of_others_on_the_way_are_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours may lead to theirs: the link in the middle is on neither the written nor the resolved path."""
    shared = cache.parent / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    theirs, ours = shared / "theirs", cache.parent / "ours"
    theirs.symlink_to(cache)
    ours.symlink_to(theirs)
    monkeypatch.setenv("TORCHDEVICE_CACHE", str(ours))
    assert private.folder() == ours / "libraries"
    give_away(theirs)
    with pytest.raises(VirtualDeviceUnavailable, match=f"{theirs} belongs to another user"):
        private.folder()


def test_our_own_folder_is_no_link(cache: Path) -> None:
    (cache / "elsewhere").mkdir(mode=0o700)
    (cache / "libraries").symlink_to(cache / "elsewhere")
    with pytest.raises(VirtualDeviceUnavailable, match="is not a folder"):
        private.folder()


def _linked(path: Path) -> None:
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


PLANTED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link": (_linked, "symbolic link"),
    "a pipe": (_pipe, "not a regular file"),
    "a folder": (_folder, r"not a regular file|Is a directory"),
    "open to its group": (lambda path: path.chmod(0o660), "others can write to it"),
    "open to all": (lambda path: path.chmod(0o606), "others can write to it"),
    "another user's": (give_away, "belongs to another user"),
}


@pytest.mark.processes
@pytest.mark.parametrize("suffix", [".so", ".sha256", ".lock"])
@pytest.mark.parametrize("what", PLANTED)
def test_files_that_somebody_else_may_have_written_are_refused(
    what: str, suffix: str, cache: Path, tiny: build.Recipe
) -> None:
    if what == "another user's" and os.geteuid() != 0:
        pytest.skip("needs root to give a file to another user")
    path = build.build(tiny)
    plant, why = PLANTED[what]
    plant(path.with_suffix(suffix))
    with pytest.raises(VirtualDeviceUnavailable, match=f"{why}(.*\n)*Hint: `torchdevice virtual clean`"):
        build.build(tiny, force=suffix == ".lock")
    if what != "a folder":
        build.clean()
        assert build.load(tiny).answer() == 42


@pytest.mark.processes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="macOS cannot load a descriptor")
def test_what_was_examined_is_what_is_loaded(cache: Path, tiny: build.Recipe) -> None:
    """Somebody who exchanges the file between the look at it and its loading loses."""
    path, descriptor = build._built(tiny, force=False)
    path.unlink()
    path.write_bytes(b"somebody else's")
    assert private.load(path, descriptor).answer() == 42
    with pytest.raises(OSError, match=r"too short|invalid ELF"):
        ctypes.CDLL(str(path))


@pytest.mark.processes
def test_what_is_made_is_closed_to_others_whatever_the_umask(
    tmp_path: Path, tiny: build.Recipe, open_umask: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "new"
    monkeypatch.setenv("TORCHDEVICE_CACHE", str(top / "cache"))
    assert build.load(tiny).answer() == 42
    made = [top, *top.rglob("*")]
    assert [str(each) for each in made if each.stat().st_mode & 0o077] == []
    assert {each.suffix for each in made} == {"", ".so", ".sha256", ".log", ".lock"}


@as_root
@pytest.mark.processes
def test_another_user_cannot_put_anything_there(cache: Path, tiny: build.Recipe) -> None:
    for above in (cache, *cache.parents[:3]):
        above.chmod(0o755)
    path = build.build(tiny)
    child = os.fork()
    if child == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        status = 0
        for attempt in (lambda: path.write_bytes(b""), path.unlink, lambda: (path.parent / "x.so").write_bytes(b"")):
            try:
                attempt()
                status = 1
            except PermissionError:
                pass
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert build.load(tiny).answer() == 42


@pytest.mark.processes
def test_a_cache_that_holds_other_things_is_left_as_it_is(cache: Path, tiny: build.Recipe) -> None:
    """Neither its mode nor what looks like ours beside our own folder, nor what is not ours in what looks like ours."""
    cache.chmod(0o755)
    kept = [cache / "build-tools" / "work.txt", cache / "torchdevice-thesis.so", cache / "torchdevice-thesis.log"]
    path = build.build(tiny)
    kept += [path.parent / "build-x" / "work.txt", path.parent / "notes.txt"]
    for file in kept:
        file.parent.mkdir(exist_ok=True)
        file.touch()
    assert build.clean() == [path]
    assert stat.S_IMODE(cache.stat().st_mode) == 0o755
    assert [str(file) for file in kept if not file.exists()] == []
    assert not path.exists()
