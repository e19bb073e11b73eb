"""`torchdevice scan`: what is found, in which group, and which files are read."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.cli.harness import write
from torchdevice.answers.rows import SURFACE
from torchdevice.cli import main
from torchdevice.cli.scan import as_data, scan, verdict
from torchdevice.cli.scanning import limits
from torchdevice.cli.scanning.files import MOST_RULES, Source, walk
from torchdevice.cli.scanning.limits import read_each
from torchdevice.cli.scanning.tables import GROUPS, Tables
from torchdevice.cli.scanning.visitor import Finding, findings
from torchdevice.translate.points import all_points

IMPORTS = "import torch\nimport torch.nn as nn\nfrom torch import cuda\n"


@pytest.fixture(scope="module")
def known() -> Tables:
    return Tables()


def found(text: str, known: Tables) -> list[Finding]:
    offset = IMPORTS.count("\n")
    return [each for each in findings(Source("x.py", IMPORTS + text), known, {}) if each.line > offset]


CONSTRUCTS = [
    ("x.cuda()", ".cuda()", "handled"),
    ("x.cuda(0, non_blocking=True)", ".cuda()", "handled"),
    ("x.to('cuda:1')", '.to("cuda:1")', "handled"),
    ("x.to(device='cuda')", '.to("cuda")', "handled"),
    ("torch.zeros(2, device='cuda')", 'torch.zeros("cuda")', "handled"),
    ("torch.device('cuda' if flag else 'cpu')", 'torch.device("cuda")', "handled"),
    ("torch.zeros(2, device=f'cuda:{rank}')", 'torch.zeros(f"cuda:{rank}")', "handled"),
    ("torch.autocast('cuda')", 'torch.autocast("cuda")', "handled"),
    ("torch.amp.GradScaler(device='cuda')", 'torch.amp.GradScaler("cuda")', "handled"),
    ("torch.load('model_cuda.pt')", "torch.load without map_location", "handled"),
    ("torch.load('m.pt', map_location='cuda:0')", 'torch.load("cuda:0")', "handled"),
    ("torch.cuda.FloatTensor(3)", "torch.cuda.FloatTensor", "handled"),
    ("pipeline(task, device='cuda')", 'the string "cuda"', "handled"),
    ("parser.add_argument('--device', default='xpu')", 'the string "xpu"', "handled"),
    ("print(torch.version.cuda)", "torch.version.cuda", "simulated"),
    ("if x.device.type == 'cuda': pass", 'comparison with "cuda"', "changed"),
    ("x.is_cuda", ".is_cuda", "changed"),
    ("x.double()", ".double()", "changed"),
    ("x.to(torch.float64)", "torch.float64", "changed"),
    ("import gsplat", "import gsplat", "unsupported"),
    ("import flash_attn", "import flash_attn", "handled"),
    ("from flash_attn.layers import rotary", "import flash_attn", "handled"),
    ("from flash_attn.layers.rotary import apply_rotary_emb", "import flash_attn", "handled"),
    ("from flash_attn_interface import flash_attn_func", "import flash_attn_interface", "handled"),
    ("from flash_attn import no_such_name", "import flash_attn", "unsupported"),
    ("import flash_attn.no_such_module", "import flash_attn", "unsupported"),
    ("from numba import cuda as gpu", "import numba.cuda", "unsupported"),
    ("subprocess.run(['nvidia-smi', '-L'])", "nvidia-smi", "unsupported"),
    ("os.system('nvidia-smi -L')", "nvidia-smi", "unsupported"),
    (
        "from torch.utils import cpp_extension\ncpp_extension.load(name='x', sources=['x.cpp', 'k.cu'])",
        "torch.utils.cpp_extension.load",
        "unsupported",
    ),
    (
        "from torch.utils.cpp_extension import CUDAExtension\nCUDAExtension('x', [])",
        "torch.utils.cpp_extension.CUDAExtension",
        "unsupported",
    ),
    (
        "from torch.utils.cpp_extension import BuildExtension, CUDAExtension",
        "torch.utils.cpp_extension.CUDAExtension",
        "unsupported",
    ),
    (
        "from torch.utils.cpp_extension import CUDAExtension\nmake = CUDAExtension",
        "torch.utils.cpp_extension.CUDAExtension",
        "unsupported",
    ),
    ("x.type() == 'torch.cuda.FloatTensor'", 'comparison with "torch.cuda.FloatTensor"', "changed"),
    ("x.type('torch.cuda.HalfTensor')", '.type("torch.cuda.HalfTensor")', "handled"),
    ("x.__cuda_array_interface__['data']", ".__cuda_array_interface__", "unsupported"),
    ("hasattr(x, '__cuda_array_interface__')", "__cuda_array_interface__", "changed"),
    ("class Net(nn.Module):\n    def cuda(self): pass\nNet().cuda()", ".cuda()", "handled"),
    ("class Batch:\n    def cuda(self): pass\nx = load(Batch)\nx.cuda()", ".cuda()", "handled"),
    ("class Batch:\n    def cuda(self): pass\nx = Batch()\nx = f(x)\nx.cuda()", ".cuda()", "handled"),
    ("class Batch:\n    def cuda(self):\n        self.x = self.x.cuda()", ".cuda()", "handled"),
    ("try:\n    import triton\nexcept ImportError:\n    triton = None", "import triton", "changed"),
]


@pytest.mark.parametrize(("code", "construct", "group"), CONSTRUCTS, ids=[row[0] for row in CONSTRUCTS])
def test_constructs(code: str, construct: str, group: str, known: Tables) -> None:
    assert [(each.construct, each.group) for each in found(code, known)] == [(construct, group)]


NOTHING = [
    "'the cuda in a sentence'",
    '"""cuda"""',
    "print('cudagraph')",
    "torch.load('cuda/model.pt', map_location='cpu')",
    "torch.zeros(2)",
    "x.to(torch.float32)",
    "from . import triton",
    "from .flash_attn import something",
    "torch.zeros(2, device='meta')",
    "class Wires:\n    def cuda(self): pass\nw = Wires()\nw.cuda()\nWires().cuda()",
    "class Wires(object):\n    def cuda(self): pass\n    def all(self): self.cuda()\ndef f(w: Wires): w.cuda()",
]


@pytest.mark.parametrize("code", NOTHING)
def test_what_binds_nothing_is_not_told(code: str, known: Tables) -> None:
    assert found(code, known) == []


def test_the_tables_are_the_runtimes(known: Tables) -> None:
    """Every row of the runtime is known by the path that it has there; nothing is copied."""
    assert [point.path for point in all_points() if not known.is_point(point.path)] == []
    assert known.movers >= {"cuda", "xpu"}


def test_every_row_of_the_masquerade_is_known(known: Tables) -> None:
    """By the path that user code writes, also through the submodule that defines it."""
    for space, rows in SURFACE.items():
        for row in rows:
            said = known.of_namespace(f"torch.{space}.{row.name}")
            assert said is not None
            assert said.group == GROUPS[row.kind], row
    assert known.of_namespace("torch.cuda.memory.memory_allocated") == known.of_namespace("torch.cuda.memory_allocated")
    assert known.of_namespace("torch.cuda.memory") is None
    assert known.of_namespace("torch.cuda.Stream.priority_range") == known.of_namespace("torch.cuda.Stream")


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("synchronize", "handled"),
        ("device_count", "simulated"),
        ("GreenContext", "unsupported"),
        ("no_such", "unsupported"),
    ],
)
def test_a_name_of_torch_cuda_is_judged_by_its_row(name: str, group: str, known: Tables) -> None:
    """Through every way of writing it."""
    ways = [f"torch.cuda.{name}()", f"cuda.{name}()", f"from torch.cuda import {name}"]
    assert [[(each.construct, each.group) for each in found(way, known)] for way in ways] == [
        [(f"torch.cuda.{name}", group)]
    ] * 3


TREE = {
    ".gitignore": "ignored/\n*.gen.py\n!kept.gen.py\n/top.py\n",
    "a.py": "x.cuda()\n",
    "top.py": "x.cuda()\n",
    "sub/top.py": "x.cuda()\n",
    "sub/.gitignore": "local.py\n",
    "sub/local.py": "x.cuda()\n",
    "ignored/b.py": "x.cuda()\n",
    "one.gen.py": "x.cuda()\n",
    "kept.gen.py": "x.cuda()\n",
    "kernel.cu": "__global__ void f() {}\n",
    "venv/pyvenv.cfg": "",
    "venv/lib/c.py": "x.cuda()\n",
    "notes.txt": "cuda\n",
}


def test_gitignore_is_respected(tmp_path: Path) -> None:
    write(tmp_path, TREE)
    names = [path.relative_to(tmp_path).as_posix() for path in walk(tmp_path)]
    assert names == ["a.py", "kept.gen.py", "kernel.cu", "sub/top.py"]


def test_gitignore_of_the_repository_above(tmp_path: Path) -> None:
    write(tmp_path, {".git/HEAD": "", ".gitignore": "sub/made.py\n", "sub/made.py": "", "sub/written.py": ""})
    assert [path.name for path in walk(tmp_path / "sub")] == ["written.py"]


@pytest.mark.processes
def test_notebooks(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["x.cuda()"]},
        {"cell_type": "code", "source": ["import torch as t\n", "%matplotlib inline\n", "!nvidia-smi"]},
        {"cell_type": "code", "source": "if True:\n    !pip install x\n    y = t.zeros(2, device='cuda')"},
    ]
    (tmp_path / "demo.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "broken.ipynb").write_text("[]")
    result = scan([tmp_path])
    assert [(Path(each.place).name, each.construct) for each in result.found] == [
        ("demo.ipynb[2]:3", "nvidia-smi"),
        ("demo.ipynb[3]:3", 'torch.zeros("cuda")'),
    ]
    assert [error for _, error in result.unreadable] == ["not a notebook"]


@pytest.mark.processes
def test_nothing_is_executed_and_bad_files_are_told(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "raise SystemExit('executed')\n", "b.py": "print 'python 2'\n"})
    (tmp_path / "c.py").write_bytes(b"\xff\xfe")
    result = scan([tmp_path])
    assert (result.files, [Path(file).name for file, _ in result.unreadable]) == (3, ["b.py", "c.py"])
    assert verdict(result) == "3 files read: no code names an accelerator; 2 files could not be read"


@pytest.mark.processes
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, {"a.py": "x.cuda()\ny.cuda()\n", "b.py": "import gsplat\n"})
    assert main(["scan", str(tmp_path), "--fail-on", "unsupported"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["Handled by translation (2)", f"  2 ×  .cuda()  first at {tmp_path}/a.py:1"]
    assert lines[-1] == (
        "2 files read, 2 with code for an accelerator: 2 handled, 1 unsupported; "
        "the program can fail where it reaches code that cannot work"
    )
    assert main(["scan", str(tmp_path / "a.py"), "--fail-on", "changed"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("2 handled; should run as it is")


RASTERIZER = "import torch\nfrom rasterizer_of_mine import draw\nimport helpers, lib.tools, json\nx.cuda()\n"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("beside", "ending"),
    [
        ({}, "1 handled; should run as it is"),
        (
            {".gitmodules": '[submodule "r"]\n\tpath = sub/rasterizer\n\turl = https://example.org/r\n'},
            "1 handled, 1 unknown; it may not run, because it needs rasterizer_of_mine",
        ),
        (
            {"kernels/draw.cu": ""},
            "1 handled, 1 unknown, 1 unsupported; the program can fail where it reaches code that cannot work",
        ),
        ({".gitmodules": "path = lib", "rasterizer_of_mine.py": ""}, "1 handled; should run as it is"),
    ],
)
def test_what_neither_the_tree_nor_the_environment_has_is_told(
    beside: dict[str, str], ending: str, tmp_path: Path
) -> None:
    write(tmp_path, {"draw.py": RASTERIZER, "helpers.py": "", "lib/tools.py": "", **beside})
    result = scan([tmp_path])
    assert verdict(result).endswith(ending)
    unknown = [each for each in result.found if each.group == "unknown"]
    assert all("sub/rasterizer" in each.note or "draw.cu" in each.note for each in unknown)


@pytest.mark.processes
def test_a_guarded_import_of_what_is_missing_is_not_told(tmp_path: Path) -> None:
    guarded = "try:\n    import rasterizer_of_mine\nexcept ImportError:\n    pass\nx.cuda()\n"
    write(tmp_path, {"draw.py": guarded, ".gitmodules": "path = sub"})
    assert verdict(scan([tmp_path])).endswith("1 handled; should run as it is")


@pytest.mark.processes
def test_a_package_beside_the_program_is_the_programs_own(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "import triton\nfrom apex import amp\n", "triton/__init__.py": "", "apex.py": ""})
    assert scan([tmp_path]).found == []


@pytest.mark.processes
def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, {"a.py": "x.cuda()\n"})
    assert main(["scan", "--json", str(tmp_path)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data == as_data(scan([tmp_path]))
    assert (data["schema"], data["counts"]["handled"], data["findings"][0]["line"]) == (1, 1, 1)


HOSTILE = {
    "deep.py": "(" * 5000 + ")" * 5000,
    "attributes.py": "a" + ".b" * 100_000,
    "nul.py": "x = 1\0",
    "latin.py": "# -*- coding: latin-1 -*-\nx.cuda()  # \xe9".encode("latin-1"),
    "unknown.py": "# -*- coding: klingon -*-",
    "bytes.py": bytes(range(256)),
    "list.ipynb": "[1, 2]",
    "cells.ipynb": '{"cells": [1, "a", null]}',
    "source.ipynb": '{"cells": [{"cell_type": "code", "source": {"a": 1}}]}',
    "deep.ipynb": "[" * 100_000,
    ".gitignore": "[z-a]\n\\\n**\n!*\n",
}


@pytest.mark.processes
def test_hostile_files_are_noted_and_the_rest_is_read(tmp_path: Path) -> None:
    for name, content in HOSTILE.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "plain.py").write_text("x.cuda()")
    found = scan([tmp_path])
    assert {Path(finding.file).name for finding in found.found} == {"plain.py", "latin.py"}
    assert {Path(file).name for file, _ in found.unreadable} >= {"deep.py", "nul.py", "unknown.py", "list.ipynb"}
    assert all(why for _, why in found.unreadable)


@contextmanager
def folders_below(root: Path, depth: int) -> Iterator[None]:
    """A tree deeper than Python's stack; removed from its bottom, because `shutil.rmtree` is recursive."""
    path = str(root)
    for _ in range(depth):
        path += "/d"
        os.mkdir(path)
    try:
        yield
    finally:
        for _ in range(depth):
            os.rmdir(path)
            path = path.removesuffix("/d")


@pytest.mark.processes
def test_pipes_links_huge_files_and_deep_trees_are_harmless(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "loop").symlink_to(tmp_path)
    with open(tmp_path / "huge.py", "wb") as file:
        file.truncate(1 << 30)  # a gigabyte that takes no room
    (tmp_path / "plain.py").write_text("x.cuda()")
    with folders_below(tmp_path, 1200):
        found = scan([tmp_path])
    assert [Path(finding.file).name for finding in found.found] == ["plain.py"]
    assert found.unreadable == [(str(tmp_path / "huge.py"), "larger than 1 MiB")]


@pytest.mark.processes
@pytest.mark.parametrize("backend", ["nccl", "NCCL", "cuda:nccl", "cpu:gloo,cuda:nccl"])
def test_backends_are_told_as_the_runtime_translates_them(backend: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import torch.distributed as dist\ndist.init_process_group({backend!r})\n")
    (finding,) = scan([script]).found
    assert (finding.group, finding.construct) == ("handled", f'the backend "{backend}"')
    assert "gloo" in finding.note


PATTERNS = [
    "*.py",
    "a*b.py",
    "/a.py",
    "sub/*.py",
    "sub/**",
    "**/deep",
    "sub/**/x.py",
    "a?.py",
    "[ab]*.py",
    "[!a]*.py",
    "/",
]
PATTERNS += [
    "sub",
    "sub/",
    "*/x.py",
    "**",
    "a**b.py",
    "***",
    "sub/deep/",
    "!*.py",
    "x",
    "**/x.py",
    "[z-a].py",
    "\\a.py",
]
PATHS = ["a.py", "ab.py", "acb.py", "b.py", "x.py", "sub/x.py", "sub/a.py", "sub/deep/x.py", "sub/deep/er/x.py"]


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git to compare with")
def test_gitignore_means_what_it_means_to_git(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(PATHS, ""))
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for pattern in PATTERNS:
        (tmp_path / ".gitignore").write_text(pattern + "\n", encoding="utf-8")
        asked = subprocess.run(
            ["git", "check-ignore", "--no-index", *PATHS], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        ignored = {path.relative_to(tmp_path).as_posix() for path in walk(tmp_path)} ^ set(PATHS)
        assert ignored == set(asked.stdout.split()), pattern


@pytest.mark.parametrize("line", ["*" * 60 + '"', "*a" * 60 + "b", "**/" * 60 + "b", "[a-z]*" * 40 + "!", "(a+)+" * 9])
def test_a_gitignore_that_means_harm_takes_no_time(line: str, tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["a"] * 40)
    folder.mkdir(parents=True)
    (folder / ("a" * 200 + ".py")).write_text("", encoding="utf-8")
    (tmp_path / ".gitignore").write_text(line + "\n", encoding="utf-8")
    assert len(list(walk(tmp_path))) == 1


SLOW = "x = [" + "1, " * 600_000 + "]"
HUGE_CELL = {"cells": [{"cell_type": "code", "source": ["y = 1\n"] * 300_000}]}
UNBOUNDED = {
    "punycode.py": (
        "# coding: punycode\n" + "a" * 400_000,
        "its encoding is punycode: only UTF-8 and Latin-1 are read",
    ),
    "zip.py": ("# coding: zip\nx.cuda()\n", "its encoding is zip: only UTF-8 and Latin-1 are read"),
    "list.py": (SLOW, "larger than 1 MiB"),
    "cell.ipynb": (json.dumps(HUGE_CELL), "cell 1 is larger than 1 MiB"),
}


@pytest.mark.processes
def test_what_would_take_long_is_not_read_and_the_rest_is(tmp_path: Path) -> None:
    write(tmp_path, {name: text for name, (text, _) in UNBOUNDED.items()})
    write(tmp_path, {"plain.py": "x.cuda()\n", "ascii.py": "# coding: us-ascii\nx.cuda()\n"})
    result = scan([tmp_path])
    assert {Path(file).name: why for file, why in result.unreadable} == {
        name: why for name, (_, why) in UNBOUNDED.items()
    }
    assert sorted(Path(finding.file).name for finding in result.found) == ["ascii.py", "plain.py"]


@pytest.mark.processes
def test_what_is_no_file_is_not_read_even_if_it_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    (tmp_path / "zero.ipynb").symlink_to("/dev/zero")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nothing")
    (tmp_path / "plain.py").write_text("x.cuda()")
    (tmp_path / "link.py").symlink_to(tmp_path / "plain.py")
    result = scan(sorted(tmp_path.iterdir()))
    assert [Path(finding.file).name for finding in result.found] == ["link.py", "plain.py"]
    assert [(Path(file).name, why) for file, why in result.unreadable if "No such file" not in why] == [
        ("pipe.py", "not a regular file"),
        ("zero.ipynb", "not a regular file"),
        ("zero.py", "not a regular file"),
    ]


@pytest.mark.parametrize("name", [".gitignore", ".gitmodules"])
@pytest.mark.parametrize("kind", ["huge", "zero", "pipe", "folder", "blank lines"])
@pytest.mark.processes
def test_lists_of_a_repository_that_nobody_wrote_mean_nothing(name: str, kind: str, tmp_path: Path) -> None:
    listed = tmp_path / name
    if kind == "huge":
        listed.write_text("*.py\n")
        os.truncate(listed, 400 << 20)
    elif kind == "zero":
        listed.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(listed)
    elif kind == "folder":
        listed.mkdir()
    else:
        listed.write_text("\n" * 60_000)
    (tmp_path / "plain.py").write_text("x.cuda()")
    assert len(scan([tmp_path]).found) == 1


def test_a_gitignore_with_too_many_rules_means_nothing(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.py\n" * (MOST_RULES + 1))
    (tmp_path / "plain.py").touch()
    assert [path.name for path in walk(tmp_path)] == ["plain.py"]


def in_turn(*files: object) -> list[object]:
    """What becomes of files that do something to the process that reads them."""

    def read(path: Path) -> list[Finding]:
        does = files[int(path.name)]
        return does() or [] if callable(does) else []

    return list(read_each([Path(str(number)) for number in range(len(files))], read))


def computes_for_ever() -> None:
    while True:
        pass


@pytest.mark.processes
def test_a_file_that_takes_too_much_is_given_up_and_the_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 1)
    monkeypatch.setattr(limits, "MEMORY", 64 << 20)
    fine: list[Finding] = []
    assert in_turn(
        None,
        computes_for_ever,
        None,
        lambda: [bytearray(128 << 20)][:0],
        None,
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        lambda: {}["a codec that fails in its own way"],
        lambda: os._exit(0),
    ) == [
        fine,
        "takes more than 1 seconds",
        fine,
        "takes too much memory, or is nested too deeply",
        fine,
        "reading it ended by SIGKILL",
        "'a codec that fails in its own way'",
        "reading it ended early",
    ]


@pytest.mark.processes
def test_who_stops_listening_ends_the_child() -> None:
    others = {child.pid for child in psutil.Process().children()}
    answers = read_each([Path("0"), Path("1")], lambda path: computes_for_ever() or [] if path.name == "1" else [])
    assert next(answers) == []
    assert {child.pid for child in psutil.Process().children()} > others
    answers.close()  # type: ignore[attr-defined]
    assert {child.pid for child in psutil.Process().children()} == others


@pytest.mark.processes
@pytest.mark.parametrize(
    ("files", "status"),
    [
        ({"a.py": "x.cuda()"}, 0),
        ({"a.py": "import gsplat"}, 1),
        ({"a.py": "x.cuda()", "b.py": "# coding: zip\n"}, 2),
        ({"a.py": "import gsplat", "b.py": "print 'python 2'"}, 1),
    ],
)
def test_a_gate_does_not_pass_what_was_not_read(
    files: dict[str, str], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, files)
    assert main(["scan", str(tmp_path), "--fail-on", "unsupported"]) == status
    assert main(["scan", str(tmp_path)]) == 0
    assert ("could not be read" in capsys.readouterr().out) == ("b.py" in files)


@pytest.mark.processes
def test_a_folder_that_is_closed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root reads everything, so the refusal is made here."""
    write(tmp_path, {"closed/a.py": "import triton", "b.py": "x.cuda()"})
    scandir = os.scandir

    def refusing(path: Path) -> Iterator[os.DirEntry[str]]:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    result = scan([tmp_path])
    assert [(Path(file).name, why) for file, why in result.unreadable] == [("closed", "not a regular file")]
    assert main(["scan", str(tmp_path), "--fail-on", "unsupported"]) == 2
