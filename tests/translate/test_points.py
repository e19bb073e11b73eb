"""The rows as a whole: nothing forgotten, nothing disguised, nothing skipped in silence."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest
import torch

import torchdevice
from torchdevice._torch.core import default_device_functions
from torchdevice.session import session
from torchdevice.translate.points import all_points, resolve_path

POINTS = {point.path: point for point in all_points()}
REPLACED = [(point.path, original, places[0].value) for point, original, places in session._replacements._build()]


def test_every_function_that_takes_a_device_is_translated() -> None:
    every = [schema for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::")]
    taking = {schema.name[6:] for schema in every if any(argument.name == "device" for argument in schema.arguments)}
    public = [name for name in taking if not name.startswith("_")]
    expected = {f"torch.{name}" for name in public if hasattr(torch, name)}
    expected |= {f"torch.Tensor.{name}" for name in public if hasattr(torch.Tensor, name) and not hasattr(torch, name)}
    assert expected - set(POINTS) == set()


def test_every_default_device_function_is_translated() -> None:
    originals = {id(original) for _, original, _ in REPLACED}
    assert [function for function in default_device_functions() if id(function) not in originals] == []


def test_nothing_is_skipped_on_the_tested_torch() -> None:
    assert session._replacements.skips == []


def signature(function: Any) -> Any:
    try:
        return inspect.signature(function)
    except ValueError as error:  # C functions have none; the replacement must not pretend to have one
        return str(error).partition(" for ")[0]


@pytest.mark.parametrize(("path", "original", "value"), [pytest.param(*row, id=row[0]) for row in REPLACED])
def test_a_replacement_looks_like_the_original(path: str, original: Any, value: Any) -> None:
    value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    assert value.__name__ == original.__name__
    assert value.__doc__ == original.__doc__
    if not inspect.isclass(original):
        assert signature(value) == signature(original)
        assert value.__wrapped__ is original


def pickles(value: Any) -> bool:
    try:
        return pickle.loads(pickle.dumps(value)) is value
    except (pickle.PicklingError, AttributeError):
        return False


@pytest.mark.parametrize("path", [path for path, point in POINTS.items() if point.when == "always"])
def test_what_pickles_by_reference_still_does(path: str) -> None:
    if pickles(resolve_path(path)):
        with torchdevice.redirect(target="cpu"):
            assert pickles(resolve_path(path))


def test_pickled_replacements_load_without_torchdevice(python: Any) -> None:
    with torchdevice.redirect(target="cpu"):
        data = pickle.dumps(
            [torch.zeros, torch.device, torch.device("cuda", 1), torch.Generator, torch.Tensor.to, torch.load]
        )
    done = python(
        f"import pickle, torch, sys; f = pickle.loads({data!r})\n"
        "assert f[:2] == [torch.zeros, torch.device] and f[5] is torch.load\n"
        "assert 'torchdevice.session' not in sys.modules\n"
        "print(f[2])"
    )
    assert done.stdout == "cpu\n"


def test_the_private_module_of_c_keeps_its_classes() -> None:
    """torch compares the type of an object with them."""
    before = {name: id(value) for name, value in vars(torch._C).items() if isinstance(value, type)}
    with torchdevice.redirect(target="cpu"):
        assert {name: id(value) for name, value in vars(torch._C).items() if isinstance(value, type)} == before
