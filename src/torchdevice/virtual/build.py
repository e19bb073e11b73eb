"""Builds the C++ library on first use and keeps it in the user's cache folder. Knows nothing of what the library does.

One binary serves one exact torch build (version, git hash, ABI), one state of the sources and one compiler: vtables
differ between torch versions without any message, so nothing is reused across them.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from torchdevice.config import cache_folder
from torchdevice.errors import VirtualDeviceUnavailable, explain_error

HERE = Path(__file__).resolve().parent
SOURCES = ("memory.cpp", "guard.cpp", "hooks.cpp", "relabel.cpp", "kernel.cpp", "graphs.cpp", "native.cpp", "api.cpp")
HEADERS = ("device.h", "relabel.h")
COMPILERS = ("c++", "g++", "clang++")
# Another process that builds the same library gets this long before we say that something is wrong.
LOCK_TIMEOUT = 600.0


class Target(NamedTuple):
    """Everything that decides which binary is the right one."""

    torch_version: str
    torch_git: str
    abi: bool
    compiler: str
    sources: str

    @property
    def name(self) -> str:
        text = "\n".join((self.torch_git, str(self.abi), self.compiler, self.sources, platform.machine()))
        return f"torchdevice-{self.torch_version}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def find_compiler() -> str | None:
    """CXX if it is set, else the first known compiler on PATH."""
    if chosen := os.environ.get("CXX"):
        return shutil.which(chosen.split()[0])
    return next((path for name in COMPILERS if (path := shutil.which(name))), None)


def _source_hash() -> str:
    digest = hashlib.sha256()
    for name in (*SOURCES, *HEADERS):
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()


def target() -> Target:
    """What a build here and now would produce."""
    import torch

    compiler = find_compiler()
    version = ""
    if compiler:
        done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
        version = done.stdout.partition("\n")[0]
    return Target(
        torch_version=str(torch.__version__),
        torch_git=str(torch.version.git_version),
        abi=bool(torch._C._GLIBCXX_USE_CXX11_ABI),
        compiler=version,
        sources=_source_hash(),
    )


def library_path(wanted: Target | None = None) -> Path:
    return cache_folder() / f"{(wanted or target()).name}.so"


def cached() -> list[Path]:
    folder = cache_folder()
    return sorted(folder.glob("torchdevice-*.so")) if folder.is_dir() else []


def clean() -> list[Path]:
    """Deletes every cached binary, and says which."""
    gone = cached()
    for path in gone:
        path.unlink(missing_ok=True)
    return gone


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """At most one process builds. The lock is the kernel's, so that it ends with its process, however that ends."""
    import fcntl

    with open(path, "a+") as handle:
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise VirtualDeviceUnavailable(
                        explain_error(
                            f"Another process has held {path} for {LOCK_TIMEOUT:.0f} seconds",
                            "the build of the virtual device was given up",
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
        "-fPIC",
        "-fvisibility=hidden",
        "-w",  # torch's headers warn; ours are compiled with warnings by the tests
        f"-D_GLIBCXX_USE_CXX11_ABI={int(abi)}",
        f"-I{root / 'include'}",
        f"-I{root / 'include' / 'torch' / 'csrc' / 'api' / 'include'}",
    ]


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()[-5:]
        raise VirtualDeviceUnavailable(
            explain_error(
                f"Building the virtual device: {command[0]} failed on {what}",
                "\n  ".join(errors[:8]),
                "a compiler with C++20 is needed (GCC 11, Clang 14 or newer; set CXX to choose one), and the headers "
                "that come inside the torch wheel.",
            )
        )


def _compile(compiler: str, abi: bool, into: Path) -> None:
    import torch

    root = Path(torch.__file__).parent
    flags = _flags(abi)
    with tempfile.TemporaryDirectory(dir=into.parent, prefix="build-") as scratch:
        objects = [Path(scratch) / f"{Path(name).stem}.o" for name in SOURCES]
        commands = [
            [compiler, *flags, "-c", str(HERE / name), "-o", str(made)]
            for name, made in zip(SOURCES, objects, strict=True)
        ]
        with ThreadPoolExecutor(max(1, min(len(SOURCES), os.cpu_count() or 1))) as pool:
            for number, _ in enumerate(pool.map(_run, commands, SOURCES), 1):
                _say(f"\r  compiled {number}/{len(SOURCES)}")
        library = Path(scratch) / "library.so"
        lib = root / "lib"
        link = [compiler, "-shared", *map(str, objects), f"-L{lib}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{lib}"]
        _run([*link, "-o", str(library)], "the library")
        # Loaded once before anyone can see it: a library that does not link must not enter the cache.
        ctypes.CDLL(str(library))
        os.replace(library, into)


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


def build(*, force: bool = False) -> Path:
    """The path of the library for this torch, built if it is not there yet."""
    wanted = target()
    path = library_path(wanted)
    if path.exists() and not force:
        return path
    compiler = find_compiler()
    if compiler is None:
        raise VirtualDeviceUnavailable(
            explain_error(
                "A virtual device was asked for, whose library must be compiled once on this machine",
                "no C++ compiler was found (looked for CXX, " + ", ".join(COMPILERS) + ")",
                "install one: `apt install g++`, `dnf install gcc-c++`, `conda install cxx-compiler`, or on macOS "
                "`xcode-select --install`.",
            )
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise VirtualDeviceUnavailable(
            explain_error(
                f"The virtual device's library is kept in {path.parent}",
                f"that folder cannot be made: {error.strerror}",
                "set TORCHDEVICE_CACHE to a folder that can be written.",
            )
        ) from error
    with _lock(path.with_suffix(".lock")):
        if path.exists() and not force:
            return path
        started = time.monotonic()
        _say(f"torchdevice: building the virtual device for torch {wanted.torch_version} (once, about a minute)\n")
        _compile(compiler, wanted.abi, path)
        _say(f"\r  done in {time.monotonic() - started:.0f} s: {path}\n")
    return path
