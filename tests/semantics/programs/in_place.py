"""Operators that write: in place, out=, augmented assignment."""

import torch


def _x(d):
    return torch.tensor([1.0, -2.0, 3.0], device=d)


def _augmented(d):
    x = _x(d)
    kept = x
    x += 1
    x *= 2
    x -= 3
    x /= 2
    x **= 2
    return [x.tolist(), kept is x]


def _chain(d):
    return _x(d).add_(1).mul_(2).clamp_(min=0).sqrt_().neg_().abs_().round_().tolist()


def _integers(d):
    x = torch.tensor([6, 5], device=d)
    x //= 2
    x <<= 2
    x |= 1
    x ^= 3
    x &= 14
    x %= 5
    return [x.tolist(), str(x.dtype)]


def _out(function):
    def program(d):
        out = torch.empty(0, device=d)
        result = function(_x(d), out)
        return [out.tolist(), result is out]

    return program


ROWS = {
    "augmented": _augmented,
    "chain": _chain,
    "integers": _integers,
    "out_add": _out(lambda x, out: torch.add(x, 1, out=out)),
    "out_cat": _out(lambda x, out: torch.cat([x, x], out=out)),
    "out_exp": _out(lambda x, out: torch.exp(x, out=out)),
    "out_sum": _out(lambda x, out: torch.sum(x, 0, out=out)),
    "out_stack": _out(lambda x, out: torch.stack([x, x], out=out)),
    "addcmul": lambda d: _x(d).addcmul_(_x(d), _x(d), value=0.5).addcdiv_(_x(d), _x(d)).tolist(),
    "lerp": lambda d: _x(d).lerp_(torch.zeros(3, device=d), 0.25).tolist(),
    "fill_zero": lambda d: [_x(d).fill_(2).tolist(), _x(d).zero_().tolist(), _x(d).fill_(torch.tensor(3.0)).tolist()],
    "relu_": lambda d: torch.nn.functional.relu_(_x(d)).tolist(),
    "sigmoid_tanh_exp": lambda d: [_x(d).sigmoid_().tolist(), _x(d).tanh_().tolist(), _x(d).exp_().tolist()],
    "masked_fill_": lambda d: _x(d).masked_fill_(_x(d) < 0, 0).tolist(),
    "swap": lambda d: torch.stack([_x(d).flip(0), _x(d)]).T.contiguous().tolist(),
    "comparison_": lambda d: [_x(d).gt_(0).tolist(), _x(d).eq_(3).tolist()],
    "logical_": lambda d: (_x(d) > 0).logical_not_().tolist(),
    "nan_to_num_": lambda d: torch.tensor([float("nan"), 1.0], device=d).nan_to_num_(5.0).tolist(),
    "clamp_tensors": lambda d: _x(d).clamp_(torch.zeros(3, device=d), torch.full((3,), 2.0, device=d)).tolist(),
    "foreach": lambda d: [t.tolist() for t in torch._foreach_add([_x(d), _x(d)], 1.0)],
    "diagonal_": lambda d: torch.zeros(2, 2, device=d).fill_diagonal_(3).tolist(),
    "renorm_": lambda d: _x(d).view(1, 3).renorm_(2, 0, 1.0).tolist(),
    "resize_": lambda d: [list(_x(d).resize_(2).shape), _x(d).resize_(2).tolist()],
    "squeeze_unsqueeze_": lambda d: [list(_x(d).unsqueeze_(0).shape), list(_x(d).unsqueeze_(0).squeeze_().shape)],
    "t_transpose_": lambda d: _x(d).view(1, 3).t_().tolist(),
}


def a_leaf_that_needs_a_gradient_is_not_written(d):
    x = _x(d).requires_grad_()
    try:
        x += 1
    except RuntimeError as error:
        return str(error)


def writes_under_no_grad(d):
    x = _x(d).requires_grad_()
    with torch.no_grad():
        x += 1
    return [x.tolist(), x.requires_grad]


def gradients_through_writes(d):
    x = _x(d).requires_grad_()
    y = x * 2
    y[0] = 0
    y.mul_(3)
    y.sum().backward()
    return x.grad.tolist()


def a_wider_result_does_not_fit(d):
    x = torch.tensor([1, 2], device=d)
    try:
        x += 0.5
    except RuntimeError as error:
        return str(error)


def a_wrong_shape_does_not_fit(d):
    x = _x(d)
    try:
        x += torch.ones(2, 3, device=d)
    except RuntimeError as error:
        return type(error).__name__


def overlapping_copies(d):
    x = torch.arange(5.0, device=d)
    x[1:] = x[:-1].clone()
    return x.tolist()
