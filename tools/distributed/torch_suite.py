"""torch's own distributed tests, as far as they are in its wheel, with BACKEND=nccl on the backends of this machine.

    python -m tools.distributed.torch_suite              all settings; writes the figures into docs/distributed.md
    torchrun … -m tools.distributed.torch_suite FOLDER   one rank (started by the first form)

torch starts fresh processes for each of its 300 tests. Here the ranks keep running and execute the tests one by one,
each with its own process group. A test on which the ranks disagree waits for its timeout.
"""

from __future__ import annotations

import collections
import json
import os
import sys
import tempfile
import traceback
import unittest
from datetime import timedelta
from pathlib import Path

from tests.distributed.harness import ROOT, torchrun

SETTINGS = {
    "translated to the CPU": {"TORCHDEVICE": "1", "TORCHDEVICE_TARGET": "cpu", "TORCHDEVICE_DEVICE_COUNT": "3"},
    "virtual `cuda`, 3 devices": {"TORCHDEVICE_VIRTUAL": "cuda:3"},
}
TIMEOUT = timedelta(seconds=20)
RANKS = 3
MODULE = "torch.testing._internal.distributed.distributed_test"
# They end their process, wait for minutes by design, or need processes that torch starts for each test.
LEFT_OUT = {
    "test_ddp_has_finalized": "ends its process",
    "test_monitored_barrier_allreduce_hang": "waits for a timeout by design",
    "test_monitored_barrier_allreduce_hang_wait_all_ranks": "waits for a timeout by design",
    "test_monitored_barrier_failure_order": "waits for a timeout by design",
    "test_monitored_barrier_gloo_rank_0_timeout": "waits for a timeout by design",
    "test_monitored_barrier_gloo_subgroup": "waits for a timeout by design",
    "test_monitored_barrier_wait_all_ranks": "waits for a timeout by design",
    "test_ddp_remove_autograd_hooks": "leaves its process unusable",
}
# Failures that are not errors of the computation: a part of the traceback, and the reason ("because the test …").
REASONS = {
    "self.assertEqual(len(events)": "looks for profiler events named `nccl:…`; gloo's have other names",
    "_profiler": "looks for profiler events named `nccl:…`; gloo's have other names",
    "'torchvision' is not defined": "needs torchvision",
    "Pair is not connected": "lets a rank send to itself, which gloo does not support",
    "'gloo' != 'nccl'": "reads the backend from torch's log, which names gloo",
    "current_accelerator": "uses torch.accelerator, which reports the real device to torch's own files",
    "torch.accelerator": "uses torch.accelerator, which reports the real device to torch's own files",
    "doesn't support events": "uses DDP's own mixed precision, which needs events; torch has none for CPUs",
    "is out of range. Valid ranks": "needs four ranks",
    "failed to listen on any local network": "lets all ranks listen on the port of torchrun's own store",
    "None is not 0": "checks `device_ids`, which are omitted on the CPU",
    "'' != '0'": "checks `device_ids`, which are omitted on the CPU",
    "Cannot access accelerator device": "uses a hook that waits for the stream of an accelerator",
    "test_ddp_apply_optim_in_backward": "lets SGD diverge (weights of 10⁶): rounding grows past its tolerance",
    "test_ddp_uneven_inputs": "computes longer than the 20 s timeout of collectives in this run",
    "Unsupported global: GLOBAL": "loads a function with `weights_only`, which plain torch refuses as well",
    "only implemented for GLOO": "needs a group whose backend is called gloo",
    "nccl_socket_ifname": "needs the log of a group whose backend is called gloo",
}
BEGIN, END = "<!-- torch_suite begins -->", "<!-- torch_suite ends -->"


def rank_main(folder: Path) -> None:
    """One rank: every test, its outcome agreed on with the others."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ.update(BACKEND="nccl", TEMP_DIR=str(folder), INIT_METHOD="env://")
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)  # some tests meet at a store of their own
    import torch
    import torch.distributed as dist

    _count_as_user_code()
    from torch.testing._internal.distributed import distributed_test

    # A profile shows gloo's events. The tests must not look for NCCL's names, so that they go on to compare values.
    distributed_test.PROFILING_SUPPORTED_BACKENDS.remove(dist.Backend.NCCL)
    base = distributed_test.DistributedTest._DistTestBase
    kind = type("TestDistBackend", (distributed_test.TestDistBackend, base), {})
    agreed = dist.FileStore(str(folder / "agreed"), world)
    outcomes: dict[str, list[str]] = {}
    for name in unittest.TestLoader().getTestCaseNames(kind):
        if name in LEFT_OUT:
            continue
        own = folder / name  # what torch makes anew for each test
        os.environ["TEMP_DIR"] = str(own)
        for each in ("barrier", "test_dir", "init_dir"):
            (own / each).mkdir(parents=True, exist_ok=True)
        distributed_test.Barrier.barrier_id = 0
        dist.set_debug_level(dist.DebugLevel.OFF)
        if torch.cuda.is_available():
            torch.cuda.set_device(rank)
        store = dist.FileStore(str(folder / f"store_{name}"), world)
        dist.init_process_group("nccl", store=store, rank=rank, world_size=world, timeout=TIMEOUT)
        torch.manual_seed(0)  # as in processes that have just started
        outcome = _run(kind(name), name, rank)
        agreed.set(f"{name}/{rank}", json.dumps(outcome))
        keys = [f"{name}/{each}" for each in range(world)]
        agreed.wait(keys, TIMEOUT * 6)
        outcomes[name] = min((json.loads(agreed.get(key)) for key in keys), key=_severity)
        if dist.is_initialized():  # some tests end it themselves
            dist.destroy_process_group()
        if rank == 0:
            (folder / "unfinished").write_text(json.dumps(outcomes))
            (folder / "unfinished").replace(folder / "outcomes.json")  # atomic: complete even if we are killed
    os._exit(0)  # a test may have left threads behind


def _severity(outcome: list[str]) -> int:
    return ["failed", "passed", "skipped"].index(outcome[0])


def _run(case: unittest.TestCase, name: str, rank: int) -> list[str]:
    case.rank = rank  # type: ignore[attr-defined]
    case.file_name = ""  # type: ignore[attr-defined]
    try:
        getattr(case, name)()
    except unittest.SkipTest as skip:
        return ["skipped", str(skip)]
    except SystemExit as left:  # how torch's decorators skip in a rank
        from torch.testing._internal.common_distributed import TEST_SKIPS

        reasons = {skip.exit_code: skip.message for skip in TEST_SKIPS.values()}
        return ["skipped", reasons.get(left.code, f"exit {left.code}")]
    except BaseException as error:
        return ["failed", f"{type(error).__name__}: {error}"[:400] + "\n" + traceback.format_exc()[-1500:]]
    return ["passed", ""]


def _count_as_user_code() -> None:
    """Treat torch's tests as user code; torch's own files get the real devices. The tests query devices on import."""
    import torchdevice
    from torchdevice._torch.core import TORCH_FOLDER
    from torchdevice.policy.resolve import Caller
    from torchdevice.session import session
    from torchdevice.translate.callers import _role

    if torchdevice.is_active():
        for path in Path(TORCH_FOLDER, "testing", "_internal").rglob("*.py"):
            session._translator.roles[str(path)] = _role(Caller.USER, inner=False)


def _reason(name: str, said: str) -> str:
    return next((reason for piece, reason in REASONS.items() if piece in f"{name} {said}"), "")


def main() -> None:
    lines = ["| run | passed | failed | skipped by torch | left out |", "| --- | --- | --- | --- | --- |"]
    failures: list[str] = []
    for title, settings in SETTINGS.items():
        with tempfile.TemporaryDirectory() as folder:
            command = ("-m", "tools.distributed.torch_suite", folder)
            done = torchrun(RANKS, *command, timeout=3000, **settings)  # type: ignore[arg-type]
            path = Path(folder) / "outcomes.json"
            if not path.exists():
                raise SystemExit(done.stdout + done.stderr[-5000:])
            outcomes = json.loads(path.read_text())
        if done.returncode != 0:
            title += f", which ended after `{list(outcomes)[-1]}`"
            print(f"{title}\n{done.stderr[-3000:]}", file=sys.stderr)
        counts = collections.Counter(kind for kind, _ in outcomes.values())
        figures = [counts["passed"], counts["failed"], counts["skipped"], len(LEFT_OUT)]
        lines.append(f"| {title} | {' | '.join(map(str, figures))} |")
        failed = {name: said for name, (kind, said) in sorted(outcomes.items()) if kind == "failed"}
        why = collections.Counter(_reason(name, said) for name, said in failed.items())
        failures += [f"| {title} | {count} | {reason} |" for reason, count in why.most_common() if reason]
        unexplained = {name: said for name, said in failed.items() if not _reason(name, said)}
        failures += [f"| {title} | 1 | `{name}`: {said.splitlines()[0][:120]} |" for name, said in unexplained.items()]
    if failures:
        failures = ["| run | failed | because the test |", "| --- | --- | --- |", *failures]
    text = "\n".join([*lines, "", *failures])
    print(text)
    docs = ROOT / "docs" / "distributed.md"
    whole = docs.read_text(encoding="utf-8")
    before, _, rest = whole.partition(BEGIN)
    _, _, after = rest.partition(END)
    docs.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        rank_main(Path(sys.argv[1]))
    else:
        main()
