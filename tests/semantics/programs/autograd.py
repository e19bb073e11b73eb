"""Gradients: hooks, retain_grad, own functions, checkpointing, grad modes."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def _x(d, *values):
    return torch.tensor(values or (1.0, 2.0, 3.0), device=d, requires_grad=True)


def backward_accumulates(d):
    x = _x(d)
    for _ in range(2):
        (x * x).sum().backward()
    return x.grad.tolist()


def grad_of_several(d):
    x, y = _x(d), _x(d)
    return [g.tolist() for g in torch.autograd.grad((x * y * y).sum(), (x, y))]


def unused_inputs(d):
    x, y = _x(d), _x(d)
    grads = torch.autograd.grad(x.sum(), (x, y), allow_unused=True)
    return [grads[0].tolist(), grads[1] is None]


def second_derivative(d):
    x = _x(d)
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    return [g.tolist(), h.tolist()]


def a_tensor_hook_changes_the_gradient(d):
    x = _x(d)
    handle = x.register_hook(lambda g: g * 2)
    (x * x).sum().backward()
    handle.remove()
    first = x.grad.tolist()
    x.grad = None
    (x * x).sum().backward()
    return [first, x.grad.tolist()]


def hooks_see_the_device(d):
    x = _x(d)
    seen = []
    y = x * 2
    y.register_hook(lambda g: seen.append(g.device == x.device))
    y.sum().backward()
    return seen


def retain_grad_of_a_middle(d):
    x = _x(d)
    y = x * 3
    y.retain_grad()
    (y * y).sum().backward()
    return [y.grad.tolist(), y.retains_grad, x.is_leaf, y.is_leaf]


def post_accumulate_hook(d):
    x = _x(d)
    seen = []
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    (x * x).sum().backward()
    return seen


def an_optimizer_in_the_backward(d):
    m = nn.Linear(2, 1, bias=False).to(d)
    nn.init.ones_(m.weight)
    o = torch.optim.SGD(m.parameters(), lr=0.5)

    def step(p):
        o.step()
        o.zero_grad()

    m.weight.register_post_accumulate_grad_hook(step)
    m(torch.ones(1, 2, device=d)).sum().backward()
    return [m.weight.tolist(), m.weight.grad is None]


def grad_fn_names(d):
    x = _x(d)
    y = (x * 2).sum()
    return [y.grad_fn.name(), y.grad_fn.next_functions[0][0].name(), x.grad_fn is None]


def a_node_hook(d):
    x = _x(d)
    y = (x * 2).sum()
    seen = []
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append([len(inputs), len(outputs)]))
    y.backward()
    return seen


def an_own_function(d):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    x = _x(d)
    Square.apply(x).sum().backward()
    return x.grad.tolist()


def an_own_function_with_several_results(d):
    class Split(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, n):
            ctx.n = n
            ctx.mark_non_differentiable(mask := x > 0)
            return x * n, mask

        @staticmethod
        def backward(ctx, g, _):
            return g * ctx.n, None

    x = _x(d, -1.0, 2.0)
    y, mask = Split.apply(x, 3)
    y.sum().backward()
    return [x.grad.tolist(), mask.tolist(), mask.requires_grad]


def checkpoint_without_reentry(d):
    m = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).to(d)
    x = torch.ones(2, 3, device=d, requires_grad=True)
    m(x).sum().backward()
    plain, x.grad = x.grad.clone(), None
    checkpoint(m, x, use_reentrant=False).sum().backward()
    return torch.allclose(plain, x.grad)


def checkpoint_with_reentry(d):
    m = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).to(d)
    x = torch.ones(2, 3, device=d, requires_grad=True)
    m(x).sum().backward()
    plain, x.grad = x.grad.clone(), None
    checkpoint(m, x, use_reentrant=True).sum().backward()
    return torch.allclose(plain, x.grad)


def checkpoint_keeps_random_numbers(d):
    masks = []

    def drop(x):
        y = nn.functional.dropout(x, 0.5, training=True)
        masks.append(y.detach().clone())
        return y * y

    x = torch.ones(50, device=d, requires_grad=True)
    checkpoint(drop, x, use_reentrant=False).sum().backward()
    return [len(masks), torch.equal(masks[0], masks[1]), torch.equal(x.grad, masks[0] * 4)]


def checkpoint_keeps_autocast(d):
    seen = []

    def forward(x):
        seen.append(str((x @ x).dtype))
        return (x @ x).float()

    x = torch.ones(2, 2, device=d, requires_grad=True)
    with torch.autocast(d, dtype=torch.bfloat16):
        y = checkpoint(forward, x, use_reentrant=False)
    y.sum().backward()
    return seen


def checkpoint_of_a_sequence(d):
    m = nn.Sequential(*[nn.Linear(2, 2) for _ in range(4)]).to(d)
    x = torch.ones(1, 2, device=d, requires_grad=True)
    y = checkpoint_sequential(m, 2, x, use_reentrant=False)
    y.sum().backward()
    return [torch.allclose(y, m(x)), x.grad is not None]


def saved_tensors_on_the_host(d):
    x = _x(d)
    with torch.autograd.graph.save_on_cpu():
        y = (x * x).sum()
    y.backward()
    return x.grad.tolist()


def saved_tensors_hooks(d):
    seen = []

    def pack(t):
        seen.append("pack")
        return t.cpu()

    def unpack(t):
        seen.append("unpack")
        return t.to(d)

    x = _x(d)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = x.exp().sum()
    y.backward()
    return [seen, x.grad.tolist()]


def no_grad_and_enable_grad(d):
    x = _x(d)
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 2
    return [a.requires_grad, b.requires_grad, torch.is_grad_enabled()]


def inference_mode(d):
    x = torch.ones(2, device=d)
    with torch.inference_mode():
        y = x * 2
    return [y.is_inference(), y.requires_grad, y.tolist()]


def set_grad_enabled(d):
    x = _x(d)
    with torch.set_grad_enabled(False):
        return (x * 2).requires_grad


def backward_of_a_vector_is_refused(d):
    try:
        _x(d).backward()
    except RuntimeError as error:
        return str(error)


def backward_twice_is_refused(d):
    y = (_x(d) ** 2).sum()
    y.backward()
    try:
        y.backward()
    except RuntimeError as error:
        return "second time" in str(error)


def retain_graph(d):
    x = _x(d)
    y = (x**2).sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad.tolist()


def a_changed_tensor_is_noticed(d):
    x = _x(d)
    y = x.exp()
    y.add_(1)
    try:
        y.sum().backward()
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)


def anomaly_mode_names_the_function(d):
    x = _x(d, -1.0)
    try:
        with torch.autograd.detect_anomaly():
            torch.sqrt(x).sum().backward()
    except RuntimeError as error:
        return str(error)


def backward_with_a_vector(d):
    x = _x(d)
    (x * x).backward(torch.tensor([1.0, 0.0, 2.0], device=d))
    return x.grad.tolist()


def functional_jacobian_and_hessian(d):
    x = torch.tensor([1.0, 2.0], device=d)
    return [
        torch.autograd.functional.jacobian(lambda v: v * v, x).tolist(),
        torch.autograd.functional.hessian(lambda v: (v**3).sum(), x).tolist(),
    ]


def forward_mode(d):
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(torch.tensor([2.0], device=d), torch.tensor([1.0], device=d))
        return torch.autograd.forward_ad.unpack_dual(x**3).tangent.tolist()


def gradient_penalty(d):
    m = nn.Linear(2, 1).to(d)
    nn.init.constant_(m.weight, 2.0)
    x = torch.ones(3, 2, device=d, requires_grad=True)
    (g,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)
    ((g.norm(2, dim=1) - 1) ** 2).mean().backward()
    return m.weight.grad.tolist()


def detach_cuts(d):
    x = _x(d)
    (x.detach() * x).sum().backward()
    return x.grad.tolist()


def requires_grad_of_integers_is_refused(d):
    try:
        torch.ones(2, dtype=torch.int64, device=d, requires_grad=True)
    except RuntimeError as error:
        return str(error)


def gradcheck_like(d):
    x = _x(d, 0.3, 0.7)
    eps = 1e-2
    f = lambda v: torch.sin(v).sum()
    (g,) = torch.autograd.grad(f(x), x)
    near = [((f(x + eps * e) - f(x - eps * e)) / (2 * eps)).item() for e in torch.eye(2, device=d)]
    return [abs(a - b) < 1e-2 for a, b in zip(g.tolist(), near, strict=True)]


def multi_grad_hook(d):
    a, b = _x(d), _x(d)
    seen = []
    torch.autograd.graph.register_multi_grad_hook((a, b), lambda grads: seen.append([g.tolist() for g in grads]))
    (a * b).sum().backward()
    return seen
