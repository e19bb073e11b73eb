"""Copies between host and device."""

import contextlib

import torch

from tests.semantics.program import gives


@gives([[0.0, 0.0], [1.0, 1.0]])
def to_the_device_is_a_copy(d):
    host = torch.zeros(2)
    x = host.to(d)
    host.add_(1)
    return [x.tolist(), host.tolist()]


@gives([[0.0, 0.0], [1.0, 1.0]])
def cuda_is_a_copy(d):
    host = torch.zeros(2)
    x = host.cuda()
    x.add_(1)
    return [host.tolist(), x.tolist()]


@gives([[0.0, 0.0], [1.0, 1.0]])
def cpu_of_a_device_tensor_is_a_copy(d):
    x = torch.zeros(2, device=d)
    host = x.cpu()
    x.add_(1)
    return [host.tolist(), x.tolist()]


@gives([[0.0, 0.0], [1.0, 1.0]])
def to_cpu_of_a_device_tensor_is_a_copy(d):
    x = torch.zeros(2, device=d)
    host = x.to("cpu")
    x.add_(1)
    return [host.tolist(), x.tolist()]


@gives([[3.0], [9.0]])
def the_best_weights_are_a_snapshot(d):
    weight = torch.nn.Parameter(torch.full((1,), 3.0, device=d))
    best = {"weight": weight.detach().cpu()}
    weight.data.fill_(9)
    return [best["weight"].tolist(), weight.tolist()]


def to_the_same_device_is_itself(d):
    x = torch.zeros(2, device=d)
    return [x.to(d) is x, x.to(x.device) is x, x.to(torch.float32) is x, x.to(d, copy=True) is x]


def cpu_of_a_host_tensor_is_itself(d):
    x = torch.zeros(2)
    return [x.cpu() is x, x.to("cpu") is x]


@gives(True)
def cuda_of_a_device_tensor_is_itself(d):
    x = torch.zeros(2, device=d)
    return x.cuda() is x


def to_with_dtype_and_device(d):
    x = torch.tensor([1.7, 2.2]).to(d, torch.int32)
    y = torch.tensor([1, 0]).to(device=d, dtype=torch.bool)
    return [x.tolist(), str(x.dtype), y.tolist(), str(y.dtype)]


def to_like_another(d):
    other = torch.zeros(1, dtype=torch.float16, device=d)
    x = torch.tensor([1, 2]).to(other)
    return [x.tolist(), str(x.dtype), x.device == other.device]


def copy_between_devices(d):
    x = torch.empty(3, device=d)
    x.copy_(torch.arange(3))
    host = torch.empty(3)
    host.copy_(x, non_blocking=True)
    return [x.tolist(), host.tolist()]


def copy_broadcasts(d):
    x = torch.empty(2, 3, device=d)
    x.copy_(torch.tensor([1.0, 2.0, 3.0]))
    return x.tolist()


def round_trip_keeps_strides(d):
    x = torch.arange(6.0).view(2, 3).t()
    y = x.to(d)
    return [y.stride(), y.cpu().stride(), torch.equal(y.cpu(), x.cpu())]


def round_trip_of_every_dtype(d):
    kinds = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.bool]
    return [torch.tensor([0, 1, 1], dtype=kind).to(d).cpu().tolist() for kind in kinds]


def big_integers_survive(d):
    x = torch.tensor([2**53 + 1, -(2**62)], device=d)
    return x.cpu().tolist()


def gradients_flow_through_a_transfer(d):
    w = torch.ones(2, requires_grad=True)
    (w.to(d) * torch.tensor([2.0, 3.0], device=d)).sum().backward()
    return [w.grad.tolist(), w.grad.device == w.device]


def gradients_flow_back_to_the_host(d):
    w = torch.ones(2, device=d, requires_grad=True)
    (w.cpu() * torch.tensor([2.0, 3.0])).sum().backward()
    return [w.grad.tolist(), w.grad.device == w.device]


def scalars_of_the_host_mix_with_the_device(d):
    x = torch.ones(2, device=d)
    return [
        (x + torch.tensor(2.0)).tolist(),
        (torch.tensor(3) * x).tolist(),
        (x + torch.tensor(2.0)).device == x.device,
    ]


def item_and_tolist(d):
    x = torch.tensor([[1, 2], [3, 4]], device=d)
    return [x[0, 1].item(), x.tolist(), float(x.sum()), int(x[1, 1]), bool(x[0, 0]), f"{x[0, 0]}", x.sum().item()]


def factories_follow_their_input(d):
    x = torch.zeros(2, 3, device=d)
    made = [
        torch.ones_like(x),
        x.new_zeros(2),
        x.new_tensor([1.0]),
        x.new_full((2,), 3),
        torch.empty_like(x),
        x.new_ones(1),
    ]
    return [each.device == x.device for each in made]


def a_nested_batch_moves(d):
    batch = {"x": torch.ones(2), "y": [torch.zeros(1), torch.ones(1)], "n": 3}

    def move(value):
        if isinstance(value, torch.Tensor):
            return value.to(d, non_blocking=True)
        if isinstance(value, dict):
            return {k: move(v) for k, v in value.items()}
        return [move(v) for v in value] if isinstance(value, list) else value

    moved = move(batch)
    return [moved["x"].tolist(), [v.tolist() for v in moved["y"]], moved["n"]]


def pinned_memory_moves(d):
    x = torch.ones(3)
    with contextlib.suppress(RuntimeError):  # the judge has no accelerator
        x = x.pin_memory()
    return x.to(d, non_blocking=True).tolist()


def a_module_moves_in_place(d):
    m = torch.nn.Linear(2, 2)
    w = m.weight
    moved = m.to(d)
    return [moved is m, m.weight is w, m.weight.device.type == torch.device(d).type]


def a_buffer_moves_with_its_module(d):
    m = torch.nn.BatchNorm1d(2).to(d)
    return [b.device.type == torch.device(d).type for b in m.buffers()]


@gives(["cpu", "cpu"])
def a_module_returns_to_the_host(d):
    m = torch.nn.Linear(2, 2).to(d).cpu()
    return [m.weight.device.type, m(torch.ones(1, 2).cpu()).device.type]


def a_type_change_keeps_the_device(d):
    x = torch.ones(2, device=d)
    return [each.device == x.device for each in (x.half(), x.int(), x.bool(), x.long(), x.bfloat16())]


def default_device_context(d):
    with torch.device(d):
        x = torch.ones(2)
        m = torch.nn.Linear(2, 1)
    kind = torch.device(d).type
    return [x.device.type == kind, m.weight.device.type == kind]


def default_device_is_set_and_reset(d):
    torch.set_default_device(d)
    try:
        inside = torch.zeros(1).device.type == torch.device(d).type
        told = torch.get_default_device().type == torch.device(d).type
    finally:
        torch.set_default_device(None)
    return [inside, told]


def tensors_of_two_devices_are_refused_or_not(d):
    x = torch.ones(2, device=d)
    return [(x * 2).tolist(), (x[torch.tensor([0])]).tolist()]
