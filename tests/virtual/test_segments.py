"""Memory in segments: what torch's own allocator for CUDA does, and programs can see."""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any

import pytest
import torch

from tests.virtual.harness import on

MB = 1 << 20


def held(name: str, kind: str = "all", device: int = 0) -> int:
    return int(torch.cuda.memory_stats(device)[f"{name}.{kind}.current"])


def block(megabytes: float, device: str = "cuda") -> torch.Tensor:
    return torch.empty(int(megabytes * MB), dtype=torch.uint8, device=device)


def segments(pool: Any = None) -> list[dict[str, Any]]:
    return [each for each in torch.cuda.memory_snapshot() if pool is None or each["segment_pool_id"] == pool]


@on("cuda")
def test_sizes_of_segments_and_blocks() -> None:
    sizes = {  # bytes of a tensor: bytes that it takes, bytes of its segment (documented in torch's notes on CUDA)
        1: (512, 2 * MB),
        513: (1024, 2 * MB),
        MB: (MB, 2 * MB),
        MB + 1: (MB + 512, 20 * MB),
        10 * MB - 512: (10 * MB - 512, 20 * MB),
        10 * MB: (10 * MB, 10 * MB),
        11 * MB: (12 * MB, 12 * MB),  # no more than 1 MiB is left over
    }
    for size, (taken, reserved) in sizes.items():
        x = torch.empty(size, dtype=torch.uint8, device="cuda")
        kind = "small_pool" if size <= MB else "large_pool"
        assert [held(f"{name}_bytes", kind) for name in ("allocated", "reserved", "requested")] == [
            taken,
            reserved,
            size,
        ]
        assert held("inactive_split", kind) == (taken < reserved)
        del x
        assert [held("allocated_bytes"), held("reserved_bytes"), held("inactive_split")] == [0, reserved, 0]
        torch.cuda.empty_cache()
        assert held("reserved_bytes") == held("segment") == 0
    stats = torch.cuda.memory_stats()
    assert stats["num_device_alloc"] == stats["num_device_free"] == len(sizes)


@on("cuda")
def test_freed_memory_is_used_again_where_it_fits_best() -> None:
    blocks = [block(size) for size in (0.25, 0.5, 0.125, 0.25)]
    addresses = [each.data_ptr() for each in blocks]
    assert [b - a for a, b in itertools.pairwise(addresses)] == [MB // 4, MB // 2, MB // 8]
    blocks[0] = blocks[2] = torch.empty(0, device="cuda")
    assert block(0.1).data_ptr() == addresses[2]
    again = block(0.2)
    assert again.data_ptr() == addresses[0]
    del again
    blocks[1] = blocks[0]  # three free neighbours are one
    assert block(0.875).data_ptr() == addresses[0]
    assert held("segment") == 1


@on("cuda")
def test_kernels_write_where_torchs_allocator_says() -> None:
    x = torch.ones(1000, device="cuda")
    address = (x + 1).data_ptr()
    assert (x * 2).data_ptr() == address
    assert held("allocated_bytes") == 4096
    total = (x + 1).sum()
    assert (total.item(), held("allocated_bytes")) == (2000.0, 4096 + 512)
    torch.cuda.reset_peak_memory_stats()
    y = x + 1.5  # the number takes no memory of the device
    assert torch.cuda.max_memory_allocated() == 2 * 4096 + 512
    assert y.cpu().data_ptr() not in range(segments()[0]["address"], segments()[0]["address"] + 2 * MB)


@on("cuda:2", only_cpu="the accelerator has its own allocator")
def test_streams_and_devices_do_not_share() -> None:
    x = block(0.5)
    address = x.data_ptr()
    del x
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        assert block(0.5).data_ptr() != address
    assert held("segment") == 2
    assert {each["stream"] for each in segments()} == {0, side.stream_id}
    assert block(0.5, "cuda:1").device.index == 1
    assert (held("segment", device=1), held("segment", device=0)) == (1, 2)


@on("cuda", only_cpu="the accelerator has its own allocator")
def test_memory_that_another_stream_uses_waits_for_it() -> None:
    side = torch.cuda.Stream()
    x = block(0.5)
    address = x.data_ptr()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
    x.record_stream(side)
    del x
    assert (held("allocated_bytes"), held("active_bytes")) == (0, MB // 2)
    assert segments()[0]["blocks"][0]["state"] == "active_awaiting_free"
    assert block(0.5).data_ptr() != address
    side.synchronize()
    assert block(0.5).data_ptr() == address
    assert held("active_bytes") == 0


@on("cuda", only_cpu="the accelerator has its own allocator")
def test_what_is_cached_goes_before_memory_runs_out() -> None:
    torch.cuda.set_per_process_memory_fraction(64 * MB / torch.cuda.get_device_properties(0).total_memory + 1e-12)
    kept, freed = block(20), block(40)
    del freed
    assert held("reserved_bytes") == 60 * MB
    assert block(24).numel() == 24 * MB  # instead of the cached segment, which is too small for the rest
    stats = torch.cuda.memory_stats()
    assert (stats["num_alloc_retries"], stats["num_ooms"]) == (0, 0)
    other = block(44)
    assert torch.cuda.memory_stats()["num_alloc_retries"] == 1
    with pytest.raises(torch.OutOfMemoryError, match=r"64.00 MiB is allocated by PyTorch, and 0.00 MiB is reserved"):
        block(1.5)
    assert kept.numel() + other.numel() == 64 * MB


@on("cuda", only_cpu="the accelerator has its own allocator")
def test_a_device_has_no_more_than_it_says() -> None:
    free, total = torch.cuda.mem_get_info()
    assert free < total
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(total, dtype=torch.uint8, device="cuda")


@on("cuda", only_cpu="the accelerator has its own allocator")
def test_graphs_take_memory_from_their_pool() -> None:
    side = torch.cuda.Stream()
    x = torch.ones(1000, device="cuda")
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    with torch.cuda.stream(side):
        graphs[0].capture_begin()
        y = x + 1
        dropped = (y * 2).data_ptr()
        z = y * 3
        graphs[0].capture_end()
        graphs[1].capture_begin(pool=graphs[0].pool())
        w = z + 1
        graphs[1].capture_end()
    assert z.data_ptr() == dropped
    (own,) = segments(graphs[0].pool())
    assert sum(each["state"] == "active_allocated" for each in own["blocks"]) == 3
    for value in (1.0, 5.0):
        x.fill_(value)
        for graph in graphs:
            graph.replay()
        assert w[0].item() == (value + 1) * 3 + 1
    pool = graphs[0].pool()
    del graph, graphs
    torch.cuda.empty_cache()
    assert len(segments(pool)) == 1  # a graph's results outlive it
    assert w.sum().item() == 19_000
    del y, z, w
    torch.cuda.empty_cache()
    assert segments(pool) == []


@on("cuda", only_cpu="the accelerator has its own allocator")
def test_a_pool_of_ones_own() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = block(0.5)
        done: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: done.append(block(0.5)))
        thread.start()
        thread.join()
    outside = block(0.5)
    (own,) = pool.snapshot()
    assert own["segment_pool_id"] == pool.id
    assert own["address"] == x.data_ptr()
    others = [each for each in segments() if each["segment_pool_id"] != pool.id]
    assert [len(each["blocks"]) for each in others] == [3]
    assert outside.data_ptr() - done[0].data_ptr() == MB // 2
    del x
    torch.cuda.empty_cache()
    assert len(segments(pool.id)) == 1
    identity = pool.id
    del pool
    assert segments(identity) == []


@on("cuda", only_cpu="the accelerator has its own allocator")
def test_a_pool_goes_back_to_a_checkpoint() -> None:
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=side):
        first, second = torch.ones(4, device="cuda"), torch.ones(4, device="cuda")
    pool, address = graph.pool(), second.untyped_storage().data_ptr()
    before, state = segments(pool), torch._C._cuda_getCheckpointState(0, pool)
    del second
    later = torch.cuda.CUDAGraph()
    with torch.cuda.graph(later, pool=pool, stream=side):
        stale = torch.ones(1 << 10, device="cuda")
    torch._C._cuda_setCheckpointPoolState(0, state, [stale.untyped_storage()._cdata], [])
    assert segments(pool) == before
    assert torch._C._cuda_checkPoolLiveAllocations(0, pool, {first.data_ptr(), address})
    del stale  # it owns nothing any more
    assert segments(pool) == before
    again = torch._C._construct_storage_from_data_pointer(address, torch.device("cuda:0"), 16)
    torch._C._cuda_setCheckpointPoolState(0, state, [], [again._cdata])
    del again
    assert torch._C._cuda_checkPoolLiveAllocations(0, pool, {first.data_ptr()})
    assert first.tolist() == [1.0] * 4


@on("cuda", only_cpu="the accelerator has its own allocator")
def test_a_checkpoint_frees_what_waits_and_changes_nothing_when_it_fails() -> None:
    graph, side, sleeping = torch.cuda.CUDAGraph(), torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=side):
        small, other, large = torch.ones(1000, device="cuda"), torch.ones(1000, device="cuda"), block(12)
    pool, held_before = graph.pool(), held("allocated_bytes")
    state = torch._C._cuda_getCheckpointState(0, pool)
    with torch.cuda.stream(sleeping):
        torch.cuda._sleep(200_000_000)
    other.record_stream(sleeping)
    del other
    torch._C._cuda_setCheckpointPoolState(0, state, [], [])
    assert held("allocated_bytes") == held_before
    later = torch.cuda.CUDAGraph()
    with torch.cuda.graph(later, stream=side, pool=pool):
        fresh = [torch.zeros(1000, device="cuda") for _ in range(2)]
    assert small.data_ptr() not in [each.data_ptr() for each in fresh]
    del large, graph, later, fresh
    torch.cuda.empty_cache()
    before = segments(pool)
    with pytest.raises(RuntimeError, match="a segment of the checkpoint is gone"):
        torch._C._cuda_setCheckpointPoolState(0, state, [], [])
    assert segments(pool) == before
    assert small.sum().item() == 1000


@on("cuda", only_cpu="the accelerator has its own allocator")
def test_a_graph_keeps_a_pool_that_its_owner_drops() -> None:
    pool, side = torch.cuda.MemPool(), torch.cuda.Stream()
    x, graph = torch.ones(1000, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side, pool=pool.id):
        y = (x + 1) * 2
    identity = pool.id
    del pool
    torch.cuda.empty_cache()
    assert len(segments(identity)) == 1
    graph.replay()
    assert y.sum().item() == 4000


@on("cuda")
def test_a_capture_takes_back_what_it_wrote_to_older_memory_of_its_pool() -> None:
    side, graphs = torch.cuda.Stream(), [torch.cuda.CUDAGraph() for _ in range(2)]
    x = torch.ones(4, device="cuda")
    with torch.cuda.graph(graphs[0], stream=side):
        y = x + 1
    graphs[0].replay()
    with torch.cuda.graph(graphs[1], stream=side, pool=graphs[0].pool()):
        y.add_(10)
    assert y.tolist() == [2.0] * 4
    graphs[1].replay()
    assert y.tolist() == [12.0] * 4


@on("cuda")
def test_one_pool_is_used_by_one_thread_at_a_time() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        with pytest.raises(RuntimeError, match="already recording to mempool_id"):
            torch.cuda.use_mem_pool(pool).__enter__()
        assert pool.use_count() == 2
    assert pool.use_count() == 1


@on("cuda", only_cpu="the accelerator has its own allocator")
def test_snapshots_while_threads_allocate() -> None:
    torch.cuda.memory._record_memory_history(max_entries=100)
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            block(0.01)

    block(0.01)  # the segment stays
    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert torch.cuda.memory._snapshot()["segments"]
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@on("cuda")
def test_memory_that_a_kernel_pins_is_the_hosts() -> None:
    with torch.library._scoped_library("pins", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: torch.ones(1000).pin_memory()[: x.numel()] * 2 * x, "CPU")
        x = torch.ones(3, device="cuda")
        assert torch.ops.pins.twice(x).tolist() == [2.0] * 3
    assert held("allocated_bytes") == 512


@on("cuda", only_cpu="the accelerator has its own allocator")
def test_pinned_memory_is_used_again_when_no_stream_uses_it() -> None:
    x = torch.ones(1000).pin_memory()
    address = x.data_ptr()
    del x
    x = torch.ones(900).pin_memory()
    assert x.data_ptr() == address
    assert x.is_pinned()
    torch.cuda._sleep(200_000_000)
    there = x.to("cuda", non_blocking=True)
    del x
    assert torch.ones(1000).pin_memory().data_ptr() != address
    torch.cuda.synchronize()
    assert there.sum().item() == 900


@on("cuda", env={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
def test_nothing_is_kept_when_torchs_variable_says_so() -> None:
    x = torch.ones(1000, device="cuda")
    assert held("reserved_bytes") == held("allocated_bytes") == 4000
    del x
    assert held("reserved_bytes") == 0


@on("cuda", only_cpu="a forked process cannot use an accelerator")
def test_a_fork_finds_its_memory() -> None:
    x = torch.ones(1000, device="cuda")
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            block(0.01)

    thread = threading.Thread(target=churn)
    thread.start()
    statuses = []
    for _ in range(20):
        child = os.fork()
        if not child:
            os._exit(0 if (x + block(0.01)[:1]).numel() == 1000 else 1)
        statuses.append(os.waitpid(child, 0)[1])
    stop.set()
    thread.join()
    assert statuses == [0] * 20


@on("mps", only_cpu="the accelerator has its own allocator")
def test_a_mac_has_no_such_segments() -> None:
    x = torch.ones(1000, device="mps")
    assert torch.mps.current_allocated_memory() == torch.mps.driver_allocated_memory() == 4000
    del x
    assert torch.mps.driver_allocated_memory() == 0


STREAMS = 32  # per device and priority, as in c10/cuda/CUDAStream.cpp


@on("cuda:2", only_cpu="the accelerator has its own streams")
def test_streams_are_handed_out_in_turn() -> None:
    x = torch.ones(256, device="cuda")
    made = []
    for _ in range(3 * STREAMS):
        made.append(torch.cuda.Stream())
        with torch.cuda.stream(made[-1]):
            x + 1
    assert made[:STREAMS] == made[STREAMS : 2 * STREAMS] == made[2 * STREAMS :]
    assert len(set(made)) == STREAMS
    assert torch.cuda.default_stream() not in made
    assert torch.cuda.memory_reserved() == (1 + STREAMS) * 2 * MB
    assert torch.cuda.Stream(device=1) == torch.cuda.ExternalStream(made[0].cuda_stream, device=1)  # its own turn


@on("cuda")
def test_priorities_have_their_own_streams() -> None:
    low, high = torch.cuda.Stream.priority_range()
    made = {priority: {torch.cuda.Stream(priority=priority) for _ in range(2 * STREAMS)} for priority in (low, high)}
    assert [len(streams) for streams in made.values()] == [STREAMS, STREAMS]
    assert not made[low] & made[high]
    for priority, streams in made.items():
        assert {stream.priority for stream in streams} == {priority}


@on("cuda")
def test_priorities_are_those_of_cuda() -> None:
    assert torch.cuda.Stream.priority_range() == (0, -3)
    assert [torch.cuda.Stream(priority=priority).priority for priority in (0, -1, -3, -9)] == [0, -1, -3, -3]
    with pytest.raises(RuntimeError, match="to be less than or equal to 0, got 1"):
        torch.cuda.Stream(priority=1)


@on("xpu")
def test_priorities_are_those_of_xpu() -> None:
    assert torch.xpu.Stream.priority_range() == (1, -1)
    made = {priority: {torch.xpu.Stream(priority=priority) for _ in range(3)} for priority in (1, 0, -1)}
    assert {priority: {each.priority for each in streams} for priority, streams in made.items()} == {
        1: {1},
        0: {0},
        -1: {-1},
    }
    assert len(set().union(*made.values())) == 9
    assert torch.xpu.Stream(priority=9).priority == 1


@on("cuda", only_cpu="the accelerator knows its streams")
def test_streams_of_other_libraries_are_not_those_of_torch() -> None:
    address = 1 << 40
    with torch.cuda.stream(torch.cuda.ExternalStream(address)):
        assert torch.cuda.current_stream().cuda_stream == address
    assert address not in {torch.cuda.Stream().cuda_stream for _ in range(STREAMS)}


@on("cuda", only_cpu="the accelerator has its own allocator")
def test_addresses_are_multiples_of_512_bytes() -> None:
    sizes = (1, 3, 4, 511, 513, 4000, 100_000, 1 << 20, (1 << 20) + 1, 5 << 20, 30 << 20)
    held = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes]
    held += [torch.ones(size // 4 + 1).cuda() for size in sizes]
    held += [x + 1 for x in held]  # made by a kernel of the CPU
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        held += [torch.empty(1, device="cuda"), torch.ones(3, device="cuda").sum()]
    assert {x.data_ptr() % 512 for x in held} == {0}
    assert {each["address"] % 512 for each in segments()} == {0}
