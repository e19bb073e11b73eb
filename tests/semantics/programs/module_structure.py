"""Hooks of modules, names of parameters, buffers, children."""

import torch
from torch import nn


def _net(d):
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)).to(d)


def _x(d):
    return torch.ones(1, 2, device=d)


def forward_hook_changes_the_result(d):
    m = nn.Linear(2, 1).to(d)
    handle = m.register_forward_hook(lambda module, inputs, output: output * 0 + 7)
    first = m(_x(d)).tolist()
    handle.remove()
    return [first, m(_x(d)).item() == 7]


def forward_pre_hook_changes_the_input(d):
    m = nn.Identity().to(d)
    m.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
    return m(_x(d)).tolist()


def hooks_with_keywords(d):
    class Takes(nn.Module):
        def forward(self, x, scale=1):
            return x * scale

    m = Takes().to(d)
    m.register_forward_pre_hook(lambda module, args, kwargs: (args, {**kwargs, "scale": 5}), with_kwargs=True)
    return m(_x(d), scale=2).tolist()


def full_backward_hook(d):
    m = nn.Linear(2, 1, bias=False).to(d)
    nn.init.ones_(m.weight)
    seen = []
    m.register_full_backward_hook(lambda module, gi, go: seen.append([go[0].tolist(), gi[0].tolist()]))
    m(_x(d).requires_grad_()).sum().backward()
    return seen


def full_backward_pre_hook(d):
    m = nn.Linear(2, 1, bias=False).to(d)
    m.register_full_backward_pre_hook(lambda module, go: (go[0] * 3,))
    m(_x(d)).sum().backward()
    return m.weight.grad.tolist()


def global_hooks(d):
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda m, i, o: seen.append(type(m).__name__))
    try:
        _net(d)(_x(d))
    finally:
        handle.remove()
    return seen


def activations_are_gathered(d):
    m, kept = _net(d), {}
    for name, child in m.named_children():
        child.register_forward_hook(lambda module, i, o, name=name: kept.update({name: o.detach().cpu()}))
    m(_x(d))
    return {name: list(value.shape) for name, value in kept.items()}


def the_order_of_hooks(d):
    m, seen = nn.Identity(), []
    m.register_forward_hook(lambda *_: seen.append("first"))
    m.register_forward_hook(lambda *_: seen.append("second"))
    m.register_forward_hook(lambda *_: seen.append("zeroth"), prepend=True)
    m(_x(d))
    return seen


def state_dict_hooks(d):
    m = _net(d)
    m.register_state_dict_post_hook(lambda module, state, prefix, local: state.update({"extra": torch.ones(1)}))
    return list(m.state_dict())


def load_state_dict_pre_hook(d):
    m = nn.Linear(2, 1).to(d)

    def rename(module, state, prefix, *_):
        state["weight"] = state.pop("w")

    m.register_load_state_dict_pre_hook(rename)
    return str(m.load_state_dict({"w": torch.ones(1, 2, device=d), "bias": torch.zeros(1, device=d)}))


def names_of_parameters(d):
    return [[n, list(p.shape), p.device.type == torch.device(d).type] for n, p in _net(d).named_parameters()]


def names_of_modules(d):
    return [[n, type(m).__name__] for n, m in _net(d).named_modules()]


def names_of_buffers(d):
    m = nn.Sequential(nn.BatchNorm1d(2)).to(d)
    return [n for n, _ in m.named_buffers()]


def shared_parameters_are_listed_once(d):
    m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    m[1].weight = m[0].weight
    m.to(d)
    return [
        len(list(m.parameters())),
        m[0].weight is m[1].weight,
        len(list(m.named_parameters(remove_duplicate=False))),
    ]


def submodules_by_path(d):
    m = _net(d)
    return [type(m.get_submodule("1")).__name__, list(m.get_parameter("0.weight").shape)]


def apply_visits_all(d):
    m, seen = _net(d), []

    def visit(module):
        seen.append(type(module).__name__)
        if isinstance(module, nn.Linear):
            nn.init.constant_(module.weight, 0.5)

    m.apply(visit)
    return [seen, m[0].weight.tolist()]


def training_and_evaluation(d):
    m = _net(d)
    return [m.training, m.eval().training, m[0].training, m.train()[2].training]


def registering(d):
    m = nn.Module()
    m.register_parameter("p", nn.Parameter(torch.ones(1, device=d)))
    m.register_buffer("b", torch.zeros(1, device=d))
    m.register_module("m", nn.Linear(1, 1, device=d))
    m.register_parameter("none", None)
    return [list(m.state_dict()), m.none is None, "p" in dict(m.named_parameters())]


def buffers_that_are_assigned(d):
    m = nn.Module()
    m.register_buffer("b", torch.zeros(1))
    m.to(d)
    m.b = torch.ones(2, device=d)
    return [m.state_dict()["b"].tolist(), [n for n, _ in m.named_buffers()]]


def parameters_that_are_deleted(d):
    m = nn.Linear(2, 1).to(d)
    del m.bias
    return list(m.state_dict())


def a_plain_tensor_attribute_does_not_move(d):
    m = nn.Module()
    m.plain = torch.ones(2)
    m.to(d)
    return ["plain" in m.state_dict(), m.plain.tolist()]


def repr_of_a_module(d):
    return repr(_net(d))


def counting_parameters(d):
    return sum(p.numel() for p in _net(d).parameters())


def zero_grad_of_a_module(d):
    m = _net(d)
    m(_x(d)).sum().backward()
    m.zero_grad()
    return [p.grad is None for p in m.parameters()]


def to_with_several_arguments(d):
    m = _net(d).to(device=d, dtype=torch.float16)
    return [str(p.dtype) for p in m.parameters()]


def type_of_the_first_parameter(d):
    p = next(_net(d).parameters())
    return [str(p.dtype), p.device.type == torch.device(d).type, p.is_leaf]
