"""`torchdevice run`: its options, its one line, its reports, and programs with several processes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.harness import python, torchdevice, without_summary, write
from torchdevice.cli import main
from torchdevice.cli.run import _VALUED, interpreter_flags, parser, split

TRAIN = """
import torch
model = torch.nn.Linear(4, 1).cuda()
for step in range(3):
    loss = model(torch.ones(2, 4, device="cuda:1")).sum()
    loss.backward()
print(model.weight.device, model.weight.grad is not None)
"""

SPAWN = """
import sys, torch, torch.multiprocessing as mp

def train(rank, folder):
    torch.manual_seed(rank)
    device = torch.device("cuda", rank)
    model = torch.nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(20):
        x = torch.randn(8, 4, device=device)
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with open(f"{folder}/{rank}.txt", "w") as file:
        print(model.weight.device, len(losses), losses[-1] < 0.1 * losses[0], file=file)

if __name__ == "__main__":
    mp.spawn(train, nprocs=torch.cuda.device_count(), args=(sys.argv[1],))
    print("ended")
"""

TORCHRUN = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((2,), dist.get_rank() + 1.0, device="cuda")
dist.all_reduce(x)
with open(f"{sys.argv[1]}/{dist.get_rank()}.txt", "w") as file:
    print(x.tolist(), x.device, file=file)
dist.destroy_process_group()
"""

LOADER = """
import subprocess, sys, torch
from torch.utils.data import DataLoader

class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.tensor(i, device="cuda") ** 2

if __name__ == "__main__":
    loader = DataLoader(Squares(), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1])
    print(sum(int(batch.sum()) for batch in loader), flush=True)
    subprocess.run([sys.executable, "-c", "import torch; print(torch.ones(1).cuda().device)"], check=True)
"""


def test_ends_with_one_line_on_stderr(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN})
    done = torchdevice("run", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "cpu True\n")
    assert done.stderr == ("torchdevice: cuda → cpu · 4 calls redirected at 2 places (torchdevice run --report …)\n")


def test_without_run_and_in_silence(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN})
    assert torchdevice("train.py", cwd=tmp_path).stdout == "cpu True\n"
    quiet = torchdevice("run", "-q", "train.py", cwd=tmp_path)
    assert (quiet.stdout, quiet.stderr) == ("cpu True\n", "")


def test_environment_alone_activates(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN})
    done = python("train.py", cwd=tmp_path, environment={"TORCHDEVICE": "1"})
    assert (done.stdout, done.stderr) == ("cpu True\n", "")
    told = python("train.py", cwd=tmp_path, environment={"TORCHDEVICE": "1", "TORCHDEVICE_REPORT": "text"})
    assert "torch.nn.Module.cuda  cuda    cpu    1      1       train.py:3" in told.stderr


@pytest.mark.parametrize("setting", ["TORCHDEVICE_POLICY", "TORCHDEVICE_TARGET", "TORCHDEVICE_VIRTUAL", "TORCHDEVICE"])
def test_a_broken_environment_costs_one_warning(setting: str) -> None:
    environment = {"TORCHDEVICE": "1", setting: "nonsense"}
    done = python("-c", "import torch; print(torch.ones(1).tolist())", environment=environment)
    assert (done.returncode, done.stdout) == (0, "[1.0]\n")
    assert done.stderr.count("TorchDeviceWarning: torchdevice is off in this process") == 1


def test_reports(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "import os; os.chdir('/')\n" + TRAIN})
    done = torchdevice("run", "--report", "--report", "json:r.json", "--report=html:r.html", "train.py", cwd=tmp_path)
    assert done.stdout == "cpu True\n"
    assert "torch.ones" in done.stderr
    assert done.stderr.endswith(f"report in {tmp_path}/r.json, {tmp_path}/r.html\n")
    data = json.loads((tmp_path / "r.json").read_text())
    assert data["schema"] == 1
    assert data["counts"]["redirected"] == {"calls": 4, "places": 2}
    assert [(place["line"], place["api"], place["calls"]) for place in data["places"]] == [
        (4, "torch.nn.Module.cuda", 1),
        (6, "torch.ones", 3),
    ]
    page = (tmp_path / "r.html").read_text()
    assert "model = torch.nn.Linear(4, 1).to(device)" in page


def test_verbose_logs_each_place_once(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN})
    done = torchdevice("run", "-v", "train.py", cwd=tmp_path)
    assert len(re.findall(r"train\.py:5: torch\.ones\(cuda:1\) → cpu", done.stderr)) == 1


@pytest.mark.parametrize(
    ("options", "devices"), [([], ["cpu"]), (["--virtual", "cuda:2"], ["cuda:0", "cuda:1"])], ids=["here", "virtual"]
)
def test_every_device_of_spawn_trains(options: list[str], devices: list[str], tmp_path: Path) -> None:
    """The silent failure: `nprocs=torch.cuda.device_count()` with a count of 0 ends well and has done nothing."""
    write(tmp_path, {"spawned.py": SPAWN})
    done = torchdevice("run", *options, "spawned.py", tmp_path, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ended\n")
    assert sorted(path.read_text() for path in tmp_path.glob("*.txt")) == [f"{name} 20 True\n" for name in devices]
    assert len(without_summary(done.stderr)[1]) == 1


def test_workers_of_torchrun_are_counted_by_one_line(tmp_path: Path) -> None:
    write(tmp_path, {"ddp.py": TORCHRUN})
    done = torchdevice(
        "run", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ddp.py", tmp_path, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"{rank}.txt").read_text() for rank in (0, 1)] == ["[3.0, 3.0] cpu\n"] * 2
    (line,) = without_summary(done.stderr)[1]
    assert line.startswith("torchdevice: cuda → cpu · ")


@pytest.mark.parametrize(("context", "calls"), [("fork", 1), ("spawn", 9)])
def test_children_are_covered_and_silent(context: str, calls: int, tmp_path: Path) -> None:
    """Forked workers end without a chance to leave their counts; spawned ones and other programs leave theirs."""
    write(tmp_path, {"loader.py": LOADER})
    done = torchdevice("run", "loader.py", context, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "140\ncpu\n")
    program, ours = without_summary(done.stderr)
    assert program == ""
    assert len(ours) == 1
    assert f"cuda → cpu · {calls} call" in ours[0]


def test_a_launcher_without_torch_leaves_the_line_to_its_child(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN})
    launcher = "import subprocess, sys; subprocess.run([sys.executable, 'train.py']); print('torch' in sys.modules)"
    done = torchdevice("run", "-c", launcher, cwd=tmp_path)
    assert done.stdout == "cpu True\nFalse\n"
    assert len(without_summary(done.stderr)[1]) == 1


def test_an_impossible_target_ends_the_run() -> None:
    done = torchdevice("run", "--target", "xpu", "-c", "import torch; print('never')")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("torchdevice: target='xpu' (TORCHDEVICE_TARGET) was asked for")
    assert "Hint:" in done.stderr


@pytest.mark.parametrize(
    ("words", "ours", "program"),
    [
        ("--target cpu t.py --target x", ["--target", "cpu"], ["t.py", "--target", "x"]),
        ("--report t.py", ["--report=text"], ["t.py"]),
        ("--report html:x -q -m mod -v", ["--report=html:x", "-q"], ["-m", "mod", "-v"]),
        ("--report=json:x -c code", ["--report=json:x"], ["-c", "code"]),
        ("-vv - a", ["-vv"], ["-", "a"]),
        ("-v -- -odd.py", ["-v"], ["-odd.py"]),
    ],
)
def test_options_end_where_the_program_begins(words: str, ours: list[str], program: list[str]) -> None:
    assert split(words.split()) == (ours, program)


@pytest.mark.parametrize(
    ("whole", "words", "flags"),
    [
        ("python -m torchdevice run x.py", "main run x.py", []),
        ("python -u -X dev -m torchdevice x.py -m", "main x.py -m", ["-u", "-X", "dev"]),
        ("python -um torchdevice x.py", "main x.py", ["-u"]),
        ("python -mtorchdevice x.py", "main x.py", []),
        ("python /bin/torchdevice run", "/bin/torchdevice run", []),
        ("python -I /bin/torchdevice run", "/bin/torchdevice run", ["-I"]),
    ],
)
def test_flags_of_the_interpreter_are_handed_on(whole: str, words: str, flags: list[str]) -> None:
    assert interpreter_flags(whole.split(), words.split()) == flags


def test_every_option_with_a_value_is_known_to_split() -> None:
    valued = {a.option_strings[0] for a in parser()._actions if a.nargs is None and a.option_strings}
    assert valued == {*_VALUED, "--report"}


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "-m"],
        ["run", "--policy", "fast", "t.py"],
        ["run", "--report", "json:/no/such/folder/r.json", "t.py"],
        ["run", "--report=pdf:x", "t.py"],
        ["run", "--unknown", "t.py"],
    ],
)
def test_bad_usage_is_one_line_and_status_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("torchdevice run: ")
