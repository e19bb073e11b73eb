"""Whatever is passed as a device, and however: where plain torch refuses the request, the same refusal comes out.

`make fuzz` runs this with many more examples.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import torchdevice
from tests.hardening.junk import TARGETS, TYPES, Call, anything
from torchdevice.policy.hosts import this_host
from torchdevice.policy.resolve import parse, resolve

EXAMPLES = int(os.environ.get("TORCHDEVICE_FUZZ_EXAMPLES", "60"))
CASES = [(path, shape) for path, shapes in TARGETS.items() for shape in shapes]
thorough = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def outcome(call: Call, function: Any, device: Any) -> tuple[str, Any]:
    """What came out: a value, or the type and the text of an exception."""
    try:
        return "value", call(function, device)
    except Exception as error:
        return type(error).__name__, str(error)


def names_its_arguments(text: str) -> bool:
    """Messages that repeat how the function was called: there a redirected device is seen as what it became."""
    return any(
        words in text for words in ("combination of arguments", "must be torch.device", "multiple values", "descriptor")
    )


def means_something_here(path: str, device: Any) -> bool:
    """`cpu:-1` is the override. `.cuda(device)`: a `torch.device("cuda")` is another one's here, and must be taken."""
    try:
        text = device.decode() if isinstance(device, bytes) else str(device)
    except ValueError:  # a number of too many digits
        return False
    return text == "cpu:-1" or (path == "torch.Tensor.cuda" and text.partition(":")[0] in TYPES)


def is_somewhere_else(error: tuple[str, Any]) -> bool:
    """Plain torch took the request and found no such device: exactly what translation is for."""
    kind, text = error
    if kind == "ModuleNotFoundError":  # torch.privateuseone
        return True
    return kind in ("AssertionError", "RuntimeError", "NotImplementedError", "AcceleratorError") and any(
        words in str(text)
        for words in (
            "not compiled with",
            "not linked with support",
            "Cannot access",
            "Could not run",
            "generator without",
            "support getNewGenerator",
            "backend",
            "device_count",
        )
    )


@pytest.fixture(autouse=True, scope="module")
def _active():
    with torchdevice.redirect(target="cpu"):
        yield


@pytest.mark.parametrize(("path", "shape"), CASES, ids=["-".join(case) for case in CASES])
@thorough
@given(device=anything)
def test_refusals_are_torch_s_own(path: str, shape: str, device: Any) -> None:
    call = TARGETS[path][shape]
    with torchdevice.suspended():
        plain = outcome(call, torchdevice.original(path), device)
    ours = outcome(call, _current(path), device)
    if plain[0] == "value":
        assert ours[0] == "value", f"plain torch accepts {device!r}, and we raise {ours}"
        assert type(ours[1]) is type(plain[1])
    elif not is_somewhere_else(plain) and not means_something_here(path, device):
        assert ours[0] == plain[0], f"{device!r}: {ours} instead of {plain}"
        if not names_its_arguments(plain[1]):
            assert ours[1] == plain[1], f"{device!r}: {ours} instead of {plain}"


def _current(path: str) -> Any:
    found: Any = torch
    for name in path.split(".")[1:]:
        found = getattr(found, name)
    return found


@thorough
@given(device=anything, policy=st.sampled_from(["accelerate", "portable"]), override=st.booleans())
def test_the_policy_never_fails_and_never_invents(device: Any, policy: str, override: bool) -> None:
    try:
        request = parse(device)
    except (TypeError, ValueError, RuntimeError):  # torch's own: its numbers of devices end at 127
        return
    decision = resolve(request, this_host(), policy, override)  # type: ignore[arg-type]
    elsewhere = torchdevice.explain(device, host="mps", policy=policy, override=override)
    assert decision.device.type in ("cpu", "meta")
    assert elsewhere.device.type in ("mps", "cpu", "meta")
