"""`%load_ext torchdevice` in a real kernel."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.harness import clean_environment

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

CELLS = (
    "%load_ext torchdevice\nimport torch\nbefore = torch.zeros(1, device='cuda')",
    "%%torchdevice.report\nfor _ in range(3):\n    x = torch.zeros(2, device='cuda')\nprint(x.device)",
    "%%torchdevice.report\ny = 1",
    "print(y, x.tolist())",
    "%%torchdevice.report\ntorch.zeros(2, device='cuda')\n1 / 0",
    "%unload_ext torchdevice\nimport torchdevice\nprint(torchdevice.is_active())",
)


def outputs(cell: Any, kind: str) -> str:
    """What a cell has put out in one form, joined."""
    texts = [
        output.get("text", "") if kind == "text" else output.get("data", {}).get(kind, "") for output in cell.outputs
    ]
    return "".join(texts)


@pytest.mark.processes
def test_notebook() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    client = nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True)
    client.execute(env=clean_environment())
    _, shown, quiet, kept, failed, unloaded = notebook.cells
    assert outputs(shown, "text") == "cpu\n"
    assert "3 calls redirected at 1 place" in outputs(shown, "text/html")
    assert "x = torch.zeros(2, device=device)" in outputs(shown, "text/html")
    assert "torch.zeros" in outputs(shown, "text/plain")
    assert "nothing was redirected" in outputs(quiet, "text/html")
    assert outputs(kept, "text") == "1 [0.0, 0.0]\n"
    assert "1 call redirected" in outputs(failed, "text/html")
    assert "ZeroDivisionError" in str(failed.outputs)
    assert outputs(unloaded, "text") == "False\n"
