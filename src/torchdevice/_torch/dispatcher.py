"""Private names of torch for operators: schemas, the dispatcher's table, and kernels that can be removed.

"Expiry" says what would make an entry unnecessary. Other private names are in `core`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
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

    Expiry: public access to the dispatcher's table.
    """
    try:
        return list(torch._C._dispatch_get_registrations_for_dispatch_key(key))
    except RuntimeError:  # this torch does not have the key, so there are no registrations
        return []


def has_kernel(operator: str, key: str) -> bool:
    """Whether an operator has a kernel registered under exactly this key. Expiry: as above."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, key))


def runs_on(operator: str, key: str) -> bool:
    """Whether an operator has a kernel for a backend: a separate one or a composite. Expiry: as above."""
    return any(has_kernel(operator, each) for each in (key, *COMPOSITES))


def operator_names() -> list[str]:
    """Every operator of the dispatcher, with namespace and overload. Expiry: as above."""
    return list(torch._C._dispatch_get_all_op_names())


def find_operator(name: str) -> Any:
    """The operator `aten::add.Tensor` as a callable object with a schema; None if it has no Python handle.

    Expiry: a public lookup of operators by name.
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
    """The name of an operator object, such as `aten::add.Tensor`, for `find_operator`. Expiry: a public attribute."""
    overload = operator._schema.overload_name
    return str(operator._schema.name) + (f".{overload}" if overload else "")


def full_name(namespace: str, operator: Any) -> str | None:
    """The full name `own::f.overload` of an operator in `torch.library.Library.impl`; None for an invalid argument."""
    if isinstance(operator, torch._ops.OpOverload):
        return name_of(operator)
    if not isinstance(operator, str):
        return None
    return operator if "::" in operator else f"{namespace}::{operator}"


def below_autograd() -> bool:
    """Whether the current operator runs below autograd, so that calls are not recorded.

    Expiry: public access to the dispatcher's state.
    """
    return bool(torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.AutogradCPU))


def is_key(name: str) -> bool:
    """Whether this torch has a dispatch key of that name. Expiry: as above."""
    try:
        torch._C._dispatch_has_kernel_for_dispatch_key("aten::empty.memory_format", name)
    except RuntimeError:
        return False
    return True


# The method with which `torch.library.Library` removes its registrations. Expiry: a public method.
LIBRARY_END = "_destroy"

# The type of `torch.ops.aten`. The first lookup of an operator calls its `__getattr__`.
# Expiry: a public notification of libraries that register operators.
OpNamespace = torch._ops._OpNamespace


def out_form(name: str) -> str | None:
    """The overload with `out=` of a functional or in-place operator: the same arguments, plus output tensors.

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


# The `__torch_function__` of tensor classes whose results are plain tensors. Expiry: a public name for it.
no_torch_function = torch._C._disabled_torch_function_impl


def tensor_without_memory(kind: type, like: torch.Tensor, device: Any) -> Any:
    """A tensor of the class `kind` with the size, dtype and layout of `like` that reports `device` as its device.

    The class implements its operators in `__torch_dispatch__`. Expiry: a public constructor of such classes.
    """
    return torch.Tensor._make_wrapper_subclass(
        kind, like.size(), dtype=like.dtype, layout=like.layout, device=device, dispatch_layout=True
    )


def constructs_compressed(device_type: str) -> bool:
    """Whether torch can construct a CSR tensor on a device type. Its list of types is in compiled code.

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
    """Silences torch's warning that a kernel is overridden, which is intended here. torch warns once per process."""
    if not torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="(?s).*verriding a previously registered kernel", category=UserWarning
        )
        yield


# torch 2.9 refuses by default to override a kernel that a program has registered in Python.
_OVERRIDES = (
    {"allow_override": True} if "allow_override" in inspect.signature(torch.library.Library.impl).parameters else {}
)


class Registrations:
    """Our kernels in the dispatcher. `undo` removes them.

    `torch.library.Library` is public, but removing its registrations is not: those of `torch.library.impl` last until
    the process ends. Each library takes memory that is never freed, because torch records where it was created. So
    there is one library per namespace, for all keys. Expiry: a public way to remove a registration.
    """

    def __init__(self) -> None:
        self._libraries: dict[str, torch.library.Library] = {}

    def add(self, name: str, key: str, kernel: Callable[..., Any], with_keyset: bool = False) -> None:
        """Register `kernel` for the operator `name` under a dispatch key."""
        space = name.partition("::")[0]
        if space not in self._libraries:
            self._libraries[space] = torch.library.Library(space, "IMPL")
        with _overriding(name, key):
            self._libraries[space].impl(name, kernel, key, with_keyset=with_keyset, **_OVERRIDES)

    def undo(self) -> None:
        """Remove our kernels. The previous ones are active again."""
        while self._libraries:
            self._libraries.popitem()[1]._destroy()


def decomposition_of(name: str) -> Callable[..., Any]:
    """An operator composed of simpler ones, as in torch's compiler. Expiry: a public table of decompositions."""

    def decomposed(*args: Any) -> Any:
        from torch._decomp import decomposition_table  # slow to import, and few programs need it

        return decomposition_table[find_operator(name)](*args)

    return decomposed


def native_kernel(name: str, key: str) -> Any:
    """The kernel that is currently registered under a key, so that a replacement can call it.

    `torch.library.get_kernel` is public since torch 2.10. Before, guards are not possible. Expiry: torch 2.9.
    """
    get = getattr(torch.library, "get_kernel", None)
    return None if get is None else get(name, key)


def cpu_copy_of_generator(generator: Any) -> Any:
    """A CPU generator that is seeded from a device's generator. This advances the device's generator.

    Expiry: device generators that can supply a seed on every backend.
    """
    drawn = torch.ops.aten.randint.low_generator(0, _SEEDS, [1], generator=generator, device=generator.device)
    return RealGenerator("cpu").manual_seed(int(drawn.item()))


def cpu_generator_after(device: Any) -> Any:
    """The same for the default generator of a device."""
    return RealGenerator("cpu").manual_seed(int(torch.ops.aten.randint.low(0, _SEEDS, [1], device=device).item()))


_SEEDS = 2**31 - 1


@contextlib.contextmanager
def cpu_samples_by(generator: Any) -> Iterator[None]:
    """In this context, operators without a generator argument sample on the CPU from this generator."""
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
    """A context in which operators skip the CPU's autocast. Expiry: a public way to redispatch from its kernels."""
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU))


@contextlib.contextmanager
def below_autograd_and_autocast() -> Iterator[None]:
    """In this context, operators run as a dispatch mode runs them, except that no mode receives them.

    They are not recorded for a backward pass, do not count writes to tensors, and ignore autocast.
    Expiry: a public way to call the kernels of a backend.
    """
    with torch._C._AutoDispatchBelowADInplaceOrView(), torch._C._DisableAutocast():
        yield


def handles_operators(kind: type) -> bool:
    """Whether a tensor class implements operators by others, on the tensors that it holds. Expiry: a public test."""
    return getattr(kind, "__torch_dispatch__", None) not in (None, torch._C._disabled_torch_dispatch_impl)


def works_in(result: Any) -> list[Any]:
    """The handles in an operator's result on work that other threads do: `wait()` ends when it is done.

    Expiry: a public class of the handles that operators return.
    """
    values = result if isinstance(result, (list, tuple)) else [result]
    return [each for each in values if isinstance(each, torch.ScriptObject) and each._has_method("wait")]


def is_written(schema: Any, argument: Any) -> bool:
    """Whether an operator writes to an argument: `is_written` in schemas.h, which has what schemas leave out.

    Expiry: public access to schemas that declare every write.
    """
    if argument.alias_info is not None:
        return bool(argument.alias_info.is_write)
    updates = not {"momentum", "exponential_average_factor"}.isdisjoint(each.name for each in schema.arguments)
    return updates and argument.name in ("running_mean", "running_var")


class Effects:
    """The effect of an operator on memory, read from its schema: new tensors, writes to arguments, or only views.

    Collectives write to their arguments, as the end of their names says, and do not declare it.
    Expiry: public access to operator schemas, and schemas that declare every write.
    """

    def __init__(self, op: Any) -> None:
        arguments = op._schema.arguments
        written = {each.name for each in arguments if is_written(op._schema, each)}
        in_place = str(op._schema.name).endswith("_") and not written
        self._written = [
            (position, each.name) for position, each in enumerate(arguments) if in_place or each.name in written
        ]
        returned = [each.alias_info for each in op._schema.returns]
        self.is_view = bool(returned) and not self._written and all(alias is not None for alias in returned)
        # `t_`, `resize_`, `set_` … write no values: they give a tensor another shape or storage.
        self.only_reshapes = torch.Tag.inplace_view in op.tags
        # The memory is not initialized, or C++ code has written to it since, as `at::tensor` does.
        self.only_allocates = str(op._schema.name).partition("::")[2].removeprefix("new_").startswith("empty")

    def written(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
        """The tensors among the arguments that the operator may write to."""
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
