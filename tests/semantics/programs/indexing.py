"""Indexing, gathering, scattering, sorting, masks."""

import torch


def _x(d):
    return torch.arange(12.0, device=d).view(3, 4)


def _i(d, *values):
    return torch.tensor(values, device=d)


def _changed(change):
    def program(d):
        x = _x(d)
        out = change(x, d)
        return (x if out is None else out).tolist()

    return program


def _set(x, key, value):
    x[key] = value


ROWS = {
    "integers": _changed(lambda x, d: x[1]),
    "negative": _changed(lambda x, d: x[-1, -2:]),
    "steps": _changed(lambda x, d: x[::2, 1::2]),
    "lists": _changed(lambda x, d: x[[0, 2], [1, 3]]),
    "ellipsis_none": _changed(lambda x, d: x[..., None, 0]),
    "a_tensor": _changed(lambda x, d: x[_i(d, 2, 0)]),
    "a_host_tensor": _changed(lambda x, d: x[torch.tensor([2, 0])]),
    "a_mask": _changed(lambda x, d: x[x > 5]),
    "a_row_mask": _changed(lambda x, d: x[_i(d, 1, 0, 1).bool()]),
    "a_mixture": _changed(lambda x, d: x[:, _i(d, 3, 0)]),
    "two_tensors": _changed(lambda x, d: x[_i(d, 0, 1)[:, None], _i(d, 2, 3)]),
    "uint8_mask": _changed(lambda x, d: x[torch.tensor([1, 0, 1], dtype=torch.uint8, device=d).bool()]),
    "set_scalar": _changed(lambda x, d: _set(x, (1, 2), 99.0)),
    "set_mask": _changed(lambda x, d: _set(x, x % 2 == 0, -1.0)),
    "set_mask_values": _changed(lambda x, d: _set(x, x > 9, _i(d, 7.0, 8.0))),
    "set_rows": _changed(lambda x, d: _set(x, _i(d, 0, 2), torch.zeros(4, device=d))),
    "set_from_host_scalar": _changed(lambda x, d: _set(x, 0, torch.tensor(5.0))),
    "gather": _changed(lambda x, d: x.gather(1, _i(d, [0, 3], [1, 1], [2, 0]))),
    "take_along": _changed(lambda x, d: torch.take_along_dim(x, x.argsort(1, descending=True), 1)),
    "take": _changed(lambda x, d: torch.take(x, _i(d, 0, 11))),
    "index_select": _changed(lambda x, d: x.index_select(1, _i(d, 3, 1))),
    "masked_select": _changed(lambda x, d: x.masked_select(x < 3)),
    "masked_fill": _changed(lambda x, d: x.masked_fill(x < 6, -1)),
    "masked_fill_tensor": _changed(lambda x, d: x.masked_fill(x < 6, torch.tensor(3.0, device=d))),
    "masked_scatter": _changed(lambda x, d: x.masked_scatter(x > 8, torch.zeros(3, device=d))),
    "scatter": _changed(lambda x, d: x.scatter(1, _i(d, [0], [1], [2]), 50.0)),
    "scatter_add": _changed(lambda x, d: x.scatter_add(0, _i(d, [0, 0, 1, 2]), torch.ones(1, 4, device=d))),
    "scatter_reduce": _changed(
        lambda x, d: torch.zeros(2, device=d).scatter_reduce(0, _i(d, 0, 1, 1), _i(d, 1.0, 5.0, 3.0), "amax")
    ),
    "index_add": _changed(lambda x, d: x.index_add_(0, _i(d, 0, 0), torch.ones(2, 4, device=d))),
    "index_copy": _changed(lambda x, d: x.index_copy_(1, _i(d, 0), torch.zeros(3, 1, device=d))),
    "index_fill": _changed(lambda x, d: x.index_fill_(0, _i(d, 1), 9)),
    "index_put": _changed(lambda x, d: x.index_put_((_i(d, 0, 0), _i(d, 1, 1)), _i(d, 1.0, 2.0), accumulate=True)),
    "put": _changed(lambda x, d: x.put_(_i(d, 1, 5), _i(d, -1.0, -2.0))),
    "where": _changed(lambda x, d: torch.where(x > 5, x, -x)),
    "where_scalars": _changed(lambda x, d: torch.where(x > 5, 1.0, 0.0)),
    "where_host_scalar": _changed(lambda x, d: torch.where(x > 5, x, torch.tensor(0.0))),
    "nonzero": _changed(lambda x, d: (x > 9).nonzero()),
    "argwhere": _changed(lambda x, d: torch.argwhere(x % 5 == 0)),
    "sort": _changed(lambda x, d: (-x).sort(1).values),
    "argsort": _changed(lambda x, d: torch.sin(x).argsort(1)),
    "topk": _changed(lambda x, d: torch.sin(x).topk(2, 1).indices),
    "kthvalue": _changed(lambda x, d: torch.sin(x).kthvalue(2, 1).values),
    "median_mode": _changed(lambda x, d: torch.stack([x.median(1).values, (x // 3).mode(1).values])),
    "unique": _changed(lambda x, d: torch.unique(x // 5)),
    "unique_counts": _changed(lambda x, d: torch.unique(x // 5, return_counts=True)[1]),
    "unique_consecutive": _changed(lambda x, d: torch.unique_consecutive(_i(d, 1, 1, 2, 1))),
    "searchsorted": _changed(lambda x, d: torch.searchsorted(x[0], _i(d, 1.5, 3.0))),
    "bucketize": _changed(lambda x, d: torch.bucketize(x, _i(d, 2.0, 7.0))),
    "bincount": _changed(lambda x, d: torch.bincount(_i(d, 0, 2, 2), minlength=4)),
    "histc": _changed(lambda x, d: torch.histc(x, 3, 0, 12)),
    "cumulative": _changed(
        lambda x, d: torch.stack([x.cumsum(1), x.cumprod(1), x.cummax(1).values, x.logcumsumexp(1)])
    ),
    "flip_roll_rot": _changed(lambda x, d: torch.rot90(x.flip(0).roll(1, 1))),
    "repeat_tile": _changed(lambda x, d: torch.stack([x[0].repeat(2), x[0].tile(2)])),
    "repeat_interleave": _changed(lambda x, d: torch.repeat_interleave(_i(d, 1, 2), _i(d, 2, 3))),
    "cat_stack": _changed(lambda x, d: torch.cat([x, torch.stack([x[0], x[1]])])),
    "meshgrid": _changed(lambda x, d: torch.stack(torch.meshgrid(_i(d, 1, 2), _i(d, 3, 4), indexing="ij"))),
    "tril_indices": _changed(lambda x, d: torch.tril_indices(3, 3, device=d)),
    "cartesian": _changed(lambda x, d: torch.cartesian_prod(_i(d, 1, 2), _i(d, 3, 4))),
    "combinations": _changed(lambda x, d: torch.combinations(_i(d, 1, 2, 3))),
    "diff": _changed(lambda x, d: x.pow(2).diff(dim=1)),
    "quantile": _changed(lambda x, d: x.quantile(torch.tensor([0.25, 0.5], device=d), 1)),
    "isin": _changed(lambda x, d: torch.isin(x, _i(d, 3.0, 7.0))),
    "argmax_amax": _changed(lambda x, d: torch.stack([torch.sin(x).argmax(1).float(), torch.sin(x).amax(1)])),
    "any_all": _changed(lambda x, d: torch.stack([(x > 3).any(1), (x > 3).all(1)])),
}


def an_index_that_is_too_large(d):
    try:
        _x(d)[5]
    except IndexError as error:
        return str(error)


def too_many_indices(d):
    try:
        _x(d)[0, 0, 0]
    except IndexError as error:
        return str(error)


def iterating(d):
    return [[row.sum().item() for row in _x(d)], len(_x(d)), 5.0 in _x(d)]


def a_tensor_as_an_index_of_a_list(d):
    return ["a", "b", "c"][torch.tensor(1, device=d)]


def gradients_of_indexing(d):
    x = _x(d).requires_grad_()
    x[_i(d, 0, 0, 2), _i(d, 1, 1, 3)].pow(2).sum().backward()
    return x.grad.tolist()


def gradients_of_gather_and_scatter(d):
    x = _x(d).requires_grad_()
    y = x.gather(1, _i(d, [0, 0], [1, 2], [3, 3]))
    torch.zeros(3, 4, device=d).scatter_add(1, _i(d, [0, 1], [1, 1], [2, 0]), y).pow(2).sum().backward()
    return x.grad.tolist()
