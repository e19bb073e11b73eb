"""Tensor subclasses, __torch_function__, function modes and dispatch modes."""

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.semantics.program import gives


class _Tagged(torch.Tensor):
    pass


class _Counting(torch.Tensor):
    calls = None

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


class _Duck:
    def __init__(self, x):
        self.x = x

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        unwrapped = [a.x if isinstance(a, cls) else a for a in args]
        return cls(func(*unwrapped, **(kwargs or {})))


class _Names(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def the_class_is_kept(d):
    x = torch.ones(2, device=d).as_subclass(_Tagged)
    results = (x + 1, x[0], x.view(2, 1), x.sum(), x.to(d), x.clone(), torch.sin(x))
    return [type(each).__name__ for each in results]


def the_class_returns_to_the_host(d):
    x = torch.ones(2, device=d).as_subclass(_Tagged).cpu()
    return [type(x).__name__, x.tolist()]


def calls_are_seen(d):
    x = torch.ones(2, device=d).as_subclass(_Counting)
    _Counting.calls = []
    torch.sin(x + 1).sum()
    return _Counting.calls


def moves_are_seen(d):
    x = torch.ones(2).as_subclass(_Counting)
    _Counting.calls = []
    y = x.to(d)
    return [_Counting.calls, type(y).__name__]


def a_duck_enters(d):
    out = torch.add(_Duck(torch.ones(2, device=d)), 1)
    return [type(out).__name__, out.x.tolist()]


def a_function_mode_sees_calls(d):
    x = torch.ones(2, device=d)
    with _Names() as mode:
        torch.sin(x)
        x.cos()
        x + 1
    return mode.names


def a_function_mode_changes_results(d):
    class Doubling(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return out * 2 if func is torch.ones else out

    with Doubling():
        x = torch.ones(2, device=d)
    return x.tolist()


def function_modes_nest(d):
    x = torch.ones(2, device=d)
    with _Names() as outer, _Names() as inner:
        torch.sin(x)
    return [outer.names, inner.names]


def a_dispatch_mode_sees_operators(d):
    x = torch.ones(2, device=d)
    with _Operators() as mode:
        (x * 2).sum()
    return mode.names


def a_dispatch_mode_sees_the_backward(d):
    x = torch.ones(2, device=d, requires_grad=True)
    y = x.exp().sum()
    with _Operators() as mode:
        y.backward()
    return "aten.mul.Tensor" in mode.names


def flops_are_counted(d):
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        torch.ones(2, 3, device=d) @ torch.ones(3, 4, device=d)
    return counter.get_total_flops()


def fake_tensors(d):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(2, 3, device=d)
        y = x @ x.t()
    return [y.shape, y.device.type == torch.device(d).type, type(y).__name__]


def meta_tensors(d):
    x = torch.empty(2, 3, device="meta")
    return [(x @ x.t()).shape, x.is_meta, x.device.type, nn.Linear(3, 4, device="meta")(x).shape]


def a_parameter_subclass(d):
    class Own(nn.Parameter):
        pass

    p = Own(torch.ones(2, device=d))
    return [isinstance(p, nn.Parameter), p.requires_grad, type(p).__name__]


def a_wrapper_subclass(d):
    class Scaled(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            unwrap = lambda a: a.inner * 10 if isinstance(a, cls) else a
            return func(*[unwrap(a) for a in args], **(kwargs or {}))

    x = Scaled(torch.ones(2, device=d))
    return [(x + 1).tolist(), x.device.type == torch.device(d).type]


def has_torch_function(d):
    return [
        torch.overrides.has_torch_function((torch.ones(1, device=d),)),
        torch.overrides.has_torch_function((torch.ones(1, device=d).as_subclass(_Counting),)),
        torch.overrides.is_tensor_like(_Duck(1)),
    ]


def disabled_torch_function(d):
    x = torch.ones(2, device=d).as_subclass(_Tagged)
    with torch._C.DisableTorchFunctionSubclass():
        return type(x + 1).__name__


def the_name_of_a_function(d):
    return [
        torch.overrides.resolve_name(torch.Tensor.add),
        torch.sin.__name__,
        torch.Tensor.add.__name__,
        torch.zeros.__name__,
    ]


def unwrapping_operators(d):
    x = torch.ones(2, device=d)
    return [torch.ops.aten.add.Tensor(x, x).tolist(), torch.ops.aten.sum(x).item()]


def a_function_mode_sees_a_move(d):
    x = torch.ones(2)
    with _Names() as mode:
        x.to(d)
    return mode.names


@gives(["cuda"])
def a_function_mode_sees_cuda(d):
    x = torch.ones(2, device=d)
    with _Names() as mode:
        x.cuda()
    return mode.names


def a_function_mode_sees_a_factory(d):
    with _Names() as mode:
        torch.zeros(2, device=d)
        torch.tensor([1.0], device=d)
    return mode.names


def _finds(function):
    """Whether a class that keeps a table of functions, as the documentation of torch shows it, finds this one there."""

    def program(d):
        found = []

        class Handling(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                found.append(func in {function()})
                return super().__torch_function__(func, types, args, kwargs or {})

        function()(torch.ones(2, 2, device=d).as_subclass(Handling))
        return found[0]

    return program


ROWS = {
    "table_sin": _finds(lambda: torch.sin),
    "table_mean": _finds(lambda: torch.mean),
    "table_zeros_like": _finds(lambda: torch.zeros_like),
    "table_rand_like": _finds(lambda: torch.rand_like),
    "table_cpu": _finds(lambda: torch.Tensor.cpu),
    "table_double": _finds(lambda: torch.Tensor.double),
    "table_clone": _finds(lambda: torch.Tensor.clone),
    "table_norm": _finds(lambda: torch.linalg.norm),
    "table_relu": _finds(lambda: nn.functional.relu),
}
