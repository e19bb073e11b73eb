"""Functional transforms: grad, vmap, jacobians, functional_call."""

import torch
from torch import nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)


def _x(d):
    return torch.tensor([0.5, -1.0, 2.0], device=d)


def _m(d):
    return torch.arange(6.0, device=d).view(2, 3)


ROWS = {
    "grad": lambda d: grad(lambda x: (x**3).sum())(_x(d)).tolist(),
    "grad_twice": lambda d: grad(grad(lambda x: x**3))(torch.tensor(2.0, device=d)).item(),
    "grad_and_value": lambda d: [each.tolist() for each in grad_and_value(lambda x: (x * x).sum())(_x(d))],
    "grad_of_second": lambda d: grad(lambda x, y: (x * y * y).sum(), argnums=1)(_x(d), _x(d)).tolist(),
    "grad_with_extra": lambda d: grad(lambda x: ((x * x).sum(), x + 1), has_aux=True)(_x(d))[1].tolist(),
    "vmap": lambda d: vmap(lambda row: row.sum())(_m(d)).tolist(),
    "vmap_in_dims": lambda d: vmap(torch.dot, in_dims=(1, None))(_m(d), torch.ones(2, device=d)).tolist(),
    "vmap_out_dims": lambda d: list(vmap(lambda x: x.expand(4), out_dims=1)(_x(d)).shape),
    "vmap_nested": lambda d: vmap(vmap(lambda x: x * 2))(_m(d)).tolist(),
    "vmap_chunks": lambda d: vmap(lambda row: row * row, chunk_size=1)(_m(d)).tolist(),
    "vmap_matmul": lambda d: vmap(torch.mm, in_dims=(0, None))(_m(d).view(2, 1, 3), _m(d).T).tolist(),
    "vmap_makes_tensors": lambda d: vmap(lambda row: row + torch.ones(3, device=d))(_m(d)).tolist(),
    "gradients_per_sample": lambda d: vmap(grad(lambda w, x: (w * x).sum().pow(2)), (None, 0))(_x(d), _m(d)).tolist(),
    "jacrev": lambda d: jacrev(lambda x: x * x)(_x(d)).tolist(),
    "jacfwd": lambda d: jacfwd(lambda x: x.sin())(_x(d)).tolist(),
    "hessian": lambda d: hessian(lambda x: (x**3).sum())(_x(d)).tolist(),
    "vjp": lambda d: [each.tolist() for each in vjp(lambda x: x * 2, _x(d))[1](_x(d))],
    "jvp": lambda d: [each.tolist() for each in jvp(lambda x: x.exp(), (_x(d),), (torch.ones(3, device=d),))],
    "linearize": lambda d: linearize(lambda x: x.sin(), _x(d))[1](torch.ones(3, device=d)).tolist(),
}


def functional_call_with_other_weights(d):
    m = nn.Linear(3, 1).to(d)
    weights = {"weight": torch.ones(1, 3, device=d), "bias": torch.zeros(1, device=d)}
    return functional_call(m, weights, (_x(d),)).tolist()


def an_ensemble(d):
    models = [nn.Linear(3, 1).to(d) for _ in range(2)]
    for i, m in enumerate(models):
        nn.init.constant_(m.weight, i + 1)
        nn.init.zeros_(m.bias)
    parameters, buffers = stack_module_state(models)
    return vmap(lambda p, b: functional_call(models[0], (p, b), (_x(d),)))(parameters, buffers).tolist()


def randomness_under_vmap(d):
    try:
        vmap(lambda x: x + torch.rand(1, device=d))(_x(d))
    except RuntimeError as error:
        refused = "randomness" in str(error)
    different = vmap(lambda x: x * 0 + torch.rand((), device=d), randomness="different")(_x(d))
    same = vmap(lambda x: x * 0 + torch.rand((), device=d), randomness="same")(_x(d))
    return [refused, len(set(different.tolist())), len(set(same.tolist()))]


def per_sample_gradients_of_a_module(d):
    m = nn.Linear(3, 1, bias=False).to(d)
    nn.init.ones_(m.weight)
    weights = {k: v.detach() for k, v in m.named_parameters()}
    loss = lambda w, x: functional_call(m, w, (x,)).pow(2).sum()
    return vmap(grad(loss), (None, 0))(weights, _m(d))["weight"].tolist()


def control_flow_in_a_transform_is_refused(d):
    try:
        vmap(lambda x: x if x > 0 else -x)(_x(d))
    except RuntimeError as error:
        return "data-dependent control flow" in str(error)
