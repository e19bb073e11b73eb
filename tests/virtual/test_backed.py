"""A virtual device on an accelerator computes there, and is the virtual device to the program."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - everybody calls it so
from torch import nn

import torchdevice.virtual
from tests.cli.harness import python
from tests.virtual import backed, test_namespaces, test_tensors, test_threads
from tests.virtual.harness import on
from torchdevice.errors import ConfigError, VirtualDeviceUnavailable
from torchdevice.translate import direct


def _trained(device: str) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    x, y = torch.randn(2, 3, 8, 8).to(device), torch.tensor([0, 1], device=device)
    losses = []
    for _ in range(3):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _attention(device: str) -> list[torch.Tensor]:
    q, k, v = (torch.randn(2, 4, 8, 16).to(device).requires_grad_() for _ in range(3))
    mask = torch.ones(8, 8, dtype=torch.bool).tril().to(device)
    results = [F.scaled_dot_product_attention(q, k, v, is_causal=True), F.scaled_dot_product_attention(q, k, v, mask)]
    sum(result.sum() for result in results).backward()  # type: ignore[union-attr]
    return [*results, q.grad, k.grad, v.grad]  # type: ignore[list-item]


def _recurrent(device: str) -> list[torch.Tensor]:
    model, x = nn.LSTM(3, 4, 2).to(device), torch.randn(5, 2, 3).to(device).requires_grad_()
    result, _ = model(x)
    result.sum().backward()
    with torch.no_grad():
        return [result, x.grad, model(x)[0]]  # type: ignore[list-item]


def _sparse(device: str) -> list[torch.Tensor]:
    matrix = torch.eye(3).to(device).to_sparse()
    return [(matrix + matrix).to_dense(), torch.sparse.mm(matrix, torch.ones(3, 2, device=device))]


def _made(device: str) -> list[torch.Tensor]:
    return [
        torch.arange(3, device=device),
        torch.linspace(0, 1, 4, device=device),
        torch.eye(2, device=device),
        torch.tensor([1, 2], device=device),
        torch.full((2,), 3.0, device=device),
        torch.hann_window(4, device=device),
        torch.zeros(2, device=device).new_ones(3),
        torch.ones_like(torch.empty(2, device=device)),
    ]


def _indexed(device: str) -> list[torch.Tensor]:
    x = torch.arange(6.0).view(2, 3).to(device)
    x[:, torch.tensor([0, 2])] = 7.0  # an index on the host
    return [x, x + torch.tensor(1.0), x[x > 3], torch.cat([x, x]), x.t().contiguous(), torch.where(x > 3, x, -x)]


PROGRAMS: dict[str, Callable[[str], Any]] = {
    "training": _trained,
    "attention": _attention,
    "recurrent": _recurrent,
    "sparse": _sparse,
    "factories": _made,
    "indexing": _indexed,
}


@pytest.mark.parametrize("device", ["mps", "xpu"])
@on("")
def test_programs_compute_what_they_compute_on_the_cpu(device: str) -> None:
    _, accelerator = backed.install(device)
    for name, program in PROGRAMS.items():
        if (device, name) == ("xpu", "recurrent"):
            continue  # the virtual accelerator has no backward of the fused cells that XPU and CUDA use
        torch.manual_seed(1)
        wanted = program("cpu")
        torch.manual_seed(1)
        got = program(device)
        for one, other in zip(got, wanted, strict=True):
            if isinstance(one, torch.Tensor):
                assert one.device.type == device, name
                one = one.cpu()
            torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")  # type: ignore[misc]
    assert {"aten::addmm", "aten::_convolution"} <= {row.operator for row in accelerator.counts()}


@on("")
def test_a_session_leaves_the_kernels_of_the_accelerator_alone() -> None:
    backed.install("mps", on="cuda")
    made = {name: _kernel_of(name, "CUDA") for name in direct.makers()}
    assert made
    torchdevice.activate(policy="portable")
    assert {name: _kernel_of(name, "CUDA") for name in made} == made
    assert any(_kernel_of(name, "XPU") for name in made)  # the other types are redirected


def _kernel_of(name: str, key: str) -> str:
    return next((line for line in torch._C._dispatch_dump(name).splitlines() if line.startswith(f"{key}:")), "")


@on("")
def test_compiled_attention_computes_what_it_computes_eagerly() -> None:
    backed.install("mps", on="cuda")
    q, k, v = (torch.randn(2, 4, 8, 8, device="mps", requires_grad=True) for _ in range(3))
    mask = torch.ones(8, 8, dtype=torch.bool, device="mps").tril()
    want = F.scaled_dot_product_attention(q, k, v, mask)
    for dynamic in (False, True):
        compiled = torch.compile(F.scaled_dot_product_attention, backend="aot_eager", dynamic=dynamic)
        torch.testing.assert_close(compiled(q, k, v, mask), want)
    compiled(q, k, v, mask).sum().backward()
    assert q.grad is not None


@on("")
def test_the_accelerator_is_no_second_one() -> None:
    there, _ = backed.install("mps")
    assert torchdevice.virtual.install("mps", on="auto") is there  # the same again
    assert torch.accelerator.current_accelerator() == torch.device("mps")
    assert torch.backends.mps.is_available()
    assert not torch.cuda.is_available()


@on("")
def test_random_numbers_are_the_accelerators() -> None:
    backed.install("xpu")
    torch.manual_seed(5)
    wanted = torch.rand(4)  # what is beneath draws as the CPU does
    torch.manual_seed(5)
    assert torch.equal(torch.rand(4, device="xpu").cpu(), wanted)
    generator = torch.Generator("xpu").manual_seed(5)
    state = generator.get_state()
    first = torch.rand(4, generator=generator, device="xpu")
    assert torch.equal(first.cpu(), wanted)
    generator.set_state(state)
    assert torch.equal(torch.rand(4, generator=generator, device="xpu"), first)
    kept = torch.xpu.get_rng_state()
    dropped = F.dropout(torch.ones(64, device="xpu"))
    torch.xpu.set_rng_state(kept)
    assert torch.equal(F.dropout(torch.ones(64, device="xpu")), dropped)


@on("")
def test_memory_is_counted_by_the_accelerator() -> None:
    _, accelerator = backed.install("xpu")
    before = torch.xpu.memory_allocated()
    x = torch.ones(1000, device="xpu")
    assert torch.xpu.memory_allocated() - before == 4096
    assert torch.xpu.memory_allocated() == accelerator.statistics(0)["allocated_bytes"]["all"]["current"]
    del x
    assert torch.xpu.memory_allocated() == before


@on("")
def test_free_memory_is_what_the_accelerator_has_left() -> None:
    _, accelerator = backed.install("xpu")
    accelerator.call("set_limit", 0, 64 << 20)  # as if other processes had the rest
    free, total = torch.xpu.mem_get_info()
    left = (64 << 20) - accelerator.statistics(0)["reserved_bytes"]["all"]["current"]
    asked = hasattr(torch.accelerator, "get_memory_info")  # before torch 2.10 no allocator could be asked
    assert free == left if asked else free > left
    assert left < total


@on("")
def test_memory_that_was_freed_on_one_device_is_used_on_another() -> None:
    """Blocks are reused with what stands for them on the accelerator, which has the number of a device."""
    backed.install("xpu", count=2)
    for _ in range(3):
        for index in range(2):
            x = torch.full((4,), float(index), device=f"xpu:{index}")
            y = torch.cat([x + 1, x.clone()]).mul_(2)
            assert y.device == torch.device("xpu", index)
            assert y.tolist() == [2.0 * index + 2] * 4 + [2.0 * index] * 4
            del x, y


@on("")
def test_out_of_memory_is_said_of_the_virtual_device() -> None:
    _, accelerator = backed.install("xpu")
    accelerator.call("set_limit", 0, 64 << 20)
    with pytest.raises(torch.OutOfMemoryError, match=r"^XPU out of memory\. Tried to allocate 128\.00 MiB"):
        torch.ones(32 << 20, device="xpu")
    x = torch.ones(1 << 13, device="xpu")
    with pytest.raises(torch.OutOfMemoryError, match=r"^XPU out of memory\. Tried to allocate 256\.00 MiB"):
        x[:, None] * x  # inside a kernel
    assert x.sum().item() == 1 << 13
    assert torch.xpu.memory_stats()["num_ooms"] == 2


@on("")
def test_host_and_device_are_apart() -> None:
    backed.install("mps")
    x = torch.ones(3, device="mps")
    copy = x.cpu()
    x.fill_(2.0)
    assert copy.tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(RuntimeError, match="other is on cpu, different from other tensors on mps:0"):
        x + torch.ones(3)
    with pytest.raises(TypeError, match="mps"):
        x.numpy()


@on("")
def test_streams_and_events_pass_through() -> None:
    _, accelerator = backed.install("xpu")
    stream = torch.Stream("xpu")
    with stream:
        assert torch.accelerator.current_stream() == stream
        assert accelerator.call("current_stream", 0) == stream.stream_id != 0
        start, end = (torch.Event("xpu", enable_timing=True) for _ in range(2))
        start.record()
        x = torch.ones(8, device="xpu") @ torch.ones(8, device="xpu")
        end.record()
    x.record_stream(stream)
    end.synchronize()
    assert start.elapsed_time(end) >= 0
    assert end.query()
    torch.xpu.synchronize()
    assert torch.accelerator.current_stream().stream_id == accelerator.call("current_stream", 0) == 0


@on("")
def test_a_thread_has_its_own_current_stream() -> None:
    _, accelerator = backed.install("xpu")
    seen: list[int] = []

    def look() -> None:
        seen.extend((torch.accelerator.current_stream().stream_id, accelerator.call("current_stream", 0)))

    with torch.Stream("xpu") as stream:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        look()
    look()
    assert seen == [0, 0, *[stream.stream_id] * 2, 0, 0]


@on("")
def test_a_stream_that_was_chosen_on_the_accelerator_before_stays_chosen() -> None:
    with backed.accelerator("cuda") as accelerator:
        accelerator.call("set_stream", 5, 0)
        torchdevice.virtual.install("xpu", on="cuda")
    assert torch.accelerator.current_stream().stream_id == 5
    torch.accelerator.set_stream(torch.Stream(stream_id=0, device_index=0, device_type=torch.Stream("xpu").device_type))
    assert torch.accelerator.current_stream().stream_id == accelerator.call("current_stream", 0) == 0


@on("")
def test_what_the_accelerator_lacks_is_computed_by_the_cpu_and_counted() -> None:
    backed.install("mps", on="xpu", lacking={"aten::histc", "aten::flip"})
    x = torch.arange(6.0, device="mps").requires_grad_()
    found = torch.histc(x.detach(), 3)
    assert found.device.type == "mps"
    assert found.tolist() == [2.0, 2.0, 2.0]
    (x.flip(0)[:2] * 3).sum().backward()  # gradients flow through it
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0, 0.0, 0.0, 3.0, 3.0]
    assert torchdevice.virtual.on_host() == {"aten::flip": 2, "aten::histc": 1}


@on("")
def test_the_generator_of_the_device_governs_what_the_cpu_draws() -> None:
    lacking = {"aten::poisson", "aten::binomial", "aten::rrelu_with_noise", "aten::rrelu_with_noise_"}
    backed.install("cuda", on="xpu", lacking=lacking)
    rate = torch.full((64,), 50.0, device="cuda")
    draws: dict[str, Callable[[], torch.Tensor]] = {
        "poisson": lambda: torch.poisson(rate),
        "binomial": lambda: torch.binomial(rate, rate / 100),
        "rrelu": lambda: F.rrelu(-rate, training=True),
    }
    torch.manual_seed(3)
    of_host = torch.get_rng_state()
    for name, draw in draws.items():
        torch.cuda.manual_seed(1)
        state = torch.cuda.get_rng_state()
        first, second = draw(), draw()
        assert not torch.equal(first, second), name
        torch.cuda.set_rng_state(state)
        assert torch.equal(draw(), first), name
        assert torch.equal(draw(), second), name
    asked = [torch.poisson(rate, generator=torch.Generator("cuda").manual_seed(seed)) for seed in (5, 5, 6)]
    assert torch.equal(asked[0], asked[1])
    assert not torch.equal(asked[0], asked[2])
    assert torch.equal(torch.get_rng_state(), of_host)  # the generator of the CPU is the program's
    assert torchdevice.virtual.on_host().keys() == lacking - {"aten::rrelu_with_noise_"}


@on("")
def test_random_operators_of_libraries_draw_by_the_device() -> None:
    backed.install("cuda", on="xpu")
    library = torch.library.Library("drawing", "DEF")  # the accelerator does not know it
    library.define("noise(Tensor x) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
    library.impl("noise", lambda x: x + torch.rand(x.shape), "CPU")
    torch.manual_seed(3)
    of_host, x = torch.get_rng_state(), torch.zeros(8, device="cuda")
    found = []
    for seed in (1, 1, 2):
        torch.cuda.manual_seed(seed)
        found.append(torch.ops.drawing.noise(x))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])

    def draw_often() -> None:
        for _ in range(50):
            torch.ops.drawing.noise(x)

    threads = [threading.Thread(target=draw_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(torch.get_rng_state(), of_host)


@on("")
def test_a_view_that_only_the_cpu_can_make_is_refused() -> None:
    backed.install("cuda", on="xpu")
    library = torch.library.Library("viewing", "DEF")  # the accelerator does not know it
    library.define("same(Tensor(a) x) -> Tensor(a)")
    library.impl("same", lambda x: x.view(-1), "CPU")
    with pytest.raises(RuntimeError, match="appears to be a view operator"):
        torch.ops.viewing.same(torch.zeros(2, device="cuda"))


@on("")
def test_a_composite_whose_kernel_autograd_does_not_know_is_taken_apart() -> None:
    """`lstm.input` has a kernel for xpu and none for autograd: with it, no parameter would have a gradient."""
    backed.install("cuda", on="xpu")
    model, x = nn.LSTM(3, 4).to("cuda"), torch.randn(5, 2, 3, device="cuda")
    with torch.no_grad(), torch.autocast("cuda"):
        assert model(x)[0].dtype == torch.float16
    assert "aten::lstm.input" not in torchdevice.virtual.counts()
    loss = model(x)[0].sum()
    # The virtual accelerator has no backward of a cell, and says so.
    with pytest.raises(RuntimeError, match="_thnn_fused_lstm_cell"):
        loss.backward()


@on("")
def test_losses_of_sequences_with_lengths_on_the_host() -> None:
    backed.install("cuda", on="xpu")
    scores, targets = torch.randn(5, 2, 3).log_softmax(-1), torch.ones(2, 2, dtype=torch.long)
    expected = F.ctc_loss(scores, targets, (5, 4), (2, 1)).item()
    lengths: dict[str, tuple[Any, Any]] = {
        "numbers": ((5, 4), (2, 1)),
        "host": (torch.tensor([5, 4]), torch.tensor([2, 1])),
        "device": (torch.tensor([5, 4], device="cuda"), torch.tensor([2, 1], device="cuda")),
    }
    for name, (given, wanted) in lengths.items():
        found = F.ctc_loss(scores.cuda(), targets.cuda(), given, wanted)
        assert found.device.type == "cuda"
        assert found.item() == pytest.approx(expected), name


@on("")
def test_a_session_reports_what_the_cpu_computed_with_its_line() -> None:
    backed.install("mps", on="xpu", lacking={"aten::flip"})
    with torchdevice.redirect():
        torch.ones(3, device="mps").flip(0)
        rows = torchdevice.report().fallbacks
    assert [(row.operator, row.executor, row.calls, row.site.file) for row in rows] == [
        ("aten::flip", "cpu", 1, __file__)
    ]


def _fallen_back(device: str) -> list[torch.Tensor]:
    """What a Mac has no kernel for: shared, transposed, expanded and written arguments; a gradient."""
    torch.manual_seed(0)
    x, index, volume = torch.randn(8, 8).to(device), torch.tensor([3, 17, 40]).to(device), torch.randn(1, 2, 5, 5, 5)
    written, both = x.clone(), x.clone()
    volume = volume.to(device).requires_grad_()
    pooled = F.adaptive_max_pool3d(volume, (2, 2, 2))
    pooled.sum().backward()
    return [
        torch.take(x, index),
        torch.take(x.t(), index),
        torch.take(x[:1].expand(8, 8), index),
        torch.take(x[::2, :1].expand(4, 8), index[:2]),
        torch.take(x[:, 2:5], index[:2]),
        torch.heaviside(x[:4], x[4:]),
        torch.mode((x * 3).round()).values,
        torch.linalg.eigvalsh(x @ x.t()),
        written.put_(index, torch.ones(3).to(device)),
        torch.take(x.new_zeros(3), index[:1] - 3),  # twelve bytes, and eight-byte integers behind them
        torch.heaviside(both, x, out=both),
        torch.take(torch.arange(1 << 18).to(device), index),  # does not fit into the memory that is kept
        pooled,
        volume.grad,  # type: ignore[list-item]
    ]


def _two_shared_storages(device: str) -> torch.Tensor:
    """`multi_margin_loss_backward`: two arguments are in one storage, and two of different dtypes in another."""
    floats, integers = torch.arange(8.0).to(device), torch.zeros(4, dtype=torch.int64).to(device)
    target, weight = integers[:2], integers.view(torch.float32)[4:7]
    target.copy_(torch.tensor([2, 0]))
    weight.fill_(0.5)
    return torch.ops.aten.multi_margin_loss_backward(floats[:2], floats[2:].view(2, 3), target, 1, 1.0, weight, 0)


@on("")
def test_arguments_that_share_storages_are_copied_with_them() -> None:
    backed.install("mps", support="real")
    with torchdevice.redirect(policy="portable"):
        torch.testing.assert_close(_two_shared_storages("mps").cpu(), _two_shared_storages("cpu"))
        (row,) = torchdevice.report().fallbacks
    assert (row.operator, row.bytes) == ("aten::multi_margin_loss_backward", 32 + 32 + 24)


@on("")
def test_no_copy_of_an_argument_blocks() -> None:
    _, accelerator = backed.install("mps", support="real")
    x = torch.randn(8, 8).to("mps")
    accelerator.call("sync_debug_mode", 2)
    with pytest.raises(RuntimeError, match="synchronizing"):
        x.cpu()
    with torchdevice.redirect(policy="portable"):
        for argument in (x, x.t(), x[:1].expand(8, 8), x[::2, :1].expand(4, 8), x[:, 2:5]):
            torch.mode(argument)
        torch.heaviside(x[:4], x[4:])
        assert sum(row.calls for row in torchdevice.report().fallbacks if row.operator == "aten::mode") == 5


@on("")
def test_the_value_of_an_expanded_argument_is_copied_once() -> None:
    backed.install("mps", support="real")
    with torchdevice.redirect(policy="portable"):
        assert torch.mode(torch.ones(1).to("mps").expand(1000)).values.item() == 1
        (row,) = torchdevice.report().fallbacks
    assert row.bytes == 4 + 4 + 8  # the value, the result and its index


@on("")
def test_copies_of_arguments_are_complete_when_the_cpu_computes() -> None:
    backed.install("mps", support="real")
    wanted = _fallen_back("cpu")
    with torchdevice.redirect(policy="portable"):
        found = _fallen_back("mps")
        assert {each.device.type for each in found} == {"mps"}
        for got, want in zip(found, wanted, strict=True):
            torch.testing.assert_close(got.cpu(), want)
        x, index = torch.arange(4.0).to("mps"), torch.tensor([1, 3]).to("mps")
        with pytest.raises(IndexError, match="out of range"):
            torch.take(x, index + 7)
        assert torch.take(x, index).tolist() == [1.0, 3.0]


@on("")
def test_threads_do_not_share_the_memory_of_copied_arguments() -> None:
    backed.install("mps", support="real")
    index = torch.arange(500)
    found: dict[int, list[torch.Tensor]] = {}

    def take(number: int) -> None:
        x, where = torch.full((1000,), number).to("mps"), index.to("mps")
        found[number] = [torch.take(x, where) for _ in range(200)]

    with torchdevice.redirect(policy="portable"):
        threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, results in found.items():
            assert all((each.cpu() == number).all() for each in results)
    assert sorted(found) == [0, 1, 2, 3]


@on("")
def test_without_fallback_it_is_refused() -> None:
    backed.install("mps", on="xpu", lacking={"aten::flip"})
    x = torch.ones(3, device="mps")
    os.environ["TORCHDEVICE_FALLBACK"] = "off"
    with torchdevice.redirect(), pytest.raises(NotImplementedError, match="aten::flip"):
        x.flip(0)
    assert x.flip(0).tolist() == [1.0, 1.0, 1.0]


@on("")
def test_a_forked_child_is_told_that_it_lost_the_device() -> None:
    backed.install("xpu")
    x = torch.ones(3, device="xpu")
    assert not torch.xpu._is_in_bad_fork()
    child = os.fork()
    if child == 0:
        told = torch.xpu._is_in_bad_fork() and torch.ones(2).sum().item() == 2.0
        try:
            torch.ones(2, device="xpu")
        except RuntimeError as error:
            told = told and "Cannot re-initialize XPU in forked subprocess" in str(error)
        else:
            told = False
        os._exit(0 if told else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert x.sum().item() == 3.0


@pytest.mark.parametrize(
    ("device", "what", "error", "text"),
    [
        ("mps", "mps", ConfigError, "cannot compute for a virtual device"),
        ("mps", "tpu", ConfigError, "cannot compute for a virtual device"),
        ("mps", "cuda", VirtualDeviceUnavailable, "this machine has no accelerator"),
    ],
)
def test_what_cannot_compute_is_refused(device: str, what: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=rf"{text}[\s\S]*Hint:"):
        torchdevice.virtual.install(device, on=what)


def test_run_as_cuda_where_there_is_only_the_cpu() -> None:
    code = "import torch; x = torch.ones(2).cuda(); print(x.is_cuda, x.type(), x.cpu().device)"
    done = python("-m", "torchdevice", "run", "--as", "cuda", "-c", code)
    assert done.stdout.split() == ["True", "torch.cuda.FloatTensor", "cpu"], done.stderr
    assert "policy portable: --as keeps host and device apart" in done.stderr
    refused = python("-m", "torchdevice", "run", "--as", "cuda", "--virtual", "cuda", "-c", code)
    assert refused.returncode == 2
    assert "not allowed with" in refused.stderr


@on("")
def test_collectives_work_on_an_accelerator_that_has_none() -> None:
    """A Mac: c10d has no kernels for MPS."""
    import torch.distributed as dist

    names = {schema.name for schema in torch._C._jit_get_all_schemas()}
    backed.install("cuda", on="mps", lacking={name for name in names if name.startswith("c10d::")})
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    x, gathered = torch.ones(3, device="cuda"), [torch.zeros(3, device="cuda")]
    dist.all_reduce(x)
    dist.all_gather(gathered, x)
    assert (x.tolist(), gathered[0].tolist()) == ([1.0] * 3, [1.0] * 3)
    model = nn.parallel.DistributedDataParallel(nn.Linear(3, 1).to("cuda"))
    model(x).sum().backward()
    assert model.module.weight.grad.tolist() == [[1.0] * 3]
    dist.destroy_process_group()


@on("")
def test_the_accelerators_memory_is_not_sent_to_another_process() -> None:
    backed.install("cuda", on="mps")
    x = torch.ones(3, device="cuda")
    assert x.share_memory_() is x  # as on CUDA, where it does nothing
    assert x.is_shared()
    with pytest.raises(VirtualDeviceUnavailable, match=r"its memory belongs to mps.*\nHint: send `tensor.cpu\(\)`"):
        ForkingPickler.dumps(x)


@on("", env={"TORCHDEVICE_VIRTUAL_MEMORY": "1MiB"})
def test_a_refused_allocation_is_counted_once() -> None:
    backed.install("cuda", on="mps")
    x = torch.ones(150_000, device="cuda")
    with pytest.raises(torch.OutOfMemoryError):
        x + x
    assert torch.cuda.memory_stats()["num_ooms"] == 1


@on("")
def test_a_mac_counts_in_float32_on_every_accelerator() -> None:
    backed.install("mps", on="cuda")
    index, weights = torch.tensor([0, 1, 1], device="mps"), torch.tensor([1, 2, 3])
    for dtype, expected in ((torch.int64, torch.int32), (torch.float32, torch.float32)):
        found = torch.bincount(index, weights.to(dtype).to("mps"))
        assert (found.dtype, found.tolist()) == (expected, [1, 5])


@on("")
def test_events_of_two_devices_are_refused_by_the_virtual_name() -> None:
    backed.install("cuda", on="mps", count=2)
    events = []
    for index in range(2):
        with torch.cuda.device(index):
            events.append(torch.cuda.Event(enable_timing=True))
            events[-1].record()
    with pytest.raises(RuntimeError, match="CUDA error: invalid resource handle"):
        events[0].elapsed_time(events[1])


def _events_around_work(device: str) -> tuple[Any, Any]:
    """Two events. The accelerator works for 50 ms between them and has not ended."""
    _, accelerator = backed.install(device, on="cuda")
    start, end = (getattr(torch, device).Event(enable_timing=True) for _ in range(2))
    start.record()
    accelerator.call("keep_busy", 50.0)
    end.record()
    assert not end.query()
    return start, end


@on("")
def test_a_mac_waits_for_the_events_of_a_time() -> None:
    start, end = _events_around_work("mps")
    assert start.elapsed_time(end) >= 50
    assert end.query()


@on("")
def test_other_devices_refuse_the_time_of_work_that_runs() -> None:
    start, end = _events_around_work("xpu")
    with pytest.raises(RuntimeError, match="XPU error: device not ready"):
        start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) >= 50


@on("")
def test_a_mac_has_one_stream_and_programs_have_many() -> None:
    backed.install("cuda", on="mps")
    x, graph, side = torch.ones(2, device="cuda"), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    assert side != torch.cuda.default_stream() == torch.cuda.current_stream()
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        x += 1
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        y = x * 2
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [10.0, 10.0]


@on("")
def test_a_stream_that_nobody_created_is_refused() -> None:
    there, _ = backed.install("xpu", on="cuda")
    side = torch.xpu.Stream()
    for wrong in (99, 2**62, -1):
        with pytest.raises(RuntimeError, match=f"no stream {wrong}"):
            there.library.call("set_stream", wrong, 0)
    there.library.call("set_stream", side.stream_id, 0)
    assert torch.xpu.current_stream() == side
    there.library.call("set_stream", 0, 0)


@on("")
def test_two_devices_on_one_accelerator_are_apart() -> None:
    with backed.accelerator("xpu"):
        torchdevice.virtual.install("cuda", 2, "all", "xpu")
    for test in (
        test_tensors.test_numbers_of_another_device,
        test_namespaces.test_memory_is_counted_per_device,
        test_tensors.test_a_copy_at_the_first_write_stays_on_its_device,
        test_threads.test_devices_draw_apart,
        test_threads.test_threads_together_stay_below_the_limit,
    ):
        torch.cuda.reset_peak_memory_stats()
        test.body()  # type: ignore[attr-defined]


@on("")
def test_memory_of_a_mac_is_copied_by_its_kernels() -> None:
    """An address of Metal's memory is an object: a copy of bytes by the host would destroy it."""
    _, beneath = backed.install("cuda", "mps")
    x = torch.arange(1000.0, device="cuda")
    y = x._lazy_clone()
    beneath.call("reset_counts")
    y.add_(1)
    assert "aten::copy_" in {each.operator for each in beneath.counts()}
    assert torch.equal(x.cpu(), torch.arange(1000.0))
    assert torch.equal(y.cpu(), torch.arange(1000.0) + 1)
