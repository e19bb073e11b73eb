"""Every environment variable that TorchDevice reads or sets: a table, for the page of `tools.docs.reference`."""
# ruff: noqa: E501 - rows and paragraphs of Markdown

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from torchdevice import config
from torchdevice.reporting.destinations import REPORT
from torchdevice.reporting.spool import RUN
from torchdevice.virtual.installer import LIMIT_VARIABLE


@dataclass(frozen=True)
class Variable:
    """An environment variable: what it may be, what it is unless it is set, one example, and what it does."""

    name: str
    values: str
    default: str
    example: str
    meaning: str


def _setting(field: str, example: str, meaning: str, values: str = "") -> Variable:
    """A variable whose values and default are in the tables of `config`."""
    (row,) = (setting for setting in config.SETTINGS if setting.field == field)
    default = next(each.default for each in dataclasses.fields(config.Config) if each.name == field)
    return Variable(
        row.variable, values or ", ".join(f"`{value}`" for value in row.allowed), f"`{default}`", example, meaning
    )


VARIABLES = (
    Variable("TORCHDEVICE", "switch", "`0`", "1", "Activates translation at `import torch`."),
    Variable(
        "TORCH_ALLOW_REDIRECTS",
        "`true`",
        "not set",
        "true",
        "Does the same where `TORCHDEVICE` is not set. Other values do nothing.",
    ),
    Variable(
        "TORCHDEVICE_ENABLED",
        "switch",
        "`1`",
        "0",
        "`0` turns everything off, also calls of `activate()`; it wins over all others.",
    ),
    _setting(
        "target",
        "cpu",
        "The device type to compute on. `auto`: the accelerator that is here, else the CPU.",
        "device type",
    ),
    _setting(
        "policy",
        "portable",
        "Which requests are redirected ([policy.md](policy.md)). `torchdevice run` chooses it by the program.",
    ),
    Variable(
        "TORCHDEVICE_VIRTUAL",
        "`DEV[:n][:real][@WHAT]`",
        "not set",
        "cuda:2",
        "Installs virtual devices at `import torch` ([virtual.md](virtual.md)).",
    ),
    Variable(LIMIT_VARIABLE, "size", "no limit", "2GiB", "The memory that each virtual device may hold."),
    _setting("fallback", "off", "What runs operators that the target lacks ([fallback.md](fallback.md))."),
    _setting("float64", "error", "What becomes of float64 where the target has none ([fallback.md](fallback.md))."),
    Variable(
        config.DEVICE_COUNT,
        f"1 … {config.MAX_DEVICES}",
        f"`{config.Config.device_count}`",
        "4",
        "The number of devices that code is told on a host with one device or none.",
    ),
    Variable(
        "TORCHDEVICE_MASQUERADE",
        "switch",
        "`1`",
        "0",
        "`0`: `torch.cuda` and the like give torch's own answers ([masquerade.md](masquerade.md)).",
    ),
    Variable(
        config.PACKAGES,
        "switch",
        "`0`; `1` under `torchdevice run`",
        "1",
        "Stand-ins for packages that compute by CUDA itself ([packages.md](packages.md)).",
    ),
    _setting("log_level", "INFO", "What is logged: at `INFO` each redirected place, once."),
    Variable(
        REPORT,
        "`summary`, `text`, `json:PATH`, `html:PATH`; several with commas",
        "not set",
        "text,html:report.html",
        "Where reports go when the program ends ([cli.md](cli.md#reports)). It needs `TORCHDEVICE=1` or `torchdevice run`.",
    ),
    Variable(config.PROFILE, "switch", "`0`", "1", "Measures time by operator and by line ([cli.md](cli.md#profile))."),
    Variable(
        "TORCHDEVICE_CACHE",
        "absolute path",
        "the platform's folder for caches",
        "/scratch/me/torchdevice",
        "Where built libraries, measurements and notes are kept.",
    ),
)
# `torchdevice run` sets these for the processes of a run.
INHERITED = (
    Variable(RUN, "absolute path", "not set", "", "The folder in which the processes of a run leave their counts."),
    Variable(
        config.RUN_CACHE,
        "absolute path",
        "not set",
        "",
        "The cache as `run` found it: programs change `XDG_CACHE_HOME`.",
    ),
    Variable(config.POLICY_REASON, "text", "not set", "", "Why `run` chose the policy."),
)
# Variable of others → what it does here.
OTHERS = {
    "CUDA_VISIBLE_DEVICES": "CUDA's own: how many devices code is told; none for an empty value and for `-1`.",
    "CXX": "The C++ compiler for virtual devices and `--profile`.",
    "GLOO_SOCKET_IFNAME": "gloo's own: if it is set, `NCCL_SOCKET_IFNAME` is not carried over.",
    "LOCAL_WORLD_SIZE": "torchrun's own: device numbers up to it are accepted.",
    "NCCL_SOCKET_IFNAME": "NCCL's own: gloo is told the same network interface.",
    "NO_COLOR": "If it is set, reports are plain columns on a terminal, too.",
    "PYTHONPATH": "Python's own: `run` adds a checkout that is not installed.",
    "PYTORCH_ENABLE_MPS_FALLBACK": "torch's own: `1` lets a virtual `mps` run on the CPU what a Mac lacks, with torch's warning.",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "torch's own: a virtual `cuda` gives freed memory back at once.",
    "TORCHELASTIC_RESTART_COUNT": "torchrun's own: workers that were restarted do not meet those of before.",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "torch's own: `0` keeps `import torch` from loading TorchDevice.",
    "TRITON_INTERPRET": "Triton's own: if it is not set, translation sets it where there is no NVIDIA GPU.",
    "XDG_CACHE_HOME": "Where caches are kept on Linux, if `TORCHDEVICE_CACHE` is not set.",
    "XDG_DATA_HOME": "Where notes of `torchdevice catalog` are kept on Linux, if `TORCHDEVICE_CACHE` is not set.",
}

SWITCHES = (
    "A switch is on for `1`, `true`, `yes`, `on` and off for `0`, `false`, `no`, `off` and an empty value. Another value of a setting raises "
    "`ConfigError` where code activates translation, and costs one warning at `import torch`. Arguments come before variables, variables "
    "before defaults; `torchdevice.status().sources` tells where each value came from. Under `python -I` and `-E`, and in set-uid programs, no "
    "variable counts."
)


def section() -> Iterator[str]:
    """The part of the page, line by line."""
    yield "## Environment variables\n"
    yield f"{SWITCHES}\n"
    yield "| variable | values | default | example | meaning |"
    yield "| --- | --- | --- | --- | --- |"
    for row in VARIABLES:
        yield f"| `{row.name}` | {row.values} | {row.default} | `{row.name}={row.example}` | {row.meaning} |"
    yield "\n`torchdevice run` sets these for the processes of a run; do not set them yourself:\n"
    yield "| variable | values | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for row in INHERITED:
        yield f"| `{row.name}` | {row.values} | {row.default} | {row.meaning} |"
    yield "\nVariables of others that TorchDevice reads or sets:\n"
    yield "| variable | what it does here |"
    yield "| --- | --- |"
    for name, meaning in OTHERS.items():
        yield f"| `{name}` | {meaning} |"
