"""Memory that tensors share with numpy arrays, and what numpy sees."""

import numpy as np
import torch

from tests.semantics.program import gives


def from_numpy_follows_the_array(d):
    a = np.zeros(3, dtype=np.float32)
    t = torch.from_numpy(a)
    a[0] = 5
    return t.tolist()


def the_array_follows_from_numpy(d):
    a = np.zeros(3, dtype=np.float32)
    t = torch.from_numpy(a)
    t.add_(2)
    return a


def numpy_follows_a_host_tensor(d):
    t = torch.zeros(3)
    a = t.numpy()
    t.fill_(4)
    return a


def a_host_tensor_follows_numpy(d):
    t = torch.zeros(3)
    t.numpy()[1] = 7
    return t.tolist()


def as_tensor_of_an_array_shares(d):
    a = np.arange(4, dtype=np.int64)
    t = torch.as_tensor(a)
    a[0] = 9
    return t.tolist()


def tensor_of_an_array_copies(d):
    a = np.arange(4, dtype=np.int64)
    t = torch.tensor(a)
    a[0] = 9
    return t.tolist()


@gives([[0.0, 1.0, 2.0], [9.0, 1.0, 2.0]])
def an_array_moved_to_the_device_is_a_copy(d):
    a = np.arange(3, dtype=np.float32)
    t = torch.from_numpy(a).to(d)
    a[0] = 9
    return [t.tolist(), a]


@gives([[0.0, 1.0, 2.0], [5.0, 5.0, 5.0]])
def an_array_of_a_device_tensor_is_a_copy(d):
    t = torch.arange(3.0, device=d)
    a = t.cpu().numpy()
    t.fill_(5)
    return [a, t.tolist()]


@gives([0, 1, 2])
def as_tensor_with_a_device_copies(d):
    a = np.arange(3)
    t = torch.as_tensor(a, device=d)
    a[0] = 9
    return t.tolist()


def frombuffer_shares(d):
    b = bytearray(4)
    t = torch.frombuffer(b, dtype=torch.uint8)
    b[2] = 3
    return t.tolist()


def asarray_shares_an_array(d):
    a = np.zeros(2)
    t = torch.asarray(a)
    a[0] = 1.5
    return t.tolist()


def asarray_copies_if_asked(d):
    a = np.zeros(2)
    t = torch.asarray(a, copy=True)
    a[0] = 1.5
    return t.tolist()


def strides_of_an_array_are_kept(d):
    a = np.arange(6, dtype=np.float32).reshape(2, 3).T
    t = torch.from_numpy(a)
    return [t.tolist(), list(t.shape), np.array_equal(t.numpy(), a)]


def dtypes_of_arrays(d):
    kinds = ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "bool", "complex64"]
    return [str(torch.from_numpy(np.ones(1, dtype=kind)).to(d).dtype) for kind in kinds]


def dtypes_of_tensors(d):
    kinds = [torch.uint8, torch.int16, torch.int64, torch.float16, torch.float32, torch.bool, torch.complex64]
    return [str(torch.ones(1, dtype=kind, device=d).cpu().numpy().dtype) for kind in kinds]


def numpy_functions_take_host_tensors(d):
    t = torch.arange(4.0, device=d).cpu()
    return [float(np.sum(t.numpy())), np.concatenate([t, t]), np.asarray(t).shape, float(np.mean(np.array(t)))]


def numpy_with_force(d):
    t = torch.ones(2, device=d, requires_grad=True)
    return t.numpy(force=True)


def numpy_of_a_tensor_with_gradient_is_refused(d):
    t = torch.ones(2, device=d, requires_grad=True).cpu()
    try:
        t.numpy()
    except RuntimeError as error:
        return str(error)


def scalars_of_numpy_enter_arithmetic(d):
    t = torch.ones(2, device=d)
    return [(t * np.float32(2)).tolist(), (t + np.int64(3)).tolist(), str((t * np.float64(2)).dtype)]


def arrays_enter_by_index(d):
    t = torch.arange(10, device=d)
    return t[np.array([1, 3, 5])].tolist()


def a_list_of_arrays(d):
    return torch.tensor(np.stack([np.zeros(2), np.ones(2)]), dtype=torch.float32, device=d).tolist()


def dlpack_of_a_host_array_shares(d):
    a = np.zeros(2, dtype=np.float32)
    t = torch.from_dlpack(a)
    a[0] = 2
    return t.tolist()
