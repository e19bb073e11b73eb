"""The rows: packages that compute by CUDA itself and have a stand-in, its modules, and the names in each.

A module that is not listed does not exist: importing it is an error that names it. Nothing is imported here. What the
names do is in the modules of this package; docs/packages.md is printed from these rows and those docstrings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Package:
    """A package, the version whose interface is offered, how it is computed, and what was left out.

    `modules`: for each of its modules the module of ours with the names, and these names.
    """

    name: str
    version: str
    how: str
    left_out: str
    modules: Mapping[str, tuple[str, tuple[str, ...]]]


_ATTENTION = (
    *("flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func"),
    *("flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache"),
)

ROWS = (
    Package(
        "flash_attn",
        "2.8.3",
        "torch's scaled_dot_product_attention, explicit math where that cannot say what was asked",
        "float8, the private functions that ring attention calls, whole models and their parallel layers",
        {
            "": ("flash_attn", _ATTENTION),
            "flash_attn_interface": ("flash_attn", _ATTENTION),
            "bert_padding": (
                "flash_attn_padding",
                (
                    *("index_first_axis", "index_first_axis_residual", "index_put_first_axis"),
                    *("pad_input", "unpad_input"),
                ),
            ),
            "layers.rotary": (
                "flash_attn_rotary",
                (
                    *("RotaryEmbedding", "apply_rotary_emb", "apply_rotary_emb_func", "apply_rotary_emb_kv_"),
                    *("apply_rotary_emb_qkv_", "apply_rotary_emb_torch"),
                ),
            ),
            "losses.cross_entropy": ("flash_attn_losses", ("CrossEntropyLoss",)),
            "modules.mha": ("flash_attn_modules", ("FlashCrossAttention", "FlashSelfAttention")),
            "ops.activations": ("flash_attn_norms", ("swiglu",)),
            "ops.fused_dense": ("flash_attn_norms", ("FusedDense",)),
            "ops.layer_norm": ("flash_attn_norms", ("DropoutAddLayerNorm", "dropout_add_layer_norm")),
            "ops.rms_norm": (
                "flash_attn_norms",
                ("DropoutAddRMSNorm", "RMSNorm", "dropout_add_rms_norm", "rms_norm"),
            ),
            "ops.triton.cross_entropy": ("flash_attn_losses", ("cross_entropy_loss",)),
            "ops.triton.layer_norm": ("flash_attn_norms", ("RMSNorm", "layer_norm_fn", "rms_norm_fn")),
        },
    ),
    Package(
        "flash_attn_interface",
        "3.0.0",
        "as flash_attn",
        "float8, chunks, absorbed values",
        {"": ("flash_attn_3", ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache"))},
    ),
)

PACKAGES: Mapping[str, Package] = {row.name: row for row in ROWS}


@dataclass(frozen=True)
class Module:
    """A module of such a package: where its names are, which, and whether it has modules below it."""

    package: Package
    home: str
    names: tuple[str, ...]
    is_package: bool


def _modules() -> dict[str, Module]:
    """Every module by its full name, those between the top and a listed one too."""
    found: dict[str, Module] = {}
    for row in ROWS:
        listed = {f"{row.name}.{below}".rstrip("."): of for below, of in row.modules.items()}
        names = {".".join(name.split(".")[:depth]) for name in listed for depth in range(1, name.count(".") + 2)}
        for name in names:
            home, offered = listed.get(name, ("", ()))
            found[name] = Module(row, home, offered, any(other.startswith(f"{name}.") for other in names))
    return found


MODULES: Mapping[str, Module] = _modules()
