"""What a tensor says of itself."""

import torch

from tests.semantics.program import gives


def _kind(d):
    return torch.ones(1, device=d).device.type


@gives([True, True, 0, 0])
def of_a_device_tensor(d):
    x = torch.ones(2, device=d)
    return [
        x.device == torch.device("cuda:0"),
        x.device.type == torch.device("cuda").type,
        x.get_device(),
        x.device.index or 0,
    ]


@gives([True, False])
def is_cuda(d):
    return [torch.ones(1, device=d).is_cuda, torch.ones(1).is_cuda]


@gives([False, True])
def is_cpu(d):
    return [torch.ones(1, device=d).is_cpu, torch.ones(1).is_cpu]


@gives(-1)
def get_device_of_a_host_tensor(d):
    return torch.ones(1).get_device()


@gives(["torch.cuda.FloatTensor", "torch.cuda.LongTensor", "torch.FloatTensor"])
def type_by_name(d):
    return [torch.ones(1, device=d).type(), torch.ones(1, device=d).long().type(), torch.ones(1).type()]


@gives([[1.0, 2.0], True, "torch.int64"])
def type_that_converts(d):
    x = torch.tensor([1, 2]).type(torch.cuda.FloatTensor)
    return [x.tolist(), x.device.type == _kind(d), str(x.type(torch.cuda.LongTensor).dtype)]


@gives([[1.0, 2.0], True])
def type_that_converts_by_name(d):
    x = torch.tensor([1, 2]).type("torch.cuda.FloatTensor")
    return [x.tolist(), x.device.type == _kind(d)]


@gives([[1.0, 2.0], True, [1, 2]])
def old_constructors(d):
    x = torch.cuda.FloatTensor([1.0, 2.0])
    return [x.tolist(), x.device.type == _kind(d), torch.cuda.LongTensor([1, 2]).tolist()]


@gives([True, False, True])
def isinstance_of_old_types(d):
    x = torch.ones(1, device=d)
    return [isinstance(x, torch.cuda.FloatTensor), isinstance(x, torch.cuda.LongTensor), torch.is_tensor(x)]


@gives(True)
def is_a_float_tensor_of_the_host(d):
    return isinstance(torch.ones(1), torch.FloatTensor)


@gives([[1.0, 2.0], "torch.float32"])
def a_float_tensor_of_a_tensor(d):
    x = torch.FloatTensor(torch.FloatTensor([1.0, 2.0]))
    return [x.tolist(), str(x.dtype)]


def shapes_and_sizes(d):
    x = torch.ones(2, 3, device=d, dtype=torch.float16)
    return [x.shape, x.size(), x.size(1), x.dim(), x.ndim, x.numel(), x.element_size(), x.nbytes, x.itemsize]


def kinds_of_dtype(d):
    x, z = torch.ones(1, device=d), torch.ones(1, device=d, dtype=torch.complex64)
    return [
        x.is_floating_point(),
        z.is_complex(),
        x.is_signed(),
        x.dtype.is_floating_point,
        z.dtype.to_real() == x.dtype,
    ]


def layout_and_strides(d):
    x = torch.ones(2, 3, device=d)
    return [str(x.layout), x.stride(), x.t().stride(), x.is_contiguous(), x.storage_offset()]


def flags(d):
    x = torch.ones(2, device=d)
    return [
        x.requires_grad,
        x.is_leaf,
        x.is_sparse,
        x.is_quantized,
        x.is_meta,
        x.is_nested,
        x.is_inference(),
        x.grad is None,
    ]


@gives("tensor([1., 2.], device='cuda:0')")
def repr_of_a_device_tensor(d):
    return repr(torch.tensor([1.0, 2.0], device=d))


def repr_of_a_host_tensor(d):
    return repr(torch.tensor([1.0, 2.5]))


def repr_of_values(d):
    x = torch.tensor([[1.0, 1e6], [float("nan"), -2.0]], device=d)
    return repr(x).split("], device")[0].split("])")[0].rstrip("]")


def format_of_a_scalar(d):
    x = torch.tensor(1.23456, device=d)
    return [f"{x:.2f}", f"{x.item():.3f}", format(x, ".1f")]


def conversions_to_python(d):
    x = torch.tensor(3, device=d)
    return [int(x), float(x), bool(x), x.item(), range(5)[x], [0] * int(x), round(float(x))]


def truth_of_many_is_refused(d):
    try:
        bool(torch.ones(2, device=d))
    except RuntimeError as error:
        return str(error)


def comparisons_of_tensors(d):
    x = torch.ones(2, device=d)
    return [torch.equal(x, x.clone()), torch.allclose(x, x + 1e-9), (x == 1).all().item(), x.eq(1).tolist()]


def hash_and_identity(d):
    x = torch.ones(2, device=d)
    return [hash(x) == hash(x), x in {x}, len({x, x.clone()})]


def data_ptr_and_storage(d):
    x = torch.ones(4, device=d)
    return [x.data_ptr() != 0, x[1:].data_ptr() - x.data_ptr(), x.untyped_storage().nbytes(), len(x.untyped_storage())]


@gives([True, True])
def the_storage_lies_on_the_device(d):
    x = torch.ones(1, device=d)
    return [x.untyped_storage().device == x.device, x.untyped_storage().device.type == _kind(d)]


@gives([True, True, True, True])
def devices_compare(d):
    return [
        torch.device("cuda", 0) == torch.device("cuda:0"),
        torch.device(0) == torch.device("cuda:0"),
        torch.device(torch.device("cuda:0")) == torch.device("cuda:0"),
        torch.ones(1, device=0).device == torch.device("cuda:0"),
    ]


@gives([True, True])
def devices_are_keys(d):
    table = {torch.device("cuda:0"): 1}
    return [table.get(torch.ones(1, device=d).device) == 1, torch.device("cuda:0") in table]


@gives(["cuda", 0, "cuda:0"])
def a_device_tells_its_name(d):
    device = torch.device("cuda:0")
    return [device.type, device.index, str(device)]


@gives(["cpu", True])
def a_host_device_tells_its_name(d):
    return [torch.device("cpu").type, torch.device("cpu").index is None]


def attributes_of_ones_own(d):
    x = torch.ones(1, device=d)
    x.label = "mine"
    return [x.label, hasattr(x.clone(), "label")]


def is_same_size_and_set_to(d):
    x, y = torch.ones(2, device=d), torch.zeros(2, device=d)
    return [x.is_same_size(y), x.is_set_to(y), x.is_set_to(x.view(2))]


@gives([True, False])
def pinned(d):
    return [torch.ones(1).pin_memory().is_pinned(), torch.ones(1).is_pinned()]


def grad_attributes(d):
    x = torch.ones(2, device=d, requires_grad=True)
    x.grad = torch.full((2,), 3.0, device=d)
    return [x.grad.tolist(), x.grad.device == x.device, x.grad_fn is None, x.output_nr]


def a_gradient_of_another_shape_is_refused(d):
    x = torch.ones(2, device=d, requires_grad=True)
    try:
        x.grad = torch.ones(3, device=d)
    except RuntimeError as error:
        return type(error).__name__
