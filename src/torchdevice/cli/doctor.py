"""`torchdevice doctor`: runs the checks in the order of `CHECKS` and prints them. The exit status is 1 if one fails."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points, version

from torchdevice import __version__
from torchdevice.cli.parsing import Parser
from torchdevice.config import SETTINGS, cache_folder, resolve_config, switched_on
from torchdevice.environment import environment
from torchdevice.errors import ConfigError
from torchdevice.printable import printable

OK, WARN, FAIL = "ok", "warn", "fail"
SMOKE_SECONDS = 300


@dataclass(frozen=True)
class Check:
    """The result of one check. `fix` says what to do if the status is not `ok`."""

    name: str
    status: str
    detail: str
    fix: str = ""


def python() -> Iterator[Check]:
    """The interpreter and where it runs."""
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield Check("python", OK, detail)


def torch_build() -> Iterator[Check]:
    """The installed torch and what it was built for."""
    try:
        import torch
    except ImportError as error:
        yield Check("torch", FAIL, f"cannot be imported: {error}", "install torch 2.9 or newer for this Python")
        return
    from torchdevice._torch.core import TESTED_RELEASES, torch_release

    detail = f"{torch.__version__} ({f'CUDA {torch.version.cuda}' if torch.version.cuda else 'built without CUDA'})"
    tested = [".".join(map(str, release)) for release in TESTED_RELEASES]
    if torch_release() < TESTED_RELEASES[0]:
        yield Check("torch", FAIL, detail, f"torch {tested[0]} or newer is needed")
    elif torch_release() not in TESTED_RELEASES:
        yield Check(
            "torch",
            WARN,
            f"{detail}: not tested with this version; tested: {', '.join(tested)}",
            "it may work: a function that TorchDevice does not know raises an error with its name; "
            "a virtual device tests itself before use",
        )
    else:
        yield Check("torch", OK, detail)


def questions() -> Iterator[Check]:
    """Functions of torch._C that this torch calls and that have no row, for a torch newer than the table of rows."""
    from torchdevice.answers.asked import asked_names, unanswered_names

    missing = unanswered_names()
    if missing:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        yield Check(
            "answers",
            WARN,
            f"this torch uses {len(missing)} names of torch._C that TorchDevice does not know: {shown}",
            "a call that needs one raises an error with its name; use a tested version of torch, or report it",
        )
    else:
        yield Check("answers", OK, f"all {len(asked_names())} names of torch._C that torch uses for devices are known")


def accelerators() -> Iterator[Check]:
    """The accelerator that requests go to."""
    from torchdevice.policy.hosts import this_host

    host = this_host()
    if host.accelerated:
        yield Check("accelerator", OK, f"{host.type}, {host.count} device{'s' if host.count > 1 else ''}")
    else:
        yield Check("accelerator", OK, "none: programs run on the CPU")


def installation() -> Iterator[Check]:
    """`import torch` finds TorchDevice by an entry point. Without it child processes are not translated."""
    found = _entry_points()
    if found:
        yield Check("installed", OK, f"torchdevice {__version__}, entry point {found[0]}")
    else:
        yield Check(
            "installed",
            FAIL,
            f"torchdevice {__version__} is importable but not installed: only `torchdevice run` works",
            "install it with pip in this environment",
        )


def _entry_points() -> list[str]:
    return [point.value for point in entry_points(group="torch.backends") if point.value.startswith("torchdevice.")]


def settings() -> Iterator[Check]:
    """Variables with invalid values, and variables that prevent translation."""
    try:
        switched_on("TORCHDEVICE")
        config = resolve_config()
        cache_folder()
    except ConfigError as error:
        asked, _, hint = str(error).partition("\nHint: ")
        yield Check("settings", FAIL, asked, hint)
        return
    given = [setting.variable for setting in SETTINGS if environment().get(setting.variable)]
    yield Check(
        "settings", OK, f"target={config.target}, policy={config.policy}" + f" ({', '.join(given)})" * bool(given)
    )
    for name, applies, detail, fix in CONFLICTS:
        value = os.environ.get(name)
        if value is not None and applies(value):
            yield Check(name, WARN, f"{name}={value}: {detail}", fix)


# variable, when it matters, what it does, what to do
CONFLICTS: tuple[tuple[str, Callable[[str], bool], str, str], ...] = (
    (
        "PYTORCH_ENABLE_MPS_FALLBACK",
        lambda value: value not in ("", "0"),
        "torch itself runs operators that MPS lacks on the CPU, and reports do not show it",
        "unset it",
    ),
    (
        "CUDA_VISIBLE_DEVICES",
        lambda value: value.strip() in ("", "-1"),
        "CUDA devices are hidden, so programs do not run on them",
        "unset it to compute on CUDA",
    ),
    (
        "TORCH_DEVICE_BACKEND_AUTOLOAD",
        lambda value: value == "0",
        "`import torch` loads no extensions, so TORCHDEVICE=1 does nothing",
        "unset it, or use `torchdevice run`, which sets it to 1",
    ),
    (
        "TORCHDEVICE_ENABLED",
        lambda value: value.strip().lower() in ("0", "false", "no", "off", ""),
        "translation is switched off",
        "unset it",
    ),
)


def translation() -> Iterator[Check]:
    """Run a program that requests a missing device, also in its child process."""
    if not _entry_points():  # `import torch` would not load TorchDevice; `installation` has reported it
        return
    from torchdevice.policy.hosts import this_host

    missing = "mps" if this_host().type == "cuda" else "cuda"
    code = (
        "import torch, torch.multiprocessing as mp\n"
        f"a = torch.ones(2, device={missing!r}) + 1\n"
        f"b = mp.get_context('spawn').Pool(1).apply(torch.ones, (2,), {{'device': {missing!r}}})\n"
        "assert a.tolist() == [2.0, 2.0] and b.tolist() == [1.0, 1.0]\n"
        "print(a.device)"
    )
    yield _smoke("translation", code, {"TORCHDEVICE": "1"}, f"{missing} → {{}}, also in a child process")


def virtual() -> Iterator[Check]:
    """The compiler, the library, a program on a virtual device, and one that needs a fallback there."""
    from torchdevice.virtual import info

    facts = info()
    if facts["compiler"] is None:
        yield Check(
            "compiler",
            WARN,
            "no C++ compiler: virtual devices cannot be built",
            "install g++ or clang++ (xcode-select --install on macOS), only if you need virtual devices",
        )
    else:
        yield Check("compiler", OK, facts["compiler_version"])
    if not facts["built"]:
        yield Check("virtual devices", WARN, "not built yet", "torchdevice virtual build (once, about a minute)")
        return
    if not _entry_points():  # `import torch` would not install a virtual device
        return
    code = "import torch\nx = torch.ones(2, device='mps') + 1\nassert x.tolist() == [2.0, 2.0]\nprint(x.device)"
    yield _smoke("virtual devices", code, {"TORCHDEVICE_VIRTUAL": "mps"}, "a virtual {} computes")
    settings = {"TORCHDEVICE": "1", "TORCHDEVICE_VIRTUAL": "mps:real"}
    found = _smoke("fallbacks", FALL_BACK, settings, "{}")
    if found.status is not OK or found.detail:
        yield found


# Which operators MPS lacks depends on torch: the first of them that takes one tensor is called.
FALL_BACK = """
import torch, torchdevice
for name, route in torchdevice.fallback.matrix().rows.items():
    short = name.removeprefix("aten::")
    if route not in ("cpu", "mlx") or short.startswith("_") or "." in short:
        continue
    operator = getattr(torch.ops.aten, short).default
    schema = operator._schema
    required = [str(each.type) for each in schema.arguments if not each.has_default_value()]
    returned = [str(each.type) for each in schema.returns]
    if schema.is_mutable or required != ["Tensor"] or returned != ["Tensor"]:
        continue
    if torch.Tag.nondeterministic_seeded in operator.tags:
        continue
    with torchdevice.suspended():
        expected = operator(torch.eye(2))
    result = operator(torch.eye(2, device="mps"))
    ran = torchdevice.report().fallbacks
    if ran:
        assert result.device.type == "mps"
        with torchdevice.suspended():
            torch.testing.assert_close(result.cpu(), expected, equal_nan=True)
        print(f"{short}, which mps lacks, ran on {ran[0].executor}")
        break
"""


def packages() -> Iterator[Check]:
    """Packages with their own CUDA kernels: which are installed, and which have a stand-in."""
    from torchdevice.packages.table import PACKAGES

    here = [name for name in PACKAGES if importlib.util.find_spec(name) is not None]
    missing = ", ".join(name for name in PACKAGES if name not in here)
    installed = f"{', '.join(here)} installed; " if here else ""
    yield Check("packages", OK, f"{installed}stand-ins under `torchdevice run` for {missing or 'none'}")


def mlx() -> Iterator[Check]:
    """MLX, which is optional: it can run operators that MPS lacks."""
    if importlib.util.find_spec("mlx") is None:
        yield Check("mlx", OK, "not installed (optional)")
        return
    try:
        import mlx.core as core

        worked = core.add(core.array([1.0]), core.array([1.0])).tolist() == [2.0]
    except (ImportError, RuntimeError) as error:
        yield Check("mlx", WARN, f"installed but does not work: {error}", "reinstall mlx, or remove it")
        return
    yield Check("mlx", OK if worked else FAIL, f"{version('mlx')} computes", "" if worked else "reinstall mlx")


def _smoke(name: str, code: str, environment: dict[str, str], detail: str) -> Check:
    """Run a few lines in a fresh process; its last line of output completes `detail`."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("TORCHDEVICE")}
    kept = {key: value for key in ("TORCHDEVICE_CACHE",) if (value := os.environ.get(key))}
    settings = clean | kept | environment | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=settings,
            timeout=SMOKE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Check(
            name,
            FAIL,
            f"a small program did not end in {SMOKE_SECONDS} s",
            "report it with the output of: torchdevice env",
        )
    if done.returncode == 0:
        return Check(name, OK, detail.format((done.stdout.strip().splitlines() or [""])[-1]))
    said = done.stderr.strip().splitlines() or ["no message"]
    # A message can have several lines; the first one says what happened.
    raised = [line for line in said if re.match(r"[\w.]+(Error|Exception): ", line)] or said
    return Check(name, FAIL, f"a small program failed: {raised[-1]}", "report it with the output of: torchdevice env")


CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (
    python,
    torch_build,
    questions,
    accelerators,
    installation,
    settings,
    translation,
    virtual,
    packages,
    mlx,
)

MARKS = {OK: "✓", WARN: "!", FAIL: "✗"}


def parser() -> Parser:
    """`--json` only."""
    parser = Parser(
        "doctor",
        "Check this installation: versions, accelerators, settings, and a small program for each mechanism.\n"
        "✓ works, ! works with a warning, ✗ does not work. The exit status is 1 if there is a ✗.",
        ["torchdevice doctor", "torchdevice doctor --json"],
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def main(words: Sequence[str]) -> int:
    """Print each result as soon as it is known."""
    options = parser().parse_args(words)
    found: list[Check] = []
    for check in findings():
        found.append(check)
        if not options.json:
            print(f"{MARKS[check.status]} {check.name:<16} {printable(check.detail)}", flush=True)
            if check.fix:
                print(f"  {'':<16} fix: {printable(check.fix)}", flush=True)
    failed = any(check.status == FAIL for check in found)
    if options.json:
        print(json.dumps({"schema": 1, "ok": not failed, "checks": [dataclasses.asdict(c) for c in found]}, indent=2))
    return 1 if failed else 0


def findings() -> Iterator[Check]:
    """The results of all checks; without torch, of those that do not need it."""
    for check in CHECKS:
        for found in check():
            yield found
            if found.name == "torch" and found.status == FAIL:
                return
