"""Whether a device does what every device of torch does: names, copies, dtypes, views, seeds, files, gradients."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial

import torch
from torch import nn

from torchdevice.policy.dtypes import dtype_on
from torchdevice.verify.findings import Check, Differs, Result
from torchdevice.verify.samples import differs
from torchdevice.verify.setting import Setting

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)


def checks(setting: Setting) -> Iterator[Check]:
    """A row per question, and one per dtype."""
    kind = setting.kind
    yield Check("device names", partial(names, kind))
    yield Check("device equality and index", partial(equality, kind))
    yield Check("copies to the device and back", partial(round_trip, kind))
    yield Check("copies of tensors that are not contiguous", partial(strided_round_trip, kind))
    for dtype in DTYPES:
        yield Check(f"dtype {str(dtype).removeprefix('torch.')}", partial(one_dtype, kind, dtype))
    yield Check("views share memory", partial(views, kind))
    yield Check("operators in place", partial(in_place, kind))
    yield Check("the same seed gives the same numbers", partial(seeds, kind))
    yield Check("a generator with its own seed", partial(generators, kind))
    yield Check("save and load", partial(files, kind))
    yield Check("gradients of a small network", partial(gradients, kind))
    yield Check("tensors of two devices do not mix", partial(mixing, kind))


def expect(condition: bool, otherwise: str) -> None:
    """Raise Differs with the text if the condition is false."""
    if not condition:
        raise Differs(otherwise)


def expect_same(expected: torch.Tensor, actual: torch.Tensor, what: str) -> None:
    """Raise Differs if the values are not those of the CPU."""
    if text := differs([expected], [actual], "", True):
        raise Differs(f"{what}: {text}")


def names(kind: str) -> Result:
    """The device of a tensor is the one that was named, in each way to name it."""
    for spelled in (kind, f"{kind}:0", torch.device(kind), torch.device(kind, 0)):
        found = torch.ones(1, device=spelled).device
        expect(found.type == kind and found.index == 0, f"device={spelled!r} gives {found}")
    return Result(str(torch.ones(1, device=kind).device))


def equality(kind: str) -> None:
    """Devices of tensors are equal to devices with an index, and hash alike."""
    there = torch.ones(1, device=kind).device
    expect(there == torch.device(kind, 0), f"{there} is not equal to {kind}:0")
    expect(hash(there) == hash(torch.device(kind, 0)), "equal devices have different hashes")
    expect(torch.empty_like(torch.ones(1, device=kind)).device == there, "empty_like is on another device")
    expect(torch.ones(1, device=kind).new_zeros(1).device == there, "new_zeros is on another device")


def round_trip(kind: str) -> None:
    """Values survive a copy to the device and back, also if the CPU does not wait."""
    source = torch.randn(64, 33)
    expect_same(source, source.to(kind).cpu(), "to and back")
    expect_same(source, torch.empty_like(source).copy_(source.to(kind)), "copy_ from the device")
    expect_same(source, torch.empty_like(source, device=kind).copy_(source).cpu(), "copy_ to the device")


def strided_round_trip(kind: str) -> None:
    """Transposed, sliced and expanded tensors keep their values and sizes."""
    source = torch.randn(8, 6, 4)
    for what, made in {
        "transposed": source.transpose(0, 2),
        "sliced": source[::2, 1:5:2],
        "expanded": source[:1].expand(8, 6, 4),
        "channels_last": source[None].contiguous(memory_format=torch.channels_last),
    }.items():
        expect_same(made, made.to(kind).cpu(), what)
    there = source.to(kind)
    expect_same(source.transpose(0, 2)[1:], there.transpose(0, 2)[1:].cpu(), "a view that comes back")


def one_dtype(kind: str, dtype: torch.dtype) -> Result:
    """The device has the dtype and keeps its values, or lacks it as `policy.dtypes` says."""
    values = torch.tensor([0, 1, 1, 0, 1]).to(dtype)
    if dtype_on(kind, dtype) is not dtype:
        try:
            values.to(kind)
        except TypeError as error:
            return Result(f"refused, as predicted: {error}")
        raise Differs(f"predicted: {kind} lacks it; seen: it has it")
    there = values.to(kind)
    expect(there.dtype is dtype, f"it became {there.dtype}")
    expect_same(values, there.cpu(), "values")
    return Result()


def views(kind: str) -> None:
    """A write through a view is seen in its base."""
    base = torch.zeros(4, 4, device=kind)
    base[1].fill_(1)
    base.t()[2].add_(2)
    base.view(16)[15] = 9
    expected = torch.zeros(4, 4)
    expected[1].fill_(1)
    expected.t()[2].add_(2)
    expected.view(16)[15] = 9
    expect_same(expected, base.cpu(), "the base")


def in_place(kind: str) -> None:
    """Operators in place change the tensor itself and count its versions."""
    x = torch.ones(3, 5, device=kind)
    same = x
    version = x._version
    x.mul_(3).add_(1).clamp_(max=3.5)
    expect(same is x and x._version > version, "the version did not change")
    expect_same(torch.full((3, 5), 3.5), x.cpu(), "values")


def seeds(kind: str) -> None:
    """torch.manual_seed decides the numbers of the device, and another seed gives others."""
    drawn = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        drawn.append(torch.rand(1000, device=kind).cpu())
    expect(torch.equal(drawn[0], drawn[1]), "the same seed gives other numbers")
    expect(not torch.equal(drawn[0], drawn[2]), "another seed gives the same numbers")
    expect(float(drawn[0].min()) >= 0 and float(drawn[0].max()) < 1, "rand leaves [0, 1)")


def generators(kind: str) -> None:
    """A generator of the device repeats its numbers from a stored state."""
    generator = torch.Generator(kind).manual_seed(5)
    state = generator.get_state()
    first = torch.randn(100, device=kind, generator=generator).cpu()
    generator.set_state(state)
    expect_same(first, torch.randn(100, device=kind, generator=generator).cpu(), "numbers from a stored state")


def files(kind: str) -> None:
    """What was saved on the device loads on the device and on the CPU."""
    there = {"weight": torch.randn(4, 3, device=kind), "step": torch.tensor(3, device=kind)}
    stored = io.BytesIO()
    torch.save(there, stored)
    for place in (None, "cpu", kind):
        stored.seek(0)
        loaded = torch.load(stored, map_location=place)
        expect(loaded["weight"].device.type == (place or kind), f"map_location={place!r}: {loaded['weight'].device}")
        expect_same(there["weight"].cpu(), loaded["weight"].cpu(), f"map_location={place!r}")


def gradients(kind: str) -> None:
    """Convolution, normalization, attention and a loss, forward and backward."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.GELU(),
        nn.MaxPool2d(2),
        nn.Flatten(2),
        nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True),
        nn.Flatten(),
        nn.Linear(128, 5),
    )
    images, labels = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])

    def run(device: str) -> list[torch.Tensor]:
        network.zero_grad()
        network.to(device)
        loss = nn.functional.cross_entropy(network(images.to(device)), labels.to(device))
        loss.backward()
        found = [loss, *(parameter.grad for parameter in network.parameters() if parameter.grad is not None)]
        return [tensor.detach().to("cpu", copy=True) for tensor in found]

    if text := differs(run("cpu"), run(kind), "", True):
        raise Differs(text)


def mixing(kind: str) -> None:
    """An operator with tensors of the CPU and of the device raises an error, as on every device."""
    try:
        torch.ones(3, device=kind) + torch.ones(3)
    except RuntimeError:
        return
    raise Differs("an addition of tensors on two devices ran")
