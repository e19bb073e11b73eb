"""The ways to run a program: its text, the command, the environment, and what it promises. Nothing runs here."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tools.realworld.program import Program, Replacements

ROOT = Path(__file__).resolve().parents[2]
PRELUDE = Path(__file__).parent / "prelude"
# Nothing is downloaded, nothing is asked, one thread: values can be compared.
QUIET = {
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "WANDB_MODE": "disabled",
    "MPLBACKEND": "agg",
    "PYTHONHASHSEED": "0",
}
ATOMIC = 2e-3  # kernels that add atomically do not add in one order


@dataclass(frozen=True)
class Mode:
    """`judged_by` names the mode whose values these must equal; without one, they must be finite."""

    name: str
    device: str  # the type that the parameters must sit on
    title: str  # on the page
    written_for: str = "cuda"
    run: tuple[str, ...] | None = ()  # the options of `torchdevice run`; None: plain Python
    environment: dict[str, str] = field(default_factory=dict)
    judged_by: str = "reference"
    on_gpu: bool = False  # needs a CUDA machine
    least_tolerance: float = 0.0

    def replacements(self, program: Program) -> Replacements:
        own = program.in_torch if self.on_gpu and self.run is None else ()
        return {"cuda": own, "cpu": program.on_cpu, "mps": program.on_mps}[self.written_for]

    def command(self, program: Program) -> list[str]:
        """Everything but the script, which comes last."""
        ours = (
            [] if self.run is None else ["-m", "torchdevice", "run", *(w.format(gpus=program.gpus) for w in self.run)]
        )
        return [sys.executable, *ours, *program.arguments(self.replacements(program))]

    def variables(self, program: Program, home: Path) -> dict[str, str]:
        """A clean environment with this checkout in it; `home` takes what libraries leave behind."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHDEVICE", "TORCH_ALLOW"))}
        caches = {"HF_HOME": str(home / "huggingface"), "TORCHDEVICE_CACHE": os.environ.get("TORCHDEVICE_CACHE", "")}
        paths = {"PYTHONPATH": os.pathsep.join([str(PRELUDE), str(ROOT / "src")])}
        count = {"TORCHDEVICE_DEVICE_COUNT": str(program.gpus)} if program.gpus > 1 and self.run is not None else {}
        return {**kept, **QUIET, **caches, **paths, **count, **self.environment}


MODES = (
    Mode("reference", "cpu", "written for the CPU", "cpu", run=None, judged_by=""),
    Mode("plain", "cuda", "plain torch", run=None),
    Mode("run", "cpu", "`torchdevice run`"),
    Mode("virtual cuda", "cuda", "`--virtual cuda`", run=("--virtual", "cuda:{gpus}")),
    Mode("virtual mps", "mps", "virtual `mps:real`", environment={"TORCHDEVICE_VIRTUAL": "mps:real"}),
    Mode("cuda reference", "cuda", "as written, on a GPU", run=None, judged_by="", on_gpu=True),
    Mode("cuda", "cuda", "written for `mps`, on CUDA", "mps", judged_by="", on_gpu=True),
    Mode(
        "cuda portable",
        "cuda",
        "the same, `--policy portable`",
        "mps",
        run=("--policy", "portable"),
        judged_by="cuda reference",
        on_gpu=True,
        least_tolerance=ATOMIC,
    ),
    Mode(
        "as mps",
        "mps",
        "written for `mps`, `--as mps` on CUDA",
        "mps",
        run=("--as", "mps"),
        judged_by="cuda reference",
        on_gpu=True,
        least_tolerance=ATOMIC,
    ),
    Mode(
        "as xpu",
        "xpu",
        "written for `cuda`, `--as xpu` on CUDA",
        run=("--as", "xpu"),
        judged_by="cuda reference",
        on_gpu=True,
        least_tolerance=ATOMIC,
    ),
)
BY_NAME = {mode.name: mode for mode in MODES}
