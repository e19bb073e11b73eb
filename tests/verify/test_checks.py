"""The pieces of the parts that need no device: predictions, names, programs; and the command line."""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.verify import stub
from tests.verify.records import MACHINE
from tools.mac_reports import programs
from torchdevice.cli import main
from torchdevice.cli import verify as command
from torchdevice.verify import operators, record, runner, wrong_values
from torchdevice.verify.fallbacks import stem_of
from torchdevice.verify.findings import AS, PLAIN, TRANSLATED, Differs, Skipped
from torchdevice.verify.parts import PARTS, Part
from torchdevice.verify.predictions import DEPENDS, REFUSED, RUNS, known_for, predict
from torchdevice.verify.setting import Setting, as_user_code
from torchdevice.verify.wrong_values import Bug, look_for
from torchdevice.virtual import supported


def test_the_programs_of_known_bugs_are_those_of_the_reports() -> None:
    assert programs.DATA.read_text(encoding="utf-8") == programs.text()
    assert len(wrong_values.bugs()) >= 17


def test_a_program_runs_on_the_device_that_is_checked() -> None:
    code = 'import torch\nassert torch.ones(1, device="mps").device.type == "meta", "another device"'
    bug = Bug("x", "https://example.invalid", "a bug", "no", code)
    assert look_for(bug, "meta").figures["state"] == "absent"
    with pytest.raises(Differs, match="present: a bug: another device"):
        look_for(bug, "cpu")


@pytest.mark.parametrize(
    ("kind", "operator", "dtype", "what"),
    [
        ("mps", "aten::add.Tensor", "float32", RUNS),
        ("mps", "aten::add.Tensor", "float64", REFUSED),
        ("mps", "aten::_to_copy", "float64", REFUSED),
        ("mps", "aten::special_airy_ai", "float32", REFUSED),
        ("mps", "aten::_adaptive_avg_pool2d", "float32", DEPENDS),
        ("mps", "aten::convolution", "int64", REFUSED),
        ("mps", "aten::convolution", "float32", RUNS),
        ("mps", "own::operator", "float32", RUNS),
        ("cuda", "aten::add.Tensor", "float64", RUNS),
        ("cuda", "aten::add.Tensor", "", RUNS),
        (
            "cuda",
            "aten::mkldnn_linear",
            "float32",
            RUNS,
        ),  # the CPU has no kernel of that name either
    ],
)
def test_predictions(kind: str, operator: str, dtype: str, what: str) -> None:
    assert predict(kind, operator, dtype).what == what


def test_nothing_is_predicted_of_a_device_that_torch_does_not_list() -> None:
    assert known_for("mps")
    assert known_for("cuda")
    assert not known_for("hpu")


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("aten::_linalg_eigh.eigenvalues", "linalg_eigh"),
        ("linalg.eigh", "linalg_eigh"),
        ("aten::_ctc_loss_backward", "ctc_loss"),
        ("nn.functional.ctc_loss", "ctc_loss"),
        ("aten::put_", "put"),
    ],
)
def test_functions_and_kernels_have_one_stem(name: str, stem: str) -> None:
    assert stem_of(name) == stem


def test_a_database_that_cannot_be_imported_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> list[object]:
        raise ModuleNotFoundError("No module named 'expecttest'")

    monkeypatch.setattr(operators, "operator_database", missing)
    with pytest.raises(Skipped, match=r"No module named 'expecttest'\. Hint: pip install expecttest"):
        operators.database()


class Entry:
    """An entry of the database that gives other values in every call."""

    name, variant_test_name, supports_autograd = "entry", "", False

    def __init__(self, number: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._number = number
        self._calls = 0

    def sample_inputs(self, *_: object, **__: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(input=torch.ones(3), args=(), kwargs={}, output_process_fn_grad=lambda result: result)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self._calls += 1
        return self._number(x) + self._calls


def test_random_numbers_are_not_compared_and_others_are() -> None:
    assert operators.compare(Entry(torch.rand_like), torch.float32, "cpu").figures == {"samples": 1, "refused": 0}
    with pytest.raises(Differs, match="sample 0: forward"):
        operators.compare(Entry(torch.zeros_like), torch.float32, "cpu")


class Rounding(Entry):
    """An entry of which the CPU's first result, in half precision, is coarse."""

    def __init__(self, of_device: float) -> None:
        super().__init__(torch.clone)
        self._of_device = of_device

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self._calls += 1
        return x * {1: 0.5, 2: self._of_device}.get(self._calls, 1.0)

    def sample_inputs(self, *_: object, **__: object) -> Iterator[SimpleNamespace]:
        for sample in super().sample_inputs():
            sample.input = sample.input.half()
            yield sample


def test_half_precision_is_also_compared_with_float32() -> None:
    assert operators.compare(Rounding(1.0), torch.float16, "cpu").figures["samples"] == 1
    with pytest.raises(Differs, match="sample 0: forward"):
        operators.compare(Rounding(2.0), torch.float16, "cpu")


def test_undefined_results_are_those_that_torch_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = {"UNDEFINED_XFAILLIST": {"entry": ("float16",)}}
    monkeypatch.setattr(supported, "mps_lists", lambda: lists)
    entry = Entry(torch.zeros_like)
    assert [operators.has_values(entry, dtype) for dtype in (torch.float32, torch.float16)] == [True, False]
    lists["UNDEFINED_XFAILLIST"] = {"entry": None}  # type: ignore[dict-item]
    assert not operators.has_values(entry, torch.float32)


def test_programs_name_the_device_of_their_way() -> None:
    assert [Setting("mps", way).named for way in (PLAIN, TRANSLATED, AS)] == ["mps", "cuda", "cuda"]
    assert Setting("cuda", TRANSLATED).named == "mps"
    assert Setting("mps").half is torch.float16


def test_code_can_pass_for_a_users() -> None:
    def file_of() -> list[str]:
        frame = inspect.currentframe()
        assert frame is not None
        inner = (lambda: inspect.currentframe())()
        assert inner is not None
        return [frame.f_code.co_filename, inner.f_code.co_filename]

    assert set(file_of()) == {__file__}
    assert set(as_user_code(file_of)()) == {"<torchdevice verify>"}


# --- the command ---------------------------------------------------------------------------------------------------


def test_without_an_accelerator_there_is_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "describe_machine", lambda virtual: {**MACHINE, "device": "cpu"})
    with pytest.raises(SystemExit) as ended:
        main(["verify"])
    told = str(ended.value)
    assert "torch 2.13.0 finds none on this machine" in told
    assert "Hint: torchdevice verify --virtual mps:real" in told


@pytest.mark.parametrize("minutes", ["0", "-1", "soon", "inf", "nan"])
def test_minutes_are_positive(minutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["verify", "--minutes", minutes])
    assert ended.value.code == 2
    assert "not a positive number of minutes" in capsys.readouterr().err


@pytest.mark.processes
def test_a_run_writes_both_files_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "found.json"
    stubbed = (sys.executable, str(Path(stub.__file__)))
    parts = (Part("operators", "", ""),)

    def as_if(scenario: str) -> None:
        worker = (*stubbed, scenario, str(tmp_path / "log"))
        monkeypatch.setattr(runner, "run", functools.partial(real_run, command=worker, parts=parts))

    real_run = runner.run
    monkeypatch.setattr(runner, "describe_machine", lambda virtual: {**MACHINE, "virtual": virtual})
    as_if("crash")
    assert main(["verify", "--output", str(path)]) == 1
    out, err = capsys.readouterr()
    assert "second: crashed: signal 9" in err
    assert "✗ operators     3 agree, 1 crashed\n" in out
    assert f"written to {path} and {path.with_suffix('.html')}" in out
    assert list(record.problems(json.loads(path.read_text(encoding="utf-8")))) == []
    assert "second" in path.with_suffix(".html").read_text(encoding="utf-8")
    monkeypatch.setattr(runner, "run", interrupted)
    assert main(["verify", "--output", str(path)]) == 1, "what was found before counts"
    assert "The same command goes on from here" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["verify", "--output", str(path), "--virtual", "mps"])
    assert ended.value.code == 2
    assert "name another file with --output" in capsys.readouterr().err


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_the_parts_are_in_the_help() -> None:
    text = command.parser().format_help()
    assert all(part.asks in text for part in PARTS)
