"""Starting and ending: torch comes back by identity, settings are checked, threads and nesting are safe."""

from __future__ import annotations

import gc
import importlib
import itertools
import logging
import threading
import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchdevice
from torchdevice import translate
from torchdevice.config import Config
from torchdevice.session import session

OWNERS = (
    "torch",
    "torch.Tensor",
    "torch.nn.Module",
    "torch.cuda",
    "torch.storage",
    "torch.storage.UntypedStorage",
    "torch.storage.TypedStorage",
    "torch.utils.data",
    "torch.utils.data.dataloader",
    "torch.utils.data.dataset",
    "torch.utils.data._utils.worker",
    "torch.serialization",
    "torch.random",
    "torch.amp",
    "torch.amp.autocast_mode",
    "torch.amp.autocast_mode.autocast",
    "torch.amp.grad_scaler.GradScaler",
    "torch.jit",
    "torch.fft",
    "torch.nested",
    "torch.nn.utils.rnn",
    "torch.nn.utils.rnn.PackedSequence",
)


def snapshot() -> dict[str, tuple[Any, bool]]:
    """Every attribute of every owner: the object, and whether it is the owner's own entry."""
    seen = {}
    for path in OWNERS:
        owner = translate.points.resolve_path(path)
        for name in dir(owner):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = vars(owner).get(name, getattr(owner, name, None))
            seen[f"{path}.{name}"] = (value, name in vars(owner))
    return seen


def differences(before: dict[str, tuple[Any, bool]], after: dict[str, tuple[Any, bool]]) -> list[str]:
    # Methods and module attributes made on access (`__getattr__`, bound methods) have no identity to keep.
    return [
        name
        for name in before.keys() | after.keys()
        if name not in before
        or name not in after
        or before[name][1] != after[name][1]
        or (before[name][1] and before[name][0] is not after[name][0])
    ]


def test_importing_changes_nothing(python: Callable[..., Any]) -> None:
    python(
        "import torch; zeros, device = torch.zeros, torch.device\n"
        "import torchdevice\n"
        "assert torch.zeros is zeros and torch.device is device"
    )


def test_deactivate_restores_every_object_by_identity() -> None:
    before = snapshot()
    torchdevice.activate(target="cpu")
    changed = differences(before, snapshot())
    torchdevice.deactivate()
    assert {"torch.zeros", "torch.device", "torch.Tensor.to", "torch.nn.Module.to"} <= set(changed)
    assert differences(before, snapshot()) == []


def test_functions_without_a_device_are_the_original_objects(active: None) -> None:
    names = ("torch.add", "torch.matmul", "torch.Tensor.add", "torch.nn.functional.linear", "torch.stack")
    with torchdevice.suspended():
        assert not any(torchdevice.is_patched(name) for name in names)
    assert all(torchdevice.original(name) is translate.points.resolve_path(name) for name in names)


@pytest.mark.long
def test_a_thousand_cycles_leak_nothing() -> None:
    def cycle() -> None:
        torchdevice.activate(target="cpu")
        torch.zeros(1, device="cuda")
        torchdevice.deactivate()

    def cycles(number: int) -> tuple[int, int]:
        for _ in range(number):
            cycle()
        gc.collect()
        return len(gc.get_objects()), tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    seen = [cycles(number) for number in (50, 250, 250, 250, 250)]
    tracemalloc.stop()
    assert seen[-1][0] - seen[0][0] < 200
    # What leaks grows in every part; a dictionary of torch's that finds a new size does so in one.
    assert min(after - before for (_, before), (_, after) in itertools.pairwise(seen)) < 12_500


def test_both_are_idempotent_and_other_settings_are_refused() -> None:
    torchdevice.deactivate()
    torchdevice.activate(target="cpu", policy="portable")
    torchdevice.activate(target="cpu", policy="portable")
    with pytest.raises(torchdevice.AlreadyActive, match=r"policy='portable' \(argument\)[\s\S]*Hint:"):
        torchdevice.activate(target="cpu", policy="accelerate")
    assert torchdevice.is_active()
    torchdevice.deactivate()
    torchdevice.deactivate()
    assert not torchdevice.is_active()


OTHER_SETTINGS = {
    "TORCHDEVICE_POLICY": ("portable", "policy='portable'"),
    "TORCHDEVICE_FALLBACK": ("off", "fallback='off'"),
    "TORCHDEVICE_FLOAT64": ("error", "float64='error'"),
    "TORCHDEVICE_ON_OOM": ("raise", "on_oom='raise'"),
    "TORCHDEVICE_PLACE": ("free", "place='free'"),
    "TORCHDEVICE_DEVICE_COUNT": ("3", "device_count=3"),
    "TORCHDEVICE_MASQUERADE": ("0", "masquerade=False"),
    "TORCHDEVICE_PACKAGES": ("1", "packages=True"),
    "TORCHDEVICE_MPS_WORKAROUNDS": ("0", "mps_workarounds=False"),
    "TORCHDEVICE_LOG_LEVEL": ("ERROR", "log_level='ERROR'"),
}


@pytest.mark.parametrize("variable", OTHER_SETTINGS)
def test_every_setting_that_differs_is_refused_by_name(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value, named = OTHER_SETTINGS[variable]
    torchdevice.activate()
    monkeypatch.setenv(variable, value)
    with pytest.raises(torchdevice.AlreadyActive) as refused:
        torchdevice.activate()
    assert f"activation with {named} was requested" in str(refused.value)
    assert f"already active with {named.partition('=')[0]}=" in str(refused.value)
    torchdevice.deactivate()
    torchdevice.activate()


def test_every_setting_is_compared() -> None:
    compared = {"target"} | {named.partition("=")[0] for _, named in OTHER_SETTINGS.values()}
    assert compared == Config().all_sources().keys() - {"enabled"}


@pytest.mark.parametrize(
    ("settings", "error", "named"),
    [
        ({"policy": "fast"}, torchdevice.ConfigError, "accelerate, portable"),
        ({"target": "banana"}, torchdevice.ConfigError, "auto, cpu"),
        ({"target": "cuda:1"}, torchdevice.ConfigError, "auto, cpu"),
        ({"target": "meta"}, torchdevice.ConfigError, "auto, cpu"),
        ({"target": "hpu"}, torchdevice.TargetUnavailable, "virtual"),
    ],
)
def test_a_failed_activation_leaves_torch_untouched(
    settings: dict[str, str], error: type[Exception], named: str
) -> None:
    before = snapshot()
    with pytest.raises(error, match=named) as raised:
        torchdevice.activate(**settings)
    assert "Hint:" in str(raised.value)
    assert differences(before, snapshot()) == []
    assert not torchdevice.is_active()


def test_an_error_halfway_takes_back_what_was_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot()
    chosen = session._replacements.select

    def broken(*conditions: bool) -> Any:
        yield from chosen(*conditions)
        raise OSError("out of luck")

    monkeypatch.setattr(session._replacements, "select", broken)
    with pytest.raises(OSError, match="out of luck"):
        torchdevice.activate(target="cpu")
    assert differences(before, snapshot()) == []


def test_activating_from_many_threads_is_safe() -> None:
    before = snapshot()
    errors = []

    def work() -> None:
        try:
            for _ in range(20):
                torchdevice.activate(target="cpu")
                assert torch.zeros(1, device="cpu").is_cpu
                torchdevice.deactivate()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torchdevice.deactivate()
    assert errors == []
    assert differences(before, snapshot()) == []


def test_redirect_restores_what_was_before() -> None:
    with torchdevice.redirect(target="cpu", policy="portable"):
        assert torchdevice.status().policy == "portable"
        with torchdevice.redirect(target="cpu", policy="accelerate"):
            assert torchdevice.status().policy == "accelerate"
        assert torchdevice.status().policy == "portable"
        with pytest.raises(torchdevice.ConfigError), torchdevice.redirect(target="banana"):
            pass
        assert torchdevice.status().policy == "portable"
    assert not torchdevice.is_active()


def test_enabled_0_wins_over_activate_and_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDEVICE_ENABLED", "0")
    torchdevice.activate()
    with torchdevice.redirect(policy="portable"):
        assert not torchdevice.is_active()
        assert type(torch.zeros) is type(torch.add)
    assert not torchdevice.is_active()


def test_status_tells_where_every_setting_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDEVICE_FLOAT64", "cpu")
    monkeypatch.setenv("TORCHDEVICE_MASQUERADE", "1")
    with torchdevice.redirect(target="cpu"):
        sources = dict(torchdevice.status().sources)
    assert sources.pop("target") == "argument"
    assert sources.pop("float64") == "TORCHDEVICE_FLOAT64"
    assert sources.pop("masquerade") == "TORCHDEVICE_MASQUERADE"
    rest = ("policy", "log_level", "fallback", "on_oom", "place", "device_count", "enabled", "packages")
    assert sources == dict.fromkeys((*rest, "mps_workarounds"), "default")


def test_redirect_decorates() -> None:
    @torchdevice.redirect(target="cpu")
    def make() -> torch.Tensor:
        return torch.zeros(1, device="cuda")

    assert make().is_cpu
    assert make().is_cpu
    assert not torchdevice.is_active()


def test_suspended_is_real_torch_in_this_thread_only(active: None) -> None:
    results: list[object] = []

    def other() -> None:
        results.append(torch.zeros(1, device="cuda").device)

    with torchdevice.suspended():
        assert torch.device("cuda").type == "cuda"
        with pytest.raises(RuntimeError, match="Invalid device string: 'cpu:-1'"):
            torch.device("cpu:-1")
        with pytest.raises((AssertionError, RuntimeError)):
            torch.zeros(1, device="cuda")
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert results == [torch.device("cpu")]
    assert torch.device("cuda").type == "cpu"


def test_held_wrappers_go_silent_and_wake_up_again(active: None) -> None:
    zeros, device = torch.zeros, torch.device
    torchdevice.deactivate()
    assert device("cuda").type == "cuda"
    with pytest.raises((AssertionError, RuntimeError)):
        zeros(1, device="cuda")
    torchdevice.activate(target="cpu")
    assert zeros(1, device="cuda").is_cpu


def test_what_somebody_else_patched_since_is_left_alone() -> None:
    torchdevice.activate(target="cpu")
    ours, real = torch.ones, torchdevice.original("torch.ones")
    torch.ones = theirs = lambda *args, **kwargs: ours(*args, **kwargs)
    try:
        with pytest.warns(torchdevice.TorchDeviceWarning, match=r"torch\.ones"):
            torchdevice.deactivate()
        assert torch.ones is theirs
        assert torchdevice.status().lost == ("torch.ones",)
    finally:
        torch.ones = real


def test_status_and_report_tell_where_and_how_often(active: None) -> None:
    for _ in range(3):
        torch.zeros(1, device="cuda:1")
    torch.zeros(1).cuda()
    status, report = torchdevice.status(), torchdevice.report()
    assert (status.active, status.target, status.policy, status.override) == (True, "cpu", "accelerate", False)
    assert status.sources["target"] == "argument"
    assert "torch.zeros" in status.patched
    assert (status.redirected_calls, status.redirected_places) == (4, 2)
    first = report.rows[0]
    assert (first.api, first.asked, first.given, first.calls, first.places) == ("torch.zeros", "cuda:1", "cpu", 3, 1)
    assert first.first.file == __file__
    assert "cuda → cpu" in report.summary()
    assert "4 calls redirected at 2 places" in str(report)


def test_counts_are_exact_across_threads(active: None) -> None:
    def work() -> None:
        for _ in range(2000):
            torch.device("cuda")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torchdevice.report().calls == 16_000
    assert torchdevice.report().calls == 16_000


def test_each_place_is_logged_once_at_info(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDEVICE_LOG_LEVEL", "INFO")
    with caplog.at_level(logging.INFO, logger="torchdevice"), torchdevice.redirect(target="cpu"):
        for _ in range(5):
            torch.zeros(1, device="cuda")
    assert len(caplog.records) == 1
    assert f"{__file__}:" in caplog.text
    assert "cuda" in caplog.text


def test_debug_also_logs_the_settings_and_their_sources(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHDEVICE_LOG_LEVEL", "DEBUG")
    monkeypatch.setenv("TORCHDEVICE_POLICY", "portable")
    with caplog.at_level(logging.DEBUG, logger="torchdevice"), torchdevice.redirect(target="cpu"):
        torch.zeros(1, device="cuda")
        replaced = len(torchdevice.status().patched)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert "target = cpu (argument)" in said
    assert "policy = portable (TORCHDEVICE_POLICY)" in said
    assert f"requests for other devices go to cpu; {replaced} functions of torch are replaced" in said
    assert [record.levelno for record in caplog.records].count(logging.INFO) == 1


def test_nothing_is_printed_where_nothing_is_redirected(python: Callable[..., Any]) -> None:
    done = python("import TorchDevice, torch; torch.zeros(2, device='meta')")
    assert (done.stdout, done.stderr) == ("", "")


def test_children_inherit_by_environment(python: Callable[..., Any]) -> None:
    child = "import torch; print(torch.zeros(1, device=chr(99) + 'uda').device)"
    done = python(
        "import subprocess, sys, torchdevice; torchdevice.activate()\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    )
    assert done.stdout == "cpu\n"


def test_one_line_activation(python: Callable[..., Any]) -> None:
    assert python("import TorchDevice, torch; print(torch.zeros(2, device='cuda:3').device)").stdout == "cpu\n"


def test_a_bad_variable_breaks_activate_but_not_the_import(python: Callable[..., Any]) -> None:
    done = python("import torchdevice; torchdevice.activate()", check=False, TORCHDEVICE_POLICY="fast")
    assert "ConfigError" in done.stderr
    done = python("import TorchDevice, torch; print(torch.zeros(2, device='cuda').device)", TORCHDEVICE_POLICY="fast")
    assert done.stdout == "cpu\n"
    assert done.stderr.count("TORCHDEVICE_POLICY='fast'") == 1


def test_autoload(python: Callable[..., Any]) -> None:
    code = "import torch; print(torch.device('cuda').type)"
    assert python(code).stdout == "cuda\n"
    assert python(code, TORCHDEVICE="1").stdout == "cpu\n"
    assert python(code, TORCHDEVICE="1", TORCHDEVICE_ENABLED="0").stdout == "cuda\n"
    assert python(code, TORCH_ALLOW_REDIRECTS="True").stdout == "cpu\n"
    assert python(code, TORCH_ALLOW_REDIRECTS="true", TORCHDEVICE="0").stdout == "cuda\n"
    assert python(code, TORCH_ALLOW_REDIRECTS="true", TORCHDEVICE_ENABLED="0").stdout == "cuda\n"
    assert python(code, TORCH_ALLOW_REDIRECTS="false").stdout == "cuda\n"
    broken = python(code, TORCHDEVICE="1", TORCHDEVICE_TARGET="banana")
    assert broken.stdout == "cuda\n"
    assert broken.stderr.count("torchdevice is off in this process") == 1


def test_importing_the_package_is_light(python: Callable[..., Any]) -> None:
    loaded = python("import sys, torch; print(*sorted(name for name in sys.modules if name.startswith('torchdevice')))")
    assert loaded.stdout.split() == ["torchdevice", "torchdevice.autoload"]


def test_public_names_resolve() -> None:
    package = importlib.import_module("torchdevice")
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError):
        package.nonsense  # noqa: B018


def test_importing_it_with_other_settings_keeps_what_runs(python: Callable[..., Any]) -> None:
    done = python(
        "import os, torchdevice; torchdevice.activate(); os.environ['TORCHDEVICE_LOG_LEVEL'] = 'ERROR'\n"
        "import TorchDevice; print(torchdevice.is_active())"
    )
    assert done.stdout == "True\n"
    assert "already active" in done.stderr
