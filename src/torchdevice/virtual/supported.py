"""What the real backends support in the installed torch, read from torch at run time. Holds no device state.

There are two sources. `native_functions.yaml` (inside the wheel, in torchgen) lists the kernels that a backend
registers. `torch/testing/_internal/common_mps.py` lists the dtypes that the MPS kernels refuse. Both are parsed as
text, because importing torch's testing package takes seconds and imports NumPy.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

# Registered for MPS by C++ code outside native_functions.yaml (torch's MPSFallback.mm); they run on the CPU there too.
# For `linalg_svd` the inner kernel is listed, so that gradients work. This also allows svdvals, which calls it.
MPS_EXTRA = frozenset(
    {"embedding_renorm_", "_linalg_svd", "_linalg_svd.U", "im2col", "col2im"}
    | {"_slow_conv2d_forward", "_slow_conv2d_forward.output"}
)
# Composites of torch whose C++ code depends on the device type. On every virtual device each is one kernel of ours.
# Keyed by functionality. (`convolution` is not listed: TorchScript's tracer records `_convolution`, which it calls.)
WHOLE = {
    "": ("_convolution", "convolution_backward", "convolution_overrideable", "convolution_backward_overrideable"),
    "Quantized": ("copy_",),
}


# The same, except on MPS: the real backend has no such code and raises an error.
WHOLE_BUT_ON_MPS = ("kaiser_window", "kaiser_window.periodic", "kaiser_window.beta", "conj_physical_")


# If CUDA computes, our kernels of recurrent layers and of attention call these. A Mac has other kernels for them.
REACHED_ON_CUDA = ("_cudnn_rnn", "_cudnn_init_dropout_state", "_scaled_dot_product_")


class Operator(NamedTuple):
    """The fields that we need of one entry of native_functions.yaml."""

    dispatch: frozenset[str]
    delegate: str
    device_check: bool


def whole(functionality: str, key: str, real: bool) -> tuple[str, ...]:
    """Composites that are a single kernel of ours on a virtual device."""
    everywhere = WHOLE.get(functionality, ())
    return everywhere if functionality or (real and key == "MPS") else (*everywhere, *WHOLE_BUT_ON_MPS)


def _torch_file(package: str, *parts: str) -> Path | None:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]).joinpath(*parts)
    return path if path.exists() else None


@cache
def operators() -> dict[str, Operator]:
    """Every operator of native_functions.yaml: name with overload → its entry."""
    path = _torch_file("torchgen", "packaged", "ATen", "native", "native_functions.yaml")
    if path is None:
        return {}
    found: dict[str, Operator] = {}
    # Each "- func:" starts an entry. A YAML parser would be a dependency and takes ten times as long.
    for entry in path.read_text().split("\n- func: ")[1:]:
        name = entry[: entry.index("(")]
        keys: set[str] = set()
        if dispatch := re.search(r"^  dispatch:\n((?:    .*\n?)+)", entry, re.M):
            for line in dispatch[1].splitlines():
                left, colon, _ = line.partition(":")
                if colon and not left.strip().startswith("#"):
                    keys.update(key.strip() for key in left.split(","))
        if re.search(r"^  ufunc_inner_loop:", entry, re.M):  # torch generates these two kernels from the loop
            keys.update(("CPU", "CUDA"))
        delegate = re.search(r"^  structured_delegate: ([\w.]+)", entry, re.M)
        checked = not re.search(r"^  device_check: NoCheck", entry, re.M)
        found[name] = Operator(frozenset(keys), delegate[1] if delegate else "", checked)
    return found


@cache
def listed(key: str) -> frozenset[str]:
    """Operators (without `aten::`) that the real backend registers a kernel for under this dispatch key."""
    table = operators()
    names = {
        name for name, op in table.items() if key in op.dispatch or (op.delegate and key in table[op.delegate].dispatch)
    }
    return frozenset(names | (MPS_EXTRA if key == "MPS" else frozenset()))


def decomposes(name: str) -> bool:
    """Whether torch has a composite for it, which backends without their own kernel use."""
    op = operators().get(name)
    return op is not None and any(key.startswith("Composite") for key in op.dispatch)


def delegates_to(name: str, kernels: frozenset[str]) -> bool:
    op = operators().get(name)
    return op is not None and op.delegate in kernels


def lacks_kernel(name: str, kernels: frozenset[str], ours: Collection[str]) -> bool:
    """Whether a backend with these kernels has none for the operator. `ours`: see `whole`."""
    return name not in ours and name not in kernels and not delegates_to(name, kernels)


def needs_device_check(name: str) -> bool:
    """Whether 0-dim CPU tensors are refused too. Operators that torch does not list accept them."""
    op = operators().get(name)
    return op.device_check if op else False


# ------------------------------------------------------------------------------------ dtypes that real kernels refuse
# OpInfo names public functions. The kernels of these functions have other names.
_KERNEL_OF = {
    "nn.functional.conv1d": ("_convolution",),
    "nn.functional.conv2d": ("_convolution",),
    "nn.functional.conv3d": ("_convolution",),
    "nn.functional.conv_transpose1d": ("_convolution",),
    "nn.functional.conv_transpose2d": ("_convolution",),
    "nn.functional.conv_transpose3d": ("_convolution",),
    "nn.functional.avg_pool1d": ("avg_pool2d",),
    "nn.functional.linear": ("linear",),
}


@cache
def mps_lists() -> dict[str, dict[str, tuple[str, ...] | None]]:
    """The dictionaries of common_mps.py: list name → OpInfo name → dtypes (None: all of them)."""
    path = _torch_file("torch", "testing", "_internal", "common_mps.py")
    if path is None:
        return {}
    lists: dict[str, dict[str, tuple[str, ...] | None]] = {}
    for node in ast.walk(ast.parse(path.read_text())):
        value = getattr(node, "value", None)
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not (isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(target, ast.Name)):
            continue
        if isinstance(value, ast.Dict):
            lists[target.id] = _read_dict(value)
        elif isinstance(value, ast.Set):
            names = [e.value for e in value.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
            lists[target.id] = dict.fromkeys(names)
    return lists


def _read_dict(node: ast.Dict) -> dict[str, tuple[str, ...] | None]:
    entries: dict[str, tuple[str, ...] | None] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            dtypes = [e.attr for e in value.elts if isinstance(e, ast.Attribute)] if isinstance(value, ast.List) else []
            entries[key.value] = tuple(dtypes) if isinstance(value, ast.List) else None
    return entries


class Refusal(NamedTuple):
    """Dtypes that the real kernel of an operator refuses, and its name in the message of CUDA."""

    dtypes: frozenset[str] = frozenset()
    kernel: str = ""


_INTEGERS = frozenset({"uint8", "int8", "int16", "int32", "int64"})
_HALVES = frozenset({"float16", "bfloat16"})
_INT64, _UINT8 = frozenset({"int64"}), frozenset({"uint8"})
# What the kernels of the CPU take. tests/virtual/test_dtypes.py compares it with torch's own database of operators.
_REFUSED_BY_CUDA = {
    "addmm mm": Refusal(_INTEGERS, "addmm_cuda"),
    "addmv mv": Refusal(_INTEGERS, "addmv_impl_cuda"),
    "addbmm baddbmm bmm _trilinear": Refusal(_INTEGERS, "baddbmm_cuda"),
    "dot": Refusal(_INTEGERS, "dot"),
    "vdot": Refusal(_INTEGERS, "vdot"),
    "_convolution": Refusal(_INT64, "slow_conv2d_cuda"),
    "max_pool2d_with_indices": Refusal(_INTEGERS, "max_pool2d_with_indices_out_cuda_frame"),
    "max_pool3d_with_indices": Refusal(_INTEGERS, "max_pool3d_with_indices_out_frame"),
    "avg_pool2d": Refusal(_INT64, "avg_pool2d_out_cuda_frame"),
    "avg_pool3d": Refusal(_INT64, "avg_pool3d_out_cuda"),
    "native_dropout_backward": Refusal(_INTEGERS | {"bool"}, "masked_scale"),
    "upsample_bilinear2d": Refusal(_UINT8, "upsample_bilinear2d_out_frame"),
    "upsample_bicubic2d": Refusal(_UINT8, "upsample_bicubic2d_out_frame"),
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa": Refusal(_UINT8, "upsample_gen2d_out_frame"),
    "angle": Refusal(_HALVES, "angle_cuda"),
    "histc": Refusal(_HALVES, "histc"),
    "igamma": Refusal(_HALVES, "igamma_cuda"),
    "igammac": Refusal(_HALVES, "igammac_cuda"),
}


# The same, for versions of torch before the given one. Only 2.9.1 was compared with its database.
_REFUSED_BEFORE = {(2, 10): {"logaddexp": Refusal(frozenset({"complex64", "complex128"}), "logaddexp_cuda")}}


@cache
def _refused_by_cuda() -> dict[str, Refusal]:
    from torchdevice._torch.core import torch_release  # the command line reads this module without torch

    tables = [_REFUSED_BY_CUDA, *(older for version, older in _REFUSED_BEFORE.items() if torch_release() < version)]
    return {name: refusal for table in tables for names, refusal in table.items() for name in names.split()}


def refusal_of(name: str, key: str, real: bool) -> Refusal:
    """The dtypes that an operator refuses, by name without `aten::`. A virtual `cuda` refuses without `real` too."""
    if key == "CUDA":
        return _refused_by_cuda().get(name.partition(".")[0].removesuffix("_"), Refusal())
    return Refusal(denied_dtypes().get(name, frozenset())) if real and key == "MPS" else Refusal()


@cache
def denied_dtypes() -> dict[str, frozenset[str]]:
    """Operator (without `aten::`) → names of the dtypes that the kernel of MPS refuses."""
    denied: dict[str, frozenset[str]] = {}
    lists = mps_lists().get("UNIMPLEMENTED_XFAILLIST", {})
    for opinfo, dtypes in lists.items():
        # None means not implemented at all; native_functions.yaml is more exact about that. float32 means that only
        # single samples fail (a norm that needs an SVD): no operator lacks float32 altogether.
        if not dtypes or "float32" in dtypes:
            continue
        for kernel in kernels_of(opinfo):
            # Several functions may share a kernel. It lacks only the dtypes that all of them lack. For example,
            # transposed convolutions lack half precision, and other convolutions have it.
            shared = [other for other, kernels in _KERNEL_OF.items() if kernel in kernels and opinfo in _KERNEL_OF]
            refused = frozenset(dtypes).intersection(*(lists.get(other) or () for other in shared))
            denied[kernel] = denied.get(kernel, frozenset()) | refused
    return denied


_AVERAGE_POOL = "nn.functional.adaptive_avg_pool2d"


@cache
def even_sizes_only(key: str) -> frozenset[str]:
    """Operators with a kernel that are listed as not implemented: pooling to sizes that do not divide the input's."""
    if key != "MPS" or mps_lists().get("UNIMPLEMENTED_XFAILLIST", {}).get(_AVERAGE_POOL, ()) is not None:
        return frozenset()
    name = _AVERAGE_POOL.rpartition(".")[2]
    return frozenset(each for each in listed(key) if each.removeprefix("_").startswith(name))


@cache
def kernels_of(opinfo: str) -> tuple[str, ...]:
    """The operators that an OpInfo name tests: the MPS kernels named after it, else the composite of that name."""
    if opinfo in _KERNEL_OF:
        return _KERNEL_OF[opinfo]
    base = opinfo.removeprefix("nn.functional.").replace(".", "_")
    wanted = {base, f"_{base}", f"{base}_"}
    found = tuple(name for name in sorted(listed("MPS")) if name.partition(".")[0] in wanted)
    return found or tuple(name for name in operators() if name.partition(".")[0] == base)
