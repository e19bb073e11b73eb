"""Which operators a target has and which it lacks, read from the dispatcher. Nothing is run or registered here.

A target has an operator if there is a kernel under its dispatch key, or a composite that torch applies to every
backend. Only registrations count: torch's fallback for a whole backend (MPS has one that only raises) fills every empty
slot, so by *computed* kernels nothing would be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from torchdevice._torch import dispatcher

# The tensor layouts for which a backend has dispatch keys. Each is the prefix of a key: MPS, SparseMPS, …
LAYOUTS = ("", "Sparse", "SparseCsr")
_COMPOSITES = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
# Dense operators that torch generates from their out= form: available if that form is.
_BY_OUT_FORM = "CompositeExplicitAutogradNonFunctional"

# torch registers these for the backend only to run them on the CPU (MPSFallback.mm), without a report. Such a kernel
# also prevents the decomposition of a composite, whose parts have gradients. We decompose and report them.
RECOMPOSED = {"mps": ("aten::linalg_svd", "aten::upsample_nearest3d.vec")}


# Composites whose code looks up a kernel by device type in a table that lacks the target.
_UNLISTED = {
    "mps": (
        *("aten::kaiser_window", "aten::kaiser_window.periodic", "aten::kaiser_window.beta"),
        *("aten::_nested_tensor_from_tensor_list", "aten::conj_physical_"),
    )
}


# Namespaces besides "aten" that no target needs: packed weights of CPU libraries, and collectives, which
# `distributed` handles.
_OF_THE_CPU = frozenset(
    {
        *("quantized", "_quantized", "quantization", "sparse", "prepacked"),
        *("mkl", "mkldnn", "mkldnn_prepacked", "onednn", "c10d", "_c10d_functional"),
    }
)


@dataclass(frozen=True)
class Gap:
    """An operator that the target lacks for one layout, and the dispatch key without a kernel."""

    name: str
    key: str


def gaps(
    device_type: str,
    refused: Collection[tuple[str, str]] = (),
    registered: Callable[[str], Iterable[str]] = dispatcher.kernels_under,
) -> Iterator[Gap]:
    """Operators for which the CPU has a kernel and the target has none.

    `refused` are pairs of (operator, layout) whose kernel only raises an error, as virtual devices register them.
    `registered` returns the operators under a key, if they come from another source than the dispatcher.
    """
    refusing = frozenset(refused)
    for layout, key in _keys_of(device_type):
        there = frozenset(registered(key))
        for name in sorted(dispatcher.kernels_under(f"{layout}CPU")):
            if not name.startswith("aten::"):
                continue
            if (name, layout) in refusing or not (name in there or _composed(name, there, not layout)):
                yield Gap(name, key)
    for name in _UNLISTED.get(device_type, ()):
        yield Gap(name, dispatcher.backend_key(device_type))


def _keys_of(device_type: str) -> Iterator[tuple[str, str]]:
    """Each layout with its dispatch key on a device type, if this torch has one."""
    for layout in LAYOUTS:
        key = f"{layout}{dispatcher.backend_key(device_type)}"
        if dispatcher.is_key(key):
            yield layout, key


def is_extension(namespace: str) -> bool:
    """Whether operators of this namespace belong to an extension or a program."""
    return namespace != "aten" and namespace not in _OF_THE_CPU


def extension_gaps(device_type: str) -> Iterator[Gap]:
    """The same for operators that are not torch's own. Virtual devices have no list of refused operators for these."""
    for layout, key in _keys_of(device_type):
        for name in sorted(dispatcher.kernels_under(f"{layout}CPU")):
            if is_extension(name.partition("::")[0]) and not dispatcher.runs_on(name, key):
                yield Gap(name, key)


def _composed(name: str, there: Collection[str], dense: bool) -> bool:
    if any(dispatcher.has_kernel(name, composite) for composite in _COMPOSITES):
        return True
    if not dense or not dispatcher.has_kernel(name, _BY_OUT_FORM):
        return False
    form = dispatcher.out_form(name)
    return form is None or form in there or any(dispatcher.has_kernel(form, composite) for composite in _COMPOSITES)
