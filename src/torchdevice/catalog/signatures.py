"""How a public object is called: its parameters, those that are devices, its summary, and the role that a device plays.

Signatures come from inspection for Python functions, from schemas for torch's C functions, and from the documentation
for bound C++ methods.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

from torchdevice._torch import dispatcher
from torchdevice.catalog.surface import CLASS, METHOD, PROPERTY, SETTING, Found

# Parameters that take a device, recognised by name. A device mesh is an object and a flag is not a device.
DEVICE_LIKE = re.compile(r"(.*_)?devices?(_ids?|_types?|_index|_idx)?|map_location")
NOT_A_REQUEST = frozenset({"device_mesh", "include_device"})

TAKES = "takes a device"
MAKES = "makes a tensor"
MOVES = "moves"
QUERY = "device query"
STREAM = "stream"
MEMORY = "memory"
NONE = "none"
# Words in names of the device namespaces, tried in this order.
_ROLES = (
    (STREAM, re.compile(r"stream|event|synchronize|graph|capture", re.I)),
    (MEMORY, re.compile(r"mem|cache|caching|alloc|pool|snapshot", re.I)),
    (
        QUERY,
        re.compile(
            r"device|accelerator|available|propert|capability|count|is_|arch|version|name|utiliz|temperature|power"
        ),
    ),
)
_DEVICE_SPACES = ("torch.cuda.", "torch.mps.", "torch.xpu.", "torch.cpu.", "torch.accelerator.")
_QUERIES = re.compile(
    r"torch\.(Tensor|UntypedStorage|TypedStorage)"
    r"\.(is_(cuda|mps|xpu|cpu|hpu|meta|shared|pinned)|device|get_device|type|storage_type)"
    r"|torch\.(get_device|typename|device\.(index|type))|torch\.backends\.(cuda|mps|cudnn|xpu)\.is_\w+"
    r"|torch\.distributed\.is_\w+_available|torch\.nn\.utils\.rnn\.PackedSequence\.is_\w+"
)


@dataclass(frozen=True)
class Parameter:
    """One parameter: its properties, and whether it is required."""

    name: str
    annotation: str
    required: bool
    keyword_only: bool = False
    positional_only: bool = False


def schemas_of(name: str) -> list[Any]:
    """The schemas of the aten operator behind a public name (`torch.linalg.norm` → `linalg_norm`), if there is one."""
    return dispatcher.schemas_named(operator_name(name)) if name.startswith("torch.") else []


def operator_name(name: str) -> str:
    """The aten name that a public name would have."""
    for prefix in ("torch.Tensor.", "torch.nn.functional.", "torch."):
        if name.startswith(prefix):
            rest = name.removeprefix(prefix)
            return rest.replace(".", "_")
    return ""


def variants(found: Found) -> list[list[Parameter]]:
    """The signatures without `self`; empty if unknown."""
    value = _function_of(found)
    signature = _signature(value)
    if signature is not None:
        parameters = [
            Parameter(
                each.name,
                "" if each.annotation is inspect.Parameter.empty else str(each.annotation),
                each.default is inspect.Parameter.empty,
                each.kind is each.KEYWORD_ONLY,
                each.kind is each.POSITIONAL_ONLY,
            )
            for each in signature.parameters.values()
            if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        ]
        bound = found.kind == METHOD and not isinstance(found.value, (staticmethod, classmethod))
        return [parameters[1:] if bound and parameters else parameters]
    from_schemas = [
        [
            Parameter(each.name, str(each.type), not each.has_default_value(), each.kwarg_only)
            for each in schema.arguments[1 if found.kind == METHOD else 0 :]
            if not each.is_out
        ]
        for schema in schemas_of(found.name)
    ]
    return from_schemas or _documented(found)


def _function_of(found: Found) -> Any:
    value = found.value
    return value.__func__ if isinstance(value, (staticmethod,)) else value


def _signature(value: Any) -> inspect.Signature | None:
    try:
        if isinstance(value, classmethod):
            bound = inspect.signature(value.__func__)
            return bound.replace(parameters=list(bound.parameters.values())[1:])
        return inspect.signature(value) if callable(value) else None
    except (TypeError, ValueError):  # C functions have none
        return None


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # the address of a default value, which differs between processes
_PYBIND = re.compile(r"^(?:\d+\. )?\w+\((?P<inside>.*)\) -> ", re.M)


def _documented(found: Found) -> list[list[Parameter]]:
    """The documentation of bound C++ functions contains `name(self: X, arg0: int = 3) -> Y`."""
    owner = getattr(found.value, "__init__", None) if found.kind == CLASS else found.value
    found_variants = []
    for match in _PYBIND.finditer(getattr(owner, "__doc__", None) or ""):
        parts = [part for part in re.split(r",\s*(?![^\[(]*[\])])", match["inside"]) if part and part != "*"]
        parameters = []
        for part in parts:
            declared, equals, _ = part.partition("=")
            name, _, annotation = declared.partition(":")
            if re.fullmatch(r"\w+", name.strip()) and name.strip() != "self":
                parameters.append(Parameter(name.strip(), annotation.strip(), not equals))
        found_variants.append(parameters)
    return found_variants


def signature_text(found: Found) -> str:
    """The signature as Python text, the same in every process; empty if unknown."""
    return _ADDRESS.sub("", _signature_text(found))


def _signature_text(found: Found) -> str:
    if found.kind in (PROPERTY, SETTING):
        return ""
    signature = _signature(_function_of(found))
    if signature is not None:
        return str(signature)
    schemas = schemas_of(found.name)
    if schemas:
        return str(schemas[0]).partition("::")[2]
    documented = _PYBIND.search(getattr(found.value, "__doc__", None) or "")
    return f"({documented['inside']})" if documented else ""


def summary(found: Found) -> str:
    """The first sentence of its documentation that is not a signature."""
    text = inspect.getdoc(found.value) if not isinstance(found.value, str) else ""
    for block in (text or "").split("\n\n"):
        line = " ".join(block.split())
        if line and not re.match(r"^(\d+\. )?[\w.]+\(.*\)( ->.*)?$|^\.\. |^:", line) and "(self: " not in line:
            line = re.sub(r":\w+:`~?([^`]*)`", r"\1", line).replace("``", "`")
            return line.partition(". ")[0].rstrip(".")[:140]
    return ""


def device_parameters(found: Found) -> tuple[str, ...]:
    """The parameters that take a device."""
    names = [each.name for parameters in variants(found) for each in parameters]
    return tuple(dict.fromkeys(n for n in names if DEVICE_LIKE.fullmatch(n) and n not in NOT_A_REQUEST))


def role(found: Found, devices: tuple[str, ...], makes: bool, moves: bool) -> str:
    """The role that a device plays. `makes` and `moves` come from the rows of the translation."""
    if moves:
        return MOVES
    if makes:
        return MAKES
    if _QUERIES.fullmatch(found.name):
        return QUERY
    if found.name.startswith(_DEVICE_SPACES) or re.match(r"torch\.(Stream|Event)\b", found.name):
        last = found.name.removeprefix("torch.").partition(".")[2] or found.name
        for known, pattern in _ROLES:
            if pattern.search(last):
                return known
    return TAKES if devices else NONE
