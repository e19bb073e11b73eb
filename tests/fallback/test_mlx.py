"""Every MLX rule against torch: the aten calls that OpInfo samples make are made again on MLX and compared."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torchdevice.fallback.plan import Declined, read_plan

pytest.importorskip("mlx.core")
from torchdevice.fallback.mlx import executor

SAMPLES = 6
# Whole families have samples that would call nothing else, or take seconds each.
SKIPPED = ("_refs", "masked.", "sparse", "nested", "ops.", "jiterator", "linalg.tensor", "special.")
# Bases of eigenspaces and signs of factors are free: what is compared is what they are for.
REBUILT = {
    "aten::_linalg_eigh": lambda values, vectors: (vectors * values.unsqueeze(-2)) @ vectors.mT,
    "aten::_linalg_svd": lambda u, s, vh: (u[..., : s.shape[-1]] * s.unsqueeze(-2)) @ vh[..., : s.shape[-1], :],
    "aten::linalg_qr": lambda q, r: q @ r,
}


class Compare(TorchDispatchMode):
    """Makes each aten call that has a rule on MLX too."""

    def __init__(self) -> None:
        super().__init__()
        self.agreed: Counter[str] = Counter()
        self.declined: Counter[str] = Counter()
        self.wrong: dict[str, str] = {}
        self.plans: dict[str, Any] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        expected = function(*args, **kwargs)
        name = f"aten::{str(function).removeprefix('aten.').removesuffix('.default')}"
        rule = executor.rules().get(name)
        if rule is not None and self.agreed[name] < 20:
            plan = self.plans.setdefault(name, read_plan(name))
            try:
                actual, _ = executor.apply(rule, plan, args, kwargs, "none")
            except Declined:
                self.declined[name] += 1
                return expected
            problem = self.compare(name, expected, actual)
            if problem:
                self.wrong.setdefault(name, problem + " " + str([getattr(a, "shape", a) for a in args])[:120])
            else:
                self.agreed[name] += 1
        return expected

    def compare(self, name: str, expected: Any, actual: Any) -> str:
        want, have = pytree.tree_leaves(expected), pytree.tree_leaves(actual)
        if name in REBUILT:
            want, have = [REBUILT[name](*want)], [REBUILT[name](*have)]
        elif name == "aten::topk":  # which of equal elements comes first is open in torch too
            want, have = want[:1], have[:1]
        for one, other in zip(want, have, strict=True):
            loose = 2e-2 if one.dtype in (torch.float16, torch.bfloat16) else 2e-4
            try:
                torch.testing.assert_close(
                    other, one, rtol=loose, atol=loose, equal_nan=True, check_stride=False, check_layout=True
                )
            except AssertionError as error:
                return " ".join(str(error).split())[:160]
        return ""


def compared(dtypes: tuple[torch.dtype, ...]) -> Compare:
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    mode = Compare()
    for op in op_db:
        if op.name.startswith(SKIPPED):
            continue
        for dtype in dtypes:
            if dtype not in op.supported_dtypes("cpu"):
                continue
            torch.manual_seed(0)
            for number, sample in enumerate(op.sample_inputs("cpu", dtype)):
                if number == SAMPLES:
                    break
                try:
                    with mode, torch.no_grad():
                        op(sample.input, *sample.args, **sample.kwargs)
                except Declined:
                    raise
                except Exception:  # samples that the CPU itself refuses under a dispatch mode say nothing about MLX
                    continue
    return mode


@pytest.fixture
def _samples_without_a_look_at_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each list of samples looks for the test of torch's that asks, to seed by its name: here there is none."""
    from torch.testing._internal import common_utils
    from torch.testing._internal.opinfo import core

    assert common_utils.extract_test_fn() is None
    for module in (common_utils, core):
        monkeypatch.setattr(module, "extract_test_fn", lambda: None)


@pytest.mark.long
@pytest.mark.usefixtures("_samples_without_a_look_at_the_stack")
def test_every_rule_agrees_with_torch() -> None:
    mode = compared((torch.float32, torch.int64))
    assert mode.wrong == {}
    x = torch.tensor([[0.5, 2.0], [-1.0, 3.0]])
    with mode:  # what no sample reaches
        for direct in (torch.linalg.svd, lambda x: x > 1, lambda x: x.clamp_max(1)):
            direct(x)
    assert mode.wrong == {}
    assert set(executor.rules()) - set(mode.agreed) == set()


def test_there_are_enough_rules() -> None:
    assert len(executor.rules()) >= 150
    missing = [name for name in executor.rules() if read_plan(name) is None]
    assert missing == []


def test_what_is_not_exact_is_declined() -> None:
    plan = read_plan("aten::mm")
    assert plan is not None
    wide = torch.ones(2, 2, dtype=torch.float64)
    with pytest.raises(Declined, match="float64"):
        executor.apply(executor.rules()["aten::mm"], plan, (wide, wide), {}, "none")
    small = torch.ones(2, 2)
    with pytest.raises(Declined, match="faster"):
        executor.run(plan, (small, small), {}, "none")
