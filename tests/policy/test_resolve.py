"""The policy table, cell by cell, through the public `explain`, on hosts that need not exist."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

import torchdevice
from torchdevice._torch.core import device_types
from torchdevice.policy.hosts import Host, is_accelerator
from torchdevice.policy.resolve import Caller, parse, resolve

MPS, CUDA, XPU, CPU = torch.device("mps", 0), torch.device("cuda", 0), torch.device("xpu", 0), torch.device("cpu")
HOSTS = ("mps", "cuda", "xpu", "cpu")

# request → what it becomes on each of HOSTS, and on which of them that is a redirection
ACCELERATE = {
    None: ((MPS, CUDA, XPU, CPU), "yyy-"),
    "cpu": ((MPS, CUDA, XPU, CPU), "yyy-"),
    "cpu:0": ((MPS, CUDA, XPU, torch.device("cpu", 0)), "yyy-"),
    "cpu:3": ((MPS, CUDA, XPU, torch.device("cpu", 3)), "yyy-"),
    "cpu:-1": ((CPU, CPU, CPU, CPU), "----"),
    "mps": ((MPS, CUDA, XPU, CPU), "-yyy"),
    "mps:0": ((MPS, CUDA, XPU, CPU), "-yyy"),
    "mps:2": ((MPS, CUDA, XPU, CPU), "yyyy"),
    "cuda": ((MPS, torch.device("cuda"), XPU, CPU), "y-yy"),
    "cuda:0": ((MPS, CUDA, XPU, CPU), "y-yy"),
    "cuda:3": ((MPS, CUDA, XPU, CPU), "yyyy"),
    "xpu": ((MPS, CUDA, torch.device("xpu"), CPU), "yy-y"),
    "hpu": ((MPS, CUDA, XPU, CPU), "yyyy"),
    "mtia:1": ((MPS, CUDA, XPU, CPU), "yyyy"),
    "xla": ((MPS, CUDA, XPU, CPU), "yyyy"),
    "privateuseone": ((MPS, CUDA, XPU, CPU), "yyyy"),
    "meta": ((torch.device("meta"),) * 4, "----"),
    "vulkan": ((torch.device("vulkan"),) * 4, "----"),
    1: ((MPS, CUDA, XPU, CPU), "yyyy"),
    0: ((MPS, CUDA, XPU, CPU), "y-yy"),
}
# `portable` leaves "none" and `cpu` alone; everything else is as above.
PORTABLE = ACCELERATE | {
    None: ((CPU,) * 4, "----"),
    "cpu": ((CPU,) * 4, "----"),
    "cpu:0": ((torch.device("cpu", 0),) * 4, "----"),
    "cpu:3": ((torch.device("cpu", 3),) * 4, "----"),
}
CELLS = [
    pytest.param(
        policy,
        request,
        host,
        table[request][0][column],
        table[request][1][column] == "y",
        id=f"{policy}-{request}-{host}",
    )
    for policy, table in (("accelerate", ACCELERATE), ("portable", PORTABLE))
    for request in table
    for column, host in enumerate(HOSTS)
]


@pytest.mark.parametrize(("policy", "request_", "host", "device", "redirected"), CELLS)
def test_every_cell(policy: str, request_: object, host: str, device: torch.device, redirected: bool) -> None:
    decision = torchdevice.explain(request_, host=host, policy=policy)
    assert (decision.device, decision.redirected) == (device, redirected)
    assert decision.reason
    if isinstance(request_, str) and request_ != "cpu:-1":
        assert torchdevice.explain(torch.device(request_), host=host, policy=policy) == decision


@pytest.mark.parametrize("host", HOSTS)
def test_override_keeps_cpu_requests_and_nothing_else(host: str) -> None:
    assert torchdevice.explain("cpu", host=host, override=True).device == CPU
    for request in (None, "mps", "cuda:1"):
        assert torchdevice.explain(request, host=host, override=True) == torchdevice.explain(request, host=host)


@pytest.mark.parametrize(
    ("request_", "host", "device"),
    [
        ("mps:2", Host("cuda", 4, current=1), "cuda:2"),
        ("mps:4", Host("cuda", 4, current=1), "cuda:1"),
        ("mps", Host("cuda", 4, current=3), "cuda:3"),
        ("cpu", Host("cuda", 4, current=2), "cuda:2"),
        (None, Host("cuda", 4, current=2), "cuda:2"),
        ("cuda:3", Host("cuda", 4, current=2), "cuda:3"),
        ("cuda:7", Host("cuda", 4, current=2), "cuda:2"),
        ("cuda:1", "cuda:4", "cuda:1"),
    ],
)
def test_indices_on_several_devices(request_: object, host: str | Host, device: str) -> None:
    assert torchdevice.explain(request_, host=host).device == torch.device(device)


MAKERS = [caller for caller in Caller if caller is not Caller.NAMING]


@pytest.mark.parametrize("caller", MAKERS)
def test_who_asks_matters_for_none_and_cpu_only(caller: Caller) -> None:
    host = Host("mps")
    none, cpu, cuda = (resolve(parse(request), host, caller=caller) for request in (None, "cpu", "cuda"))
    assert none.redirected == (caller is not Caller.TORCH)
    assert cpu.redirected == (caller is Caller.USER)
    assert cuda.device == MPS


indices = st.one_of(st.none(), st.integers(0, 20))
requests = st.one_of(
    st.none(),
    st.just("cpu:-1"),
    st.integers(0, 20),
    st.builds(
        lambda kind, index: kind if index is None else f"{kind}:{index}", st.sampled_from(device_types()), indices
    ),
    st.builds(
        lambda kind, index: torch.device(kind) if index is None else torch.device(kind, index),
        st.sampled_from(device_types()),
        indices,
    ),
)
hosts = st.one_of(
    st.just(Host("cpu")),
    st.integers(1, 8).flatmap(
        lambda count: st.builds(
            Host,
            st.sampled_from([kind for kind in device_types() if is_accelerator(kind)]),
            st.just(count),
            st.integers(0, count - 1),
        )
    ),
)


@given(requests.filter(lambda request: request != "cpu:-1"), hosts, st.sampled_from(["accelerate", "portable"]))
def test_what_torch_only_names_is_left_as_it_is(request: object, host: Host, policy: str) -> None:
    asked = parse(request)
    decision = resolve(asked, host, policy, caller=Caller.NAMING)
    assert not decision.redirected
    assert str(decision.device) == ("cpu" if request is None else str(asked))


@given(requests, hosts, st.sampled_from(["accelerate", "portable"]), st.booleans(), st.sampled_from(MAKERS))
def test_no_request_ends_on_a_device_that_the_host_lacks(
    request: object, host: Host, policy: str, override: bool, caller: Caller
) -> None:
    device = resolve(parse(request), host, policy, override, caller).device
    if is_accelerator(device.type):
        assert device.type == host.type
        assert device.index is None or device.index < host.count


@pytest.mark.parametrize("policy", ["accelerate", "portable"])
def test_a_worker_uses_an_accelerator_only_if_it_is_named(policy: str) -> None:
    host = Host("cpu", named="cuda")
    for asked in ("cuda", "cuda:1"):
        decision = resolve(parse(asked), host, policy)
        assert (decision.device, decision.redirected) == (torch.device(asked), False)
    for asked in (None, "cpu", "mps", "xpu:1"):
        decision = resolve(parse(asked), host, policy)
        assert (decision.device, decision.redirected) == (CPU, asked in ("mps", "xpu:1"))


@pytest.mark.parametrize("bad", ["banana", "cuda:x", "cuda:-2", "", "cpu:-2", object(), [], True, -1, 1.5])
def test_bad_requests_raise_what_torch_raises(bad: object) -> None:
    with pytest.raises((RuntimeError, TypeError)) as ours:
        torchdevice.explain(bad)
    with pytest.raises(type(ours.value)) as torchs:
        torch.device("cuda", bad) if bad == -1 else torch.device(bad)
    assert str(ours.value) == str(torchs.value)


@pytest.mark.parametrize("host", ["banana", "cuda:x", "cuda:0", ""])
def test_bad_hosts_are_refused_with_a_hint(host: str) -> None:
    with pytest.raises(torchdevice.ConfigError, match="Hint:"):
        torchdevice.explain("cuda", host=host)
