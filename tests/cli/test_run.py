"""`torchdevice run`: its options, its one line, its reports, and programs with several processes."""

from __future__ import annotations

import html
import itertools
import json
import os
import re
import shutil
import signal
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.checkout import installed_packages
from tests.cli.harness import python, torchdevice, without_summary, write
from torchdevice import __file__ as torchdevice_package
from torchdevice.cli import main
from torchdevice.cli.run import _VALUED, installed_command, interpreter_flags, parser, settings, split

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
    assert done.stderr == (
        "torchdevice: cuda → cpu · 4 calls redirected at 2 places · 0 ops fell back · 0 unsupported "
        "· policy portable: train.py:3 names cuda (torchdevice run --report …)\n"
    )


def test_without_run_and_in_silence(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN})
    assert torchdevice("train.py", cwd=tmp_path).stdout == "cpu True\n"
    quiet = torchdevice("run", "-q", "train.py", cwd=tmp_path)
    assert (quiet.stdout, quiet.stderr) == ("cpu True\n", "")


def test_environment_alone_activates(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN})
    done = python("train.py", cwd=tmp_path, environment={"TORCHDEVICE": "1"})
    assert (done.stdout, done.stderr.count("\n")) == ("cpu True\n", 1)
    assert "train.py:3: torch.nn.Module.cuda(cuda) → cpu" in done.stderr
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
    if options:
        torchdevice("virtual", "build", cwd=tmp_path)  # or the first run of all says that it builds
    done = torchdevice("run", *options, "spawned.py", tmp_path, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ended\n")
    assert sorted(path.read_text() for path in tmp_path.glob("*.txt")) == [f"{name} 20 True\n" for name in devices]
    assert len(without_summary(done.stderr)[1]) == 1


@pytest.mark.parametrize("launcher", [["-m", "torch.distributed.run"], ["torchrun"]])
def test_workers_of_torchrun_are_counted_by_one_line(launcher: list[str], tmp_path: Path) -> None:
    write(tmp_path, {"ddp.py": TORCHRUN})
    done = torchdevice("run", *launcher, "--standalone", "--nproc-per-node", "2", "ddp.py", tmp_path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"{rank}.txt").read_text() for rank in (0, 1)] == ["[3.0, 3.0] cpu\n"] * 2
    (line,) = without_summary(done.stderr)[1]
    assert line.startswith("torchdevice: cuda → cpu · ")


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_children_are_covered_counted_and_silent(context: str, tmp_path: Path) -> None:
    """Eight items in two workers, and one call in a program that the program starts."""
    write(tmp_path, {"loader.py": LOADER})
    done = torchdevice("run", "loader.py", context, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "140\ncpu\n")
    program, ours = without_summary(done.stderr)
    assert program == ""
    assert ours == [
        "torchdevice: cuda → cpu · 9 calls redirected at 2 places · 0 ops fell back · 0 unsupported "
        "· policy portable: loader.py:9 names cuda (torchdevice run --report …)"
    ]


FORKS = """
import multiprocessing, os, sys, time, torch
def work(seconds):
    time.sleep(seconds)
    torch.ones(1, device="cuda")
if __name__ == "__main__":
    torch.ones(1, device="cuda")                                  # counted once, though children inherit the count
    child = os.fork()
    if not child:
        torch.ones(1, device="cuda")
        sys.exit(0)                                               # an ordinary end
    os.waitpid(child, 0)
    multiprocessing.get_context("fork").Process(target=work, args=(0.3,)).start()    # joined by Python, at the end
    multiprocessing.get_context("fork").Process(target=work, args=(60,), daemon=True).start()  # killed by Python then
    print(torch.ones(1, device="cuda").device)
"""


def test_counts_of_forked_processes(tmp_path: Path) -> None:
    write(tmp_path, {"forks.py": FORKS})
    report = tmp_path / "report.json"
    # Python 3.12 warns of every fork in a process with threads, and torch may have some.
    quiet = {"PYTHONWARNINGS": "ignore::DeprecationWarning"}
    done = torchdevice("run", "--report", f"json:{report}", "forks.py", cwd=tmp_path, environment=quiet)
    assert (done.returncode, done.stdout) == (0, "cpu\n"), done.stderr
    assert len(done.stderr.splitlines()) == 1
    data = json.loads(report.read_text())
    assert data["context"]["processes"] == 3
    assert [(place["line"], place["calls"]) for place in data["places"]] == [(5, 1), (7, 1), (10, 1), (15, 1)]


def test_a_launcher_without_torch_leaves_the_line_to_its_child(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN})
    launcher = "import subprocess, sys; subprocess.run([sys.executable, 'train.py']); print('torch' in sys.modules)"
    done = torchdevice("run", "-c", launcher, cwd=tmp_path)
    assert done.stdout == "cpu True\nFalse\n"
    assert len(without_summary(done.stderr)[1]) == 1


@pytest.mark.parametrize(
    ("options", "fallback", "float64"),
    [
        ("", None, None),
        ("--fallback mlx,cpu --float64 cpu", "mlx,cpu", "cpu"),
        ("--strict", "off", "error"),
        ("--strict --float64 error", "off", "error"),
    ],
)
def test_options_become_settings(
    options: str, fallback: str | None, float64: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(parser().parse_args(options.split()))
    assert (given.get("TORCHDEVICE_FALLBACK"), given.get("TORCHDEVICE_FLOAT64")) == (fallback, float64)


LACKING = """
import torch
x = torch.randn(8, 8, device="cuda")
def f():
    return torch.special.log_ndtr(x @ x.T)
for step in range(3):
    values = f()
values.sum().item()
torch.ones(3, device="cuda").double()
print(values.device)
"""


def test_what_fell_back_is_in_every_report(tmp_path: Path) -> None:
    write(tmp_path, {"lacking.py": LACKING})
    forms = ["--report", "--report", "json:r.json", "--report", "html:r.html"]
    done = torchdevice("run", "--virtual", "mps:real", "--profile", *forms, "lacking.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "mps:0\n"), done.stderr
    assert re.search(
        r"aten::special_log_ndtr +cpu +3 +1 +\S+ ms +1.\d kB +mps has no kernel for it +lacking.py:5", done.stderr
    )
    assert re.search(r"torch.Tensor.double +float64 +float32 +1 +1 +lacking.py:9", done.stderr)
    assert "1 call changed meaning at 1 place · 1 op fell back · 0 unsupported · " in done.stderr
    assert re.search(
        r" s · \d+\.\d ms \(\d+\.\d%\) in fallbacks · policy portable: lacking.py:3 names cuda$",
        done.stderr,
        re.MULTILINE,
    )
    data = json.loads((tmp_path / "r.json").read_text())
    (row,) = data["fallbacks"]
    assert (row["operator"], row["executor"], row["calls"], row["line"]) == ("aten::special_log_ndtr", "cpu", 3, 5)
    assert data["counts"]["fallbacks"]["operators"] == 1
    times = {(each["operator"], each["device"]): each for each in data["profile"]["operators"]}
    assert times["aten::special_log_ndtr", "cpu"]["calls"] == 3
    assert times["aten::mm", "mps"]["calls"] == 3
    assert times["aten::special_log_ndtr", "cpu"]["seconds"] == pytest.approx(row["seconds"], rel=0.5)
    assert 'class="bar cpu"' in (tmp_path / "r.html").read_text()


def test_strict_refuses_what_the_target_lacks(tmp_path: Path) -> None:
    write(tmp_path, {"lacking.py": LACKING})
    done = torchdevice("run", "--virtual", "mps:real", "--strict", "lacking.py", cwd=tmp_path)
    program, lines = without_summary(done.stderr)  # the first run on a machine says that it builds
    assert done.returncode == 1
    assert "FallbackRefused: aten::special_log_ndtr(float32) at " in program
    assert "fallbacks are off (TORCHDEVICE_FALLBACK)" in program
    assert "torchdevice/" not in program
    assert " · 0 ops fell back · 1 unsupported · policy portable: " in lines[-1]


PROFILED = """
import threading, time, torch
def busy():
    end = time.perf_counter() + 0.6
    while time.perf_counter() < end:
        torch.mm(x, x)                                     # line 6
class Stopped(Exception): pass
x = torch.randn(64, 64, device="cuda", requires_grad=True)
waiting = threading.Event()
threading.Thread(target=waiting.wait, daemon=True).start()  # waits for work: nobody's time
try:
    torch.mm(x, torch.ones(3))                              # an operator that ends in an exception
except RuntimeError:
    pass
thread = threading.Thread(target=busy)
thread.start()
time.sleep(0.6)                                             # line 17
thread.join()
(x @ x).sum().backward()
raise Stopped
"""


def test_profile(tmp_path: Path) -> None:
    """Lines of all threads that are at work, operators of all threads, and a program that fails in the end."""
    write(tmp_path, {"profiled.py": PROFILED})
    report = tmp_path / "report.json"
    done = torchdevice("run", "--profile", "--report", f"json:{report}", "profiled.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "Stopped" in done.stderr
    profile = json.loads(report.read_text())["profile"]
    assert profile["operators_missing"] is None
    lines = {each["line"]: each["seconds"] for each in profile["lines"] if each["file"].endswith("profiled.py")}
    assert min(lines[6], lines[17]) > 0.5 * max(lines[6], lines[17])
    assert lines.get(10, 0) < 0.5 * lines[17]
    operators = {each["operator"]: each for each in profile["operators"]}
    assert operators["aten::mm"]["device"] == "cpu"
    assert operators["aten::mm"]["calls"] > 4  # those of the thread
    assert operators["aten::sum"]["calls"] in (1, 2)  # of everything: torch calls the one over dimensions
    assert sum(each["seconds"] for each in profile["operators"]) < 2 * profile["seconds"]


ALLOCATING = """
import torch
weight = torch.ones(500, 500, device="cuda", requires_grad=True)
product = weight * 2
(product @ product).sum().backward()
back = product.detach().cpu()
"""


@pytest.mark.parametrize(
    ("options", "device"), [((), "cpu"), (("--virtual", "cuda"), "cuda"), (("--as", "cuda"), "cuda")]
)
def test_profile_has_memory(options: tuple[str, ...], device: str, tmp_path: Path) -> None:
    """What lines and operators allocate and copy, also in autograd's own threads, and one trace and picture of it."""
    write(tmp_path, {"allocating.py": ALLOCATING})
    reports = [f"--report={each}" for each in ("json:r.json", "text", "html:r.html", "trace:t.json")]
    done = torchdevice("run", *options, "--profile", *reports, "allocating.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    profile = json.loads((tmp_path / "r.json").read_text())["profile"]
    mine = {each["line"]: each for each in profile["memory"] if each["file"].endswith("allocating.py")}
    one = 500 * 500 * 4
    rounding = 512
    for line in (3, 4):
        assert one <= mine[line]["allocated"] <= one + rounding
        assert one * (line - 2) <= mine[line]["held"] <= (one + rounding) * (line - 2)
    assert mine[5]["allocated"] >= 4 * one  # the product, its gradient and those of both factors
    copied = mine.get(6, {"copied": 0})["copied"]
    assert copied == (0 if device == "cpu" else one)
    allocated = {(each["operator"], each["device"]): each["allocated"] for each in profile["operators"]}
    assert one <= allocated["aten::ones", device] <= one + rounding
    assert allocated["aten::empty", device] < one  # it counts for `ones`
    assert "Memory by line" in done.stderr
    assert 'class="memory" points="0.0,120.0' in (tmp_path / "r.html").read_text(encoding="utf-8")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    calls = [each for each in events if each["ph"] == "X"]
    assert len(calls) == sum(each["calls"] for each in profile["operators"])
    outer = next(each for each in calls if each["name"] == "aten::ones")
    inner = next(each for each in calls if each["name"] == "aten::empty" and each["tid"] == outer["tid"])
    assert outer["ts"] <= inner["ts"] <= inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    assert {"memory in use"} == {each["name"] for each in events if each["ph"] == "C"}


def test_a_trace_needs_no_other_option(tmp_path: Path) -> None:
    code = "import torch; torch.ones(3, device='cuda')"
    done = torchdevice("run", "-q", "--report", "trace:t.json", "-c", code, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert "aten::ones" in {each["name"] for each in events}


LOADED = """
import torch, time
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(20, 3), torch.zeros(20))
def as_mapping(samples):
    return {"ids": ["a"] * len(samples), "x": torch.stack([x for x, _ in samples])}
for options in ({}, {"num_workers": 2}, {"collate_fn": as_mapping}):
    for batch in DataLoader(data, batch_size=8, **options):
        time.sleep(0.02)
"""


def test_profile_has_throughput(tmp_path: Path) -> None:
    """Three data loaders of 20 samples in batches of 8, one of them with workers."""
    write(tmp_path, {"loaded.py": LOADED})
    reports = [f"--report={each}" for each in ("json:r.json", "text", "html:r.html")]
    done = torchdevice("run", "--profile", *reports, "loaded.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    profile = json.loads((tmp_path / "r.json").read_text())["profile"]
    assert (profile["batches"], profile["samples"]) == (9, 60)
    assert profile["samples_per_second"] == pytest.approx(60 / profile["seconds"])
    calls = sum(each["calls"] for each in profile["operators"])
    assert profile["operators_per_second"] == pytest.approx(calls / profile["seconds"])
    for shown in (done.stderr, (tmp_path / "r.html").read_text(encoding="utf-8")):
        assert "samples per second (60 in 9 batches of data loaders)" in shown
        assert "operators per second" in shown


ODD_NAMES = """
import torch
def double(context, x):
    return x * 2
names = ("a\\tb", "c\\nd", "e\\x1c\\u2028f", "g\\t1\\t2\\nh")
for name in names:
    odd = type(name, (torch.autograd.Function,), {"forward": staticmethod(double), "backward": staticmethod(double)})
    odd.apply(torch.ones(2, requires_grad=True)).sum().backward()
"""


def test_profile_of_functions_with_tabs_and_line_breaks_in_their_names(tmp_path: Path) -> None:
    write(tmp_path, {"odd.py": ODD_NAMES})
    done = torchdevice("run", "-q", "--profile", "--report", "json:r.json", "--report", "text", "odd.py", cwd=tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    found = {each["operator"] for each in json.loads((tmp_path / "r.json").read_text())["profile"]["operators"]}
    assert {"a b", "c d", "e\x1c\u2028f", "g 1 2 h"} <= found


def test_a_report_shows_no_secrets_of_the_command_line(tmp_path: Path) -> None:
    write(tmp_path, {"plain.py": "import torch"})
    words = ["--token", "hunter2", "--password=hunter2", "https://me:hunter2@example.org"]
    done = torchdevice("run", "--report", "json:r.json", "--report", "html:r.html", "plain.py", *words, cwd=tmp_path)
    assert done.returncode == 0
    for name in ("r.json", "r.html"):
        assert "hunter2" not in (tmp_path / name).read_text(encoding="utf-8")
        assert "***" in (tmp_path / name).read_text(encoding="utf-8")


def test_profile_without_a_compiler_says_so(tmp_path: Path) -> None:
    environment = {"CXX": "no-such-compiler", "TORCHDEVICE_CACHE": str(tmp_path / "cache")}
    done = torchdevice("run", "--profile", "-c", "import torch, time; time.sleep(0.2)", environment=environment)
    assert done.returncode == 0
    assert "Only operators that fell back were timed." in done.stderr
    assert "Hint: install one" in done.stderr
    assert "Time by line" in done.stderr


def test_without_an_installation(tmp_path: Path) -> None:
    """The package on PYTHONPATH, no entry point anywhere: `run` brings its own, for children too."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for entry in itertools.chain.from_iterable(folder.iterdir() for folder in installed_packages()):
        ours = entry.name.startswith(("torch_device", "torchdevice", "TorchDevice", "__editable__"))
        if not ours and entry.suffix != ".pth" and not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry)
    shutil.copytree(Path(torchdevice_package).parent, tmp_path / "lib" / "torchdevice")
    code = (
        "import subprocess, sys, torch; print(torch.ones(1).cuda().device, sys.path[0], flush=True)\n"
        "subprocess.run([sys.executable, '-c', 'import torch; print(torch.ones(1).cuda().device)'])"
    )
    write(tmp_path, {"program.py": code})
    paths = os.pathsep.join(map(str, (tmp_path / "lib", packages)))
    done = python("-S", "-m", "torchdevice", "run", "program.py", cwd=tmp_path, environment={"PYTHONPATH": paths})
    assert done.stdout == f"cpu {tmp_path}\ncpu\n", done.stderr
    assert "2 calls redirected" in done.stderr


def test_an_impossible_target_ends_the_run() -> None:
    done = torchdevice("run", "--target", "xpu", "-c", "import torch; print('never')")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("torchdevice: target='xpu' (TORCHDEVICE_TARGET) was requested")
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
        ("--strict --profile --float64 cpu t.py", ["--strict", "--profile", "--float64", "cpu"], ["t.py"]),
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


def test_only_commands_that_are_python_scripts_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scripts = Path(sysconfig.get_path("scripts"))
    assert installed_command("torchrun") == str(scripts / "torchrun")
    for word in ("python", "missing", "./torchrun", str(scripts / "torchrun")):
        assert installed_command(word) == word
    (tmp_path / "torchrun").touch()  # a script of the user's own
    assert installed_command("torchrun") == "torchrun"


@pytest.mark.parametrize(
    "start",
    ["#!/opt/bin/python3.12\n", "#!/usr/bin/env python\n", "#!/bin/sh\n'''exec' \"/My Projects/bin/python3\" \"$0\"\n"],
)
def test_commands_are_found_in_the_folder_of_the_user_too(
    start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchdevice.cli.run.folders_of_commands", lambda: [tmp_path / "none", tmp_path])
    (tmp_path / "train-it").write_text(start)
    (tmp_path / "other").write_text("#!/bin/sh\necho python\n")
    assert installed_command("train-it") == str(tmp_path / "train-it")
    assert installed_command("other") == "other"


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
        ["run", "--fallback", "gpu", "t.py"],
        ["run", "--strict", "--fallback", "cpu", "t.py"],
        ["run", "--strict", "--float64", "downcast", "t.py"],
        ["run", "python", "t.py"],
        ["run", "python3.11", "t.py"],
    ],
)
def test_bad_usage_is_one_line_and_status_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("torchdevice run: ")


def test_a_program_that_moves_the_cache_does_not_move_ours(tmp_path: Path) -> None:
    program = (
        "import os, sys\nos.environ['XDG_CACHE_HOME'] = sys.argv[1]\nimport torch\nprint(torch.ones(1).cuda().device)"
    )
    done = torchdevice("run", "--virtual", "cuda", "-c", program, tmp_path / "moved")
    assert (done.returncode, done.stdout) == (0, "cuda:0\n")
    assert not (tmp_path / "moved").exists()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_profile_says_so_where_float16_on_a_cpu_dominates(dtype: str, tmp_path: Path) -> None:
    program = (
        f"import torch\nx = torch.ones(256, 256, device='cuda', dtype=torch.{dtype})\nfor _ in range(20): x = x @ x"
    )
    done = torchdevice("run", "--target", "cpu", "--profile", "-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Hint: float16 is slow on a CPU") == (dtype == "float16")


@pytest.mark.parametrize("interpreter", ["python", "python3.11", sys.executable])
def test_an_interpreter_is_no_program(interpreter: str) -> None:
    done = torchdevice("run", interpreter, "train.py")
    assert done.returncode == 2
    assert f"{interpreter} is not a program; name only the script: torchdevice run train.py" in done.stderr


@pytest.mark.parametrize("form", ["html", "json"])
def test_a_report_without_its_format_is_explained(form: str) -> None:
    done = torchdevice("run", "--report", f"out.{form}", "train.py")
    assert done.returncode == 2
    assert f"out.{form} is not a program; write a report with --report {form}:out.{form}" in done.stderr


WRITTEN_FOR_CUDA = """import argparse
import torch
from torch import nn
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
args = parser.parse_args()
device = "cuda"
model = nn.Linear(4, 1).cuda()
scaler = torch.amp.GradScaler("cuda")
for step in range(2):
    x = torch.ones(2, 4, device=device)
    with torch.autocast("cuda"):
        loss = model(x.to(args.device)).sum()
torch.cuda.synchronize()
print(loss.shape, torch.cuda.memory_allocated() >= 0)
"""


def test_a_program_with_all_suggested_lines_runs_in_plain_torch(tmp_path: Path) -> None:
    write(tmp_path, {"program.py": WRITTEN_FOR_CUDA})
    done = torchdevice("run", "--report", "html:r.html", "program.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = html.unescape((tmp_path / "r.html").read_text(encoding="utf-8"))
    lines = WRITTEN_FOR_CUDA.splitlines()
    rows = re.findall(r'program\.py:(\d+)">program(?:(?!</tr>).)*?class="suggested"[^>]*>(.*?)</code>', page, re.DOTALL)
    for number, suggested in rows:
        before = lines[int(number) - 1]
        lines[int(number) - 1] = before[: len(before) - len(before.lstrip())] + suggested
    assert {int(number) for number, _ in rows} == {5, 7, 8, 9, 12, 14, 15}
    lines.insert(3, re.findall(r"<pre>(device = .*?)</pre>", page)[0])
    (tmp_path / "program.py").write_text("\n".join(lines))
    plain = python("program.py", cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout == done.stdout


INTERRUPTED = """
import os, signal, threading, torch
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores the signal
x = torch.ones(1200, 1200)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
for _ in range(400):
    x @ x
print("not interrupted")
"""


def test_an_interrupt_in_an_operator_ends_a_profiled_program(tmp_path: Path) -> None:
    """The line of an operator is read when it ends. No Python code runs there, which would swallow the exception."""
    write(tmp_path, {"interrupted.py": INTERRUPTED})
    done = torchdevice("run", "-q", "--profile", "interrupted.py", cwd=tmp_path)
    assert "KeyboardInterrupt" in done.stderr
    assert "Exception ignored" not in done.stderr
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "")


FORKED = """
import gc, os, torch
x = torch.ones(100, device="cuda")
child = os.fork()
if child == 0:
    gc.collect()
    y = [x + 1 for _ in range(100)]
    os._exit(len(y) != 100)
raise SystemExit(os.waitpid(child, 0)[1])
"""


def test_operators_of_a_forked_child_of_a_profiled_program(tmp_path: Path) -> None:
    write(tmp_path, {"forked.py": FORKED})
    done = torchdevice("run", "-q", "--target", "cpu", "--profile", "forked.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
