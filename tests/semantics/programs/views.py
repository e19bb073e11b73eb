"""Views and aliases on the device: who sees whose writes."""

import torch


def a_slice_writes_through(d):
    x = torch.zeros(4, device=d)
    x[1:3] = 5
    x[1:3].add_(1)
    return x.tolist()


def view_and_reshape_alias(d):
    x = torch.arange(6.0, device=d)
    v, r = x.view(2, 3), x.reshape(3, 2)
    x[0] = 9
    return [v.tolist(), r.tolist(), v.data_ptr() == x.data_ptr()]


def reshape_of_a_transpose_copies(d):
    x = torch.arange(6.0, device=d).view(2, 3)
    flat = x.t().reshape(-1)
    x[0, 0] = 9
    return [flat.tolist(), flat.data_ptr() == x.data_ptr()]


def transpose_permute_strides(d):
    x = torch.arange(24, device=d).view(2, 3, 4)
    return [x.transpose(0, 2).stride(), x.permute(2, 0, 1).stride(), x.mT.shape]


def expand_has_stride_zero(d):
    x = torch.ones(3, 1, device=d).expand(3, 4)
    return [x.stride(), x.shape, x.sum().item()]


def as_strided_windows(d):
    return torch.arange(5.0, device=d).as_strided((3, 3), (1, 1)).tolist()


def unfold_windows(d):
    return torch.arange(6.0, device=d).unfold(0, 3, 2).tolist()


def diagonal_writes_through(d):
    x = torch.zeros(3, 3, device=d)
    x.diagonal().fill_(2)
    torch.diagonal(x, 1).copy_(torch.tensor([5.0, 6.0], device=d))
    return x.tolist()


def chunks_and_splits_alias(d):
    x = torch.zeros(6, device=d)
    for i, part in enumerate(x.chunk(3)):
        part += i
    x.split([1, 5])[0].fill_(8)
    return x.tolist()


def unbind_aliases(d):
    x = torch.zeros(2, 2, device=d)
    x.unbind(0)[1].fill_(3)
    return x.tolist()


def narrow_and_select(d):
    x = torch.arange(9, device=d).view(3, 3)
    x.narrow(1, 1, 2).mul_(10)
    x.select(0, 0).zero_()
    return x.tolist()


def view_as_another_dtype(d):
    x = torch.tensor([1.0, -2.0], device=d)
    bits = x.view(torch.int32)
    x[0] = 0.5
    return bits.tolist()


def view_as_real_writes_through(d):
    z = torch.zeros(2, dtype=torch.complex64, device=d)
    torch.view_as_real(z)[0, 1] = 3
    return z.tolist()


def real_and_imag_are_views(d):
    z = torch.ones(2, dtype=torch.complex64, device=d)
    z.imag.fill_(2)
    z.real[0] = 7
    return z.tolist()


def is_a_view_and_its_base(d):
    x = torch.zeros(4, device=d)
    v = x[1:]
    return [v._is_view(), v._base is x, v.storage_offset(), v.untyped_storage().nbytes()]


def storage_is_shared(d):
    x = torch.zeros(4, device=d)
    v = x.view(2, 2)
    return [x.untyped_storage().data_ptr() == v.untyped_storage().data_ptr(), x.untyped_storage().size()]


def set_makes_an_alias(d):
    x, y = torch.zeros(2, device=d), torch.ones(2, device=d)
    x.set_(y)
    y[0] = 4
    return x.tolist()


def data_is_swapped(d):
    x = torch.zeros(2, device=d, requires_grad=True)
    x.data = torch.ones(2, device=d)
    return [x.tolist(), x.requires_grad]


def detach_shares(d):
    x = torch.zeros(2, device=d, requires_grad=True)
    x.detach().add_(1)
    return [x.tolist(), x.detach().requires_grad]


def clone_does_not_share(d):
    x = torch.zeros(2, device=d)
    y = x.clone()
    x.add_(1)
    return y.tolist()


def contiguous_of_contiguous_is_itself(d):
    x = torch.zeros(2, 3, device=d)
    return [x.contiguous() is x, x.t().contiguous().is_contiguous(), x.t().is_contiguous()]


def channels_last(d):
    x = torch.zeros(1, 3, 2, 2, device=d).to(memory_format=torch.channels_last)
    return [x.stride(), x.is_contiguous(), x.is_contiguous(memory_format=torch.channels_last)]


def a_write_to_an_expanded_tensor_is_refused(d):
    x = torch.zeros(1, device=d).expand(3)
    try:
        x.add_(torch.arange(3.0, device=d))
    except RuntimeError as error:
        return type(error).__name__


def versions_count_writes(d):
    x = torch.zeros(2, device=d)
    before = x._version
    x[0] = 1
    x.view(2).add_(1)
    return x._version - before


def movedim_flatten_squeeze(d):
    x = torch.arange(6, device=d).view(1, 2, 3)
    return [x.movedim(0, 2).shape, x.flatten(1).shape, x.squeeze(0).shape, x.unsqueeze(-1).shape, x.ravel().tolist()]
