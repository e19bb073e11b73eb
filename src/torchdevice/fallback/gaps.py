"""What a target has and what it lacks, read from the dispatcher; nothing is probed by trial and nothing is registered.

A kernel under the target's own key, or a composite that torch applies to every backend, means "has". torch's fallback
for a whole backend (MPS has one that only raises) fills every empty slot, so *computed* kernels would say that nothing
is missing: registrations are what counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from torchdevice._torch import dispatcher

# The layouts of tensors that a backend has keys for; each name completes a key: MPS, SparseMPS, …
LAYOUTS = ("", "Sparse", "SparseCsr")
_COMPOSITES = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
# Of a dense operator that is made from its form with out=: there if that form is.
_BY_OUT_FORM = "CompositeExplicitAutogradNonFunctional"

# torch registers these for the backend only to send them to the CPU (MPSFallback.mm). Nobody is told, and a kernel in
# that place keeps a composite from its parts, which have gradients: they are taken apart again, and reported.
RECOMPOSED = {"mps": ("aten::linalg_svd", "aten::upsample_nearest3d.vec")}


# Composites whose code asks for the device type, and knows no such target.
_UNLISTED = {
    "mps": (
        *("aten::kaiser_window", "aten::kaiser_window.periodic", "aten::kaiser_window.beta"),
        *("aten::_nested_tensor_from_tensor_list", "aten::conj_physical_"),
    )
}


# Not torch's "aten", and not for a target either: packed weights of the CPU's own libraries, and messages, which
# `distributed` carries.
_OF_THE_CPU = frozenset(
    {
        *("quantized", "_quantized", "quantization", "sparse", "prepacked"),
        *("mkl", "mkldnn", "mkldnn_prepacked", "onednn", "c10d", "_c10d_functional"),
    }
)


@dataclass(frozen=True)
class Gap:
    """An operator that the target lacks for one layout, and the dispatch key at which it is missed."""

    name: str
    key: str


def gaps(
    device_type: str,
    refused: Collection[tuple[str, str]] = (),
    registered: Callable[[str], Iterable[str]] = dispatcher.kernels_under,
) -> Iterator[Gap]:
    """What the CPU has a kernel for and the target has not.

    `refused` are pairs of (operator, layout) with a kernel that only refuses: a virtual device registers such ones.
    `registered` gives the operators under a key, where another source than the dispatcher knows them.
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
    """Each layout with its dispatch key on a device type, as far as this torch has one."""
    for layout in LAYOUTS:
        key = f"{layout}{dispatcher.backend_key(device_type)}"
        if dispatcher.is_key(key):
            yield layout, key


def is_extension(namespace: str) -> bool:
    """Whether operators of this namespace are an extension's, or a program's own."""
    return namespace != "aten" and namespace not in _OF_THE_CPU


def extension_gaps(device_type: str) -> Iterator[Gap]:
    """The same for operators that are not torch's own; a virtual device has no list of what it refuses of those."""
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
