"""`torchdevice catalog`: the list and its filters, one name, notes, differences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchdevice.catalog import store
from torchdevice.cli import catalog, main


@pytest.fixture(scope="module")
def made() -> tuple[object, object]:
    return catalog.catalogue()


@pytest.fixture(autouse=True)
def _made_once(made: tuple[object, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "catalogue", lambda: made)


def test_the_list_and_its_filters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "--namespace", "torch.fft", "--search", "freq"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-2]] == ["torch.fft.fftfreq", "torch.fft.rfftfreq"]
    assert lines[-1].startswith("2 entries: ")
    assert main(["catalog", "--namespace", "torch.nowhere"]) == 0
    assert capsys.readouterr().out == "0 entries\n"


def test_a_namespace_finds_names_that_live_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "--namespace", "torch.amp", "--search", "GradScaler"]) == 0
    assert "torch.GradScaler" in capsys.readouterr().out


def test_json_and_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "--json"]) == 0
    text = capsys.readouterr().out
    data = json.loads(text)
    assert (data["schema"], len(data["entries"]) >= 4269) == (2, True)
    row = next(row for row in data["entries"] if row["name"] == "torch.zeros")
    assert (row["role"], row["treatment"], row["mlx"]) == ("makes a tensor", "translated", "mx.zeros((2, 3))")
    old = tmp_path / "old.json"
    old.write_text(text)
    assert main(["catalog", "diff", str(old)]) == 0
    assert capsys.readouterr().out == "0 added, 0 removed, 0 changed\n"
    data["entries"] = [r for r in data["entries"] if r["name"] != "torch.zeros"]
    old.write_text(json.dumps(data))
    assert main(["catalog", "diff", str(old)]) == 0
    assert capsys.readouterr().out == "1 added, 0 removed, 0 changed\n+ torch.zeros\n"


def test_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "--md", "--namespace", "torch.fft"]) == 0
    assert "| `torch.fft.fft` | function |" in capsys.readouterr().out


def test_one_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "show", "torch.amp.autocast"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("torch.autocast\n")
    assert "translated: torch.amp.autocast_mode.autocast.__init__ by autocast_init" in out
    assert main(["catalog", "show", "torch.zeross"]) == 1
    assert "did you mean torch.zeros" in capsys.readouterr().err


def test_a_note_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TORCHDEVICE_CACHE", str(tmp_path))
    assert main(["catalog", "note", "torch.zeros", "as expected"]) == 0
    assert store.load_notes() == store.shipped_notes() | {"torch.zeros": "as expected"}
    assert capsys.readouterr().out == f"torch.zeros: noted in {tmp_path / 'catalog-notes.json'}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show"], "show takes 1 argument(s)"),
        (["--status", "done"], "no status 'done'"),
        (["diff", "nowhere.json"], "nowhere.json is not a catalogue"),
    ],
)
def test_mistakes_cost_a_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["catalog", *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert catalog.ACTIONS == ("show", "note", "diff")
