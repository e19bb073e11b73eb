"""The rows: which names of torch are patched, with which adapter, and under which condition.

Factories and moving methods are found by searching torch. The rows in `WRITTEN` list names with other signatures. A
replacement is built on first use, once per process. `engine` applies it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

import torch

from torchdevice._torch import compilers, core
from torchdevice._torch.builds import NATIVE
from torchdevice.policy.hosts import is_accelerator
from torchdevice.translate import adapters, classes, dtypes, loading, moves, saving, scripting, subclasses
from torchdevice.translate.engine import Replacement, dress
from torchdevice.translate.translator import Translator
from torchdevice.twins import Twins

Adapter = Callable[..., Any]

ALWAYS = "always"
FILLING = "filling"  # only if "none given" and "cpu" are redirected to an accelerator
NARROWING = "narrowing"  # only if the target (mps) lacks float64
LEAVING = "leaving"  # only if "none given" and "cpu" are not redirected
ALONE = "alone"  # only if there is no accelerator

ITSELF = "itself"  # torch's compiler traces the replacement, which then calls the original


@dataclass(frozen=True)
class Point:
    """A name in torch and its replacement.

    - `path`: the public name.
    - `adapter`, `options`: make the replacement.
    - `when`: the condition, one of the constants above.
    - `traced`: the kind of function that torch's compiler traces instead, a method of `twins.Twins`; or ITSELF. None: a
      method of tensors stays in the graph by its name. Other replacements are treated like the original if that is a
      node of graphs, and break the graph otherwise.
    - `within`: a package whose modules have imported the name.
    """

    path: str
    adapter: Adapter
    options: dict[str, Any] = field(default_factory=dict)
    when: str = ALWAYS
    traced: str | None = None
    within: str = ""

    @functools.cached_property
    def twin(self) -> str | None:
        """The kind of twin."""
        owner, _, name = self.path.rpartition(".")
        return self.traced or ("method" if owner == TENSOR and not name.startswith("__") else None)


@dataclass(frozen=True)
class Skip:
    """A row that does not apply to this torch: its `path`, and the `reason`."""

    path: str
    reason: str


PACKED = "torch.nn.utils.rnn.PackedSequence"
MODULE = "torch.nn.Module"
TENSOR = "torch.Tensor"
TYPED_STORAGE = "torch.storage.TypedStorage"
MOVERS = (TENSOR, MODULE, PACKED, core.STORAGE_BASE, TYPED_STORAGE, core.FUNCTIONAL_TENSOR)

WRITTEN = (
    Point("torch.device", classes.device_class),
    Point("torch.overrides.TorchFunctionMode.__init_subclass__", subclasses.class_of_modes),
    Point("torch.Generator", classes.generator_class),
    Point("torch.Stream", classes.stream_class),
    Point("torch.Event", classes.stream_class),
    Point("torch.load", loading.load),
    Point("torch.save", saving.save, when=FILLING),
    Point("torch.package.PackageExporter.save_pickle", saving.save, when=FILLING),
    Point("torch.serialization.location_tag", saving.location_tag, when=FILLING, within="torch.package"),
    Point("torch.package.PackageImporter.load_pickle", loading.packaged_load),
    Point(core.UNPACKAGE_SCRIPT, loading.packaged_script),
    Point("torch.set_default_device", adapters.set_default, traced="first"),
    Point("torch.get_default_device", adapters.get_default, when=FILLING),
    Point("torch.get_device_module", adapters.device_module, traced="module"),
    Point("torch.random.fork_rng", adapters.fork_rng),
    Point("torch.from_numpy", adapters.result_follows, when=FILLING),
    Point("torch.frombuffer", adapters.result_follows, when=FILLING),
    Point("torch.quasirandom.SobolEngine.draw", adapters.result_follows, when=FILLING),
    Point("torch.quasirandom.SobolEngine.draw_base2", adapters.result_follows, when=FILLING),
    Point("torch.utils.data.default_collate", loading.batch_follows, when=FILLING),
    Point("torch.utils.data.default_convert", loading.batch_follows, when=FILLING),
    Point("torch.amp.autocast_mode.autocast.__init__", adapters.autocast_init),
    Point("torch.amp.autocast_mode.autocast.__enter__", adapters.autocast_enter),
    Point("torch.amp.autocast_mode.autocast.__exit__", adapters.autocast_exit),
    Point(compilers.ANY_AUTOCAST, adapters.any_autocast, traced="state"),
    Point(core.CAPTURABLE, adapters.types_with_target, traced="state", within="torch.optim"),
    Point(core.FOREACH_SUPPORT, adapters.supported_on_target, traced="state", within="torch.nn.utils"),
    Point(core.ATTENTION_KERNELS, adapters.attention_kernels),
    Point("torch.export.load", loading.exported_load),
    Point("torch.amp.autocast_mode.custom_fwd", adapters.parameter, {"name": "device_type", "as_type": True}),
    Point("torch.amp.autocast_mode.custom_bwd", adapters.parameter, {"name": "device_type", "as_type": True}),
    Point("torch.amp.grad_scaler.GradScaler.__init__", adapters.parameter, {"name": "device", "as_type": True}),
    Point("torch.library.custom_op", adapters.kernel_types),
    Point("torch.nested.as_nested_tensor", adapters.parameter, {"name": "device"}),
    Point("torch.Tensor.__new__", classes.default_type_constructor),
    Point("torch.Tensor.type", classes.tensor_type),
    Point("torch.set_default_tensor_type", classes.default_tensor_type),
    Point("torch.Tensor.double", dtypes.cast, when=NARROWING),
    Point("torch.Tensor.cdouble", dtypes.cast, when=NARROWING),
    Point("torch.Tensor.softmax", dtypes.with_dtype, when=NARROWING),
    Point("torch.Tensor.log_softmax", dtypes.with_dtype, when=NARROWING),
    Point("torch.softmax", dtypes.with_dtype, when=NARROWING),
    Point("torch.log_softmax", dtypes.with_dtype, when=NARROWING),
    Point("torch.Tensor.copy_", dtypes.waiting_copy, when=NARROWING),
    Point("torch.Tensor.float_power_", dtypes.power_in_place, when=NARROWING),
    Point("torch.special.softmax", dtypes.with_dtype, when=NARROWING),
    Point("torch.special.log_softmax", dtypes.with_dtype, when=NARROWING),
    Point(core.REBUILD_TENSOR, dtypes.rebuilt, when=NARROWING),
    Point(core.REBUILD_OF_BYTES, dtypes.rebuilt_of_bytes, when=NARROWING),
    Point(core.ALLOWED_BY_NAME, dtypes.allowed_by_name, when=NARROWING),
    Point("torch.Tensor.pin_memory", adapters.pin_memory),
    Point("torch.Tensor.is_pinned", adapters.is_pinned),
    Point("torch.Tensor.record_stream", adapters.record_stream),
    Point("torch.Tensor.get_device", adapters.get_device),
    Point("torch.get_device", adapters.get_device),
    Point("torch.Tensor.numpy", adapters.numpy_from_anywhere, {"to": "torch.Tensor.to"}, FILLING),
    Point("torch.Tensor.random_", adapters.convert_generator, when=FILLING),
    Point("torch.multinomial", adapters.sample_on_generator, when=FILLING),
    Point("torch.Tensor.new_tensor", adapters.tensor_like),
    Point("torch.Tensor.new", adapters.tensor_like),
    Point("torch.nn.Module.to_empty", adapters.parameter, {"name": "device"}),
    Point("torch.storage.UntypedStorage.__new__", adapters.tensor_like, when=LEAVING),
    Point("torch.storage.UntypedStorage.__new__", adapters.fresh_tensor, when=FILLING),
    Point("torch.storage.TypedStorage.__new__", adapters.tensor_like),
    Point("torch.storage.TypedStorage.__init__", adapters.tensor_like),
    Point(f"{core.STORAGE_BASE}.pin_memory", adapters.pin_memory),
    Point("torch.storage.UntypedStorage.share_memory_", adapters.share_memory, when=FILLING),
    Point("torch.nn.utils.rnn.pack_padded_sequence", adapters.cpu_argument, {"name": "lengths"}, FILLING),
    Point("torch.tensor_split", adapters.cpu_argument, {"name": "indices_or_sections"}, FILLING),
    Point("torch.Tensor.tensor_split", adapters.cpu_argument, {"name": "indices_or_sections"}, FILLING),
    Point("torch.random.get_rng_state", adapters.get_rng_state, when=FILLING),
    Point("torch.random.set_rng_state", adapters.set_rng_state, when=FILLING),
    Point("torch.Generator.set_state", adapters.cpu_argument, {"name": "new_state"}, FILLING),
    Point("torch.Generator.__setstate__", adapters.cpu_argument, {"name": "state"}, FILLING),
    Point(f"{core.DATALOADER_ITERATOR}.__init__", loading.iterator_init),
    Point(f"{core.DATALOADER_ITERATOR}.__next__", loading.iterator_next),
)

# Modules that hold the same objects under another public name. They get the same replacements.
_ALIAS_MODULES = (
    "torch",
    "torch.serialization",
    "torch.random",
    "torch.amp",
    "torch.jit",
    "torch.fft",
    "torch.nn.utils.rnn",
    "torch.utils.data.dataset",  # binds randperm early in some versions
)
_FACTORY_MODULES = ("torch", "torch.fft", "torch.nested")


def all_points() -> Iterator[Point]:
    """Every row for the installed torch. Names that were found by searching come first."""
    factories = list(_factories())
    yield from factories
    yield from _movers()
    yield from _accelerator_functions()
    fresh = frozenset(point.path.rpartition(".")[2] for point in factories if point.traced == "fresh")
    yield Point("torch.jit.script", scripting.script, {"fresh": fresh})
    yield Point("torch.jit.load", scripting.load, {"fresh": fresh})
    for path in classes.legacy_paths():
        in_cuda = path.count(".") > 1
        yield Point(path, classes.legacy_class, when=ALWAYS if in_cuda else FILLING)
    yield from WRITTEN


def _factories() -> Iterator[Point]:
    schemas = core.device_schemas()
    constructors = core.default_device_functions()
    for module_name in _FACTORY_MODULES:
        module = sys.modules[module_name]
        for name, value in vars(module).items():
            if name.startswith("_") or isinstance(value, type) or not callable(value):
                continue
            overloads = schemas.get(getattr(value, "__name__", name), schemas.get(name, []))
            if value in constructors or (overloads and not hasattr(value, "__code__")):
                yield _factory(f"{module_name}.{name}", overloads)
    for name in schemas:
        if name.startswith("new_"):
            yield Point(f"torch.Tensor.{name}", adapters.tensor_like)


def _factory(path: str, overloads: list[Any]) -> Point:
    with_device = [schema for schema in overloads if any(a.name == "device" for a in schema.arguments)]
    takes_tensor = [any("Tensor" in str(a.type) for a in s.arguments if a.name != "out") for s in with_device]
    if path.endswith("_like"):
        return Point(path, adapters.tensor_like, {"function": True}, traced="like")
    # Some overload takes tensors instead of a device (`normal`), all overloads do (`sparse_*`), or there is no schema
    # (`asarray`). Then a tensor among the arguments determines the device of the result.
    from_tensors = any("Tensor" in str(a.type) for s in overloads if s not in with_device for a in s.arguments[:1])
    if from_tensors or all(takes_tensor) or path in ("torch.tensor", "torch.as_tensor"):
        return Point(path, adapters.fresh_tensor, {"like_tensors": True}, traced="unless_tensors")
    return Point(path, adapters.fresh_tensor, traced=None if path == compilers.NUMBER_TO_TENSOR else "fresh")


def _movers() -> Iterator[Point]:
    accelerators = [kind for kind in core.device_types() if is_accelerator(kind)]
    for owner in MOVERS:
        # torch.Tensor inherits its methods from C. In other classes, an inherited method is patched in its own class.
        methods = dir(torch.Tensor) if owner == TENSOR else vars(_resolve(owner))
        to = f"{owner}.to"
        traced = None if owner == TENSOR else ITSELF
        if "to" in methods:
            yield Point(to, moves.convert_to, when=LEAVING, traced=traced)
            yield Point(to, moves.convert_to, {"fills": True}, FILLING, traced)
        if "cpu" in methods:
            yield Point(f"{owner}.cpu", moves.move_to_cpu, {"to": to}, FILLING, traced)
        if owner == TENSOR:
            yield Point(f"{owner}.cpu", moves.stay_on_cpu, when=ALONE)
        for kind in accelerators:
            if kind in methods:
                yield Point(f"{owner}.{kind}", moves.move_to_accelerator, {"to": to, "kind": kind}, traced=traced)


def _accelerator_functions() -> Iterator[Point]:
    """`torch.accelerator.synchronize("cuda")`: a type that the host lacks means the host's accelerator."""
    for name in torch.accelerator.__all__:
        value = getattr(torch.accelerator, name)
        if not isinstance(value, type):
            for parameter in inspect.signature(value).parameters:
                if parameter in ("device", "device_index"):
                    yield Point(f"torch.accelerator.{name}", adapters.parameter, {"name": parameter})


class Replacements:
    """The replacements of this process, built once from the originals and reused by every activation."""

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        self._built: list[tuple[Point, Any, list[Replacement]]] | None = None
        self.skips: list[Skip] = []

    def select(self, filling: bool, narrowing: bool = False, alone: bool = False) -> list[Replacement]:
        """The replacements to apply.

        - `filling`: "none given" and "cpu" are redirected to an accelerator.
        - `narrowing`: the target lacks float64.
        - `alone`: there is only the CPU.
        """
        conditions = {ALWAYS: True, FILLING: filling, LEAVING: not filling, NARROWING: narrowing, ALONE: alone}
        return [
            replacement
            for point, original, replacements in self._build()
            if conditions[point.when]
            for replacement in self._around_others(point, original, replacements)
        ]

    def _around_others(self, point: Point, original: Any, ours: list[Replacement]) -> list[Replacement]:
        """Wraps a function of a module that other code has replaced since, in the same way as torch's own.

        An object that is not a function (a mock) is not wrapped, because it must receive the arguments of user code.
        """
        owner, name = ours[0].owner, ours[0].name
        found = getattr(owner, name, original) if isinstance(owner, ModuleType) else original
        if found is original or found is ours[0].value:
            return ours
        return self._replace(point, found) if hasattr(found, "__name__") else []

    def wrapped_builtins(self) -> Iterator[tuple[Any, Any]]:
        """Pairs of (replacement, original) for torch.jit."""
        for _, original, replacements in self._build():
            yield replacements[0].value, original

    def traced_twins(self) -> Iterator[tuple[Any, Any, Any]]:
        """Triples of (replacement, original, twin) for torch's compiler."""
        for point, original, replacements in self._build():
            if point.twin not in (None, ITSELF):
                yield replacements[0].value, original, self._twin(point, original, replacements[0].value)

    def traced(self) -> Iterator[Any]:
        """The replacements that torch's compiler traces."""
        return (replacements[0].value for point, _, replacements in self._build() if point.traced == ITSELF)

    def _twin(self, point: Point, original: Any, wrapper: Any) -> Any:
        def device(asked: Any) -> Any:
            return self._translator.translate_traced(asked, point.path)

        def dtype(where: Any, wide: torch.dtype) -> torch.dtype:
            return dtypes.traced_dtype(where, wide, point.path, self._translator)

        return getattr(Twins(compilers.without_cache(original), wrapper, device, dtype), point.twin or "")()

    def kept_in_graphs(self) -> Iterator[tuple[Any, Any]]:
        """Pairs of (replacement, original) that torch's compiler treats alike."""
        for point, original, replacements in self._build():
            if point.twin is None and isinstance(replacements[0].value, FunctionType):
                yield replacements[0].value, original

    def _build(self) -> list[tuple[Point, Any, list[Replacement]]]:
        if self._built is None:
            # All originals are looked up before the first replacement is built: some adapters need another original.
            found = [(point, self._find(point)) for point in all_points()]
            self._built = [
                (point, original, self._replace(point, original)) for point, original in found if original is not None
            ]
        return self._built

    def _find(self, point: Point) -> Any:
        try:
            return _resolve(point.path)
        except AttributeError:
            self.skips.append(Skip(point.path, f"torch {torch.__version__} has no such name"))
            return None

    def _replace(self, point: Point, original: Any) -> list[Replacement]:
        options = dict(point.options)
        if "to" in options:
            options["to"] = _resolve(options["to"])
        owner, name = _owner(point.path)
        # `__new__` has no tensor to dispatch on. `to` and `cpu` dispatch in their own adapters, which is faster.
        if owner is torch.Tensor and name != "__new__" and point.adapter not in (moves.convert_to, moves.stay_on_cpu):
            inner = dress(subclasses.as_torch_sees_it(original, name), original, f"torch.Tensor.{name}")
            value = dress(point.adapter(inner, point.path, self._translator, **options), original, point.path)
        else:
            value = point.adapter(original, point.path, self._translator, **options)
        if name == "__new__":
            value = staticmethod(value)
        places = [Replacement(point.path, owner, name, value)]
        # Not in torch._C: torch compares the types of objects with the classes there.
        places += [
            Replacement(f"{alias}.{name}", sys.modules[alias], name, value)
            for alias in dict.fromkeys((*_aliases(point.within), getattr(original, "__module__", None) or "torch"))
            if sys.modules[alias] not in (owner, NATIVE) and getattr(sys.modules[alias], name, None) is original
        ]
        return places


def _aliases(package: str) -> list[str]:
    inside = [name for name in sys.modules if name.startswith(f"{package}.")] if package else []
    return [*_ALIAS_MODULES, *inside]


def _owner(path: str) -> tuple[Any, str]:
    holder, _, name = path.rpartition(".")
    return core.assignable(_resolve(holder)), name


def _resolve(path: str) -> Any:
    """The object at a dotted path: the longest importable prefix, then attributes."""
    module, _, rest = path.partition(".")
    found: Any = importlib.import_module(module)
    for name in rest.split(".") if rest else ():
        # A function may hide a module of the same name, as `torch.nn.parallel.data_parallel` does.
        holder = found if hasattr(found, name) else sys.modules.get(module, found)
        module = f"{module}.{name}"
        found = sys.modules[module] if not hasattr(holder, name) and module in sys.modules else getattr(holder, name)
    return found


resolve_path = _resolve
