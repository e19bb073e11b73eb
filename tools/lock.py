"""What `make` installs beside torch: every package with its version and the digests of its files, per Python.

    python -m tools.lock            all versions that are on this machine
    python -m tools.lock 3.11       one of them

Run it on Linux, where development and CI happen. pip chooses the versions; the digests are those of all files that the
package index has of them. torch is not in it: its builds differ from index to index (constraints.txt has its version).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

from tools.versions.matrix import find_python

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found]

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "locks"
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
EXTRAS = ("dev", "mlx")
HEAD = "# Written by `python -m tools.lock {version}`; do not edit.\n"
FILE = re.compile(r'href="[^"#]*/(?P<file>[^"#/]+)#sha256=(?P<digest>[0-9a-f]{64})"')


def requirements() -> list[str]:
    """What the project asks for, without torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *(each for extra in EXTRAS for each in project["optional-dependencies"][extra])]
    return [each for each in asked if not re.match(r"torch\b", each)]


def resolve(python: str) -> dict[str, str]:
    """Package → version, as pip of that Python chooses."""
    command = [python, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    done = subprocess.run([*command, *requirements()], stdout=subprocess.PIPE, text=True, check=True)
    chosen = {}
    for each in json.loads(done.stdout)["install"]:
        name = re.sub(r"[-_.]+", "-", each["metadata"]["name"]).lower()
        chosen[name] = each["metadata"]["version"]
    return dict(sorted(chosen.items()))


def index(python: str) -> str:
    """Where that Python's pip looks."""
    tell = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    return subprocess.run([python, "-c", tell], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def digests(page: str, name: str, version: str) -> list[str]:
    """Of all files of that version which a page of the index lists."""
    own = re.compile(rf"{name.replace('-', '[-_.]')}-{re.escape(version)}(-.*\.whl|\.tar\.gz|\.zip)", re.IGNORECASE)
    return sorted({found["digest"] for found in FILE.finditer(page) if own.fullmatch(found["file"])})


def lock(version: str) -> str:
    """The text of a lock file."""
    python = find_python(version)
    where, lines = index(python), [HEAD.format(version=version)]
    for name, chosen in resolve(python).items():
        with urllib.request.urlopen(f"{where}/{name}/") as answer:
            found = digests(answer.read().decode(), name, chosen)
        if not found:
            raise SystemExit(f"the package index lists no file of {name} {chosen}")
        lines.append(f"{name}=={chosen} \\\n" + " \\\n".join(f"    --hash=sha256:{digest}" for digest in found) + "\n")
    return "".join(lines)


def main() -> None:
    """Write them."""
    FOLDER.mkdir(exist_ok=True)
    for version in sys.argv[1:] or VERSIONS:
        path = FOLDER / f"python{version}.txt"
        path.write_text(lock(version), encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
