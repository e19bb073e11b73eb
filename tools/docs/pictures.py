"""Pictures of a real run, for the README: `make pictures` writes docs/images/run.svg, and report.png where Chromium is.

The figures in them are those of the machine that it runs on.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
COMMAND = ("torchdevice", "run", "examples/train_cuda.py")
COLUMNS = 104
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
REPORT_SIZE = "1100,860"
# The template of rich names a font on another host; pages fetch nothing.
FONT = re.compile(r"@font-face\s*\{\{.*?\}\}\s*", re.DOTALL)


def output_of(*words: str) -> str:
    """What the command prints, stdout and stderr as on a terminal; paths are relative to the repository."""
    command = [sys.executable, "-W", "ignore::FutureWarning", "-m", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    return done.stdout.replace(f"{ROOT}{os.sep}", "")


def terminal(command: str, output: str) -> str:
    """An SVG of a terminal in which the command was typed."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
    console.print(Text(output.rstrip() + "\n"))  # else the frame cuts off the last line
    return console.export_svg(title=command, code_format=FONT.sub("", CONSOLE_SVG_FORMAT), unique_id="run")


def photograph(page: Path, picture: Path) -> None:
    """A PNG of a page, by the first browser that is there; nothing where there is none."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"{picture.relative_to(ROOT)} stays as it is: none of {', '.join(BROWSERS)} is here")
        return
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={REPORT_SIZE}"]
    command = [browser, *flags, f"--screenshot={picture}", page.as_uri()]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)


def main() -> None:
    """Both pictures."""
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "run.svg").write_text(terminal(" ".join(COMMAND), output_of(*COMMAND)), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        output_of(*COMMAND[:2], "--report", f"html:{page}", *COMMAND[2:])
        photograph(page, IMAGES / "report.png")


if __name__ == "__main__":
    main()
