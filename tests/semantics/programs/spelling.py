"""The many ways in which CUDA code names the device. All of them mean the same one."""

import functools
import operator

import torch
from torch import nn, zeros
from torch.nn.utils.rnn import pack_sequence

from tests.semantics.program import gives

_KEYWORDS = {"device": "cuda", "dtype": torch.float32}
_make = functools.partial(torch.zeros, 2)


def _there(x):
    return x.device == torch.zeros(1, device="cuda").device


def _lies_there(make):
    return gives(True)(lambda d: _there(make()))


ROWS = {
    "zeros_cuda": _lies_there(lambda: torch.zeros(1, device="cuda")),
    "zeros_cuda_0": _lies_there(lambda: torch.zeros(1, device="cuda:0")),
    "zeros_ordinal": _lies_there(lambda: torch.zeros(1, device=0)),
    "zeros_device": _lies_there(lambda: torch.zeros(1, device=torch.device("cuda"))),
    "zeros_device_index": _lies_there(lambda: torch.zeros(1, device=torch.device("cuda", 0))),
    "zeros_device_keywords": _lies_there(lambda: torch.zeros(1, device=torch.device(type="cuda", index=0))),
    "zeros_current": _lies_there(lambda: torch.zeros(1, device=torch.cuda.current_device())),
    "zeros_f_string": _lies_there(lambda: torch.zeros(1, device=f"cuda:{torch.cuda.current_device()}")),
    "zeros_by_name": _lies_there(lambda: zeros(1, device="cuda")),
    "zeros_partial": _lies_there(lambda: _make(device="cuda")),
    "zeros_getattr": _lies_there(lambda: getattr(torch, "zeros")(1, device="cuda")),  # noqa: B009
    "zeros_unpacked": _lies_there(lambda: torch.zeros(*(1,), **_KEYWORDS)),
    "cuda": _lies_there(lambda: torch.zeros(1).cuda()),
    "cuda_ordinal": _lies_there(lambda: torch.zeros(1).cuda(0)),
    "cuda_name": _lies_there(lambda: torch.zeros(1).cuda("cuda:0")),
    "cuda_none": _lies_there(lambda: torch.zeros(1).cuda(None)),
    "cuda_device": _lies_there(lambda: torch.zeros(1).cuda(device=torch.device("cuda"))),
    "cuda_non_blocking": _lies_there(lambda: torch.zeros(1).cuda(non_blocking=True)),
    "cuda_format": _lies_there(lambda: torch.zeros(1, 1, 1, 1).cuda(memory_format=torch.channels_last)),
    "cuda_unbound": _lies_there(lambda: torch.Tensor.cuda(torch.zeros(1))),
    "cuda_mapped": _lies_there(lambda: next(map(torch.Tensor.cuda, [torch.zeros(1)]))),
    "cuda_methodcaller": _lies_there(lambda: operator.methodcaller("cuda")(torch.zeros(1))),
    "cuda_bound": _lies_there(lambda: (lambda move: move())(torch.zeros(1).cuda)),
    "to_name": _lies_there(lambda: torch.zeros(1).to("cuda")),
    "to_ordinal": _lies_there(lambda: torch.zeros(1).to(0)),
    "to_keyword": _lies_there(lambda: torch.zeros(1).to(device="cuda:0")),
    "to_positions": _lies_there(lambda: torch.zeros(1).to("cuda:0", torch.float16, True)),
    "to_copy": _lies_there(lambda: torch.zeros(1).to("cuda", copy=True)),
    "to_same_device": _lies_there(lambda: torch.zeros(1).to(torch.zeros(1, device="cuda").device)),
    "type_class": _lies_there(lambda: torch.zeros(1).type(torch.cuda.HalfTensor)),
    "type_class_made": _lies_there(lambda: torch.cuda.IntTensor(2)),
    "new": _lies_there(lambda: torch.zeros(1, device="cuda").new(2)),
    "new_device": _lies_there(lambda: torch.zeros(1).new_zeros(2, device="cuda")),
    "like_device": _lies_there(lambda: torch.zeros_like(torch.zeros(1), device="cuda")),
    "tensor": _lies_there(lambda: torch.tensor([1.0], device="cuda")),
    "as_tensor": _lies_there(lambda: torch.as_tensor([1.0], device="cuda")),
    "asarray": _lies_there(lambda: torch.asarray([1.0], device="cuda")),
    "arange": _lies_there(lambda: torch.arange(3, device="cuda")),
    "eye": _lies_there(lambda: torch.eye(2, device="cuda")),
    "full_like": _lies_there(lambda: torch.full_like(torch.zeros(1, device="cuda"), 2)),
    "empty_strided": _lies_there(lambda: torch.empty_strided((2,), (1,), device="cuda")),
    "parameter": _lies_there(lambda: nn.Parameter(torch.zeros(1).cuda())),
    "parameter_moved": _lies_there(lambda: nn.Parameter(torch.zeros(1)).cuda()),
    "module_cuda": _lies_there(lambda: nn.Linear(1, 1).cuda().weight),
    "module_cuda_ordinal": _lies_there(lambda: nn.Linear(1, 1).cuda(0).weight),
    "module_to": _lies_there(lambda: nn.Linear(1, 1).to("cuda:0").weight),
    "module_to_ordinal": _lies_there(lambda: nn.Linear(1, 1).to(0).weight),
    "module_to_tensor": _lies_there(lambda: nn.Linear(1, 1).to(torch.zeros(1, device="cuda")).weight),
    "module_made": _lies_there(lambda: nn.Linear(1, 1, device="cuda").weight),
    "module_factory_keywords": _lies_there(lambda: nn.Conv1d(1, 1, 1, **_KEYWORDS).bias),
    "module_list": _lies_there(lambda: nn.ModuleList([nn.Linear(1, 1)]).cuda()[0].weight),
    "packed": _lies_there(lambda: pack_sequence([torch.ones(2), torch.ones(1)]).cuda().data),
    "packed_to": _lies_there(lambda: pack_sequence([torch.ones(2), torch.ones(1)]).to("cuda").data),
    "generator": _lies_there(lambda: torch.rand(1, device="cuda", generator=torch.Generator("cuda"))),
    "set_device": _lies_there(lambda: (torch.cuda.set_device(0), torch.zeros(1, device="cuda"))[1]),
    "set_device_name": _lies_there(lambda: (torch.cuda.set_device("cuda:0"), torch.zeros(1).cuda())[1]),
    "quoted_choice": _lies_there(lambda: torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu")),
    "accelerator": _lies_there(lambda: torch.zeros(1, device=torch.accelerator.current_accelerator())),
    "sparse": _lies_there(lambda: torch.sparse_coo_tensor([[0]], [1.0], (2,), device="cuda")),
    "complex": _lies_there(lambda: torch.zeros(1, dtype=torch.complex64, device="cuda").real),
    "window": _lies_there(lambda: torch.hann_window(4, device="cuda")),
    "frequencies": _lies_there(lambda: torch.fft.fftfreq(4, device="cuda")),
    "normal": _lies_there(lambda: torch.normal(0.0, 1.0, (2,), device="cuda")),
    "randint": _lies_there(lambda: torch.randint(0, 2, (2,), device="cuda")),
    "tril_indices": _lies_there(lambda: torch.tril_indices(2, 2, device="cuda")),
    "logspace": _lies_there(lambda: torch.logspace(0, 1, 2, device="cuda")),
    "scalar_tensor": _lies_there(lambda: torch.scalar_tensor(1.0, device="cuda")),
    "buffer": _lies_there(lambda: nn.BatchNorm1d(1).cuda().running_mean),
    "to_empty": _lies_there(lambda: nn.Linear(1, 1, device="meta").to_empty(device="cuda").weight),
    "gradient": _lies_there(
        lambda: torch.autograd.grad((w := torch.ones(1, device="cuda", requires_grad=True)) * 2, w)[0]
    ),
    "storage": _lies_there(lambda: torch.ones(1).untyped_storage().cuda()),
    "skip_init": _lies_there(lambda: nn.utils.skip_init(nn.Linear, 1, 1, device="cuda").weight),
}


@gives([True, False])
def a_moved_parameter_is_no_leaf(d):
    w = nn.Parameter(torch.ones(1))
    return [w.is_leaf, w.cuda().is_leaf]


@gives(True)
def scattered_and_gathered(d):
    parts = nn.parallel.scatter(torch.arange(4.0, device=d), [0])
    return torch.equal(nn.parallel.gather(parts, 0), torch.arange(4.0, device=d))


@gives([True, True])
def parallel_apply(d):
    m = nn.Linear(2, 1).cuda()
    x = torch.ones(3, 2, device=d)
    (out,) = nn.parallel.parallel_apply(nn.parallel.replicate(m, [0]), [(x,)])
    return [torch.allclose(out, m(x)), _there(out)]


@gives([True, True, True, True])
def default_tensor_type(d):
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    try:
        made = [torch.zeros(1), torch.Tensor([1.0]), torch.Tensor(2, 3)]
        return [*map(_there, made), torch.zeros(1).dtype == torch.float32]
    finally:
        torch.set_default_tensor_type("torch.FloatTensor")
