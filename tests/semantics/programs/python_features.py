"""What Python programs do with torch's names: signatures, annotations, threads, patches, pickles."""

import argparse
import concurrent.futures
import contextvars
import copy
import dataclasses
import functools
import inspect
import pickle
import threading
import typing
import unittest.mock

import torch
from torch import nn

from tests.semantics.program import gives


def isinstance_of_a_device(d):
    return [isinstance(torch.device(d), torch.device), isinstance(d, torch.device)]


def the_class_of_a_device(d):
    return type(torch.device(d)) is torch.device


def device_in_annotations(d):
    def f(device: torch.device | None = None, other: typing.Optional[torch.device] = None) -> torch.device:  # noqa: UP045
        return device or torch.device(d)

    return [f().type == torch.device(d).type, typing.get_type_hints(f)["return"] is torch.device]


def device_as_a_default(d):
    def f(device=torch.device(d)):  # noqa: B008
        return torch.zeros(1, device=device).device.type == device.type

    return f()


def device_in_a_dataclass(d):
    @dataclasses.dataclass(frozen=True)
    class Settings:
        device: torch.device = dataclasses.field(default_factory=lambda: torch.device(d))
        lr: float = 0.1

    s = Settings()
    return [s == Settings(), dataclasses.replace(s, lr=1.0).device == s.device, hash(s) == hash(Settings())]


def device_from_the_command_line(d):
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", type=torch.device)
    return parser.parse_args(["--device", d]).device.type == torch.device(d).type


def device_in_a_match(d):
    match torch.device(d):
        case torch.device():
            return "matched"
    return "not matched"


def device_in_a_set(d):
    return len({torch.device(d), torch.device(d), torch.zeros(1, device=torch.device(d)).device}) <= 2


def names_and_documents_of_functions(d):
    functions = [
        torch.zeros,
        torch.tensor,
        torch.Tensor.to,
        torch.Tensor.cpu,
        torch.load,
        torch.manual_seed,
        torch.rand,
    ]
    return [[f.__name__, bool(f.__doc__)] for f in functions]


def signatures(d):
    return [str(inspect.signature(f)) for f in (torch.manual_seed, nn.Linear, nn.Module.to, torch.autocast, torch.save)]


def parameters_of_load(d):
    return list(inspect.signature(torch.load).parameters)


def functions_are_callable_and_hashable(d):
    return [callable(torch.zeros), len({torch.zeros, torch.ones, torch.zeros}), torch.zeros == torch.zeros]


def functions_are_pickled(d):
    return [pickle.loads(pickle.dumps(f)) is f for f in (torch.zeros, torch.tensor, torch.load, torch.sin, nn.Linear)]


def functions_are_copied(d):
    return [copy.deepcopy(f) is f for f in (torch.zeros, torch.sin)]


def partials_are_pickled(d):
    return pickle.loads(pickle.dumps(functools.partial(torch.zeros, 2)))(device=d).tolist()


def classes_are_classes(d):
    return [
        inspect.isclass(each) for each in (torch.device, torch.Tensor, torch.Generator, torch.FloatTensor, torch.Size)
    ]


def modules_of_functions(d):
    return [
        nn.Linear.__module__,
        nn.functional.linear.__module__ is not None,
        torch.load.__module__,
        torch.save.__module__,
    ]


def threads_compute(d):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return [x.tolist() for x in pool.map(lambda i: torch.full((2,), float(i), device=d) * 2, range(3))]


def threads_have_their_own_modes(d):
    seen = []

    def look():
        seen.append([torch.is_grad_enabled(), torch.is_autocast_enabled(d)])

    with torch.no_grad(), torch.autocast(d, dtype=torch.bfloat16):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    return seen


def threads_differentiate(d):
    x = torch.ones(2, device=d, requires_grad=True)
    threads = [threading.Thread(target=lambda: (x * 2).sum().backward()) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return x.grad.tolist()


def contexts_are_copied(d):
    return contextvars.copy_context().run(lambda: torch.ones(1, device=d).tolist())


def a_patched_function(d):
    with unittest.mock.patch("torch.zeros", return_value="patched"):
        inside = torch.zeros(1, device=d)
    return [inside, torch.zeros(1, device=d).tolist()]


def a_patched_method(d):
    with unittest.mock.patch.object(torch.Tensor, "cpu", return_value="patched"):
        inside = torch.zeros(1, device=d).cpu()
    return [inside, torch.zeros(1, device=d).cpu().tolist()]


def a_patched_attribute_by_hand(d):
    original = torch.ones
    torch.ones = lambda *a, **k: original(*a, **k) * 5
    try:
        inside = torch.ones(1, device=d).tolist()
    finally:
        torch.ones = original
    return [inside, torch.ones(1, device=d).tolist(), torch.ones is original]


def an_own_method_of_tensors(d):
    torch.Tensor.doubled = lambda self: self * 2
    try:
        return torch.ones(1, device=d).doubled().tolist()
    finally:
        del torch.Tensor.doubled


def an_overridden_to(d):
    class Own(nn.Linear):
        def to(self, *args, **kwargs):
            self.moved = True
            return super().to(*args, **kwargs)

    m = Own(1, 1).to(d)
    return [m.moved, m.weight.device.type == torch.device(d).type]


def an_overridden_apply(d):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain = torch.ones(1)

        def _apply(self, fn, recurse=True):
            super()._apply(fn, recurse)
            self.plain = fn(self.plain)
            return self

    return Own().to(d).plain.device.type == torch.device(d).type


def a_cache_keyed_by_device(d):
    @functools.lru_cache
    def mask(n, device):
        return torch.ones(n, device=device)

    x = torch.zeros(1, device=d)
    mask(2, x.device)
    mask(2, x.device)
    return [mask.cache_info().hits, mask.cache_info().misses]


def single_dispatch(d):
    @functools.singledispatch
    def describe(value):
        return "other"

    @describe.register
    def _(value: torch.Tensor):
        return "tensor"

    return [describe(torch.ones(1, device=d)), describe(1), describe(nn.Parameter(torch.ones(1, device=d)))]


def iteration_over_pairs(d):
    a, b = torch.tensor([1, 2], device=d)
    return [a.item(), b.item(), [int(v) for v in torch.arange(3, device=d)], max(torch.tensor([1, 5], device=d)).item()]


def sorting_and_sums_of_python(d):
    parts = [torch.tensor(v, device=d) for v in (3.0, 1.0, 2.0)]
    return [sum(parts).item(), sorted(parts)[0].item(), max(parts).item()]


def a_tensor_in_a_condition(d):
    x = torch.tensor(0.5, device=d)
    return ["yes" if x > 0 else "no", bool(x == 0.5), not x, x and 3]


def a_generator_function_under_no_grad(d):
    @torch.no_grad()
    def numbers():
        for i in range(2):
            yield (torch.ones(1, device=d, requires_grad=True) * i).requires_grad

    return list(numbers())


def environment_is_printed(d):
    return [
        isinstance(torch.__version__, str),
        len(torch.__config__.show()) > 0,
        hasattr(torch, "zeros"),
        "zeros" in dir(torch),
    ]


@gives([True, True])
def asking_modules_for_names(d):
    return [hasattr(torch, "cuda"), hasattr(torch.cuda, "is_available")]


def an_exception_in_a_thread_pool(d):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        error = pool.submit(lambda: torch.ones(2, device=d).view(7)).exception()
    return type(error).__name__


def a_weak_reference(d):
    import weakref

    x = torch.ones(1, device=d)
    reference = weakref.ref(x)
    alive = reference() is x
    del x
    return [alive, reference() is None]


def tensors_in_formatted_output(d):
    return [
        f"{torch.tensor([1.0]).tolist()}",
        str(torch.tensor(2, device=d).item()),
        f"{torch.tensor(0.25, device=d).item():.1%}",
    ]
