"""Streams, events and CUDA graphs. The values are written down: a CPU has none of these."""

import torch
from torch import nn

from tests.semantics.program import gives


@gives([0.0, 2.0, 4.0])
def work_on_a_stream(d):
    s = torch.cuda.Stream()
    x = torch.arange(3.0, device=d)
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        y = x * 2
    torch.cuda.current_stream().wait_stream(s)
    return y.tolist()


@gives([True, False, True])
def the_current_stream(d):
    s = torch.cuda.Stream()
    with torch.cuda.stream(s):
        inside = torch.cuda.current_stream() == s
    return [inside, torch.cuda.current_stream() == s, torch.cuda.current_stream() == torch.cuda.default_stream()]


@gives([True, True, True])
def events_time_work(d):
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record()
    torch.ones(64, 64, device=d).matmul(torch.ones(64, 64, device=d))
    b.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) >= 0, b.query(), isinstance(a.elapsed_time(b), float)]


@gives("refused")
def events_without_timing_refuse(d):
    a, b = torch.cuda.Event(), torch.cuda.Event()
    a.record()
    b.record()
    torch.cuda.synchronize()
    try:
        a.elapsed_time(b)
    except (RuntimeError, ValueError):
        return "refused"


@gives([True, True])
def an_event_of_a_stream(d):
    s = torch.cuda.Stream()
    event = s.record_event()
    event.wait(torch.cuda.current_stream())
    event.synchronize()
    s.synchronize()
    return [event.query(), s.query()]


@gives([5.0, 5.0])
def a_tensor_is_recorded_on_a_stream(d):
    s = torch.cuda.Stream()
    x = torch.full((2,), 5.0, device=d)
    x.record_stream(s)
    return x.tolist()


@gives([[0, -1], True])
def priorities(d):
    low, high = torch.cuda.Stream.priority_range()
    return [[low, -1], high <= low]


@gives([True, True])
def streams_compare_and_hash(d):
    s, t = torch.cuda.Stream(), torch.cuda.Stream()
    return [s == s, len({s, t}) == 2]


@gives(["Stream", True])
def what_a_stream_is(d):
    s = torch.cuda.Stream(device=d)
    return [type(s).__name__, s.device.type == torch.ones(1, device=d).device.type]


@gives([1.0])
def a_stream_of_none(d):
    with torch.cuda.stream(None):
        return torch.ones(1, device=d).tolist()


@gives([[2.0, 4.0], [20.0, 40.0]])
def a_graph_is_replayed(d):
    x = torch.tensor([1.0, 2.0], device=d)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = x * 2
    g.replay()
    first = y.tolist()
    x.copy_(torch.tensor([10.0, 20.0]))
    g.replay()
    return [first, y.tolist()]


@gives([3.0, 3.0])
def a_graph_with_writes_in_place(d):
    x = torch.zeros(2, device=d)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        x.add_(1)
    x.zero_()
    for _ in range(3):
        g.replay()
    return x.tolist()


@gives(True)
def a_training_step_in_a_graph(d):
    m = nn.Linear(2, 1).to(d)
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    x = torch.ones(4, 2, device=d)
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        for _ in range(2):
            o.zero_grad(set_to_none=True)
            m(x).pow(2).mean().backward()
            o.step()
    torch.cuda.current_stream().wait_stream(s)
    g = torch.cuda.CUDAGraph()
    o.zero_grad(set_to_none=True)
    with torch.cuda.graph(g):
        loss = m(x).pow(2).mean()
        loss.backward()
        o.step()
    g.replay()
    first = loss.item()
    for _ in range(5):
        g.replay()
    return loss.item() < first


@gives(True)
def make_graphed_callables(d):
    m = nn.Linear(2, 2).to(d)
    x = torch.ones(3, 2, device=d)
    wanted = m(x)
    return torch.allclose(torch.cuda.make_graphed_callables(m, (x.clone(),))(x), wanted)


@gives([False, True, False])
def capturing_is_told(d):
    x = torch.ones(1, device=d)
    g = torch.cuda.CUDAGraph()
    states = [torch.cuda.is_current_stream_capturing()]
    with torch.cuda.graph(g):
        states.append(torch.cuda.is_current_stream_capturing())
        x + 1
    return [*states, torch.cuda.is_current_stream_capturing()]


@gives([6.0])
def two_graphs_with_one_pool(d):
    x = torch.ones(1, device=d)
    g, h = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = x * 2
    with torch.cuda.graph(h, pool=g.pool()):
        z = y * 3
    g.replay()
    h.replay()
    return z.tolist()


@gives([True, True])
def torch_streams_of_any_device(d):
    s = torch.Stream(device="cuda")
    return [s.query(), s.device.type == torch.ones(1, device=d).device.type]


@gives([True, True])
def torch_events_of_any_device(d):
    a, b = torch.Event(device="cuda", enable_timing=True), torch.Event(device="cuda", enable_timing=True)
    a.record()
    b.record()
    b.synchronize()
    return [a.elapsed_time(b) >= 0, b.query()]


@gives([2.0, 2.0])
def prefetching_on_a_stream(d):
    side = torch.cuda.Stream()
    host = torch.ones(2).pin_memory()
    with torch.cuda.stream(side):
        x = host.to(d, non_blocking=True)
        done = torch.cuda.Event()
        done.record(side)
    torch.cuda.current_stream().wait_event(done)
    return (x * 2).tolist()
