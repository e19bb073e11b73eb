"""The guides: every command, program and cell in them is run, or says why not; what they show is what is printed.

The rules are in tests/documented.py. What the guides show was printed on the pinned torch: on another one only the exit
status is checked.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness import clean_environment
from tests.documented import Block, blocks, install_commands, matches, run
from tests.torches import on_pinned_torch
from torchdevice.reporting.rewrites import suggestion

GUIDES = Path(__file__).parents[1] / "docs" / "guide"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(GUIDES.glob("*.md"))}
LINK = re.compile(r"\]\((?P<path>[^)#:]+)(?:#(?P<heading>[^)]*))?\)")
# Commands that no test can run; the page has the reason, in an HTML comment.
NOT_RUN = {
    "run-a-cuda-script": ["make demo", "pip install ."],
    "troubleshooting": ["torchdevice doctor"],
    "test-without-devices": ["pytest -p torchdevice.pytest_plugin tests"],
    "performance": ["torchdevice bench --quick"],
    "distributed": ["torchdevice run torchrun --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 ddp.py"],
    "notebooks": ["TORCHDEVICE=1 jupyter execute somebody-elses.ipynb", "torchdevice scan somebody-elses.ipynb"],
}
MOST_LINES = 160  # a longer page is two


def pages_with(*languages: str) -> list[str]:
    return [name for name, page in PAGES.items() if any(block.language in languages for block in blocks(page))]


def write_files(page: str, folder: Path) -> None:
    for block in blocks(page):
        if block.file:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize("name", pages_with("console", "python"))
def test_commands_of(name: str, tmp_path: Path) -> None:
    path, folder = install_commands(tmp_path / "bin"), tmp_path / "session"
    folder.mkdir()
    write_files(PAGES[name], folder)
    for block in blocks(PAGES[name]):
        for command in block.commands() if block.reason is None else ():
            complaint = command.complaint(*run(command, folder, path), compare=on_pinned_torch())
            assert complaint is None, f"{name}.md:{command.line}: {command.words}: {complaint}"


def cells(page: str) -> list[tuple[Block, Block | None]]:
    """Each cell of a page with the block that shows what it puts out."""
    found = blocks(page)
    following = [*found[1:], None]
    return [
        (cell, shown if shown and shown.language == "text" else None)
        for cell, shown in zip(found, following, strict=True)
        if cell.language == "ipython"
    ]


def put_out(cell: Any) -> str:
    """What a cell of a notebook has printed and shown, as text."""
    texts = [output["text"] if "text" in output else output["data"]["text/plain"] for output in cell.outputs]
    return "".join(text.rstrip("\n") + "\n" for text in texts)


@pytest.mark.processes
@pytest.mark.parametrize("name", pages_with("ipython"))
def test_cells_of(name: str) -> None:
    nbclient = pytest.importorskip("nbclient", reason="notebooks are run by nbclient, which is not installed")
    nbformat = pytest.importorskip("nbformat", reason="notebooks are made by nbformat, which is not installed")
    pytest.importorskip("ipykernel", reason="notebooks are run in ipykernel, which is not installed")
    expected = cells(PAGES[name])
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.text) for cell, _ in expected])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute(env=clean_environment())
    for (cell, shown), done in zip(expected, notebook.cells, strict=True):
        if shown and on_pinned_torch():
            assert matches(shown.text, put_out(done)), f"{name}.md:{cell.line} puts out\n{put_out(done)}"


@pytest.mark.parametrize("name", PAGES)
def test_what_is_not_run_is_listed_and_says_why(name: str) -> None:
    left_out = [block for block in blocks(PAGES[name]) if block.reason is not None]
    assert [command.words for block in left_out for command in block.commands()] == NOT_RUN.get(name, [])
    for block in left_out:
        assert block.reason, f"{name}.md:{block.line} is not run and gives no reason"


@pytest.mark.parametrize("name", pages_with("yaml"))
def test_yaml(name: str) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    for block in blocks(PAGES[name]):
        if block.language == "yaml":
            workflow = yaml.safe_load(block.text)
            steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
            assert steps
            assert all(step.keys() & {"uses", "run"} for step in steps)


def test_commands_of_workflows_are_run_by_the_page() -> None:
    """The steps of TorchDevice in a workflow are commands that the page runs, or of which `--help` knows."""
    page = PAGES["test-without-devices"]
    (workflow,) = (block.text for block in blocks(page) if block.language == "yaml")
    (devices,) = re.findall(r"device: \[(.*)\]", workflow)
    commands = [command.words for block in blocks(page) for command in block.commands()]
    for device in re.findall(r'"([^"]+)"', devices):
        assert f"pytest -q --torchdevice-virtual {device}" in commands
    assert 'run: pytest --torchdevice-virtual "${{ matrix.device }}"' in workflow


def test_rewrites_are_those_of_the_report() -> None:
    rows = re.findall(r"^\| `(.+)` \| `(.+)` \|$", PAGES["migrate"], re.MULTILINE)
    assert len(rows) >= 5
    assert [(line, suggestion(line, "cuda")) for line, _ in rows] == rows


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    for link in LINK.finditer(PAGES[name]):
        path = (GUIDES / link["path"]).resolve()
        assert path.exists(), f"{name}.md links to {link['path']}"
        if link["heading"]:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert link["heading"] in map(anchor, headings), f"{name}.md links to {link[0]}"


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_short(name: str) -> None:
    assert len(PAGES[name].splitlines()) <= MOST_LINES


def test_the_index_has_one_line_per_guide() -> None:
    linked = re.findall(r"^- \[[^]]+\]\((.+)\.md\): .+$", PAGES["README"], re.MULTILINE)
    assert sorted(linked) == sorted(PAGES.keys() - {"README"})
