"""Which policy `run` chooses for a program, by reading it."""

from __future__ import annotations

import json
import re
import sysconfig
import zipfile
from pathlib import Path

import pytest
import torch

from tests.cli.harness import torchdevice, write
from torchdevice.cli import choosing
from torchdevice.cli.choosing import Choice, choose
from torchdevice.policy.hosts import is_accelerator

PORTABLE = {
    'x = torch.zeros(1, device="cuda")': "names cuda",
    'x = torch.zeros(1).to("mps")': "names mps",
    "model.cuda()": "names cuda",
    "print(x.is_cuda)": "names cuda",
    "torch.cuda.is_available()": "names cuda",
    "torch.backends.mps.is_available()": "names mps",
    "torch.accelerator.current_accelerator()": "names accelerator",
    'f"cuda:{rank}"': "names cuda",
    'd = f"cuda:{rank}"': "names cuda",
    'p.add_argument("--device", default="cuda:1")': "names cuda",
    'torch.set_default_tensor_type("torch.cuda.FloatTensor")': "names cuda",
    'dist.init_process_group("nccl")': "names nccl, which is CUDA's",
    "import torch.cuda": "names cuda",
    "import torch.cuda.amp as amp": "names cuda",
    "from torch.cuda.amp import autocast": "names cuda",
    "from torch import cuda": "names cuda",
    'Trainer(accelerator="gpu")': 'says accelerator="gpu"',
    "pipeline(task, device=0)": "names a device by its number",
    "x.to(0)": "names a device by its number",
    "from accelerate import Accelerator": "imports accelerate, which looks for an accelerator",
    "import lightning.pytorch as pl": "imports lightning, which looks for an accelerator",
    "from transformers import Trainer, AutoModel": "imports transformers, which looks for an accelerator",
}
ACCELERATE = [
    "x = torch.zeros(1)",
    'x = torch.zeros(1, device="cpu")',
    '"""cuda"""',
    "# .cuda()",
    'print("needs cuda or not")',
    "x.to(torch.float16)",
    "x.to(device)",
    "from transformers import AutoModel",
    "Net(hidden=3, device=None)",
    "cuda_like = 1",
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("line", PORTABLE)
def test_a_program_that_names_an_accelerator(line: str, here: Path) -> None:
    write(here, {"train.py": f"import torch\n{line}\n"})
    assert choose(["train.py"]) == Choice("portable", f"train.py:2 {PORTABLE[line]}")
    assert choose(["-c", line]).policy == "portable"


@pytest.mark.parametrize("line", ACCELERATE)
def test_a_program_that_names_none(line: str, here: Path) -> None:
    write(here, {"train.py": f"import torch\n{line}\n"})
    assert choose(["train.py"]) == Choice("accelerate", "train.py names no accelerator")


def test_every_accelerator_of_torch_is_known() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.device("banana")
    kinds = re.search(r"Expected one of (.*) device type", str(caught.value))
    assert kinds
    accelerators = {kind for kind in kinds[1].split(", ") if is_accelerator(kind)}
    assert "cuda" in accelerators
    assert accelerators <= set(choosing.ACCELERATORS)


MODULES = {
    "import helper": {"helper.py": "x.cuda()"},
    "from helper import f": {"helper.py": "x.cuda()"},
    "from parts import helper": {"parts/helper.py": "x.cuda()"},
    "import parts.deep.helper": {"parts/deep/helper.py": "x.cuda()"},
    "import parts": {"parts/__init__.py": "from . import inner", "parts/inner.py": "x.cuda()"},
    "from parts import a": {"parts/__init__.py": "", "parts/a.py": "from .b import c", "parts/b.py": "x.cuda()"},
    "from parts.low import a": {"parts/low/a.py": "from ..b import c", "parts/b.py": "x.cuda()"},
    'importlib.import_module("helper")': {"helper.py": "x.cuda()"},
    'subprocess.run([sys.executable, "helper.py"])': {"helper.py": "x.cuda()"},
    "import first": {"first.py": "import second", "second.py": "import first, third", "third.py": "x.cuda()"},
}


@pytest.mark.parametrize("line", MODULES)
def test_modules_beside_it_are_read(line: str, here: Path) -> None:
    write(here, {"train.py": line, **MODULES[line]})
    choice = choose(["train.py"])
    assert choice.policy == "portable"
    assert choice.reason.endswith(":1 names cuda")


def test_what_it_does_not_import_is_not_read(here: Path) -> None:
    write(here, {"train.py": "import helper, torch, json", "helper.py": "", "other.py": "x.cuda()"})
    assert choose(["train.py"]) == Choice("accelerate", "train.py and 1 beside it name no accelerator")


def test_ways_to_start_a_program(here: Path) -> None:
    write(here, {"package/__init__.py": "", "package/__main__.py": "x.cuda()", "package/mod.py": "", "train.py": "0"})
    with zipfile.ZipFile(here / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", "x.cuda()")
    assert choose(["-m", "package"]).reason == "package/__main__.py:1 names cuda"
    assert choose(["-m", "package.mod"]).policy == "accelerate"
    assert choose(["package"]).reason == "package/__main__.py:1 names cuda"
    assert choose(["app.pyz"]).reason == "app.pyz/__main__.py:1 names cuda"
    assert choose(["-"]) == Choice("portable", "a program on stdin cannot be read in advance")
    assert choose(["-m", "torch.distributed.run", "--nproc", "2", "train.py"]).reason == "train.py names no accelerator"
    assert choose(["-m", "pytest", "package::test"]).reason == "package/__main__.py:1 names cuda"


LAUNCHER = f"{sysconfig.get_path('scripts')}/torchrun"


@pytest.mark.parametrize("launcher", [["-m", "torch.distributed.run"], [LAUNCHER], ["-m", "trace", "--count"]])
def test_the_program_of_a_launcher_is_read(launcher: list[str], here: Path) -> None:
    """What follows the program is not: those are its data and its settings."""
    write(here, {"train.py": "x.cuda()", "plain.py": "0", "package/train.py": "x.cuda()", "old/x.py": "print 1"})
    assert choose([*launcher, "--nproc", "2", "train.py"]) == Choice("portable", "train.py:1 names cuda")
    for arguments in ([], ["train.py"], ["--data", "package"], ["--data", "old"], ["-m", "train"]):
        assert choose([*launcher, "plain.py", *arguments]) == Choice("accelerate", "plain.py names no accelerator")
    for option in ("-m", "--module"):
        assert choose([*launcher, option, "train", "-x"]) == Choice("portable", "train.py:1 names cuda")
        assert choose([*launcher, option, "package.train"]).reason == "package/train.py:1 names cuda"
    name = Path(launcher[0]).name if launcher[0] != "-m" else launcher[1]
    unread = Choice("portable", f"the program that {name} starts cannot be read")
    for arguments in ([], ["-q"], ["missing.py"], ["-m", "missing", "plain.py"], ["old"]):
        assert choose([*launcher, *arguments]) == unread


def test_all_tests_of_a_test_runner_are_read(here: Path) -> None:
    """Without one in the arguments, they cannot be: pytest finds its tests itself. Its `-m` names no module."""
    write(
        here,
        {"train.py": "x.cuda()", "plain.py": "0", "tests/test_it.py": "x.cuda()", "old/site-packages/x.py": "x.cuda()"},
    )
    assert choose(["-m", "pytest", "plain.py", "train.py"]).reason == "train.py:1 names cuda"
    assert choose(["-m", "pytest", "plain.py", "tests"]).reason == "tests/test_it.py:1 names cuda"
    assert choose(["-m", "pytest", "plain.py::test_it", "old"]) == Choice("accelerate", "plain.py names no accelerator")
    unread = Choice("portable", "the program that pytest starts cannot be read")
    for arguments in ([], ["-q"], ["-m", "not slow"], ["-m", "plain"], ["missing.py"]):
        assert choose(["-m", "pytest", *arguments]) == unread


def test_an_unknown_command_is_not_read(here: Path) -> None:
    """A script among its arguments may be settings; the program itself is elsewhere."""
    write(here, {"settings.py": "lr = 0.1"})
    command = str(Path(LAUNCHER).with_name("train-it"))
    assert choose([command, "settings.py"]).reason == "the program that train-it starts cannot be read"
    assert choose(["-m", "json.tool", "settings.py"]).policy == "portable"


def test_a_module_that_is_not_below_the_folder(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editable installation is the user's own code; what is in a folder of packages is not."""
    sources, installed = tmp_path / "src", tmp_path / "site-packages"
    write(sources, {"own/__init__.py": "", "own/train.py": "from own import net", "own/net.py": "x.cuda()"})
    write(installed, {"foreign/__init__.py": "", "foreign/train.py": "x.cuda()"})
    for folder in (sources, installed):
        monkeypatch.syspath_prepend(folder)
    assert choose(["-m", "own.train"]).reason.endswith("net.py:1 names cuda")
    assert choose(["-m", "own"]).policy == "accelerate"
    assert choose(["-m", "foreign.train"]).reason == "the program that foreign.train starts cannot be read"
    assert choose(["-m", "__main__"]).policy == "portable"
    assert choose(["-m", "json.tool"]).policy == "portable"


def test_arguments_name_one_too(here: Path) -> None:
    write(here, {"train.py": "0", "fast.yaml": "device: cuda\n", "slow.yaml": "device: cpu\n"})
    for word in ("cuda", "cuda:1", "--device=mps"):
        assert choose(["train.py", "--device", word]).reason == f"an argument names {word.rpartition('=')[2]}"
    assert choose(["train.py", "--config", "fast.yaml"]).reason == "fast.yaml names cuda"
    assert choose(["train.py", "--config", "slow.yaml", "missing.yaml"]).policy == "accelerate"


@pytest.mark.parametrize("text", [b"def f(:\n", b"\xff\xfe\x00", b"# coding: nothing\n", b"(" * 10000])
def test_what_cannot_be_read_is_left_as_it_is(text: bytes, here: Path) -> None:
    (here / "train.py").write_bytes(text)
    assert choose(["train.py"]) == Choice("portable", "train.py cannot be read")
    assert choose(["missing.py"]) == Choice("portable", "missing.py cannot be read")


@pytest.mark.parametrize("line", ["import TorchDevice", "import torchdevice", "from torchdevice import activate"])
def test_a_program_that_uses_us_keeps_the_default_of_the_api(line: str, here: Path) -> None:
    write(here, {"train.py": f"{line}\nx.cuda()"})
    choice = Choice("accelerate", "train.py:1 imports torchdevice, and this is its default")
    assert choose(["train.py"]) == choice


STATUS = (
    'import torch, sys\nprint(sys.modules["torchdevice.session"].session.status().policy, torch.ones(1).device.type)\n'
)


@pytest.mark.virtual
def test_run_says_which_and_why(here: Path) -> None:
    write(here, {"plain.py": STATUS, "named.py": STATUS + 'torch.zeros(1, device="cuda")\n'})
    plain = torchdevice("run", "--virtual", "mps", "plain.py", cwd=here)
    assert plain.stdout == "accelerate mps\n"
    assert " · policy accelerate: plain.py names no accelerator (" in plain.stderr
    named = torchdevice("run", "--virtual", "mps", "--report", "json:r.json", "--report", "text", "named.py", cwd=here)
    assert named.stdout == "portable cpu\n"
    assert "· policy portable: named.py:3 names cuda\n" in named.stderr
    context = json.loads((here / "r.json").read_text())["context"]
    assert (context["policy"], context["policy_reason"]) == ("portable", "named.py:3 names cuda")
    chosen = torchdevice("run", "--virtual", "mps", "--policy", "accelerate", "named.py", cwd=here)
    assert (chosen.stdout, "policy" in chosen.stderr) == ("accelerate mps\n", False)
    told = torchdevice(
        "run", "--virtual", "mps", "named.py", cwd=here, environment={"TORCHDEVICE_POLICY": "accelerate"}
    )
    assert (told.stdout, "policy" in told.stderr) == ("accelerate mps\n", False)
