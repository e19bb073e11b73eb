"""Private names of torch behind operators: their schemas, the dispatcher's table, and kernels that can be taken back.

"Expiry" says what would make an entry unnecessary; the rest is in `core`.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchdevice._torch.core import RealDevice, RealGenerator, tensors_in

KEYS = {
    "cpu": "CPU",
    "mps": "MPS",
    "cuda": "CUDA",
    "xpu": "XPU",
    "hpu": "HPU",
    "mtia": "MTIA",
    "privateuseone": "PrivateUse1",
}
COMPOSITES = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def backend_key(device_type: str) -> str:
    """The dispatch key of a device type. A renamed out-of-tree backend is PrivateUse1."""
    return KEYS.get(device_type, "PrivateUse1")


def kernels_under(key: str) -> list[str]:
    """Operators (`aten::add.Tensor`) with a kernel registered under exactly this dispatch key.

    Expiry: a public reading of the dispatcher's table.
    """
    try:
        return list(torch._C._dispatch_get_registrations_for_dispatch_key(key))
    except RuntimeError:  # a key that this torch has no name for: nobody can have registered under it
        return []


def has_kernel(operator: str, key: str) -> bool:
    """Whether an operator has a kernel registered under exactly this key. Expiry: as above."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, key))


def runs_on(operator: str, key: str) -> bool:
    """Whether an operator has a kernel for a backend: one of its own or a composite. Expiry: as above."""
    return any(has_kernel(operator, each) for each in (key, *COMPOSITES))


def operator_names() -> list[str]:
    """Every operator that the dispatcher knows, with its namespace and overload. Expiry: as above."""
    return list(torch._C._dispatch_get_all_op_names())


def find_operator(name: str) -> Any:
    """The operator `aten::add.Tensor` as an object that can be called and has a schema; None where it has no handle.

    Expiry: a public look-up of operators by name.
    """
    space, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, space), packet), overload or "default")
    except (AttributeError, RuntimeError):  # scripted and internal operators have no Python handle
        return None


def schema_of(operator: Any) -> Any:
    """The schema of an operator object. Expiry: a public attribute."""
    return operator._schema


def name_of(operator: Any) -> str:
    """`aten::add.Tensor` of an operator object, as `find_operator` takes it. Expiry: a public attribute."""
    overload = operator._schema.overload_name
    return str(operator._schema.name) + (f".{overload}" if overload else "")


def full_name(namespace: str, operator: Any) -> str | None:
    """`own::f.overload` of what `torch.library.Library.impl` takes for an operator; None: it takes no such thing."""
    if isinstance(operator, torch._ops.OpOverload):
        return name_of(operator)
    if not isinstance(operator, str):
        return None
    return operator if "::" in operator else f"{namespace}::{operator}"


def below_autograd() -> bool:
    """Whether autograd has had its turn with the operator that runs: what is called now is not recorded.

    Expiry: a public reading of the dispatcher's state.
    """
    return bool(torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.AutogradCPU))


def is_key(name: str) -> bool:
    """Whether this torch has a dispatch key of that name. Expiry: as above."""
    try:
        torch._C._dispatch_has_kernel_for_dispatch_key("aten::empty.memory_format", name)
    except RuntimeError:
        return False
    return True


# How `torch.library.Library` takes back what it registered. Expiry: a public way.
LIBRARY_END = "_destroy"

# The type of `torch.ops.aten`: an operator that is looked up for the first time passes its `__getattr__`.
# Expiry: a public notice of libraries that register operators.
OpNamespace = torch._ops._OpNamespace


def out_form(name: str) -> str | None:
    """The overload with out= of a functional or in-place operator: the same arguments, and results to write to.

    Expiry: public access to operator schemas.
    """
    space, _, rest = name.partition("::")
    base = rest.partition(".")[0]
    schemas = torch._C._jit_get_schemas_for_operator(f"{space}::{base}")
    own = torch._C._jit_get_schemas_for_operator(f"{space}::{base.removesuffix('_')}")
    operator = find_operator(name)
    if operator is None:
        return None
    wanted = [argument.name for argument in operator._schema.arguments]
    for schema in (*schemas, *own):
        plain = [argument.name for argument in schema.arguments if not argument.is_out]
        if plain == wanted and len(plain) < len(schema.arguments):
            return f"{schema.name}.{schema.overload_name}"
    return None


# For tensor classes whose results are plain tensors. Expiry: a public name for it.
no_torch_function = torch._C._disabled_torch_function_impl


def tensor_without_memory(kind: type, like: torch.Tensor, device: Any) -> Any:
    """A tensor of the class `kind`, with size, dtype and layout of `like`, that says it is on `device`.

    The class answers for it in `__torch_dispatch__`. Expiry: a public constructor of such classes.
    """
    return torch.Tensor._make_wrapper_subclass(
        kind, like.size(), dtype=like.dtype, layout=like.layout, device=device, dispatch_layout=True
    )


def constructs_compressed(device_type: str) -> bool:
    """Whether torch itself constructs a CSR tensor on a device type: its list is in compiled code.

    Expiry: such tensors on every backend (MPS has none in torch 2.13).
    """
    index = torch.ops.aten.zeros.default([1], dtype=torch.int64, device=RealDevice(device_type))
    try:
        torch.ops.aten._sparse_compressed_tensor_unsafe.default(
            index, index[:0], index[:0], [0, 0], dtype=torch.int64, layout=torch.sparse_csr, device=index.device
        )
    except NotImplementedError:
        return False
    return True


@contextlib.contextmanager
def _overriding(name: str, key: str) -> Iterator[None]:
    """Where a kernel stands already, torch warns once per process that it is overridden, which is meant here."""
    if not torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="(?s).*verriding a previously registered kernel", category=UserWarning
        )
        yield


class Registrations:
    """Kernels of ours in the dispatcher, taken back by `undo`.

    `torch.library.Library` is public, its end is not: `torch.library.impl` stays for the life of the process. Each
    library costs some memory for ever (torch keeps where it was opened): one a namespace, however many keys.
    Expiry: a public way to take a registration back.
    """

    def __init__(self) -> None:
        self._libraries: dict[str, torch.library.Library] = {}

    def add(self, name: str, key: str, kernel: Callable[..., Any], with_keyset: bool = False) -> None:
        """Register `kernel` for the operator `name` under a dispatch key."""
        space = name.partition("::")[0]
        if space not in self._libraries:
            self._libraries[space] = torch.library.Library(space, "IMPL")
        with _overriding(name, key):
            self._libraries[space].impl(name, kernel, key, with_keyset=with_keyset)

    def undo(self) -> None:
        """What was there before is there again."""
        while self._libraries:
            self._libraries.popitem()[1]._destroy()


def decomposition_of(name: str) -> Callable[..., Any]:
    """An operator from simpler ones, as torch's compiler takes it apart. Expiry: a public table of decompositions."""

    def decomposed(*args: Any) -> Any:
        from torch._decomp import decomposition_table  # slow to load, and few programs need it

        return decomposition_table[find_operator(name)](*args)

    return decomposed


def native_kernel(name: str, key: str) -> Any:
    """The kernel that stands under a key right now, to be called after it was replaced there.

    `torch.library.get_kernel` is public from torch 2.10; before, nothing can be guarded. Expiry: torch 2.9.
    """
    get = getattr(torch.library, "get_kernel", None)
    return None if get is None else get(name, key)


def cpu_copy_of_generator(generator: Any) -> Any:
    """A CPU generator that goes on where a device's generator is; drawing from it moves the device's generator on.

    Expiry: device generators that can hand out a seed on every backend.
    """
    drawn = torch.ops.aten.randint.low_generator(0, _SEEDS, [1], generator=generator, device=generator.device)
    return RealGenerator("cpu").manual_seed(int(drawn.item()))


def cpu_generator_after(device: Any) -> Any:
    """The same for the generator that a device uses where none is given."""
    return RealGenerator("cpu").manual_seed(int(torch.ops.aten.randint.low(0, _SEEDS, [1], device=device).item()))


_SEEDS = 2**31 - 1


@contextlib.contextmanager
def cpu_samples_by(generator: Any) -> Iterator[None]:
    """Inside, operators that take no generator sample on the CPU with the numbers of this one."""
    default = torch.default_generator
    before = default.get_state()
    default.set_state(generator.get_state())
    try:
        yield
    finally:
        default.set_state(before)


def draws_random_numbers(operator: Any) -> bool:
    """Whether an operator's result depends on a generator. Expiry: a public list of operators that do."""
    return torch.Tag.nondeterministic_seeded in operator.tags


def below_cpu_autocast() -> Any:
    """Inside, operators go past the CPU's autocast. Expiry: a public way on from within an autocast kernel."""
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU))


class Effects:
    """What an operator does to memory, read from its schema: makes new tensors, writes to arguments, or only views.

    Expiry: public access to operator schemas.
    """

    def __init__(self, op: Any) -> None:
        self._names = [each.name for each in op._schema.arguments]
        self._written = [
            (position, each.name)
            for position, each in enumerate(op._schema.arguments)
            if each.alias_info is not None and each.alias_info.is_write
        ]
        returned = [each.alias_info for each in op._schema.returns]
        self.writes = bool(self._written)
        self.is_view = bool(returned) and not self.writes and all(alias is not None for alias in returned)

    def written(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
        """The tensors among the arguments that the operator writes to."""
        for position, name in self._written:
            value = args[position] if position < len(args) else kwargs.get(name)
            yield from tensors_in(value)


@functools.cache
def effects_of(op: Any) -> Effects:
    """The effects of an operator."""
    return Effects(op)


def schemas_named(operator: str) -> list[Any]:
    """The schemas of all overloads of `aten::<operator>`; empty if there is none. Expiry: public operator schemas."""
    return list(torch._C._jit_get_schemas_for_operator(f"aten::{operator}"))
