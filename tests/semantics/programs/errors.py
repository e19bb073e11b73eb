"""Errors that programs catch: their classes, and what their texts say."""

import torch
from torch import nn

from tests.semantics.program import gives

# Parts of a text that name the device.
_DEVICES = {
    "cuda:0": "DEVICE",
    "mps:0": "DEVICE",
    "torch.cuda.F": "torch.F",
    "torch.mps.F": "torch.F",
    "MPSFloatType": "torch.FloatTensor",
}


def _text(error):
    line = str(error).split("\n")[0].replace("device=torch.device", "device=str")  # up to 2.12 the class is named
    for name, general in _DEVICES.items():
        line = line.replace(name, general)
    return line


def _caught(function):
    def program(d):
        try:
            function(d)
        except Exception as error:
            return [type(error).__name__, _text(error)]
        return "nothing was raised"

    return program


ROWS = {
    "shapes": _caught(lambda d: torch.ones(2, device=d) + torch.ones(3, device=d)),
    "view": _caught(lambda d: torch.ones(4, device=d).view(3)),
    "reshape": _caught(lambda d: torch.ones(4, device=d).reshape(3, -1)),
    "cat": _caught(lambda d: torch.cat([torch.ones(2, 2, device=d), torch.ones(3, 3, device=d)])),
    "empty_cat": _caught(lambda d: torch.cat([])),
    "empty_stack": _caught(lambda d: torch.stack([])),
    "dimension": _caught(lambda d: torch.ones(2, device=d).sum(5)),
    "linear": _caught(lambda d: nn.Linear(2, 2).to(d)(torch.ones(1, 3, device=d))),
    "conv": _caught(lambda d: nn.Conv2d(3, 1, 1).to(d)(torch.ones(1, 2, 4, 4, device=d))),
    "item_of_many": _caught(lambda d: torch.ones(2, device=d).item()),
    "unknown_device": _caught(lambda d: torch.ones(1, device="nowhere")),
    "bad_device_string": _caught(lambda d: torch.device("cuda:x")),
    "bad_argument": _caught(lambda d: torch.zeros("two", device=d)),
    "unknown_keyword": _caught(lambda d: torch.ones(2, device=d, shape=3)),
    "no_attribute": _caught(lambda d: torch.ones(2, device=d).nothing),
    "no_module_attribute": _caught(lambda d: nn.Linear(1, 1).to(d).nothing),
    "no_torch_attribute": _caught(lambda d: torch.nothing),
    "embedding_of_floats": _caught(lambda d: nn.Embedding(2, 2).to(d)(torch.ones(1, device=d))),
    "no_gradient": _caught(lambda d: torch.ones(1, device=d).sum().backward()),
    "negative_dimension": _caught(lambda d: torch.ones(-1, device=d)),
    "squeeze_too_far": _caught(lambda d: torch.ones(1, device=d).squeeze(3)),
    "expand": _caught(lambda d: torch.ones(2, device=d).expand(3)),
    "permute": _caught(lambda d: torch.ones(2, 2, device=d).permute(0, 0)),
    "argmax_of_nothing": _caught(lambda d: torch.ones(0, device=d).argmax()),
    "max_of_nothing": _caught(lambda d: torch.ones(0, device=d).max()),
    "bernoulli": _caught(lambda d: torch.nn.functional.dropout(torch.ones(1, device=d), p=2.0)),
    "integer_power": _caught(lambda d: torch.tensor([2], device=d) ** -1),
    "bitwise_of_floats": _caught(lambda d: torch.ones(1, device=d) & torch.ones(1, device=d)),
    "parameter_of_no_tensor": _caught(lambda d: nn.Module().register_parameter("x", torch.ones(1, device=d))),
    "state_dict_keys": _caught(lambda d: nn.Linear(1, 1).to(d).load_state_dict({})),
    "not_a_module": _caught(lambda d: nn.Sequential(torch.ones(1, device=d))),
    "module_to_integers": _caught(lambda d: nn.Linear(1, 1).to(d, torch.int32)),
    "generator_of_a_bad_seed": _caught(lambda d: torch.Generator(device=d).manual_seed("x")),
    "einsum": _caught(lambda d: torch.einsum("ij,jk", torch.ones(2, 3, device=d), torch.ones(2, 3, device=d))),
    "batch_norm_of_one": _caught(lambda d: nn.BatchNorm1d(2).to(d)(torch.ones(1, 2, device=d))),
    "pack_of_unsorted": _caught(
        lambda d: nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 1, device=d), torch.tensor([1, 3]).cpu())
    ),
}


@gives(["RuntimeError", True])
def two_devices_in_one_operator(d):
    try:
        torch.ones(2, device=d) + torch.ones(2).cpu()
    except RuntimeError as error:
        return [type(error).__name__, "Expected all tensors to be on the same device" in str(error)]


@gives("TypeError")
def numpy_of_a_device_tensor(d):
    try:
        torch.ones(2, device=d).numpy()
    except TypeError as error:
        return type(error).__name__


@gives("refused")
def a_device_that_is_not_there(d):
    try:
        torch.ones(1, device="cuda:7")
    except RuntimeError:
        return "refused"


@gives(["AcceleratorError", True])
def the_class_of_device_errors(d):
    return [torch.AcceleratorError.__name__, issubclass(torch.AcceleratorError, RuntimeError)]


@gives([True, True])
def classes_of_errors(d):
    return [
        issubclass(torch.cuda.OutOfMemoryError, RuntimeError),
        torch.cuda.OutOfMemoryError is torch.OutOfMemoryError,
    ]


def an_error_in_a_with_block_restores(d):
    before = torch.is_grad_enabled()
    try:
        with torch.no_grad():
            torch.ones(2, device=d) + torch.ones(3, device=d)
    except RuntimeError:
        pass
    return torch.is_grad_enabled() == before


def an_error_keeps_its_cause(d):
    try:
        try:
            torch.ones(2, device=d).view(5)
        except RuntimeError as error:
            raise ValueError("wrapped") from error
    except ValueError as error:
        return [str(error), type(error.__cause__).__name__]


def warnings_are_given(d):
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nn.functional.mse_loss(torch.ones(2, 1, device=d), torch.ones(2, device=d))
    return [[each.category.__name__, "target size" in str(each.message)] for each in caught]
