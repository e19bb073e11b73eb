"""Operators that are called by their own name: every one that takes a device, against plain torch."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import torchdevice
from tests.conftest import ROOT
from tests.torches import on_pinned_torch
from tests.virtual.harness import on
from torchdevice._torch import dispatcher
from torchdevice.translate import direct

# A value for an argument without a default, by its name and else by its type.
BY_NAME = {
    "dtype": torch.float32,
    "low": 0,
    "high": 3,
    "start": torch.tensor(0.0),
    "end": torch.tensor(4.0),
    "physical_layout": [0, 1],
    "stride": [2, 1],
    "steps": 3,
}
BY_TYPE = {
    "List[int]": [2, 2],
    "int": 3,
    "number": 1,
    "float": 0.5,
    "bool": False,
    "str": "",
    "Tensor": torch.ones(2, 2),
}
# They give no tensor, or no sample suits them on a CPU.
UNTRIED = {"empty_quantized", "is_pinned"}


def operators() -> dict[str, Any]:
    """Every public operator of torch with an argument `device`."""
    found = {}
    for name in sorted(dispatcher.operator_names()):
        public = name.startswith("aten::") and not name.startswith("aten::_")
        operator = dispatcher.find_operator(name) if public else None
        if operator is not None and any(each.name == "device" for each in dispatcher.schema_of(operator).arguments):
            found[name] = operator
    return found


def base(name: str) -> str:
    return name.removeprefix("aten::").partition(".")[0]


def call(operator: Any, device: str) -> Any:
    args, kwargs = [], {}
    for each in dispatcher.schema_of(operator).arguments:
        given = device if each.name == "device" else each.default_value
        if each.name != "device" and not each.has_default_value():
            kind = str(each.type).removeprefix("Optional[")
            given: Any = BY_TYPE[kind if kind.startswith("List") else kind.removesuffix("]")]
            named = BY_NAME.get(each.name, given)
            given = named if isinstance(named, torch.Tensor) == isinstance(given, torch.Tensor) else given
        if each.kwarg_only:
            kwargs[each.name] = given
        else:
            args.append(given)
    torch.manual_seed(0)
    return operator(*args, **kwargs)


def expected_of(operator: Any) -> Any:
    """What plain torch gives for the CPU; None where the sample does not suit the operator, or it gives no tensor."""
    try:
        made = call(operator, "cpu")
    except (KeyError, RuntimeError):
        return None
    return made if isinstance(made, torch.Tensor) else None


def test_every_public_operator_makes_its_result_on_the_target() -> None:
    tried = set()
    for name, operator in operators().items():
        expected = expected_of(operator)
        if expected is None or base(name) in direct.EXCEPTIONS:
            continue
        tried.add(base(name))
        for device in ("cuda", "cuda:1", "xpu", "mps"):
            with pytest.raises((RuntimeError, AssertionError)):  # plain torch
                call(operator, device)
            with torchdevice.redirect(target="cpu"):
                found = call(operator, device)
            assert (found.device, found.dtype, found.shape) == (expected.device, expected.dtype, expected.shape), name
            if "empty" not in name:
                torch.testing.assert_close(found, expected, equal_nan=True)
    untried = {base(name) for name in operators()} - tried - direct.EXCEPTIONS.keys()
    assert untried == UNTRIED or not on_pinned_torch()
    assert len(tried) > 35


@pytest.mark.parametrize("name", direct.EXCEPTIONS)
def test_exceptions_are_operators_that_raise_and_have_reasons(name: str, active: None) -> None:
    """A row that does not raise is to be taken out.

    A fake tensor mode (torch.compile) gives a CUDA build without a GPU a current index for the rest of the process.
    Then some forms of `to` work. The pinned torch is a build for CPUs.
    """
    forms = {each: operator for each, operator in operators().items() if base(each) == name}
    assert forms
    assert direct.EXCEPTIONS[name]
    raised = set()
    for each, operator in forms.items():
        try:
            made = call(operator, "cuda")
        except RuntimeError:
            raised.add(each)
        else:
            assert made.device.type == "cpu", each
    assert raised == forms.keys() or not on_pinned_torch()


def test_the_page_lists_the_exceptions() -> None:
    page = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `aten::(\w+)` \| (.+) \|$", page, re.MULTILINE))
    assert listed == direct.EXCEPTIONS


def test_torch_s_own_table_of_functions(active: None) -> None:
    """`torch._C._VariableFunctions` is what `torch.zeros` is taken from: an object that cannot be replaced."""
    table = torch._C._VariableFunctions
    for made in (table.zeros([2], device="cuda"), table.arange(3, device="mps:1"), table.rand([2], device="xpu")):
        assert made.device.type == "cpu"


def test_calls_are_counted_at_the_line_of_user_code(active: None) -> None:
    torch.ops.aten.full([2], 1.5, device="cuda:1")
    (row,) = torchdevice.report().rows
    assert (row.api, row.asked, row.given, row.first.file) == ("aten::empty.memory_format", "cuda:1", "cpu", __file__)


def test_suspended_and_deactivated_calls_are_torch_s_own(active: None) -> None:
    with torchdevice.suspended(), pytest.raises(NotImplementedError, match="Could not run 'aten::empty"):
        torch.ops.aten.zeros([2], device="cuda")
    torchdevice.deactivate()
    assert not any(dispatcher.has_kernel(name, "XPU") for name in direct.makers())


@on("mps")
def test_on_an_accelerator() -> None:
    torchdevice.activate()
    assert torch.ops.aten.zeros([2], device="cuda:3").device == torch.device("mps:0")
    assert torch.ops.aten.arange(3, device="xpu").tolist() == [0, 1, 2]
    assert torch.ops.aten.zeros([2], device="mps").device.type == "mps"
    assert torch.ops.aten.zeros([2]).device.type == "cpu"
