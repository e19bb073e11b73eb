"""Autocast and GradScaler."""

import torch
from torch import nn

from tests.semantics.program import gives, within


def _names(*tensors):
    return [str(t.dtype) for t in tensors]


def matmul_runs_in_bfloat16(d):
    a = torch.ones(2, 2, device=d)
    with torch.autocast(d, dtype=torch.bfloat16):
        return _names(a @ a, torch.mm(a, a), nn.functional.linear(a, a))


def matmul_runs_in_float16(d):
    a = torch.ones(2, 2, device=d)
    with torch.autocast(d, dtype=torch.float16):
        return _names(a @ a, torch.mm(a, a), nn.functional.linear(a, a))


@gives(["torch.float16", "torch.float16"])
def the_default_type_is_float16(d):
    a = torch.ones(2, 2, device=d)
    with torch.autocast("cuda"):
        return [*_names(a @ a), str(torch.get_autocast_dtype("cuda"))]


@gives(["torch.float16", True, False])
def the_old_name(d):
    a = torch.ones(2, 2, device=d)
    with torch.cuda.amp.autocast():
        inside = torch.is_autocast_enabled()
        return [*_names(a @ a), inside, torch.is_autocast_cpu_enabled()]


def elementwise_keeps_float32(d):
    a = torch.ones(2, 2, device=d)
    with torch.autocast(d, dtype=torch.bfloat16):
        return _names(a + a, a * 2, a.relu(), a.sum())


@gives(["torch.float32", "torch.float32", "torch.float32", "torch.float32", "torch.float32"])
def what_is_sensitive_runs_in_float32(d):
    a = torch.ones(2, 2, device=d, dtype=torch.float16)
    with torch.autocast("cuda", dtype=torch.float16):
        return _names(a.softmax(-1), a.exp(), nn.functional.layer_norm(a, (2,)), a.log(), a.pow(2))


@gives(["torch.float32", "torch.float32"])
def losses_run_in_float32(d):
    a = torch.ones(2, 2, device=d, dtype=torch.float16)
    with torch.autocast("cuda", dtype=torch.float16):
        return _names(nn.functional.mse_loss(a, a), nn.functional.cross_entropy(a, torch.zeros(2, device=d).long()))


def disabled_inside_enabled(d):
    a = torch.ones(2, 2, device=d)
    with torch.autocast(d, dtype=torch.bfloat16):
        inner = a @ a
        with torch.autocast(d, enabled=False):
            outer = a @ a
        again = a @ a
    return _names(inner, outer, again, a @ a)


@gives(["torch.float16", "torch.float16"])
def the_host_disabled_inside_the_device(d):
    a = torch.ones(2, 2, device=d)
    with torch.autocast("cuda", dtype=torch.float16):
        with torch.autocast("cpu", enabled=False):
            b = a @ a
        return _names(b, a @ a)


@gives(["torch.float16", "torch.float32"])
def the_host_is_not_cast_by_the_device(d):
    a, host = torch.ones(2, 2, device=d), torch.ones(2, 2)
    with torch.autocast("cuda", dtype=torch.float16):
        return _names(a @ a, host @ host)


def autocast_as_a_decorator(d):
    @torch.autocast(d, dtype=torch.bfloat16)
    def forward(a):
        return a @ a

    return _names(forward(torch.ones(2, 2, device=d)))


def the_state_is_told(d):
    states = [torch.is_autocast_enabled(d)]
    with torch.autocast(d, dtype=torch.bfloat16):
        states += [torch.is_autocast_enabled(d), str(torch.get_autocast_dtype(d))]
    return [*states, torch.is_autocast_enabled(d)]


def the_state_after_an_error(d):
    try:
        with torch.autocast(d, dtype=torch.bfloat16):
            raise KeyError
    except KeyError:
        return torch.is_autocast_enabled(d)


def gradients_keep_the_type_of_the_weights(d):
    m = nn.Linear(3, 2).to(d)
    with torch.autocast(d, dtype=torch.bfloat16):
        loss = m(torch.ones(4, 3, device=d)).float().pow(2).mean()
    loss.backward()
    return _names(m.weight, m.weight.grad, m.bias.grad, loss)


@within(2e-2)
def a_module_under_autocast(d):
    m = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 2)).to(d)
    with torch.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(torch.linspace(-1, 1, p.numel(), device=d).view_as(p) / (i + 1))
    with torch.autocast(d, dtype=torch.bfloat16):
        return m(torch.linspace(0, 1, 8, device=d).view(2, 4)).float().tolist()


def the_scaler_scales(d):
    scaler = torch.amp.GradScaler(d, init_scale=8.0)
    return [scaler.scale(torch.tensor(2.0, device=d)).item(), scaler.get_scale(), scaler.is_enabled()]


def the_scaler_that_is_off(d):
    scaler = torch.amp.GradScaler(d, enabled=False)
    return [scaler.scale(torch.tensor(2.0, device=d)).item(), scaler.get_scale(), scaler.is_enabled()]


def _scaled_steps(d, gradients, **arguments):
    w = nn.Parameter(torch.ones(2, device=d))
    o = torch.optim.SGD([w], lr=1.0)
    scaler = torch.amp.GradScaler(d, init_scale=4.0, growth_interval=2, **arguments)
    seen = []
    for g in gradients:
        o.zero_grad()
        scaler.scale((w * g).sum()).backward()
        scaler.step(o)
        scaler.update()
        seen.append([w.tolist(), scaler.get_scale()])
    return seen


def the_scaler_grows(d):
    return _scaled_steps(d, [0.5, 0.5, 0.25])


def the_scaler_skips_infinite_gradients(d):
    return _scaled_steps(d, [0.5, float("inf"), 0.25])


def the_scaler_skips_nan(d):
    return _scaled_steps(d, [float("nan"), 0.25], backoff_factor=0.25)


def unscale_then_clip(d):
    w = nn.Parameter(torch.full((2,), 3.0, device=d))
    o = torch.optim.SGD([w], lr=1.0)
    scaler = torch.amp.GradScaler(d, init_scale=16.0)
    scaler.scale((w * w).sum()).backward()
    scaler.unscale_(o)
    before = w.grad.tolist()
    norm = nn.utils.clip_grad_norm_([w], 1.0)
    scaler.step(o)
    scaler.update()
    return [before, norm.item(), w.tolist()]


def the_state_of_a_scaler(d):
    scaler = torch.amp.GradScaler(d, init_scale=32.0)
    other = torch.amp.GradScaler(d)
    other.load_state_dict(scaler.state_dict())
    return [scaler.state_dict(), other.get_scale()]


@gives([65536.0, True])
def the_old_scaler(d):
    scaler = torch.cuda.amp.GradScaler()
    return [scaler.get_scale(), isinstance(scaler, torch.amp.GradScaler)]


def unscale_twice_is_refused(d):
    w = nn.Parameter(torch.ones(1, device=d))
    o = torch.optim.SGD([w], lr=1.0)
    scaler = torch.amp.GradScaler(d)
    scaler.scale(w.sum()).backward()
    scaler.unscale_(o)
    try:
        scaler.unscale_(o)
    except RuntimeError as error:
        return str(error)


@gives("torch.float32")
def custom_fwd_casts(d):
    class Own(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x @ x

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g @ x.t() + x.t() @ g

    x = torch.ones(2, 2, device=d, dtype=torch.float16, requires_grad=True)
    with torch.autocast("cuda", dtype=torch.float16):
        y = Own.apply(x)
    y.sum().backward()
    return str(y.dtype)


@within(3e-2)
def a_loop_with_scaler_and_autocast(d):
    m = nn.Linear(2, 1, bias=False).to(d)
    nn.init.constant_(m.weight, 0.5)
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(d, init_scale=2.0)
    losses = []
    for _ in range(4):
        o.zero_grad(set_to_none=True)
        with torch.autocast(d, dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(m(torch.ones(4, 2, device=d)).float(), torch.full((4, 1), 3.0, device=d))
        scaler.scale(loss).backward()
        scaler.step(o)
        scaler.update()
        losses.append(loss.item())
    return losses


def promotion_to_the_widest(d):
    a, b = torch.ones(2, device=d, dtype=torch.float16), torch.ones(2, device=d)
    with torch.autocast(d, dtype=torch.float16):
        return _names(torch.cat([a, b]), torch.stack([a, b]), a + b)
