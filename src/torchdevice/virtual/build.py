"""Builds C++ libraries on first use and loads them. `private` decides where they may be kept.

A binary is valid for one exact torch build (version, git hash, ABI), one state of the sources and one compiler.
Vtables differ between torch versions and nothing detects a mismatch, so a binary is never reused across versions.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

from torchdevice._torch import builds
from torchdevice.environment import environment
from torchdevice.errors import ConfigError, VirtualDeviceUnavailable, explain_error
from torchdevice.virtual import private

HERE = Path(__file__).resolve().parent / "native"
SOURCES = (
    "backing.cpp",
    "memory.cpp",
    "segments.cpp",
    "history.cpp",
    "guard.cpp",
    "hooks.cpp",
    "relabel.cpp",
    "kernel.cpp",
    "direct.cpp",
    "determinism.cpp",
    "dtypes.cpp",
    "fallback.cpp",
    "refusals.cpp",
    "graphs.cpp",
    "attention.cpp",
    "works.cpp",
    "native.cpp",
    "api.cpp",
)
HEADERS = (
    "calls.h",
    "device.h",
    "fallback.h",
    "forks.h",
    "native.h",
    "relabel.h",
    "schemas.h",
    "signatures.h",
    "works.h",
)


class Recipe(NamedTuple):
    """One library: its name for users, its sources, its headers, and how long the build takes."""

    what: str
    sources: tuple[str, ...]
    headers: tuple[str, ...]
    takes: str


DEVICE = Recipe("the virtual device", SOURCES, HEADERS, "about a minute")
FALLBACK = Recipe(
    "the fallback kernel",
    ("fallback.cpp", "refusals.cpp"),
    ("calls.h", "fallback.h", "forks.h", "schemas.h", "signatures.h"),
    "half a minute",
)
COUNTING = Recipe("the counter of CPU memory", ("counting.cpp",), ("calls.h", "forks.h"), "a few seconds")
OPERATOR_TIMES = Recipe("the timer of operators", ("observe.cpp",), (), "some seconds")

COMPILERS = ("c++", "g++", "clang++")
# Environment variables that GCC and Clang read: paths of headers, libraries and their own parts, and options.
CHANGES_RESULT = frozenset(
    {
        "CCC_OVERRIDE_OPTIONS",
        "COMPILER_PATH",
        "CPATH",
        "CPLUS_INCLUDE_PATH",
        "C_INCLUDE_PATH",
        "DEPENDENCIES_OUTPUT",
        "GCC_EXEC_PREFIX",
        "LD_RUN_PATH",
        "LIBRARY_PATH",
        "SUNPRO_DEPENDENCIES",
    }
)
# How long we wait for another process that builds the same library before we raise an error.
LOCK_TIMEOUT = 600.0
SCRATCH = "build-"
KEPT = (".so", ".sha256", ".log", ".lock")


class Target(NamedTuple):
    """Everything that identifies a binary."""

    torch_version: str
    torch_git: str
    abi: bool
    compiler: str
    sources: str

    @property
    def name(self) -> str:
        text = "\n".join((self.torch_git, str(self.abi), self.compiler, self.sources, platform.machine()))
        return f"torchdevice-{self.torch_version}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def find_compiler() -> list[str]:
    """The command of the compiler: CXX if it is set, else the first known compiler on PATH; empty if there is none."""
    given = environment().get("CXX", "")
    try:
        first, *options = shlex.split(given) or [""]
    except ValueError as error:  # an unbalanced quote
        raise ConfigError(
            explain_error(f"CXX={given!r} is set", f"it cannot be parsed: {error}", "quote it as a shell command.")
        ) from error
    for name in [first] if first else COMPILERS:
        if path := shutil.which(name, path=_surroundings()["PATH"]):
            return [path, *options]
    return []


def _surroundings() -> dict[str, str]:
    """The environment of the compiler, without variables that change the binary and are not part of its name."""
    kept = {name: value for name, value in environment().items() if name not in CHANGES_RESULT}
    return {"PATH": os.defpath, **kept}


def _source_hash(recipe: Recipe) -> str:
    """Empty if the sources are not files: the package is in an archive, or frozen into a program."""
    digest = hashlib.sha256()
    try:
        for name in (*recipe.sources, *recipe.headers):
            digest.update((HERE / name).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return digest.hexdigest()


def target(recipe: Recipe = DEVICE) -> Target:
    """The binary that a build with the present torch, sources and compiler would produce."""
    import torch

    compiler = find_compiler()
    version = ""
    if compiler:
        asked = [*compiler, "--version"]
        done = subprocess.run(asked, capture_output=True, text=True, env=_surroundings(), check=False)
        version = " ".join([done.stdout.partition("\n")[0], *compiler[1:]])
    return Target(
        torch_version=str(torch.__version__),
        torch_git=str(torch.version.git_version),
        abi=builds.uses_cxx11_abi(),
        compiler=version,
        sources=_source_hash(recipe),
    )


def library_path(wanted: Target | None = None) -> Path:
    return private.folder_name() / f"{(wanted or target()).name}.so"


def cached() -> list[Path]:
    folder = private.folder_name()
    return sorted(folder.glob("torchdevice-*.so")) if folder.is_dir() else []


def clean() -> list[Path]:
    """Deletes every cached binary with its digest and the remains of killed builds. Returns the deleted binaries."""
    if not private.folder_name().is_dir():
        return []
    folder = private.folder()
    gone = cached()
    for scratch in folder.glob(f"{SCRATCH}*"):
        for made in (*scratch.glob("*.o"), *scratch.glob("library.*")):
            made.unlink()
        with contextlib.suppress(OSError):  # the folder holds files that are not ours
            scratch.rmdir()
    for path in folder.glob("torchdevice-*"):
        if path.suffix in KEPT and (path.is_symlink() or not path.is_dir()):
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # the same
        folder.rmdir()
    return gone


def _digest(descriptor: int) -> str:
    digest = hashlib.sha256()
    with open(descriptor, "rb", closefd=False) as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _open_whole(path: Path) -> int | None:
    """A descriptor of the binary if it is complete: a full disk or an interrupted copy leaves part of it.

    The digest is stored beside the binary, so it does not prove who wrote it. `private` checks the owner.
    """
    try:
        with open(private.open_own(path.with_suffix(".sha256")), encoding="ascii", errors="replace") as file:
            expected = file.read(64)
        descriptor = private.open_own(path)
    except FileNotFoundError:
        return None
    if _digest(descriptor) == expected:
        return descriptor
    os.close(descriptor)
    return None


@contextlib.contextmanager
def _lock(path: Path, what: str) -> Iterator[None]:
    """At most one process builds. The operating system releases the lock when the process ends, even if killed."""
    import fcntl

    with open(private.open_own(path, os.O_RDWR | os.O_CREAT), "r+") as handle:
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise VirtualDeviceUnavailable(
                        explain_error(
                            f"Another process has held the lock {path} for {LOCK_TIMEOUT:.0f} seconds",
                            f"{what} was not built",
                            "end that process, or set TORCHDEVICE_CACHE to another folder.",
                        )
                    ) from None
                time.sleep(0.1)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)


def _flags(abi: bool) -> list[str]:
    import torch

    root = Path(torch.__file__).parent
    return [
        "-std=c++20",
        "-O2",
        "-DNDEBUG",  # as in torch's wheels: some of its classes have extra members in debug builds
        "-fPIC",
        "-fvisibility=hidden",
        "-fno-plt",  # a kernel calls a dozen functions of torch
        "-Wall",
        "-Wextra",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(abi)}",
        "-isystem",  # silences warnings in torch's headers
        str(root / "include"),
        "-isystem",
        str(root / "include" / "torch" / "csrc" / "api" / "include"),
    ]


def _runtime_of_torch() -> list[str]:
    """The path of the C++ runtime that torch has loaded. The linker must find it before the compiler's own archive.

    Some toolchains link libstdc++ statically by default. With two copies, formatting a number in a message crashes.
    """
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    return sorted({line.split(maxsplit=5)[5] for line in lines if "/libstdc++.so" in line})[:1]


def _run(command: list[str], part: str, what: str) -> str:
    """Runs the compiler and returns its output. Raises if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, env=_surroundings(), check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()[-5:]
        raise VirtualDeviceUnavailable(
            explain_error(
                f"Building {what}: {command[0]} failed on {part}",
                "\n  ".join(errors[:8]),
                "use a compiler with C++20 (GCC 11, Clang 14 or newer; set CXX to choose one) and a torch wheel that "
                "contains the C++ headers.",
            )
        )
    return done.stderr


def _compile(recipe: Recipe, compiler: list[str], abi: bool, into: Path) -> None:
    import torch

    root = Path(torch.__file__).parent
    flags = _flags(abi)
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=SCRATCH) as scratch:
        objects = [Path(scratch) / f"{Path(name).stem}.o" for name in recipe.sources]
        commands = [
            [*compiler, *flags, "-c", str(HERE / name), "-o", str(made)]
            for name, made in zip(recipe.sources, objects, strict=True)
        ]
        with ThreadPoolExecutor(max(1, min(len(recipe.sources), os.cpu_count() or 1))) as pool:
            said = []
            for warned in pool.map(_run, commands, recipe.sources, repeat(recipe.what)):
                said.append(warned)
                _say(f"\r  compiled {len(said)}/{len(recipe.sources)}")
        library = Path(scratch) / "library.so"
        lib = root / "lib"
        link = [*compiler, "-shared", *map(str, objects), f"-L{lib}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{lib}"]
        _run([*link, *_runtime_of_torch(), "-o", str(library)], "the library", recipe.what)
        # Loaded once before it is moved into the cache: a library that cannot be loaded must not get there.
        ctypes.CDLL(str(library))
        library.chmod(0o700)  # regardless of the umask: we do not load a file that others can write to
        with open(library, "rb") as made:
            digest = _digest(made.fileno())
        # The digest before the binary: if the process is killed in between, the binary in the cache does not match it.
        for suffix, text in ((".log", "".join(said)), (".sha256", digest)):
            written = Path(scratch) / f"library{suffix}"
            written.touch(mode=0o600)
            written.write_text(text)
            os.replace(written, into.with_suffix(suffix))
        os.replace(library, into)


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


def build(recipe: Recipe = DEVICE, *, force: bool = False) -> Path:
    """The path of the library for this torch, built if necessary."""
    path, descriptor = _built(recipe, force)
    os.close(descriptor)
    return path


def load(recipe: Recipe = DEVICE) -> ctypes.CDLL:
    """The library for this torch, built if necessary."""
    return private.load(*_built(recipe, force=False))


def load_if_built(recipe: Recipe) -> ctypes.CDLL | None:
    """The library if it is built already, else None. An unsafe folder is no error: this library is optional."""
    import torch

    if not any(private.folder_name().glob(f"torchdevice-{torch.__version__}-*.so")):
        return None  # before the version of the compiler is read, which takes longer
    try:
        path = private.folder() / library_path(target(recipe)).name
        whole = _open_whole(path)
    except VirtualDeviceUnavailable:
        return None
    return None if whole is None else private.load(path, whole)


def _built(recipe: Recipe, force: bool) -> tuple[Path, int]:
    """The path of the library, and a descriptor of the file that was checked."""
    wanted = target(recipe)
    if not wanted.sources:
        raise VirtualDeviceUnavailable(
            explain_error(
                f"{recipe.what.capitalize()} was requested, and its library must be compiled once on this machine",
                f"its C++ sources are not in {HERE}: the package is in an archive or frozen into a program",
                "install torch-device as files: pip install.",
            )
        )
    path = private.folder() / library_path(wanted).name
    if not force and (whole := _open_whole(path)) is not None:
        return path, whole
    compiler = find_compiler()
    if not compiler:
        raise VirtualDeviceUnavailable(
            explain_error(
                f"{recipe.what.capitalize()} was requested, and its library must be compiled once on this machine",
                "no C++ compiler was found (looked for CXX, " + ", ".join(COMPILERS) + ")",
                "install one: `apt install g++`, `dnf install gcc-c++`, `conda install cxx-compiler`, or on macOS "
                "`xcode-select --install`.",
            )
        )
    with _lock(path.with_suffix(".lock"), recipe.what):
        if not force and (whole := _open_whole(path)) is not None:
            return path, whole
        started = time.monotonic()
        _say(f"torchdevice: building {recipe.what} for torch {wanted.torch_version} (once, {recipe.takes})\n")
        _compile(recipe, compiler, wanted.abi, path)
        _say(f"\r  done in {time.monotonic() - started:.0f} s: {path}\n")
        whole = _open_whole(path)
    if whole is None:
        raise VirtualDeviceUnavailable(
            explain_error(
                f"{recipe.what.capitalize()} was compiled into {path}",
                "the file there differs from the compiled one",
                "check the free space of that disk, or set TORCHDEVICE_CACHE to another folder.",
            )
        )
    return path, whole
