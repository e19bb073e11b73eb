"""What expressions of the vocabulary may use: small deterministic objects on the device `D`, and results as plain data.

`D` is "cpu" in plain torch and "cuda" under TorchDevice: the same expression asks for CUDA there.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import math
import os
import re
import sqlite3
import tempfile
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from tools.catalog.bench_groups import Groups

VALUES = 48  # of a tensor that are kept; the sum stands for the rest
DEPTH = 5


# The tables that torch.autograd.profiler.parse_nvprof_trace reads.
NVPROF = """
CREATE TABLE StringTable (_id_ INTEGER, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MARKER (id INTEGER, name INTEGER, timestamp INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME
    (_id_ INTEGER, cbid INTEGER, start INTEGER, end INTEGER, correlationId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (correlationId INTEGER, start INTEGER, end INTEGER, name TEXT);
INSERT INTO StringTable VALUES (1, 'sin');
INSERT INTO CUPTI_ACTIVITY_KIND_MARKER VALUES (1, 1, 10), (1, 0, 50);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 211, 20, 30, 7);
INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL VALUES (7, 25, 40, 'kernel');
"""


class Doubling(torch.autograd.Function):
    """An autograd function of one's own."""

    @staticmethod
    def forward(ctx: Any, given: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(given)
        return given * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor) -> torch.Tensor:
        return tangent * 2


def doubling(given: torch.Tensor) -> torch.Tensor:
    """A function with annotations."""
    return given * 2


class Doubler:
    """An interface, for TorchScript."""

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        pass


class Bench(Groups):
    """The names that expressions see, for one device."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.folder = tempfile.mkdtemp(prefix="catalog-")

    def names(self) -> dict[str, Any]:
        """For `eval`."""
        public = {name: getattr(self, name) for name in dir(self) if not name.startswith("_") and name != "names"}
        return {"torch": torch, "nn": nn, "os": os, "math": math, "D": self.device, **public}

    def T(self, *shape: int, dtype: Any = torch.float32, grad: bool = False) -> torch.Tensor:  # noqa: N802
        """Floats between 0 and 1, no two alike."""
        count = math.prod(shape)
        values = (torch.arange(count, dtype=torch.float32) * 0.37 + 0.11) % 1.0
        made = values.reshape(shape).to(dtype).to(self.device)
        return made.requires_grad_() if grad else made

    def I(self, *shape: int, below: int = 3) -> torch.Tensor:  # noqa: E743, N802
        """Integers below `below`."""
        return (torch.arange(math.prod(shape)) % below).reshape(shape).to(self.device)

    def H(self, *shape: int) -> torch.Tensor:  # noqa: N802
        """The same as `T`, on the CPU: for what is the CPU's own."""
        return Bench("cpu").T(*shape)

    def B(self, *shape: int) -> torch.Tensor:  # noqa: N802
        """True and False in turn."""
        return self.I(*shape, below=2).bool()

    def P(self, n: int = 3) -> torch.Tensor:  # noqa: N802
        """A positive definite matrix."""
        x = self.T(n, n)
        return x @ x.mT + torch.eye(n, device=self.device)

    def sparse(self) -> torch.Tensor:
        """A sparse matrix."""
        return self.P().to_sparse()

    def net(self, inputs: int = 3, outputs: int = 3) -> nn.Module:
        """One linear layer with fixed weights."""
        layer = nn.Linear(inputs, outputs).to(self.device)
        with torch.no_grad():
            layer.weight.copy_(self.T(outputs, inputs))
            layer.bias.zero_()
        return layer

    def deep(self) -> nn.Module:
        """Two layers and a normalisation."""
        return nn.Sequential(self.net(), nn.BatchNorm1d(3).to(self.device), nn.ReLU(), self.net())

    def opt(self, kind: Any = torch.optim.SGD, **options: Any) -> Any:
        """An optimizer with gradients to step on."""
        layer = self.net()
        layer(self.T(4, 3)).sum().backward()
        return kind(layer.parameters(), **({"lr": 0.1} | options))

    def stepped(self, optimizer: Any) -> Any:
        """An optimizer after a step."""
        optimizer.step()
        return optimizer

    def scaled(self) -> Any:
        """A gradient scaler that has scaled a loss."""
        scaler = torch.GradScaler(self.device)
        scaler.scale(self.T(1, grad=True).sum())
        return scaler

    def file(self, content: Any = None) -> str:
        """A path; with something saved there if there is content."""
        path = os.path.join(self.folder, f"{len(os.listdir(self.folder))}.pt")
        if content is not None:
            torch.save(content, path)
        return path

    def data(self) -> Any:
        """A data set of five rows."""
        return torch.utils.data.TensorDataset(torch.arange(10.0).reshape(5, 2), torch.arange(5))

    def graph(self) -> Any:
        """A traced module."""
        return torch.fx.symbolic_trace(self.net())

    def exported(self) -> Any:
        """An exported program."""
        return torch.export.export(self.net(), (self.T(2, 3),))

    def entered(self, manager: Any, inside: Callable[[], Any] = lambda: None) -> Any:
        """A context manager, used."""
        with manager as value:
            result = inside()
        return value if result is None else result

    def backward(self, result: Any) -> Any:
        """A tensor after `sum().backward()`."""
        result.sum().backward()
        return result

    def learned(self) -> list[Any]:
        """Parameters with gradients."""
        layer = self.net()
        layer(self.T(4, 3)).sum().backward()
        return list(layer.parameters())

    def profiled(self, **options: Any) -> Any:
        """A profile of a small computation."""
        with torch.autograd.profiler.profile(**options) as profile:
            self.net()(self.T(2, 3))
        return profile

    def module(self, name: str) -> Any:
        """A module, also where a function of the same name hides it."""
        return importlib.import_module(name)

    def record(self, **fields: Any) -> Any:
        """An object with these attributes."""
        return types.SimpleNamespace(**fields)

    def doubled(self) -> torch.Tensor:
        """What an autograd function of one's own gives."""
        return Doubling.apply(self.T(3, grad=True))

    def symbol(self, value: float) -> Any:
        """A symbolic number with a value that is known."""
        from torch.fx.experimental.sym_node import SymNode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        kind = type(value)
        made = importlib.import_module("sympy").sympify(value)
        return (torch.SymInt if kind is int else torch.SymFloat)(SymNode(made, ShapeEnv(), kind, value))

    def quantized(self, *shape: int) -> torch.Tensor:
        """An affine quantized tensor, on the CPU: no other device has them all."""
        return torch.quantize_per_tensor(self.H(*shape), 0.1, 0, torch.quint8)

    def captured(self, kind: Any, capture: Any) -> Any:
        """A graph of the accelerator that has captured a sine, and where its result is."""
        given, graph = self.T(3), kind()
        with capture(graph):
            result = given.sin()
        return graph, result

    def nvprof(self) -> str:
        """A database as nvprof writes it: one marker, one launch, one kernel."""
        path = self.file()
        with sqlite3.connect(path) as base:
            base.executescript(NVPROF)
        return path

    def pruning(self) -> Any:
        """A pruning of the parameter `weight` that keeps everything."""
        method = torch.nn.utils.prune.Identity()
        method._tensor_name = "weight"
        return method

    def halves(self) -> torch.Tensor:
        """A matrix with two zeros in every four."""
        pattern = torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float16, device=self.device)
        return pattern.tile((128, 32))

    def sine(self) -> Any:
        """A function, traced."""
        return torch.fx.symbolic_trace(lambda x: x.sin())

    def finished(self) -> Any:
        """A module that interprets a traced function."""
        made = importlib.import_module("torch.export.unflatten").InterpreterModule(self.sine().graph)
        made.finalize()
        return made

    def hub(self) -> str:
        """The name of a repository that torch.hub has in its folder already."""
        torch.hub.set_dir(self.folder)
        folder = os.path.join(self.folder, "owner_repository_main")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "hubconf.py"), "w") as stream:
            stream.write("def doubling():\n    'Doubles.'\n    return 2\n")
        return "owner/repository:main"

    def source(self) -> str:
        """A file of C++ that needs no header."""
        path = self.file() + ".cpp"
        with open(path, "w") as stream:
            stream.write('extern "C" int f() { return 1; }')
        return path

    def script(self) -> str:
        """A file with a scripted module."""
        path = self.file()
        torch.jit.script(self.net()).save(path)
        return path

    def run(self, *steps: Any) -> Any:
        """The last of several steps."""
        return steps[-1]


_DEVICE = re.compile(r", device='[\w:]*'| \(cuda:\d+\)|\.?\b(cpu|cuda|mps|xpu)(:\d+)?\b|\bindex=0\b| \(GPU \d+\)")
_ADDRESS = re.compile(r"0x[0-9a-f]+")


def digest(value: Any, depth: int = DEPTH) -> Any:
    """What can be compared of a result, as JSON."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, complex):
        return {"tensor": [], "dtype": "complex", "values": [repr(value.real), repr(value.imag)]}
    if isinstance(value, (str, bytes)):
        return {"text": _ADDRESS.sub("0x", _DEVICE.sub("", str(value)))[:400]}
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format, torch.Size, enum.Enum)):
        return {"text": str(value)}
    if isinstance(value, type):
        return {"class": value.__name__}
    if depth and isinstance(value, nn.Module):
        return {"module": type(value).__name__, "state": digest(dict(value.state_dict()), depth - 1)}
    if depth and isinstance(value, torch.optim.Optimizer):
        return {"optimizer": type(value).__name__, "state": digest(value.state_dict(), depth - 1)}
    if depth and isinstance(value, Mapping):
        return {"map": {_key(key): digest(item, depth - 1) for key, item in list(value.items())[:40]}}
    if depth and isinstance(value, (list, tuple)):
        return [digest(item, depth - 1) for item in value[:40]]
    if depth and dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        return {"object": type(value).__name__, "fields": digest(fields, depth - 1)}
    return {"object": type(value).__name__}


def _key(key: Any) -> str:
    return _DEVICE.sub("", str(key)) if isinstance(key, (str, int, float, bool)) else type(key).__name__


def _tensor(value: torch.Tensor) -> Any:
    whole = {"DTensor": "full_tensor", "ShardedTensor": "local_tensor"}.get(type(value).__name__)
    if whole:
        return _tensor(getattr(value, whole)())
    if nn.parameter.is_lazy(value):
        return {"tensor": "uninitialized", "dtype": "", "values": []}
    if value.is_nested:  # one of the strided layout has no shape
        return {"tensor": "nested", "parts": [_tensor(part) for part in value.detach().unbind()][:8]}
    if type(value).__name__ == "MaskedTensor":
        parts = (value.get_data(), value.get_mask())
        return {"tensor": "masked", "parts": [_tensor(part) for part in parts]}
    kind = {"tensor": list(value.shape), "dtype": str(value.dtype).removeprefix("torch."), "on": value.device.type}
    if value.device.type == "meta" or type(value).__name__ in ("FakeTensor", "BatchedTensor"):
        return kind
    plain = value.detach()
    if plain.is_quantized:
        plain = plain.dequantize()
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    flat = plain.cpu().resolve_conj().resolve_neg().reshape(-1)
    if flat.dtype.itemsize == 1 and flat.is_floating_point():
        flat = flat.float()
    if flat.is_complex():
        flat = torch.view_as_real(flat.to(torch.complex128)).reshape(-1)
    step = max(1, math.ceil(flat.numel() / VALUES))
    if flat.is_floating_point():
        flat = flat.double()
        return {**kind, "values": [repr(float(f"{x:.7g}")) for x in flat[::step].tolist()]}
    return {**kind, "values": [repr(x) for x in flat[::step].tolist()]}
