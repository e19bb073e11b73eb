"""What the running translator gives is what the policy decides: every request, host, policy, caller and condition."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

from torchdevice._torch.core import TORCH_FOLDER
from torchdevice.policy.hosts import Host
from torchdevice.policy.resolve import Caller, Condition, Decision, parse, resolve
from torchdevice.translate.classes import device_class
from torchdevice.translate.translator import Situation, Translator

STRINGS = ("cpu", "cpu:0", "cpu:3", "mps", "mps:0", "mps:2", "cuda", "cuda:0", "cuda:3", "cuda:9", "xpu", "hpu", "meta")
REQUESTS = (None, "cpu:-1", 0, 1, *STRINGS, *(torch.device(each) for each in STRINGS))
HOSTS = (Host("cpu"), Host("cpu", lost="cuda"), Host("mps"), Host("cuda"), Host("xpu"), Host("cuda", 4, current=2))
FILES = {
    Caller.USER: "user.py",
    Caller.AGENT: f"{TORCH_FOLDER}functional.py",
    Caller.TORCH: f"{TORCH_FOLDER}serialization.py",
    Caller.NAMING: f"{TORCH_FOLDER}serialization.py",
}
HOST = pytest.mark.parametrize("host", HOSTS, ids=str)
POLICY = pytest.mark.parametrize("policy", ["accelerate", "portable"])


@pytest.fixture
def translator(host: Host, policy: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Translator]:
    """One of its own; no device is made, so the host need not exist."""
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: host.current)
    made = Translator()
    made.start(Situation(host, policy))
    yield made
    made.stop()


def called_from(file: str, call: Any, asked: Any) -> Iterator[Any]:
    """The results of two calls at one place: decided, then remembered."""
    code = compile("call(asked)", file, "eval")
    return (eval(code, {"call": call, "asked": asked}) for _ in range(2))


def holding(translator: Translator, override: bool, default: bool) -> AbstractContextManager[Any]:
    stack = contextlib.ExitStack()
    if override:
        stack.enter_context(translator.override.scope())
    if default:
        stack.enter_context(torch.device("meta"))
    return stack


def outcome(decision: Decision, asked: Any) -> Any:
    return decision.device if decision.redirected or asked == "cpu:-1" else asked


@HOST
@POLICY
def test_what_is_given_is_what_is_decided(host: Host, policy: str, translator: Translator) -> None:
    for asked, caller, override, default in itertools.product(REQUESTS, Caller, (False, True), (False, True)):
        decision = resolve(parse(asked), host, policy, override, caller, default)
        with holding(translator, override, default):
            naming = caller is Caller.NAMING
            ask = functools.partial(translator.translate, api="torch.zeros", depth=0, naming=naming)
            for given in called_from(FILES[caller], ask, asked):
                assert given == outcome(decision, asked), (asked, caller, override, default, decision)
        translator.override.reset()  # by `cpu:-1`
    redirections = {record.reason for record in translator.ledger.totals()}
    assert redirections <= {
        resolve(parse(asked), host, policy, caller=caller).reason for asked in REQUESTS for caller in Caller
    }


@HOST
@POLICY
def test_devices_that_are_only_named(host: Host, policy: str, translator: Translator) -> None:
    stands_for_device = device_class(torch.device, "torch.device", translator)
    for asked, caller, override in itertools.product(STRINGS, (Caller.USER, Caller.NAMING), (False, True)):
        decision = resolve(parse(asked), host, policy, override, caller)
        with holding(translator, override, default=False):
            for made in called_from(FILES[caller], stands_for_device, asked):
                assert made == decision.device, (asked, caller, override, decision)


@HOST
@POLICY
def test_settled_requests_are_those_that_nobody_and_nothing_redirects(
    host: Host, policy: str, translator: Translator
) -> None:
    settled = {asked: given for asked, given in translator.settled.items() if not isinstance(asked, torch.dtype)}
    for asked, given in settled.items():
        for caller, override, default in itertools.product(Caller, (False, True), (False, True)):
            decision = resolve(parse(asked), host, policy, override, caller, default)
            assert not decision.redirected
            assert given == (None if asked is None else decision.device)
    assert (None in settled) is not translator.fills


@HOST
@POLICY
def test_a_condition_is_named_by_the_decisions_that_it_would_change(host: Host, policy: str) -> None:
    for asked, caller in itertools.product(REQUESTS, Caller):
        request = parse(asked)
        plain = resolve(request, host, policy, caller=caller)
        changed = {
            Condition.OVERRIDE: resolve(request, host, policy, override=True, caller=caller) != plain,
            Condition.DEFAULT: resolve(request, host, policy, default=True, caller=caller) != plain,
        }
        assert [condition for condition, changes in changed.items() if changes] == (
            [] if plain.unless is None else [plain.unless]
        )
