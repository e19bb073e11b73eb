"""Functions under torch.compile: while a session is active, what plain torch compiles compiles, with the same result.

A program is the body of a function of `x`. Plain torch runs it with `DEVICE = "cpu"`, and a session with "cuda". There
is at least one program for each function that a session replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pytest
import torch
import torch.utils.checkpoint
from torch._dynamo.testing import CompileCounter

import torchdevice
from tests.virtual.harness import on
from torchdevice._torch import core
from torchdevice.translate.callers import OURS
from torchdevice.translate.points import Point, all_points

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about what the programs call

GENERATORS = {
    "factory": "return x + torch.rand(2, generator=generator, device=DEVICE)",
    "integers": "return x + torch.randint(0, 5, (2,), generator=generator, device=DEVICE)",
    "permutation": "return x + torch.randperm(2, generator=generator, device=DEVICE)",
    "in place": "return x + torch.empty(2, device=DEVICE).normal_(generator=generator)",
    "multinomial": "return x + torch.multinomial(x, 2, generator=generator)",
    "bernoulli": "return x + torch.bernoulli(x, generator=generator)",
    "initializer": "return x + torch.nn.init.normal_(torch.empty(2, device=DEVICE), generator=generator)",
    "made inside": "return x + torch.rand(2, generator=torch.Generator(DEVICE).manual_seed(1), device=DEVICE)",
    "seeded inside": "return x + torch.rand(2, generator=generator.manual_seed(1), device=DEVICE)",
    "state": "return x + generator.get_state().sum().to(DEVICE)",
    "device of a generator": "return x.to(generator.device) + 1",
    "class of a generator": "return x + isinstance(generator, torch.Generator)",
}

MOVES = {
    "module.to": "return linear.to(DEVICE)(x)",
    "module.to(device=)": "return linear.to(device=torch.device(DEVICE))(x)",
    "module.to(dtype)": "return linear.to(torch.float32)(x)",
    "unbound to": "return torch.Tensor.to(x, DEVICE) + torch.Tensor.to(x, device=DEVICE)",
    "unbound cpu": "return torch.Tensor.cpu(x).to(DEVICE) + 1",
    "unbound factories": "return torch.Tensor.new_zeros(x, 2) + torch.Tensor.new_tensor(x, [1.0, 2.0])",
    "type": "return x.type(torch.float64) + torch.Tensor.type(x, torch.float64)",
    "dtype of Python": "return x + torch.zeros(2, dtype=float, device=DEVICE)",
    "number": "return x.sum().item()",
    "subclass": "return subclass.to(DEVICE) + subclass.to(device=DEVICE).cpu().to(DEVICE) + subclass.new_zeros(2)",
    "subclass, dtype": "return subclass.to(torch.float64) + subclass.type(torch.float64)",
    "unbound, subclass": "return torch.Tensor.to(subclass, DEVICE) + torch.Tensor.new_zeros(subclass, 2)",
    "type without a dtype": "return x + x.type().endswith('FloatTensor')",
    "is_pinned": "return x + x.is_pinned()",
    "from_dlpack": "return torch.from_dlpack(x) + 1",
    "save_on_cpu": "with torch.autograd.graph.save_on_cpu(): return linear(x)",
    "between graphs": (
        "torch._dynamo.graph_break()\nreturn linear.to(DEVICE)(x.to(DEVICE)) + torch.zeros(2, device=DEVICE)"
    ),
    "checkpoint": "return torch.utils.checkpoint.checkpoint(linear, x, use_reentrant=False)",
    "clipped": "return x + torch.nn.utils.clip_grad_norm_([x], 1.0)",
    "autocast": "with torch.autocast(DEVICE, dtype=torch.bfloat16): return torch.outer(x, x)",
}

# What only a session can run: no error, with graph breaks where the compiler needs them.
OF_CUDA = {
    "device": "with torch.cuda.device(x.device): return x + 1",
    "device by index": "with torch.cuda.device(x.device.index): return x + 1",
    "device_of": "with torch.cuda.device_of(x): return x + 1",
    "event": "e = torch.cuda.Event()\ne.record()\nx = x + 1\ne.synchronize()\nreturn x",
    "generic event": "e = torch.Event('cuda')\ne.record()\nx = x + 1\ne.synchronize()\nreturn x",
    "event from outside": "event.record()\nx = x + 1\nevent.synchronize()\nreturn x",
    "stream": (
        "s = torch.cuda.Stream()\nwith torch.cuda.stream(s): x = x * 2\n"
        "torch.cuda.current_stream().wait_stream(s)\nreturn x"
    ),
    "stream from outside": "with torch.cuda.stream(stream): x = x * 2\nreturn x",
    "generic stream": "s = torch.Stream('cuda')\nwith s: x = x * 2\nreturn x",
    "current stream": "y = x + 1\ntorch.cuda.current_stream().synchronize()\nreturn y",
    "event of a stream": "y = x + 1\ntorch.cuda.current_stream().record_event().synchronize()\nreturn y",
    "record_stream": "y = x + 1\ny.record_stream(torch.cuda.current_stream())\nreturn y",
    "module of a device": "return x + torch.get_device_module(x.device).is_available()",
    "module of the device": "return x + (torch.get_device_module() is not None)",
    "module of a type": "return x + (torch.get_device_module('cuda') is not None)",
    "synchronize": "torch.cuda.synchronize()\ntorch.accelerator.synchronize()\nreturn x + 1",
    "module.cuda": "return linear.cuda()(x) + linear.cuda(0)(x)",
    "unbound cuda": "return torch.Tensor.cuda(x) + 1",
    "legacy type": "return x + torch.cuda.FloatTensor([1.0, 2.0])",
}

# Arguments of factories; (2,) for others.
_SPARSE = "[0, 1, 2], [0, 1], [1.0, 2.0], (2, 2)"
_BLOCKS = "[0, 1], [0], [[[1.0]]], (1, 1)"
ARGUMENTS = {
    **dict.fromkeys(("as_tensor", "asarray", "tensor"), "[1.0, 2.0]"),
    **dict.fromkeys(("linspace", "logspace", "range"), "0, 1, 2"),
    **dict.fromkeys(("tril_indices", "triu_indices"), "2, 2"),
    **dict.fromkeys(("full", "normal"), "(2,), 1.0"),
    **dict.fromkeys(("arange", "eye", "randperm", "fft.fftfreq", "fft.rfftfreq"), "2"),
    **dict.fromkeys(
        ("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window", "scalar_tensor"), "2"
    ),
    **dict.fromkeys(("sparse_csr_tensor", "sparse_csc_tensor"), _SPARSE),
    **dict.fromkeys(("sparse_bsr_tensor", "sparse_bsc_tensor"), _BLOCKS),
    "sparse_compressed_tensor": f"{_SPARSE}, layout=torch.sparse_csr",
    "sparse_coo_tensor": "[[0, 1], [0, 1]], [1.0, 2.0], (2, 2)",
    "normal": "0.0, 1.0, (2,)",
    "empty_permuted": "(2,), (0,)",
    "empty_strided": "(2,), (1,)",
    "empty_quantized": "(2,), torch.quantize_per_tensor(torch.ones(2, device='cpu'), 1.0, 0, torch.qint8)",
    "randint": "3, (2,)",
    "full_like": "x, 1.0",
    "randint_like": "x, 3",
}
# Arguments of methods of tensors; none for others.
OF_METHODS = {
    **dict.fromkeys(("new_empty", "new_ones", "new_zeros", "new"), "2"),
    **dict.fromkeys(("new_full",), "(2,), 1.0"),
    **dict.fromkeys(("softmax", "log_softmax"), "0"),
    "new_empty_strided": "(2,), (1,)",
    "new_tensor": "[1.0, 2.0]",
    "to": "DEVICE",
    "type": "torch.float64",
    "copy_": "x",
}
# Not called in compiled code: what reads or writes files, makes or loads batches, or compiles; methods of classes that
# the compiler does not trace, of storages, and of a mode; what only another accelerator has; a hint to the allocator.
LEFT_OUT = (
    "torch.accelerator.get_device_capability",
    "torch.jit.",
    "torch.load",
    "torch.save",
    "torch.export.load",
    "torch.package.",
    "torch.serialization.",
    "torch._weights",
    "torch._utils",
    "torch.utils.data.",
    "torch.storage.",
    "torch._subclasses.",
    "torch.overrides.",
    "torch.library.",
    "torch.from_file",
    "torch.Generator.",
    "torch.amp.autocast_mode.",
    "torch.amp.grad_scaler.",
    "torch.quasirandom.",
    "torch.frombuffer",
    "torch.Tensor.ipu",
    "torch.Tensor.xpu",
    "torch.Tensor.mtia",
    "torch.nn.Module.ipu",
    "torch.nn.Module.xpu",
    "torch.nn.Module.mtia",
    "torch.nn.utils.rnn.PackedSequence.ipu",
    "torch.nn.utils.rnn.PackedSequence.xpu",
    "torch.nn.utils.rnn.PackedSequence.mtia",
    "torch.Tensor.record_stream",
    "torch.cuda.sparse.",
    "torch._C.",
    "torch.empty_quant",
)
# The functions that are left.
CALLS = {
    "torch.Generator": GENERATORS["made inside"],
    "torch.Stream": OF_CUDA["generic stream"],
    "torch.Event": OF_CUDA["generic event"],
    "torch.Tensor.__new__": "return x + torch.Tensor([1.0, 2.0]).to(DEVICE)",
    "torch.Tensor.cuda": OF_CUDA["unbound cuda"],
    "torch.Tensor.float_power_": "return x.double().float_power_(2)",
    "torch.Tensor.pin_memory": "return x if DEVICE == 'cpu' else x.cpu().pin_memory().to(DEVICE)",
    "torch.Tensor.random_": "return x + x.clone().random_() * 0",
    "torch.device": "return torch.zeros(2, device=torch.device(DEVICE)) + x",
    "torch.fft": "return x + torch.fft.fftfreq(2, device=DEVICE)",
    "torch.from_numpy": "return x + torch.from_numpy(numpy.ones(2)).to(DEVICE)",
    "torch.get_default_device": "return x + (torch.get_default_device() is not None)",
    "torch.get_device": "return x + torch.get_device(x) * 0",
    "torch.get_device_module": "return x + (torch.get_device_module(DEVICE) is not None)",
    "torch.multinomial": "return x + torch.multinomial(x, 2).sum()",
    "torch.nested.nested_tensor": "return torch.nested.nested_tensor([x, x], device=DEVICE).to_padded_tensor(0.0)",
    "torch.nested.as_nested_tensor": "return torch.nested.as_nested_tensor([x], device=DEVICE).to_padded_tensor(0.0)",
    "torch.Tensor.tensor_split": "return x.tensor_split(2)[0]",
    "torch.nn.Module.cpu": "return linear.cpu()(x.cpu()).to(DEVICE)",
    "torch.nn.Module.cuda": OF_CUDA["module.cuda"],
    "torch.nn.Module.to": MOVES["module.to"],
    "torch.nn.Module.to_empty": "return linear.to_empty(device=DEVICE).weight.sum() * 0 + x.nan_to_num()",
    "torch.nn.attention._sdpa_kernel": (
        "with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):\n"
        "    q = x[None, None]\n"
        "    return torch.nn.functional.scaled_dot_product_attention(q, q, q)"
    ),
    "torch.nn.utils.rnn.PackedSequence.cpu": "return torch.nn.utils.rnn.pack_sequence([x]).cpu().data",
    "torch.nn.utils.rnn.PackedSequence.cuda": "return torch.nn.utils.rnn.pack_sequence([x]).cuda().data",
    "torch.nn.utils.rnn.PackedSequence.to": "return torch.nn.utils.rnn.pack_sequence([x]).to(DEVICE).data",
    "torch.nn.utils.rnn.pack_padded_sequence": "return torch.nn.utils.rnn.pack_padded_sequence(x[:, None], [2]).data",
    "torch.optim.optimizer._get_capturable_supported_devices": (
        "x = torch.nn.Parameter(x)\nx.grad = x.detach()\ntorch.optim.Adam([x]).step()\nreturn x.detach()"
    ),
    "torch.random.fork_rng": "with torch.random.fork_rng(devices=[]): return x + 1",
    "torch.random.get_rng_state": "return x + torch.get_rng_state().numel() * 0",
    "torch.random.set_rng_state": "torch.set_rng_state(torch.get_rng_state())\nreturn x + 1",
    "torch.set_default_device": (
        "torch.set_default_device(DEVICE)\ny = torch.ones(2)\ntorch.set_default_device(None)\nreturn x + y"
    ),
    "torch.set_default_tensor_type": "torch.set_default_tensor_type('torch.FloatTensor')\nreturn x + 1",
    "torch.softmax": "return torch.softmax(x, 0, dtype=torch.float64)",
    "torch.log_softmax": "return torch.log_softmax(x, 0, dtype=torch.float64)",
    "torch.special.softmax": "return torch.special.softmax(x, 0, dtype=torch.float64)",
    "torch.special.log_softmax": "return torch.special.log_softmax(x, 0, dtype=torch.float64)",
    "torch.tensor_split": "return torch.tensor_split(x, torch.tensor([1], device='cpu'))[0]",
    "torch.utils._foreach_utils._device_has_foreach_support": MOVES["clipped"],
}


def program_of(point: Point) -> str | None:
    """A program that calls a function that a session replaces."""
    owner, _, name = point.path.rpartition(".")
    if point.path in CALLS:
        return CALLS[point.path]
    if point.path.startswith(LEFT_OUT):
        return None
    if owner == "torch.Tensor":
        return (
            f"made = x.clone().{name}({OF_METHODS.get(name, '')})\nreturn torch.as_tensor(made, device=DEVICE) * 0 + x"
        )
    if owner == "torch.accelerator":
        argument = "0" if "set_device" in name else "DEVICE"
        return f"torch.accelerator.{name}({argument})\nreturn x + 1"
    if name.endswith("Tensor"):
        return f"return x + {point.path}([1]).to(DEVICE)"
    arguments = ARGUMENTS.get(point.path.removeprefix("torch."), "x" if point.traced == "like" else "(2,)")
    made = f"made = {point.path}({arguments}, device=DEVICE)\n"
    return made + "return x + (made.to_dense() if made.is_sparse else made).sum() * 0"


POINTS = {point.path: program_of(point) for point in all_points()}
PROGRAMS = {**GENERATORS, **MOVES, **{path: body for path, body in POINTS.items() if body is not None}}
ONLY_OF_CUDA = {name: body for name, body in PROGRAMS.items() if "cuda" in body or "torch.accelerator" in body}
ONLY_OF_CUDA |= OF_CUDA
PLAIN = {name: body for name, body in PROGRAMS.items() if name not in ONLY_OF_CUDA}


class Subclass(torch.Tensor):
    """Its methods are called through `torch.Tensor.__torch_function__`."""


def made(body: str, device: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """The function with this body, and with what it uses."""
    torch.manual_seed(0)
    space: dict[str, Any] = {"torch": torch, "numpy": numpy, "DEVICE": device}
    space["generator"] = torch.Generator(device)
    space["linear"] = torch.nn.Linear(2, 2).to(device)
    space["subclass"] = torch.ones(2, device=device).as_subclass(Subclass)
    if device == "cuda":
        space |= {"stream": torch.cuda.Stream(), "event": torch.Event("cuda")}
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    exec(f"def program(x):\n{lines}", space)
    program: Callable[[torch.Tensor], torch.Tensor] = space["program"]
    return program


def outcome(body: str, device: str, fullgraph: bool) -> str:
    """ "same" result as without the compiler; "breaks" the graph, which `fullgraph` forbids; or an error."""
    torch._dynamo.reset()
    core.forget_default_device()  # compiled code that ran before may have set None
    x = torch.ones(2, device=device)
    try:
        expected = made(body, device)(x)
    except Exception as error:
        return f"without the compiler: {error!r}"
    compiled = torch.compile(made(body, device), backend="eager", fullgraph=fullgraph)
    try:
        given = compiled(x)
    except torch._dynamo.exc.Unsupported as error:
        return "breaks" if fullgraph else str(error)
    except Exception as error:
        return repr(error)
    equal = torch.equal(given, expected) if isinstance(given, torch.Tensor) else given == expected
    return "same" if equal and type(given) is type(expected) else f"{given}, not {expected}"


def compiles_methods_of_subclasses() -> bool:
    """Whether plain torch does, if they are functions in Python. torch 2.9 does not."""
    return outcome("return subclass.norm()", "cpu", fullgraph=False) == "same"


@pytest.mark.parametrize("name", PLAIN)
def test_a_session_compiles_what_plain_torch_compiles(name: str) -> None:
    if "subclass" in PLAIN[name] and not compiles_methods_of_subclasses():
        pytest.skip(f"torch {torch.__version__} compiles no Python methods of tensor subclasses")
    with torchdevice.redirect(target="cpu"):
        whole = outcome(PLAIN[name], "cuda", fullgraph=True)
        assert whole == "same" or outcome(PLAIN[name], "cuda", fullgraph=False) == "same"
    assert whole == "same" or outcome(PLAIN[name], "cpu", fullgraph=True) != "same"


@pytest.mark.parametrize("name", ONLY_OF_CUDA)
def test_a_session_compiles_what_only_cuda_can_run(name: str) -> None:
    with torchdevice.redirect(target="cpu"):
        assert outcome(ONLY_OF_CUDA[name], "cuda", fullgraph=False) == "same"


def test_our_code_is_not_compiled_between_graphs() -> None:
    """It would be compiled like any function, with guards on our tables."""
    with torchdevice.redirect(target="cpu"):
        for body in (MOVES["save_on_cpu"], MOVES["between graphs"]):
            torch._dynamo.utils.clear_compilation_metrics()
            assert outcome(body, "cuda", fullgraph=False) == "same"
            compiled = {str(each.co_filename) for each in torch._dynamo.utils.get_compilation_metrics()}
            assert compiled
            assert not [path for path in compiled if path.startswith(OURS)]


@on("cuda")
def test_a_session_on_a_virtual_device_does_too() -> None:
    """Module.cpu moves the module there, and plain torch breaks the graph at a real move."""
    torchdevice.activate(target="cuda")
    left_out = {"torch.nn.Module.cpu"}
    left_out |= set() if compiles_methods_of_subclasses() else {name for name in MOVES if "subclass" in name}
    for name in (GENERATORS | MOVES | CALLS).keys() & PLAIN.keys() - left_out:
        whole = outcome(PLAIN[name], "cuda", fullgraph=True)
        assert whole == "same" or outcome(PLAIN[name], "cuda", fullgraph=False) == "same", name
        if whole != "same":
            with torchdevice.suspended():
                assert outcome(PLAIN[name], "cpu", fullgraph=True) != "same", name


def made_of_nothing(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.zeros(2), torch.tensor([1.0]), torch.full((2,), 1.0), x.new_ones(2), torch.zeros(2, device="cpu")


@pytest.mark.skipif(not core.DEFAULT_DEVICES_ARE_TRACED, reason=f"torch {torch.__version__} does not trace them")
@pytest.mark.parametrize("policy", ["accelerate", "portable"])
@on("cuda")
def test_default_devices_hold_in_compiled_code(policy: str) -> None:
    """torch's compiler passes originals to the mode of a default device."""
    compiled, x = torch.compile(made_of_nothing, backend="eager", fullgraph=True), torch.ones(2, device="cuda")
    with torchdevice.redirect(policy=policy):
        for where in ("meta", "cuda", "cpu", "cuda:0"):
            for default in (torch.device(where), in_force(where)):
                with default:
                    assert [each.device for each in compiled(x)] == [each.device for each in made_of_nothing(x)], where


@contextmanager
def in_force(device: str) -> Iterator[None]:
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


def test_methods_of_tensors_compile_after_a_session(python: Callable[..., Any]) -> None:
    """torch's compiler lists them when it first meets a subclass."""
    python("""
import torch, torchdevice
class Subclass(torch.Tensor): pass
x = torch.ones(2).as_subclass(Subclass)
with torchdevice.redirect(policy="portable"):
    torch.compile(lambda x: x + 1, backend="eager")(x)
moved = torch.compile(lambda x: x.to("cpu") + torch.Tensor.cpu(x), backend="eager", fullgraph=True)(x)
assert moved.tolist() == [2.0, 2.0] and type(moved) is Subclass
""")


def test_rules_of_cached_functions_are_put_back() -> None:
    """torch reads its rules again after `init_process_group`, here during a session."""
    with torchdevice.redirect(target="cpu"):
        torch._dynamo.reset()
        torch._dynamo.trace_rules.clear_lru_cache()
    assert (
        torch.compile(lambda x: torch.get_device_module(x.device).__name__, backend="eager", fullgraph=True)(
            torch.ones(2)
        )
        == "torch.cpu"
    )


@on("cuda")
def test_functions_compile_for_the_cpu_beside_an_accelerator() -> None:
    """The compiler asks for the current stream of the accelerator, in the code of the function."""
    compiled = torch.compile(lambda x: x + torch.ones(2, device="cuda"), backend="aot_eager", fullgraph=True)
    for policy in ("accelerate", "portable"):
        with torchdevice.redirect(target="cpu", policy=policy):
            made = compiled(torch.ones(2))
            assert made.device.type == "cpu"
            assert made.tolist() == [2, 2]
    assert torch.compile(torch.sin, backend="eager")(torch.ones(2, device="cuda")).is_cuda


@on("cuda")
def test_compiled_code_follows_the_settings_of_the_session() -> None:
    """A decision is a constant of the graph, so another session needs another graph, and the same one does not."""
    count = CompileCounter()

    def make() -> torch.Tensor:
        return torch.zeros(2)

    compiled = torch.compile(make, backend=count, fullgraph=True)
    for policy in ("portable", "accelerate", "portable", "accelerate"):
        with torchdevice.redirect(policy=policy):
            assert compiled().device == make().device
            assert compiled().is_cuda == (policy == "accelerate")
    assert count.frame_count == 2


@on("")
def test_a_session_in_which_rules_are_read_again_leaves_the_same_rules() -> None:
    rules = torch._dynamo.trace_rules
    with torchdevice.redirect(target="cpu"):
        rules.clear_lru_cache()
        rules.get_torch_obj_rule_map()
    after = dict(rules.get_torch_obj_rule_map())
    rules.clear_lru_cache()
    assert after == rules.get_torch_obj_rule_map()
