"""PyTorch's test folder, which its wheels do not have: from Debian's source package, kept in a cache."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path

from torchdevice.config import cache_folder

RELEASE = "2.6.0"  # of Debian 13
NAME = f"pytorch_{RELEASE}+dfsg.orig.tar.xz"
ADDRESS = f"http://deb.debian.org/debian/pool/main/p/pytorch/{NAME}"
SHA256 = "099a9601bc40d67656e75735c44abedb0fbe92d08817852ab7472eebb7e6ddff"
SECONDS = 120


def cache() -> Path:
    """Outside of the checkout: nothing of the archive becomes part of this project."""
    return cache_folder() / "upstream"


def tests() -> Path:
    """The folder with the tests; fetched if it is not there."""
    folder = cache() / f"pytorch-v{RELEASE}" / "test"
    if not folder.is_dir():
        cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache()) as unpacked:
            _unpack(_fetch(), Path(unpacked))
            folder.parent.mkdir(exist_ok=True)
            shutil.move(Path(unpacked) / folder.parent.name / "test", folder)
    return folder


def _fetch() -> Path:
    archive = cache() / NAME
    if not archive.exists():
        print(f"fetching {ADDRESS} (26 MB)", file=sys.stderr, flush=True)
        part = archive.with_suffix(".part")
        with urllib.request.urlopen(ADDRESS, timeout=SECONDS) as source, part.open("wb") as target:
            shutil.copyfileobj(source, target)
        part.replace(archive)
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SHA256:
        archive.unlink()
        raise SystemExit(f"{NAME} has the digest {found}, not {SHA256}: it was deleted, try again")
    return archive


def _unpack(archive: Path, folder: Path) -> None:
    inside = f"pytorch-v{RELEASE}/test/"
    with tarfile.open(archive) as packed:
        packed.extractall(folder, [each for each in packed if each.name.startswith(inside)], filter="data")
