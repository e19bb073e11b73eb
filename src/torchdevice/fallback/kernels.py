"""Registers kernels in the dispatcher for operators that a target lacks, and removes them again.

`gaps` finds what is missing, and `route` selects the executor. Operators that the target has are not changed, with one
exception: guards. A guarded operator has a native kernel that refuses some dtypes or sizes. The native kernel runs
first. The guard is C++ if the library is built, and calls Python only if the kernel refuses. A guard in Python takes a
few microseconds per call, so the rows of `GUARDED_IN_CPP` have none without the library. `fallback.guard("aten::…")`
adds a row. Operators that are not torch's own (extensions, `torch.library`) can be registered at any time. Our kernel
for each is removed when a kernel for the target is registered later.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from torchdevice._torch import dispatcher
from torchdevice._torch.core import RealTensor, torch_release
from torchdevice._torch.dispatcher import LIBRARY_END
from torchdevice.answers import products
from torchdevice.fallback import cpu, sparse
from torchdevice.fallback.gaps import RECOMPOSED, Gap, extension_gaps, gaps, is_extension
from torchdevice.fallback.native import NativeGuards, NativeKernels
from torchdevice.fallback.plan import Plan, read_plan
from torchdevice.fallback.route import Router
from torchdevice.fallback.sparse import CompressedTensor
from torchdevice.ledger import renew_after_fork
from torchdevice.translate.engine import Applied, Replacement, apply, dress
from torchdevice.translate.translator import translator

# From torch/testing/_internal/common_mps.py (dtypes), and from the checks in the sources of the MPS kernels
# (tests/mac_reports/kernel_checks.json).
GUARDED: dict[str, tuple[str, ...]] = {
    "mps": (
        *("_convolution", "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "adaptive_max_pool1d"),
        *("adaptive_max_pool2d", "adaptive_max_pool2d_backward", "avg_pool2d", "avg_pool3d", "bincount", "huber_loss"),
        *("max_pool1d", "max_pool2d_with_indices_backward", "max_unpool2d", "max_unpool3d", "median"),
        *("median.dim_values", "nanmedian", "nanmedian.dim_values", "nll_loss", "softplus", "stft", "stft.center"),
        *("glu", "mish", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
        *("addr", "bernoulli_.Tensor", "cholesky_inverse", "_cholesky_solve_helper", "grid_sampler_3d"),
        *("linalg_inv_ex", "linalg_lu_factor_ex", "linalg_qr", "_linalg_solve_ex", "linalg_solve_triangular"),
        *("lstm.input", "triangular_solve"),
        # torch computes these in float64, whatever they are given
        *("float_power.Tensor_Tensor", "float_power.Tensor_Scalar", "float_power.Scalar"),
    )
}
# Models call these in every step with supported dtypes: a guard in Python would slow them.
GUARDED_IN_CPP: dict[str, tuple[str, ...]] = {"mps": ("gather", "linear", "mse_loss", "repeat")}
# These refuse some dtypes too. The CPU refuses the same ones, so a guard would not help.
EXEMPT = frozenset({"batch_norm", "max_pool2d", "max_pool3d", "native_batch_norm", "relu", "relu_", "silu"})

# Sizes for which a kernel returns wrong values without an error: it is not called. By target and operator, with
# the torch version that fixes it. https://github.com/pytorch/pytorch/issues/190064
_SILENT = {("mps", "adaptive_max_pool2d"): (2, 14), ("mps", "adaptive_max_pool2d_backward"): (2, 14)}
_UNEVEN = "the kernel of this torch version is wrong for sizes that do not divide evenly"

# Messages by which a target refuses a call, as opposed to errors of the caller. The first group depends on dtypes only.
_DTYPE_REFUSALS = re.compile(
    r"is not currently implemented for the \w+ device|^Could not run 'aten::"
    r"|not implemented for '\w+'|doesn't support float64|to the MPS backend but it does not have support for that dtype"
    r"|is only supported on MPS for float types|[Nn]ot supported for (integer|integral|bool|complex|float16|bfloat16)"
    r"|MPS device does not support \w+ for non-float|MPS (currently |only )?supports float|Only float is supported"
    r"|_mps(: only defined for| only supports) floating"
    r"|[Uu]nsupported (data ?type|dtype).* MPS|MPS(: | does not |.*doesn't )support\w* .*(dtype|type)"
)
_SIZE_REFUSALS = re.compile(
    r"Adaptive pool MPS: ((in|out)put sizes must be divisible|Input height and width must both)"
    r"|not (yet |currently )?(supported|implemented) (on|in|with) MPS|Unsupported \w+ interpolation"
    r"|^probability and self tensor should be of the same shape"
    r"|MPS: .*(not supported|unsupported)|not supported (on|at) the MPS device"
)
# Only the messages of these are compared. MemoryError, OutOfMemoryError, ValueError and IndexError are never refusals.
_TYPES = (NotImplementedError, RuntimeError, TypeError)


def refusal_of(error: Exception) -> str | None:
    """`"dtype"`, `"size"`, or None if the error is the operator's own and is raised to the caller."""
    if type(error) not in _TYPES:
        return None
    text = str(error)
    if _DTYPE_REFUSALS.search(text):
        return "dtype"
    return "size" if _SIZE_REFUSALS.search(text) else None


def silently_wrong(target: str, name: str) -> Callable[[tuple[Any, ...]], bool] | None:
    """A predicate: whether the target's kernel in this torch returns wrong values for arguments. None: never."""
    right_from = _SILENT.get((target, name))
    return _pools_unevenly if right_from is not None and torch_release() < right_from else None


def _pools_unevenly(args: tuple[Any, ...]) -> bool:
    """For arguments (input, output size) or (gradient, input, indices)."""
    first, second = args[0], args[1]
    inner, outer = (second.shape, first.shape) if isinstance(second, RealTensor) else (first.shape, second)
    pairs = zip(tuple(inner)[-2:], tuple(outer)[-2:], strict=False)
    return any(a > 0 and b > 0 and max(a, b) % min(a, b) for a, b in pairs)


def guarded_rows(target: str, in_cpp: bool) -> list[str]:
    """The operators of a target that have a guard. `in_cpp`: whether guards can be C++."""
    return [f"aten::{row}" for row in (*GUARDED.get(target, ()), *(GUARDED_IN_CPP.get(target, ()) if in_cpp else ()))]


def make_guard(
    native: Any,
    elsewhere: Callable[[str, tuple[Any, ...], dict[str, Any]], Any],
    wrong: Callable[[tuple[Any, ...]], bool] | None = None,
    refused_in_cpp: Callable[[], Exception | None] = lambda: None,
) -> Callable[..., Any]:
    """A kernel that calls `native` first and remembers what it refused, by dtypes or by dtypes and sizes.

    `refused_in_cpp`: the refusal of a guard in C++ that has just called `native` with these arguments.
    """
    by_dtype: dict[tuple[Any, ...], str] = {}
    by_size: dict[tuple[Any, ...], str] = {}
    lock = threading.Lock()
    call = native.call_boxed

    def guard(keys: Any, *args: Any, **kwargs: Any) -> Any:
        refusal = refused_in_cpp()
        if wrong is not None and wrong(args):
            return elsewhere(_UNEVEN, args, kwargs)
        if by_dtype or by_size:
            known = by_dtype.get(_dtypes(args)) or by_size.get(_sizes(args))
            if known is not None:
                return elsewhere(known, args, kwargs)
        if refusal is None:
            try:
                return call(keys, *args, **kwargs)
            except _TYPES as error:
                if refusal_of(error) is None:
                    raise
                refusal = error
        kind, reason = refusal_of(refusal), str(refusal).splitlines()[0].split(". ")[0]
        with lock:
            if kind == "dtype":
                by_dtype[_dtypes(args)] = reason
            else:
                by_size[_sizes(args)] = reason
        return elsewhere(reason, args, kwargs)

    return guard


def _dtypes(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        value.dtype if isinstance(value, RealTensor) else value
        for value in args
        if isinstance(value, (RealTensor, torch.dtype))
    )


def _sizes(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Everything that a size check can depend on, as a hashable key: lists become tuples."""
    return tuple((value.dtype, tuple(value.shape)) if isinstance(value, RealTensor) else str(value) for value in args)


Kernel = Callable[..., Any]


class Coverage:
    """The kernels that are registered for a target at present."""

    def __init__(self) -> None:
        self.router: Router | None = None
        self.covered: dict[Gap, Plan] = {}
        self.guarded: set[str] = set()
        self.wanted_guards: set[str] = set()  # the user's own
        self._avoids_wrong_values = True
        self._registrations = dispatcher.Registrations()
        self.native = NativeKernels()
        self.guards = NativeGuards(refusal_of)
        self.extensions = Extensions()

    def apply(
        self, router: Router, refused: Collection[tuple[str, str]] = (), avoids_wrong_values: bool = True
    ) -> None:
        """Register a kernel for every gap of the router's target."""
        self._avoids_wrong_values = avoids_wrong_values
        compresses = sparse.made_for(router.target)
        add, self.router = self._registrations.add, router
        reason = f"{router.target} has no kernel for it"
        for gap in gaps(router.target, refused):
            plan = read_plan(gap.name)
            if plan is not None:
                add(gap.name, gap.key, _kernel(plan, router, reason))
                self.covered[gap] = plan
        self.native.apply(router, [(gap, plan, reason) for gap, plan in self.covered.items()])
        covered = {gap.name for gap in self.covered if gap.key == router.key}
        if guarded_rows(router.target, in_cpp=True) or self.wanted_guards:
            rows = guarded_rows(router.target, in_cpp=self.guards.begin())
            for name in sorted({*rows, *self.wanted_guards} - covered):
                self.guard(name)
        self._recompose(RECOMPOSED.get(router.target, ()), dispatcher.backend_key(router.target))
        products.register(self._registrations, dispatcher.backend_key(router.target))
        if not compresses:
            self._compress(router)
        self.extensions.apply(router)

    def guard(self, name: str) -> None:
        """Run the native kernel of this operator first, and fall back if it refuses. A second call does nothing."""
        if self.router is None or name in self.guarded:
            return
        plan = read_plan(name)
        if plan is None:
            return
        backend = dispatcher.backend_key(self.router.target)
        composite = dispatcher.has_kernel(name, "CompositeImplicitAutograd")
        # A composite also has a kernel at the autograd key. There the copies are recorded, so it has gradients.
        keys = (backend, f"Autograd{backend}") if composite else (backend,)
        wrong = silently_wrong(self.router.target, name.removeprefix("aten::")) if self._avoids_wrong_values else None
        # All are read first: a kernel under the backend's key removes the composite from the autograd key.
        natives = [(key, dispatcher.native_kernel(name, key)) for key in keys]
        for key, native in natives:
            if native is not None and wrong is None:
                self.guards.keep(name, key)
        for key, native in natives:
            if native is not None:
                elsewhere = partial(self.router.run, replace(plan, recorded=key != backend))
                kernel = make_guard(native, elsewhere, wrong, self.guards.take_refusal)
                self._registrations.add(name, key, kernel, with_keyset=True)
                self.guarded.add(name)
                if wrong is None:
                    self.guards.add(name, key)

    def _recompose(self, names: Collection[str], backend: str) -> None:
        for key in (backend, f"Autograd{backend}") if names else ():
            for name in names:
                operator = dispatcher.find_operator(name)
                if operator is not None:
                    self._registrations.add(name, key, operator.decompose)

    def _compress(self, router: Router) -> None:
        """Support compressed sparse tensors if torch has none for the target: constructors, conversion, copies."""
        add, backend = self._registrations.add, dispatcher.backend_key(router.target)
        plans = [plan for plan in map(read_plan, sparse.constructors()) if plan is not None]
        for key in (backend, f"SparseCsr{backend}", f"Autograd{backend}"):
            for plan in plans:
                # The autograd key has the constructors that torch decomposes there; the others have gradients.
                taken_apart = dispatcher.has_kernel(plan.name, "CompositeImplicitAutograd")
                if taken_apart or not key.startswith("Autograd"):
                    add(plan.name, key, _kernel(plan, router, sparse.REASON))
        add("aten::_to_copy", f"SparseCsr{backend}", sparse.copy_to_target)
        convert = read_plan("aten::_to_sparse")
        assert convert is not None  # every torch with compressed layouts has it
        for key in (backend, f"Sparse{backend}"):
            native = dispatcher.native_kernel(convert.name, key)
            if native is not None:
                kernel = sparse.compressing(native, _kernel(convert, router, sparse.REASON))
                add(convert.name, key, kernel, with_keyset=True)
        CompressedTensor.elsewhere = staticmethod(router.run)

    def undo(self) -> None:
        """Remove every kernel."""
        if self.router is not None:
            target = self.router.target
            CompressedTensor.elsewhere = staticmethod(
                lambda plan, reason, args, kwargs: cpu.run(plan, args, kwargs, target)[0]
            )
        self.extensions.undo()
        self.native.undo()
        self.guards.undo()
        self._registrations.undo()
        self.covered.clear()
        self.guarded.clear()
        self.router = None


def _kernel(plan: Plan, router: Router, reason: str) -> Kernel:
    run = router.run

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return run(plan, reason, args, kwargs)

    return kernel


class Extensions:
    """The kernels that are registered for operators of extensions, and the hook for new operators."""

    def __init__(self) -> None:
        self._router: Router | None = None
        self._watch: Applied | None = None
        self._lock = threading.Lock()
        renew_after_fork(self, "_lock")
        self._at_work = threading.local()  # our own look-ups and registrations must not trigger the hook
        self.covered: dict[Gap, dispatcher.Registrations] = {}

    def apply(self, router: Router) -> None:
        """Cover the operators that exist, and new ones as they are registered."""
        self._router = router
        self.cover()
        library, namespace = torch.library.Library, dispatcher.OpNamespace
        self._watch = apply(
            [
                Replacement("torch.library.Library.impl", library, "impl", self._watched_impl(library.impl)),
                Replacement(
                    "torch.library.Library", library, LIBRARY_END, self._watched_end(getattr(library, LIBRARY_END))
                ),
                Replacement("torch.ops", namespace, "__getattr__", self._watched_lookup(namespace.__getattr__)),
            ]
        )

    def undo(self) -> None:
        """Remove every kernel and the hook."""
        if self._watch is not None:
            self._watch.undo()
            self._watch = None
        with self._working():
            self._router = None
            while self.covered:
                self.covered.popitem()[1].undo()

    def cover(self) -> None:
        """Register a kernel for every gap that has none."""
        with self._working():
            if self._router is None:
                return
            for gap in list(extension_gaps(self._router.target)):
                plan = read_plan(gap.name)
                if plan is not None:
                    registration = dispatcher.Registrations()
                    registration.add(gap.name, gap.key, _kernel_of_extension(plan, self._router))
                    self.covered[gap] = registration

    def _withdraw(self, name: str) -> None:
        with self._working():
            for gap in [gap for gap in self.covered if gap.name == name]:
                self.covered.pop(gap).undo()

    @contextmanager
    def _working(self) -> Iterator[None]:
        with self._lock:
            self._at_work.now = True
            try:
                yield
            finally:
                self._at_work.now = False

    def _is_ours(self, namespace: str) -> bool:
        return getattr(self._at_work, "now", False) or not is_extension(namespace)

    def _watched_impl(self, original: Kernel) -> Kernel:
        def impl(library: Any, op_name: Any, *args: Any, **options: Any) -> Any:
            name = dispatcher.full_name(library.ns, op_name)
            if name is None or self._is_ours(library.ns):
                return original(library, op_name, *args, **options)
            # Any registration may change the gaps: another schema, a kernel for the target or for all devices.
            self._withdraw(name)
            try:
                return original(library, op_name, *args, **options)
            finally:
                self.cover()

        return dress(impl, original, "torch.library.Library.impl")

    def _watched_end(self, original: Kernel) -> Kernel:
        def end(library: Any) -> Any:
            result = original(library)
            if not self._is_ours(library.ns):
                self.cover()  # its kernel for the target was removed
            return result

        return dress(end, original, "torch.library.Library")

    def _watched_lookup(self, original: Kernel) -> Kernel:
        def __getattr__(namespace: Any, op_name: str) -> Any:  # noqa: N807
            found = original(namespace, op_name)  # torch caches the result, so this runs once per operator
            if not self._is_ours(namespace.name):
                self.cover()
            return found

        return dress(__getattr__, original, "torch.ops")


def _kernel_of_extension(plan: Plan, router: Router) -> Kernel:
    reason = f"{router.target} has no kernel for it"
    recorded = replace(plan, recorded=True)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        # A Python operator without a registered backward gets its gradient from the operators that it calls.
        looked_at = torch.is_grad_enabled() and not dispatcher.below_autograd()
        with translator.suspended():  # a Python kernel for the CPU: the tensors that it creates must be on the CPU
            return router.run(recorded if looked_at else plan, reason, args, kwargs)

    return kernel
