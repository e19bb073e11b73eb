"""Optimizers, schedulers, parameter groups, clipping, averaging."""

import copy

import torch
from torch import nn

from tests.semantics.program import gives


def _model(d):
    m = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).to(d)
    with torch.no_grad():
        for p in m.parameters():
            p.copy_(torch.linspace(-0.5, 0.5, p.numel(), device=d).view_as(p))
    return m


def _loss(m, d):
    x = torch.tensor([[0.0, 1.0], [1.0, 0.5], [0.3, -1.0]], device=d)
    return (m(x) - torch.tensor([[1.0], [0.0], [2.0]], device=d)).pow(2).mean()


def _train(d, make, steps=3):
    m = _model(d)
    o = make(m.parameters())
    losses = []
    for _ in range(steps):

        def closure():
            o.zero_grad()
            loss = _loss(m, d)
            loss.backward()
            return loss

        losses.append(float(o.step(closure)))
    return [losses, [p.flatten()[0].item() for p in m.parameters()]]


def _trained(name, **arguments):
    return lambda d: _train(d, lambda parameters: getattr(torch.optim, name)(parameters, **arguments))


ROWS = {
    "sgd": _trained("SGD", lr=0.1),
    "sgd_momentum": _trained("SGD", lr=0.1, momentum=0.9, weight_decay=0.01),
    "sgd_nesterov": _trained("SGD", lr=0.1, momentum=0.9, nesterov=True),
    "sgd_foreach": _trained("SGD", lr=0.1, momentum=0.9, foreach=True),
    "sgd_fused": _trained("SGD", lr=0.1, momentum=0.9, fused=True),
    "adam": _trained("Adam", lr=0.1),
    "adam_amsgrad": _trained("Adam", lr=0.1, amsgrad=True, weight_decay=0.1),
    "adam_foreach": _trained("Adam", lr=0.1, foreach=True),
    "adam_fused": _trained("Adam", lr=0.1, fused=True),
    "adam_maximize": _trained("Adam", lr=0.1, maximize=True),
    "adamw": _trained("AdamW", lr=0.1),
    "adamw_fused": _trained("AdamW", lr=0.1, fused=True),
    "adamax": _trained("Adamax", lr=0.1),
    "adadelta": _trained("Adadelta", lr=0.5),
    "adagrad": _trained("Adagrad", lr=0.1),
    "adagrad_foreach": _trained("Adagrad", lr=0.1, foreach=True),
    "asgd": _trained("ASGD", lr=0.1),
    "nadam": _trained("NAdam", lr=0.1),
    "radam": _trained("RAdam", lr=0.1),
    "rmsprop": _trained("RMSprop", lr=0.05, momentum=0.5, centered=True),
    "rprop": _trained("Rprop", lr=0.05),
    "lbfgs": _trained("LBFGS", lr=0.5, max_iter=4),
    "lbfgs_wolfe": _trained("LBFGS", line_search_fn="strong_wolfe", max_iter=3),
    "adafactor": _trained("Adafactor", lr=0.1),
}


def _rates(d, make, steps=5):
    m = _model(d)
    o = torch.optim.SGD(m.parameters(), lr=1.0, momentum=0.5)
    s = make(o)
    rates = []
    for _ in range(steps):
        o.step()
        s.step()
        rates.append(o.param_groups[0]["lr"])
    return rates


_SCHEDULES = {
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
    "multistep": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [1, 3], 0.1),
    "exponential": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 4),
    "warm_restarts": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 2),
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda epoch: 1 / (epoch + 1)),
    "linear": lambda o: torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=3),
    "one_cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1.0, total_steps=6),
    "cyclic": lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.1, 1.0, step_size_up=2),
    "polynomial": lambda o: torch.optim.lr_scheduler.PolynomialLR(o, 4, 2.0),
    "sequential": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [torch.optim.lr_scheduler.ConstantLR(o, 0.5, 2), torch.optim.lr_scheduler.ExponentialLR(o, 0.5)],
        [2],
    ),
}
ROWS |= {f"rate_{name}": lambda d, make=make: _rates(d, make) for name, make in _SCHEDULES.items()}


def plateau_reads_a_device_tensor(d):
    o = torch.optim.SGD(_model(d).parameters(), lr=1.0)
    s = torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0)
    for value in (1.0, 2.0, 0.5, 3.0):
        s.step(torch.tensor(value, device=d))
    return [o.param_groups[0]["lr"], s.num_bad_epochs]


def groups_with_their_own_rates(d):
    m = _model(d)
    o = torch.optim.SGD([{"params": m[0].parameters()}, {"params": m[2].parameters(), "lr": 0.01}], lr=0.1)
    o.add_param_group({"params": [nn.Parameter(torch.zeros(1, device=d))], "lr": 5.0})
    _loss(m, d).backward()
    o.step()
    return [[g["lr"] for g in o.param_groups], _loss(m, d).item()]


def a_rate_that_is_a_tensor(d):
    m = _model(d)
    o = torch.optim.Adam(m.parameters(), lr=torch.tensor(0.1, device=d), capturable=d != "cpu", foreach=False)
    _loss(m, d).backward()
    o.step()
    return _loss(m, d).item()


@gives([True, True])
def capturable_keeps_its_step_on_the_device(d):
    m = _model(d)
    o = torch.optim.Adam(m.parameters(), capturable=True)
    _loss(m, d).backward()
    o.step()
    state = o.state[m[0].weight]
    return [state["step"].device == m[0].weight.device, state["exp_avg"].device == m[0].weight.device]


def what_the_state_holds(d):
    m = _model(d)
    o = torch.optim.Adam(m.parameters())
    _loss(m, d).backward()
    o.step()
    state = o.state_dict()
    return [
        sorted(state),
        sorted(state["state"][0]),
        state["param_groups"][0]["params"],
        float(state["state"][0]["step"]),
    ]


def zero_grad_sets_to_none(d):
    m = _model(d)
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    _loss(m, d).backward()
    o.zero_grad(set_to_none=False)
    zeros = m[0].weight.grad.abs().sum().item()
    o.zero_grad()
    return [zeros, m[0].weight.grad is None]


def clipping_by_norm(d):
    m = _model(d)
    (100 * _loss(m, d)).backward()
    norm = nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    after = torch.stack([p.grad.norm() for p in m.parameters()]).norm()
    return [norm.item(), after.item()]


def clipping_by_norm_foreach(d):
    m = _model(d)
    (100 * _loss(m, d)).backward()
    norm = nn.utils.clip_grad_norm_(m.parameters(), 1.0, foreach=True)
    return [norm.item(), [p.grad.flatten()[0].item() for p in m.parameters()]]


def clipping_by_norm_infinity(d):
    m = _model(d)
    (100 * _loss(m, d)).backward()
    return nn.utils.clip_grad_norm_(m.parameters(), 1.0, norm_type=float("inf")).item()


def clipping_refuses_what_is_not_finite(d):
    p = nn.Parameter(torch.ones(1, device=d))
    p.grad = torch.full((1,), float("nan"), device=d)
    try:
        nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    except RuntimeError as error:
        return "non-finite" in str(error)


def clipping_by_value(d):
    m = _model(d)
    (100 * _loss(m, d)).backward()
    nn.utils.clip_grad_value_(m.parameters(), 0.5)
    return max(p.grad.abs().max().item() for p in m.parameters())


def weight_averaging(d):
    m = _model(d)
    average = torch.optim.swa_utils.AveragedModel(m)
    with torch.no_grad():
        for step in range(3):
            for p in m.parameters():
                p.fill_(step)
            average.update_parameters(m)
    return [[p.flatten()[0].item() for p in average.module.parameters()], average.n_averaged.item()]


def exponential_average(d):
    m = _model(d)
    average = torch.optim.swa_utils.AveragedModel(m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    with torch.no_grad():
        for step in range(3):
            for p in m.parameters():
                p.fill_(step)
            average.update_parameters(m)
    return [p.flatten()[0].item() for p in average.module.parameters()]


def step_hooks(d):
    m = _model(d)
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    seen = []
    o.register_step_pre_hook(lambda *_: seen.append("before"))
    o.register_step_post_hook(lambda *_: seen.append("after"))
    o.step()
    return seen


def an_own_optimizer(d):
    class Sign(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    state.setdefault("last", torch.zeros_like(p)).add_(p.grad.sign())
                    p.sub_(state["last"], alpha=group["lr"])

    m = _model(d)
    o = Sign(m.parameters(), 0.01)
    _loss(m, d).backward()
    o.step()
    return _loss(m, d).item()


def gradient_accumulation(d):
    m, n = _model(d), _model(d)
    for _ in range(4):
        (_loss(m, d) / 4).backward()
    _loss(n, d).backward()
    return torch.allclose(m[0].weight.grad, n[0].weight.grad, atol=1e-6)


def a_copied_optimizer(d):
    m = _model(d)
    o = torch.optim.Adam(m.parameters())
    _loss(m, d).backward()
    o.step()
    state = copy.deepcopy(o.state_dict())
    o.step()
    return [float(state["state"][0]["step"]), float(o.state_dict()["state"][0]["step"])]


def the_state_of_a_scheduler(d):
    o = torch.optim.SGD(_model(d).parameters(), lr=1.0)
    s = torch.optim.lr_scheduler.StepLR(o, 1, 0.5)
    o.step()
    s.step()
    t = torch.optim.lr_scheduler.StepLR(o, 1, 0.5)
    t.load_state_dict(s.state_dict())
    return [t.last_epoch, t.get_last_lr()]


def sparse_adam(d):
    e = nn.Embedding(4, 2, sparse=True).to(d)
    nn.init.ones_(e.weight)
    o = torch.optim.SparseAdam(e.parameters(), lr=0.1)
    e(torch.tensor([1, 3], device=d)).sum().backward()
    o.step()
    return e.weight.tolist()


def no_parameters_are_refused(d):
    try:
        torch.optim.SGD([], lr=0.1)
    except ValueError as error:
        return str(error)
