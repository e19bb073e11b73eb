"""Reports from records: grouping, the forms, where they go, and how counts travel between processes."""

from __future__ import annotations

import html.parser
import io
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.virtual.harness import run_python
from torchdevice.errors import ConfigError
from torchdevice.ledger import REFUSED, Changed, Fallback, FallbackTotals, Redirect, Simulated, Site
from torchdevice.reporting import destinations, rewrites, spool, text, trace
from torchdevice.reporting import html as html_report
from torchdevice.reporting import json as json_report
from torchdevice.reporting.collect import Context, Counts, Event, Memory, Moment, Profile, Report, Timed
from torchdevice.reporting.destinations import Destination
from torchdevice.reporting.profile import operator_note
from torchdevice.reporting.rewrites import suggestion

CONTEXT = Context("cpu", "accelerate", "python train.py", {"torch": "2.13"}, 2, 1.5)


def record(
    line: int, api: str = "torch.zeros", asked: str = "cuda", given: str = "cpu", file: str = "train.py"
) -> Redirect:
    return Redirect(api, asked, given, f"no {asked} here", Site(file, line))


TOTALS = {record(7): 30, record(3): 2, record(9, "torch.amp.autocast_mode.autocast.__init__"): 1}
REPORT = Report.of(TOTALS)


def test_rows_group_places() -> None:
    first, second = REPORT.rows
    assert (first.api, first.calls, first.places, first.first) == ("torch.zeros", 32, 2, Site("train.py", 3))
    assert second.api == "torch.amp.autocast_mode.autocast"
    assert [place.site.line for place in REPORT.by_place] == [3, 7, 9]
    assert REPORT.summary() == (
        "torchdevice: cuda → cpu · 33 calls redirected at 3 places · 0 ops fell back · 0 unsupported"
    )


def test_a_virtual_device_is_named_with_its_backing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    context = Context("cuda", "portable", computed_by="mps")
    line = REPORT.summary().replace("torchdevice: ", "torchdevice: virtual cuda on mps · ")
    assert text.render(REPORT, context).startswith("torchdevice report: target virtual cuda on mps, policy portable")
    assert f"\n{line} · 0.0 s" in text.render(REPORT, context)
    data = json_report.as_data(REPORT, context)
    assert (data["summary"], data["context"]["target"], data["context"]["computed_by"]) == (line, "cuda", "mps")
    assert ">virtual cuda on mps · cuda → cpu · " in html_report.render(REPORT, context)
    assert "<dd>virtual cuda on mps, policy portable</dd>" in html_report.render(REPORT, context)
    destinations.write(REPORT, context, (Destination("summary"),))
    assert capsys.readouterr().err.startswith(line)


def test_answers_are_a_section_of_their_own(tmp_path: Path) -> None:
    totals = TOTALS | {Simulated("torch.cuda.device_count", "simulated", "cpu", Site("train.py", 3)): 4}
    report = Report.of(totals)
    assert (report.calls, report.places) == (33, 3)
    assert "33 calls redirected at 3 places · 4 calls answered at 1 place · 0 ops fell back" in report.summary()
    assert "torch.cuda.device_count  cuda   cpu    4      1       train.py:3" in text.render(report, CONTEXT)
    assert json_report.as_data(report, CONTEXT)["counts"]["simulated"] == {"calls": 4, "places": 1}
    spool.write(tmp_path, Counts(totals))
    assert spool.read(tmp_path) == Counts(totals)


def test_counts_of_processes_and_of_moments() -> None:
    both = Counts(TOTALS, FELL_BACK, 2.0) + Counts({record(7): 1, record(8): 1}, FELL_BACK, 1.0)
    assert (both.records[record(7)], both.records[record(8)], both.seconds, both.processes) == (31, 1, 3.0, 2)
    assert both.fallbacks[EIGH] == FallbackTotals(6, 1.0, 4000)
    later = Counts(TOTALS, {EIGH: FallbackTotals(5, 0.75, 2500)}).since(Counts({record(7): 30}, FELL_BACK))
    assert later.records == {key: calls for key, calls in TOTALS.items() if key != record(7)}
    assert later.fallbacks == {EIGH: FallbackTotals(2, 0.25, 500)}
    assert not Counts(TOTALS, FELL_BACK).since(Counts(TOTALS, FELL_BACK))


EIGH = Fallback("aten::_linalg_eigh", "cpu", "mps has no kernel for it", ("float32",), Site("train.py", 4))
FELL_BACK = {EIGH: FallbackTotals(3, 0.5, 2000)}
EVERYTHING = Counts(
    {
        **TOTALS,
        Changed("torch.Tensor.double", "float64", "float32", "mps has no float64", Site("train.py", 5)): 2,
        Simulated("torch.cuda.jiterator", "unsupported", "mps", Site("train.py", 6)): 1,
    },
    {
        **FELL_BACK,
        Fallback("aten::mode", "mlx", "mps has no kernel for it", ("int64",), Site("train.py", 8)): FallbackTotals(
            1, 0.002, 10
        ),
        Fallback("aten::put_", REFUSED, "fallbacks are off", ("float32",), Site("train.py", 9)): FallbackTotals(
            1, 0.0, 0
        ),
    },
    4.0,
    Profile(
        {("aten::mm", "mps"): Timed(7, 1.25), ("aten::mode", "mlx"): Timed(1, 0.002), ("aten::mm", "cpu"): Timed(1)},
        {Site("train.py", 4): Timed(90, 0.9, 0.5), Site("train.py", 7): Timed(5, 0.05)},
        2.0,
        batches=3,
        samples=24,
        operator_memory={("aten::mm", "mps"): Memory(2_000_000, 5_000_000)},
        line_memory={Site("train.py", 4): Memory(3_000_000, 5_000_000, 40_000), Site("train.py", 7): Memory(10)},
        timeline=(Moment(1, 9.0, 0, 0.0), Moment(1, 9.5, 5_000_000, 0.25), Moment(1, 10.0, 2_500_000, 0.5)),
        events=(Event("aten::mm", "mps", 1, 0, 9.25, 0.125),),
    ),
)


def test_everything_travels_and_is_told(tmp_path: Path) -> None:
    spool.write(tmp_path, EVERYTHING)
    assert spool.read(tmp_path) == EVERYTHING
    report = Report.of_counts(spool.read(tmp_path))
    assert report.summary() == (
        "torchdevice: cuda → cpu · 33 calls redirected at 3 places · 2 calls changed meaning at 1 place · "
        "2 ops fell back · 2 unsupported"
    )
    shown = text.render(report, Context("mps", "accelerate", seconds=2.0, process_seconds=4.0)).splitlines()
    assert [line for line in shown if "torch.Tensor.double" in line] == [
        "torch.Tensor.double  float64  float32  2      1       train.py:5"
    ]
    assert [line for line in shown if "_linalg_eigh" in line] == [
        "aten::_linalg_eigh  cpu     3      1       500.0 ms  2.0 kB  mps has no kernel for it  train.py:4"
    ]
    assert [line.split()[0] for line in shown if "refused" in line] == ["aten::put_", "torch.cuda.jiterator"]
    assert "operator    calls  on mps  on mlx  on cpu  share  allocated" in shown
    assert "aten::mm    8      1.25 s          0.0 ms  100%   2.0 MB" in shown
    assert "train.py:4  3.0 MB     5.0 MB  40.0 kB" in shown
    assert "train.py:7  10 B" in shown
    assert "train.py:4  900.0 ms  45%    500.0 ms" in shown
    assert shown[-1] == f"{report.summary()} · 2.0 s · 502.0 ms (12.6%) in fallbacks"
    data = json_report.as_data(report, CONTEXT)
    assert data["counts"]["fallbacks"] == {"operators": 2, "calls": 4, "places": 2, "seconds": 0.502, "bytes": 2010}
    assert data["counts"]["unsupported"] == {"calls": 2, "places": 2}
    times = {"seconds": 0.9, "fallback_seconds": 0.5, "first_use_seconds": 0.0}
    assert data["profile"]["lines"][0] == {"file": "train.py", "line": 4, **times}
    memory = {"allocated": 3_000_000, "held": 5_000_000, "copied": 40_000}
    assert data["profile"]["memory"][0] == {"file": "train.py", "line": 4, **memory}
    assert data["profile"]["timeline"][2] == {"process": 1, "seconds": 10.0, "held": 2_500_000, "busy": 0.5}
    (call,) = [each for each in json.loads(trace.render(report, CONTEXT))["traceEvents"] if each["ph"] == "X"]
    assert (call["name"], call["ts"], call["dur"], call["pid"], call["tid"]) == ("aten::mm", 250_000, 125_000, 1, 0)
    page = html_report.render(report, CONTEXT)
    assert 'class="bar cpu" style="width: 100.0%"' in page
    assert 'class="bar mlx" style="width: 0.4%"' in page
    assert 'class="work" points="0.0,120.0 0.0,60.0 500.0,60.0 500.0,0.0 1000.0,0.0 1000.0,120.0"' in page
    assert 'class="memory" points="0.0,120.0 0.0,0.0 500.0,0.0 500.0,60.0 1000.0,60.0 1000.0,120.0"' in page
    assert "aten::_linalg_eigh" in html_report.fragment(report)


def test_plain_text() -> None:
    assert text.render(REPORT, CONTEXT).splitlines() == [
        "torchdevice report: target cpu, policy accelerate (torch 2.13)",
        "",
        "Redirected",
        "API                               asked  given  calls  places  first place",
        "torch.zeros                       cuda   cpu    32     2       train.py:3",
        "torch.amp.autocast_mode.autocast  cuda   cpu    1      1       train.py:9",
        "",
        f"{REPORT.summary()} · 1.5 s · 2 processes · 0.0 ms (0.0%) in fallbacks",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = Terminal()
    text.write(REPORT, CONTEXT, shown)
    assert "\x1b[1m" in shown.getvalue()
    assert "torch.amp.autocast_mode.autocast" in shown.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    text.write(REPORT, CONTEXT, plain)
    assert plain.getvalue() == text.render(REPORT, CONTEXT)


def test_json_is_stable() -> None:
    shuffled = Report.of(dict(reversed(TOTALS.items())))
    assert json_report.render(REPORT, CONTEXT) == json_report.render(shuffled, CONTEXT)
    data = json.loads(json_report.render(REPORT, CONTEXT))
    assert list(data) == [*("schema", "summary", "context", "counts", "rows", "places", "fallbacks", "profile")]
    assert data["places"][0] == {
        "kind": "redirected",
        "api": "torch.zeros",
        "asked": "cuda",
        "given": "cpu",
        "calls": 2,
        "reason": "no cuda here",
        "file": "train.py",
        "line": 3,
    }


class Page(html.parser.HTMLParser):
    """Fails on tags that do not match, and collects what would need a network."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def page(tmp_path: Path) -> Path:
    script = tmp_path / "train <1>.py"
    script.write_text('x = "<script>"\ny = torch.zeros(2, device="cuda")\nz = y.cuda()\nw = f(y)\n')
    totals = {record(2, file=str(script)): 5, record(3, "torch.Tensor.cuda", file=str(script)): 1}
    totals |= {record(1, file=str(script)): 1, record(4, file=str(script)): 1, record(1, file="<stdin>"): 1}
    path = tmp_path / "report.html"
    path.write_text(html_report.render(Report.of(totals), CONTEXT))
    return path


def test_html_is_one_whole_file(page: Path) -> None:
    parsed = Page()
    parsed.feed(page.read_text())
    assert (parsed.open, parsed.fetched) == ([], [])
    assert "<script>&#34;" not in page.read_text()
    assert "x = &#34;&lt;script&gt;&#34;" in page.read_text()
    assert "y = torch.zeros(2, device=device)" in page.read_text()
    assert "this program needed no help" in html_report.render(Report.of({}), CONTEXT)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
@pytest.mark.parametrize(("filter_text", "shown"), [("", "5 of 5 lines"), ("tensor.cuda", "1 of 5 lines")])
def test_html_filters_in_a_browser(filter_text: str, shown: str, page: Path, tmp_path: Path) -> None:
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    address = f"{page.as_uri()}#{filter_text}"
    done = subprocess.run([*command, "--dump-dom", address], capture_output=True, text=True, timeout=120, check=True)
    assert f'id="shown">{shown}<' in done.stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "device = torch.device('cuda')",
            'device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")',
        ),
        ("x = f(torch.device('cuda:0'))", "x = f(device)"),
        ("x = x.cuda()", "x = x.to(device)"),
        ("x = x.cuda(non_blocking=True)", "x = x.to(device, non_blocking=True)"),
        ("x = x.cuda(args.gpu)", "x = x.to(device)"),
        ("x = x.to('cuda:1', torch.half)", "x = x.to(device, torch.half)"),
        ("torch.load(p, map_location='cuda')", "torch.load(p, map_location=device)"),
        ("with torch.cuda.amp.autocast():", "with torch.autocast(device.type):"),
        ("with torch.cuda.amp.autocast(dtype=d):", "with torch.autocast(device.type, dtype=d):"),
        ("scaler = torch.amp.GradScaler('cuda', enabled=e)", "scaler = torch.amp.GradScaler(device.type, enabled=e)"),
        ("with torch.autocast(device_type='cuda', dtype=d):", "with torch.autocast(device_type=device.type, dtype=d):"),
        ("with torch.amp.autocast('cuda', dtype=d):", "with torch.autocast(device.type, dtype=d):"),
        ("torch.cuda.synchronize()", "if torch.accelerator.is_available(): torch.accelerator.synchronize()"),
        ("torch.cuda.set_device(1)", "if torch.accelerator.is_available(): torch.accelerator.set_device_index(1)"),
        (
            "n = torch.cuda.max_memory_allocated()",
            "n = (torch.accelerator.max_memory_allocated() if torch.accelerator.is_available() else 0)",
        ),
        ("torch.cuda.manual_seed_all(0)", "torch.manual_seed(0)"),
        (
            "dist.init_process_group('nccl')",
            "dist.init_process_group(torch.distributed.get_default_backend_for_device(device))",
        ),
        ("open('cuda.txt')", None),
        ("x = f'cuda:{rank}'", None),
    ],
)
def test_suggestions(line: str, expected: str | None) -> None:
    assert suggestion(f"    {line}\n", "cuda") == expected


def test_what_is_suggested_runs_without_an_accelerator() -> None:
    names = [*rewrites._DOING, *rewrites._ON_CPU]
    lines = [suggestion(f"torch.cuda.{name}({'0' if name.startswith('set_') else ''})", "cuda") for name in names]
    code = "\n".join(["import torch", "assert not torch.accelerator.is_available()", *map(str, lines)])
    done = run_python("-c", code, env={"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0, done.stderr


def test_suggested_names_exist() -> None:
    import torch

    assert [new for new in rewrites._ACCELERATOR_NAMES.values() if not hasattr(torch.accelerator, new)] == []
    assert [old for old in rewrites._ACCELERATOR_NAMES if not hasattr(torch.cuda, old)] == []


def test_destinations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert destinations.parse("text,json:a,b.json,html:/x.html,summary") == (
        Destination("text"),
        Destination("json", str(tmp_path / "a,b.json")),
        Destination("html", "/x.html"),
        Destination("summary"),
    )
    assert destinations.parse("") == ()
    for bad in ("pdf:x", "json", "json:", "script.py"):
        with pytest.raises(ConfigError, match="use text, json:PATH, html:PATH or trace:PATH"):
            destinations.parse(bad)


def test_a_report_that_cannot_be_written_costs_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    destinations.write(REPORT, CONTEXT, (Destination("json", str(tmp_path / "no" / "r.json")), Destination("summary")))
    assert capsys.readouterr().err.splitlines() == [
        f"torchdevice: the report {tmp_path}/no/r.json was not written: No such file or directory",
        REPORT.summary(),
    ]


def test_counts_travel_between_processes(tmp_path: Path) -> None:
    folder = Path(spool.new_folder())
    folder = tmp_path / folder.name
    assert (spool.claim(folder), spool.claim(folder)) == (True, False)
    spool.write(folder, Counts(TOTALS, seconds=1.0))
    assert spool.read(folder) == Counts(TOTALS, seconds=1.0)
    spool.write(folder, Counts(TOTALS, seconds=1.0))  # the same process id again
    assert spool.read(folder).processes == 2
    spool.remove(folder)
    assert not folder.exists()
    assert spool.read(folder) == Counts(processes=0)
    with pytest.raises(FileNotFoundError):
        spool.write(folder, Counts(TOTALS))


def test_what_a_program_keeps_in_the_folder_of_a_run_stays(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    assert spool.claim(folder)
    kept = [folder / "scores.json", folder / "12-notes.part"]
    for file in kept:
        file.write_text("{}", encoding="utf-8")
    spool.write(folder, Counts(TOTALS))
    assert spool.read(folder) == Counts(TOTALS)
    spool.remove(folder)
    assert sorted(folder.iterdir()) == sorted(kept)


@pytest.mark.parametrize("made", ["a link", "open to others", "another user's"])
def test_a_folder_that_somebody_made_after_the_run_gets_nothing(made: str, tmp_path: Path) -> None:
    if made == "another user's" and os.geteuid() != 0:
        pytest.skip("needs root to give a folder to another user")
    folder, elsewhere = tmp_path / "torchdevice-1-0123456789abcdef", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if made == "a link":
        folder.symlink_to(elsewhere)
    else:
        folder.mkdir()
        folder.chmod(0o777 if made == "open to others" else 0o700)
        os.chown(folder, 65534 if made == "another user's" else -1, -1)
    with pytest.raises(FileNotFoundError):
        spool.write(folder, Counts(TOTALS))
    assert list(folder.iterdir()) == list(elsewhere.iterdir()) == []


def test_who_began_a_run_is_in_its_name(tmp_path: Path) -> None:
    assert spool.began_here(Path(spool.new_folder()))
    for name in (f"torchdevice-{os.getpid() + 1}-0123456789abcdef", "results", f"torchdevice-{os.getpid()}-x"):
        assert not spool.began_here(tmp_path / name)


def test_the_summary_shows_a_way_to_everything_that_was_given() -> None:
    asked = ["cuda", "cpu", "none given", "cuda:1", "xpu"]
    totals = {Redirect("torch.zeros", each, "mps:0", "why", Site("a.py", n)): 9 for n, each in enumerate(asked)}
    totals[Redirect("torch.distributed.init_process_group", "nccl", "gloo", "why", Site("a.py", 8))] = 1
    assert Report.of(totals).summary().startswith("torchdevice: cpu → mps:0, cuda → mps:0, nccl → gloo · ")


@pytest.mark.parametrize(("half", "said"), [(0.0, ""), (0.4, ""), (0.6, "took 60% of this time")])
def test_float16_on_a_cpu_is_named_where_it_took_most_of_the_time(half: float, said: str) -> None:
    profile = Profile({("aten::mm", "cpu"): Timed(1, 1.0)}, half_seconds=half / 2)
    note = operator_note(profile + Profile({}, half_seconds=half / 2))
    assert said in note
    assert bool(note) == bool(said)
