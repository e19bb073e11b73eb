"""torch.compile, TorchScript, torch.fx and torch.export. Graphs run eagerly: a C++ compiler would take minutes."""

import io

import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx


def _x(d):
    return torch.tensor([0.5, -1.0, 2.0], device=d)


def _compiled(function, **arguments):
    torch.compiler.reset()
    return torch.compile(function, backend="eager", **arguments)


def compiled_function(d):
    return _compiled(lambda x: x.sin() + torch.ones(3, device=d) * 2)(_x(d)).tolist()


def compiled_module_and_gradient(d):
    m = nn.Linear(3, 1).to(d)
    nn.init.ones_(m.weight)
    _compiled(m)(_x(d)).sum().backward()
    return m.weight.grad.tolist()


def compiled_with_a_transfer(d):
    host = torch.tensor([1.0, 2.0, 3.0])
    return _compiled(lambda x: (x.to(d) * 2).sum())(host).item()


def compiled_full_graph(d):
    def f(x):
        y = torch.zeros(3, device=x.device)
        return torch.where(x > 0, x, y)

    return _compiled(f, fullgraph=True)(_x(d)).tolist()


def compiled_with_branches(d):
    def f(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    g = _compiled(f)
    return [g(_x(d)).tolist(), g(-_x(d)).tolist()]


def compiled_under_autocast(d):
    def f(x):
        with torch.autocast(d, dtype=torch.bfloat16):
            return x @ x

    return str(_compiled(f)(torch.ones(2, 2, device=d)).dtype)


def compiler_is_asked(d):
    return [torch.compiler.is_compiling(), _compiled(lambda x: x + int(torch.compiler.is_compiling()))(_x(d)).tolist()]


def disabled_compiler(d):
    @torch.compiler.disable
    def f(x):
        return x * 3

    return f(_x(d)).tolist()


def _scripted(x, n: int):
    out = torch.zeros_like(x)
    for i in range(n):
        out = out + x * i
    return out


def scripted_function(d):
    return torch.jit.script(_scripted)(_x(d), 3).tolist()


class _Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        y = self.linear(x)
        if bool(y.sum() > 0):
            return y * self.scale
        return -y


def _gate(d):
    m = _Gate()
    nn.init.ones_(m.linear.weight)
    nn.init.zeros_(m.linear.bias)
    return m.to(d)


def scripted_module(d):
    m = torch.jit.script(_gate(d))
    return [m(_x(d)).tolist(), m(-_x(d)).tolist()]


def scripted_module_is_saved(d):
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(_gate(d)), file)
    file.seek(0)
    m = torch.jit.load(file, map_location=d)
    return [m(_x(d)).tolist(), m.scale.device.type == torch.device(d).type]


def scripted_module_moves(d):
    m = torch.jit.script(_gate("cpu")).to(d)
    return m(_x(d)).tolist()


def traced_function(d):
    f = torch.jit.trace(lambda x: x.relu() * 2 + torch.ones(3, device=x.device), _x(d))
    return [f(_x(d)).tolist(), f(-_x(d)).tolist()]


def traced_module(d):
    m = nn.Sequential(nn.Linear(3, 2), nn.ReLU()).to(d).eval()
    return torch.allclose(torch.jit.trace(m, _x(d))(_x(d) * 2), m(_x(d) * 2))


def frozen_module(d):
    m = torch.jit.freeze(torch.jit.script(_gate(d).eval()))
    return m(_x(d)).tolist()


def symbolic_trace(d):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 3)

        def forward(self, x):
            return torch.relu(self.a(x)) + 1

    m = Two().to(d)
    traced = fx.symbolic_trace(m)
    return [[node.op for node in traced.graph.nodes], torch.equal(traced(_x(d)), m(_x(d)))]


def a_graph_is_changed(d):
    traced = fx.symbolic_trace(lambda x: torch.add(x, 1))
    for node in traced.graph.nodes:
        if node.target is torch.add:
            node.target = torch.mul
            node.args = (node.args[0], 5)
    traced.recompile()
    return traced(_x(d)).tolist()


def an_interpreter(d):
    traced = fx.symbolic_trace(lambda x: (x * 2).sum())
    return fx.Interpreter(traced).run(_x(d)).item()


def exported(d):
    m = _Plain().to(d)
    program = torch.export.export(m, (_x(d),))
    return torch.equal(program.module()(_x(d)), m(_x(d)))


def exported_with_a_dynamic_size(d):
    m = _Plain().to(d)
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(m, (torch.ones(4, 3, device=d),), dynamic_shapes=({0: batch},))
    return list(program.module()(torch.ones(7, 3, device=d)).shape)


def exported_and_saved(d):
    m = _Plain().to(d)
    file = io.BytesIO()
    torch.export.save(torch.export.export(m, (_x(d),)), file)
    file.seek(0)
    return torch.equal(torch.export.load(file).module()(_x(d)), m(_x(d)))


class _Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x).tanh()


def made_fx(d):
    graph = make_fx(lambda x: x.sin() * 2)(_x(d))
    return graph(_x(d)).tolist()


def an_own_operator(d):
    @torch.library.custom_op("semantics::triple", mutates_args=())
    def triple(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    @triple.register_fake
    def _(x):
        return torch.empty_like(x)

    triple.register_autograd(lambda ctx, g: g * 3)
    x = _x(d).requires_grad_()
    torch.ops.semantics.triple(x).sum().backward()
    return [triple(_x(d)).tolist(), x.grad.tolist()]
