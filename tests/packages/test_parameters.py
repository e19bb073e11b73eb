"""Stand-ins use each parameter that they take. One that is passed over changes results without a word."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from torchdevice import packages
from torchdevice.packages import apex

FOLDER = Path(packages.__file__).parent
# Parameters that change how fast or where something is computed, or nothing at all; per name why they are passed over.
PASSED_OVER = {
    "checkpoint_lvl": "memory against time",
    "cu_seqlens": "of Mamba 2's scan: for states that are refused",
    "deterministic": "the stand-in is as deterministic as torch is told to be",
    "fused_bias_fc": "which kernel computes",
    "heuristic": "which kernel computes",
    "inplace_backward": "memory",
    "max_seqlen": "the bounds of the sequences say it",
    "max_seqlen_k": "the bounds of the sequences say it",
    "max_seqlen_q": "the bounds of the sequences say it",
    "memory_efficient": "memory against time",
    "num_splits": "how a kernel is launched",
    "op": "which kernel computes",
    "pack_gqa": "how a kernel is launched",
    "precomputed_lse": "saves a sum that is computed here",
    "save_pre_act": "memory against time",
    "scan": "computed again",
    "scheduler_metadata": "how a kernel is launched",
    "sequence_parallel": "a process group is refused",
    "sm_margin": "how a kernel is launched",
    "states": "computed again",
    "use_fast_path": "which kernel computes",
    "use_mem_eff_path": "which kernel computes",
    "capturable": "for CUDA's graphs",
    "materialize_master_grads": "there are no master gradients",
    "causal_diagonal": "xformers passes it over too",
    "num_attention_heads": "the tensors say it",
    "kv_channels": "the tensors say it",
    "num_gqa_groups": "the tensors say it",
    "model": "apex looks at it for its own optimizers only",
    "destination": "for modules",
}
# Interpreters, import hooks and what only has to exist.
NO_STAND_INS = ("finder", "libraries", "triton_interpreter", "triton_language", "triton_stub")


def passed_over() -> Iterator[tuple[str, str]]:
    """Functions of stand-ins that programs call, and parameters that their code never reads."""
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem in NO_STAND_INS:
            continue
        for scope in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for function in scope.body if isinstance(scope, (ast.Module, ast.ClassDef)) else ():
                if isinstance(function, ast.FunctionDef) and not _is_inner(function):
                    owner = f"{scope.name}." if isinstance(scope, ast.ClassDef) else ""
                    read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
                    every = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
                    unread = [each.arg for each in every if each.arg not in read and each.arg not in ("self", "cls")]
                    yield from ((f"{path.stem}.{owner}{function.name}", name) for name in unread)


def _is_inner(function: ast.FunctionDef) -> bool:
    """A helper, or the method of a mask, which all masks have with the same parameters."""
    return function.name in ("options", "inside") or (function.name.startswith("_") and function.name != "__init__")


@pytest.mark.parametrize(("function", "parameter"), sorted(passed_over()))
def test_what_is_passed_over_changes_no_result(function: str, parameter: str) -> None:
    assert parameter in PASSED_OVER, f"{function} takes {parameter} and does nothing with it"


def test_no_reason_is_left_over() -> None:
    assert set(PASSED_OVER) == {parameter for _, parameter in passed_over()}


@pytest.mark.parametrize(
    ("kind", "keeps"), [(apex.FusedSGD, True), (apex.FusedAdagrad, False), (apex.FusedAdam, False)]
)
@pytest.mark.parametrize("asked", [None, False, True])
def test_gradients_are_zeroed_as_asked(kind: type[torch.optim.Optimizer], keeps: bool, asked: bool | None) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    options = {} if asked is None else {"set_grad_none": asked}
    optimizer = kind([weight], lr=0.1, **options)
    weight.sum().backward()
    optimizer.zero_grad()
    expected = keeps if asked is None else not asked
    assert (weight.grad is not None) == expected
    optimizer.zero_grad(set_to_none=True)
    assert weight.grad is None
