"""Types of results, defaults, and what is refused."""

import torch

from tests.semantics.program import gives

_TYPES = [
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.complex64,
]


def _table(operate):
    def program(d):
        return [
            [str(operate(torch.ones(2, dtype=a, device=d), torch.ones(2, dtype=b, device=d)).dtype) for b in _TYPES]
            for a in _TYPES
        ]

    return program


def _with_scalar(scalar):
    return lambda d: [str((torch.ones(2, dtype=a, device=d) * scalar).dtype) for a in _TYPES]


ROWS = {
    "add_table": _table(torch.add),
    "mul_table": _table(torch.mul),
    "div_table": _table(torch.div),
    "scalar_bool": _with_scalar(True),
    "scalar_int": _with_scalar(2),
    "scalar_float": _with_scalar(2.5),
    "scalar_complex": _with_scalar(1j),
    "zero_dimensional": lambda d: [
        str((torch.ones(2, dtype=a, device=d) + torch.tensor(1.5, device=d)).dtype) for a in _TYPES
    ],
    "sums": lambda d: [str(torch.ones(2, dtype=a, device=d).sum().dtype) for a in _TYPES],
    "cat_mixed": lambda d: str(torch.cat([torch.ones(1, dtype=torch.int32, device=d), torch.ones(1, device=d)]).dtype),
    "where_mixed": lambda d: str(
        torch.where(torch.ones(1, dtype=torch.bool, device=d), torch.ones(1, device=d), 1).dtype
    ),
    "comparisons": lambda d: str((torch.ones(1, dtype=torch.int32, device=d) > torch.ones(1, device=d)).dtype),
    "true_and_floor_division": lambda d: [
        (torch.tensor([7, -7], device=d) / 2).tolist(),
        (torch.tensor([7, -7], device=d) // 2).tolist(),
        torch.div(torch.tensor([7, -7], device=d), 2, rounding_mode="trunc").tolist(),
    ],
    "remainders": lambda d: [
        (torch.tensor([7, -7], device=d) % 3).tolist(),
        torch.fmod(torch.tensor([7, -7], device=d), 3).tolist(),
    ],
    "casts_round_to_zero": lambda d: torch.tensor([1.9, -1.9], device=d).int().tolist(),
    "casts_of_bool": lambda d: torch.tensor([0.0, 0.5, -1.0], device=d).bool().tolist(),
    "integer_overflow": lambda d: (torch.tensor([127], dtype=torch.int8, device=d) + 1).tolist(),
    "half_overflow": lambda d: (torch.tensor([65504.0], dtype=torch.float16, device=d) * 2).tolist(),
    "infinities": lambda d: (torch.tensor([1.0, -1.0, 0.0], device=d) / 0).tolist(),
    "factories": lambda d: [
        str(each.dtype)
        for each in (
            torch.tensor([1], device=d),
            torch.tensor([1.0], device=d),
            torch.tensor([True], device=d),
            torch.tensor([1j], device=d),
            torch.arange(3, device=d),
            torch.arange(3.0, device=d),
            torch.full((1,), 2, device=d),
            torch.full((1,), 2.0, device=d),
            torch.linspace(0, 1, 2, device=d),
            torch.randint(3, (1,), device=d),
        )
    ],
    "means_of_integers": lambda d: torch.tensor([1, 2], device=d).float().mean().item(),
    "argument_dtype": lambda d: [str(torch.tensor([1, 2], device=d).sum(dtype=torch.float32).dtype)],
    "result_type": lambda d: str(torch.result_type(torch.ones(1, dtype=torch.int32, device=d), 1.0)),
    "can_cast": lambda d: [torch.can_cast(torch.float32, torch.int32), torch.can_cast(torch.int32, torch.float32)],
    "exact_scalars": lambda d: (torch.tensor([2**40], device=d) + 1).tolist(),
}


def the_default_dtype(d):
    torch.set_default_dtype(torch.float16)
    try:
        return [
            str(torch.ones(1, device=d).dtype),
            str(torch.tensor([1.0], device=d).dtype),
            str(torch.get_default_dtype()),
        ]
    finally:
        torch.set_default_dtype(torch.float32)


@gives(["torch.float64", "torch.float64", 8])
def float64_on_the_device(d):
    x = torch.ones(1, dtype=torch.float64, device=d)
    return [str(x.dtype), str((x + 1).dtype), x.element_size()]


def float64_values(d):
    x = torch.tensor([0.1, 0.2], dtype=torch.float64, device=d)
    return [x.sum().item(), x.double().mean().item()]


def bfloat16_rounds(d):
    return torch.tensor([1.001, 256.5], dtype=torch.bfloat16, device=d).tolist()


def mean_of_integers_is_refused(d):
    try:
        torch.tensor([1, 2], device=d).mean()
    except RuntimeError as error:
        return "mean()" in str(error)


def matmul_of_two_types_is_refused(d):
    try:
        torch.ones(2, 2, device=d) @ torch.ones(2, 2, dtype=torch.float16, device=d)
    except RuntimeError as error:
        return type(error).__name__


def type_conversions_by_name(d):
    x = torch.tensor([1.5], device=d)
    made = (x.half(), x.bfloat16(), x.int(), x.short(), x.char(), x.byte(), x.long(), x.bool(), x.cfloat())
    return [str(each.dtype) for each in made]
