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
    """An environment variable: its values, its default, an example, and what it does."""

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
        "Does the same if `TORCHDEVICE` is not set. Other values have no effect.",
    ),
    Variable(
        "TORCHDEVICE_ENABLED",
        "switch",
        "`1`",
        "0",
        "`0` turns everything off, also calls of `activate()`. It overrides all other variables.",
    ),
    _setting(
        "target",
        "cpu",
        "The device type to compute on. `auto`: the accelerator of this machine, else the CPU.",
        "device type",
    ),
    _setting(
        "policy",
        "portable",
        "Which requests are redirected ([policy.md](policy.md)). `torchdevice run` selects it by reading the program.",
    ),
    Variable(
        "TORCHDEVICE_VIRTUAL",
        "`DEV[:n][:real][@WHAT]`",
        "not set",
        "cuda:2",
        "Installs virtual devices at `import torch` ([virtual.md](virtual.md)).",
    ),
    Variable(LIMIT_VARIABLE, "size", "no limit", "2GiB", "The memory limit of each virtual device."),
    _setting("fallback", "off", "Where operators that the target lacks run ([fallback.md](fallback.md))."),
    _setting("on_oom", "cpu", "What happens if the target is out of memory ([memory.md](memory.md))."),
    _setting("place", "free", "The device for requests without an index ([policy.md](policy.md#placement))."),
    _setting("float64", "error", "What happens to float64 if the target lacks it ([fallback.md](fallback.md))."),
    Variable(
        config.DEVICE_COUNT,
        f"1 … {config.MAX_DEVICES}",
        f"`{config.Config.device_count}`",
        "4",
        "The number of devices that is reported to code on a host with one accelerator or none.",
    ),
    Variable(
        "TORCHDEVICE_MASQUERADE",
        "switch",
        "`1`",
        "0",
        "`0`: `torch.cuda`, `torch.mps` and `torch.xpu` give torch's own answers ([masquerade.md](masquerade.md)).",
    ),
    Variable(
        config.PACKAGES,
        "switch",
        "`0`; `1` under `torchdevice run`",
        "1",
        "Stand-ins for packages that need CUDA ([packages.md](packages.md)).",
    ),
    Variable(
        config.MPS_WORKAROUNDS,
        "switch",
        "`1`",
        "0",
        "`0`: MPS is called also where it is known to return wrong values ([mac.md](mac.md#wrong-values)).",
    ),
    _setting(
        "log_level",
        "INFO",
        "The level of the logger `torchdevice` and of its warnings ([policy.md](policy.md#messages)). `INFO` logs each "
        "redirected place once.",
    ),
    Variable(
        REPORT,
        "`summary`, `text`, `json:PATH`, `html:PATH`, `trace:PATH`; separate several with commas",
        "not set",
        "text,html:report.html",
        "Which reports are written when the program ends ([cli.md](cli.md#reports)). Needs `TORCHDEVICE=1` or `torchdevice run`.",
    ),
    Variable(config.PROFILE, "switch", "`0`", "1", "Measures time by operator and by line ([cli.md](cli.md#profile))."),
    Variable(
        "TORCHDEVICE_CACHE",
        "absolute path",
        "the cache folder of the platform",
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
        "The cache folder that `run` found; programs may change `XDG_CACHE_HOME`.",
    ),
    Variable(
        config.HAS_PARENT, "`1`", "not set", "", "Set by every active process: its children do not repeat its notice."
    ),
    Variable(config.POLICY_REASON, "text", "not set", "", "The reason for the policy that `run` selected."),
)
# Variable of another project → its effect here.
OTHERS = {
    "CUDA_VISIBLE_DEVICES": "CUDA's own: limits the number of devices that is reported; an empty value and `-1` hide all.",
    "CXX": "The C++ compiler for virtual devices and `--profile`.",
    "GLOO_SOCKET_IFNAME": "gloo's own: if it is set, `NCCL_SOCKET_IFNAME` is ignored.",
    "LOCAL_WORLD_SIZE": "torchrun's own: device indices up to it are accepted.",
    "NCCL_SOCKET_IFNAME": "NCCL's own: is copied to `GLOO_SOCKET_IFNAME`.",
    "NO_COLOR": "If it is set, reports on a terminal are plain columns, too.",
    "PYTHONPATH": "Python's own: `run` appends a checkout that is not installed.",
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO": "torch's own: the limit of MPS's allocator, which holds again after `torchdevice.memory.limit`.",
    "PYTORCH_ENABLE_MPS_FALLBACK": "torch's own: with `1`, a virtual `mps:real` runs missing operators on the CPU, with torch's warning.",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "torch's own: a virtual `cuda` frees memory immediately.",
    "RANK": "torchrun's own: the notice of the first redirection comes from rank 0.",
    "TORCHELASTIC_RESTART_COUNT": "torchrun's own: separates restarted workers from those of earlier attempts.",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "torch's own: with `0`, `import torch` does not load TorchDevice.",
    "TRITON_INTERPRET": "Triton's own: if it is not set, translation sets it on a host without an NVIDIA GPU.",
    "XDG_CACHE_HOME": "Where caches are kept on Linux, if `TORCHDEVICE_CACHE` is not set.",
    "XDG_DATA_HOME": "Where notes of `torchdevice catalog` are kept on Linux, if `TORCHDEVICE_CACHE` is not set.",
}

SWITCHES = (
    "A switch is on for `1`, `true`, `yes`, `on` and off for `0`, `false`, `no`, `off` and an empty value. Another value of a setting raises "
    "`ConfigError` where code activates translation, and gives one warning at `import torch`. An argument overrides a variable, and a "
    "variable overrides the default. `torchdevice.status().sources` shows the source of each value. Under `python -I` and `-E`, and in set-uid "
    "programs, all variables are ignored."
)


def section() -> Iterator[str]:
    """The lines of this section."""
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
    yield "\nVariables of other projects that TorchDevice reads or sets:\n"
    yield "| variable | effect |"
    yield "| --- | --- |"
    for name, meaning in OTHERS.items():
        yield f"| `{name}` | {meaning} |"
