"""The rows: CUDA-only packages with a stand-in, their modules, and the names in each module.

A module that is not listed does not exist, and its import raises an error with its name. This module imports nothing.
The modules of this package implement the names. docs/packages.md is generated from these rows and those docstrings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Names(NamedTuple):
    """Names of a module, and the module of this package that implements them."""

    home: str
    names: tuple[str, ...]


def _names(home: str, text: str) -> Names:
    return Names(home, tuple(text.split()))


@dataclass(frozen=True)
class Package:
    """A package: the version of its interface, the implementation, the unsupported parts, and its modules."""

    name: str
    version: str
    how: str
    left_out: str
    modules: Mapping[str, tuple[Names, ...]]


_FLASH_ATTENTION = _names(
    "flash_attn",
    "flash_attn_func flash_attn_kvpacked_func flash_attn_qkvpacked_func flash_attn_varlen_func "
    "flash_attn_varlen_kvpacked_func flash_attn_varlen_qkvpacked_func flash_attn_with_kvcache",
)
_XFORMERS_ATTENTION = _names(
    "xformers",
    "AttentionOpBase MemoryEfficientAttentionCkOp MemoryEfficientAttentionCutlassOp "
    "MemoryEfficientAttentionFlashAttentionOp MemoryEfficientAttentionOp memory_efficient_attention "
    "memory_efficient_attention_forward memory_efficient_attention_forward_requires_grad",
)
_XFORMERS_MASKS = _names(
    "xformers_masks",
    "AttentionBias BlockDiagonalCausalFromBottomRightMask BlockDiagonalCausalLocalAttentionFromBottomRightMask "
    "BlockDiagonalCausalLocalAttentionMask BlockDiagonalCausalMask BlockDiagonalCausalWithOffsetPaddedKeysMask "
    "BlockDiagonalMask BlockDiagonalPaddedKeysMask LocalAttentionFromBottomRightMask "
    "LowerTriangularFromBottomRightLocalAttentionMask LowerTriangularFromBottomRightMask LowerTriangularMask "
    "LowerTriangularMaskWithTensorBias",
)
_TRITON_LANGUAGE = _names(
    "triton_language",
    "PropagateNan abs advance arange argmax argmin associative_scan assume atomic_add atomic_and atomic_cas atomic_max "
    "atomic_min atomic_or atomic_xchg atomic_xor bfloat16 block_type broadcast broadcast_to cast cat cdiv ceil clamp "
    "const constexpr core cos cumprod cumsum debug_barrier device_assert device_print div_rn dot dot_scaled dtype erf "
    "exp exp2 expand_dims fdiv flip float16 float32 float64 float8e4b15 float8e4b8 float8e4nv float8e5 float8e5b16 "
    "floor fma full gather histogram inline_asm_elementwise int1 int16 int32 int64 int8 interleave join load log log2 "
    "make_block_ptr make_tensor_descriptor max max_constancy max_contiguous maximum min minimum multiple_of "
    "num_programs permute philox pi32_t pointer_type program_id rand rand4x randint randint4x randn randn4x range "
    "ravel reduce reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn static_assert static_print static_range "
    "store sum swizzle2d tensor tensor_descriptor topk trans tuple uint16 uint32 uint64 uint8 umulhi view void where "
    "xor_sum zeros zeros_like",
)
_TRITON_MATH = _names(
    "triton_language",
    "abs acos asin atan atan2 ceil cos cosh div_rn erf erfc exp exp10 exp2 expm1 fast_dividef fast_expf fast_logf "
    "fast_powf fast_tanhf fdiv float_as_int floor fma fmod int_as_float isinf isnan llrint log log10 log1p log2 "
    "nearbyint popc pow rint round rsqrt rsqrt_rn sin sinh sqrt sqrt_rn tan tanh trunc umulhi",
)
_APEX_NORMS = _names("apex", "FusedLayerNorm FusedRMSNorm MixedFusedLayerNorm MixedFusedRMSNorm")

ROWS = (
    Package(
        "flash_attn",
        "2.8.3",
        "torch's scaled_dot_product_attention, or explicit math for options that it does not support",
        "float8, the private functions that ring attention calls, whole models and their parallel layers",
        {
            "": (_FLASH_ATTENTION,),
            "flash_attention": (_names("flash_attn_1", "FlashAttention FlashMHA"),),
            "flash_attn_interface": (
                _FLASH_ATTENTION,
                _names(
                    "flash_attn_1",
                    "flash_attn_unpadded_func flash_attn_unpadded_kvpacked_func flash_attn_unpadded_qkvpacked_func",
                ),
            ),
            "bert_padding": (
                _names(
                    "flash_attn_padding",
                    "index_first_axis index_first_axis_residual index_put_first_axis pad_input rearrange unpad_input "
                    "unpad_input_for_concatenated_sequences",
                ),
            ),
            "layers.rotary": (
                _names(
                    "flash_attn_rotary",
                    "RotaryEmbedding apply_rotary_emb apply_rotary_emb_func apply_rotary_emb_kv_ "
                    "apply_rotary_emb_qkv_ apply_rotary_emb_torch",
                ),
            ),
            "losses.cross_entropy": (_names("flash_attn_losses", "CrossEntropyLoss"),),
            "modules.mha": (
                _names("flash_attn_modules", "FlashCrossAttention FlashSelfAttention MHA get_alibi_slopes"),
            ),
            "modules.mlp": (_names("flash_attn_mlp", "FusedMLP GatedMlp Mlp"),),
            "ops.activations": (_names("flash_attn_norms", "swiglu"),),
            "ops.fused_dense": (_names("flash_attn_mlp", "FusedDense FusedMLP fused_dense_func fused_mlp_func"),),
            "ops.layer_norm": (_names("flash_attn_norms", "DropoutAddLayerNorm dropout_add_layer_norm layer_norm"),),
            "ops.rms_norm": (_names("flash_attn_norms", "DropoutAddRMSNorm RMSNorm dropout_add_rms_norm rms_norm"),),
            "ops.triton.cross_entropy": (_names("flash_attn_losses", "cross_entropy_loss"),),
            "ops.triton.layer_norm": (_names("flash_attn_norms", "RMSNorm layer_norm_fn rms_norm_fn"),),
            "ops.triton.rotary": (_names("flash_attn_rotary", "apply_rotary"),),
        },
    ),
    Package(
        "flash_attn_interface",
        "3.0.0",
        "the functions of the stand-in for flash_attn",
        "float8, chunks, absorbed values",
        {"": (_names("flash_attn_3", "flash_attn_func flash_attn_varlen_func flash_attn_with_kvcache"),)},
    ),
    Package(
        "xformers",
        "0.0.33",
        "torch's scaled_dot_product_attention, with one call per packed sequence",
        "paged caches, sparse attention, xformers.components",
        {
            "ops": (
                _XFORMERS_ATTENTION,
                _XFORMERS_MASKS,
                _names("xformers", "RMSNorm SwiGLU index_select_cat rms_norm scaled_index_add swiglu unbind"),
            ),
            "ops.fmha": (_XFORMERS_ATTENTION, _XFORMERS_MASKS),
            "ops.fmha.attn_bias": (_XFORMERS_MASKS,),
            "ops.swiglu_op": (_names("xformers", "SwiGLU swiglu"),),
        },
    ),
    Package(
        "apex",
        "0.1",
        "torch.nn, torch.optim, torch.nn.parallel and torch.autocast",
        "apex.contrib, apex.transformer, FP16_Optimizer (amp replaced it), multi-tensor functions, FusedNovoGrad",
        {
            "amp": (
                _names(
                    "apex_amp",
                    "float_function half_function initialize load_state_dict master_params promote_function "
                    "scale_loss state_dict",
                ),
            ),
            "fp16_utils": (
                _names(
                    "apex_half",
                    "BN_convert_float master_params_to_model_params model_grads_to_master_grads network_to_half "
                    "prep_param_lists tofp16",
                ),
            ),
            "multi_tensor_apply": (_names("apex_half", "MultiTensorApply multi_tensor_applier"),),
            "normalization": (_APEX_NORMS,),
            "normalization.fused_layer_norm": (
                _APEX_NORMS,
                _names("apex", "fused_layer_norm fused_layer_norm_affine fused_rms_norm fused_rms_norm_affine"),
            ),
            "optimizers": (_names("apex", "FusedAdagrad FusedAdam FusedLAMB FusedSGD"),),
            "parallel": (
                _names(
                    "apex", "DistributedDataParallel SyncBatchNorm convert_syncbn_model create_syncbn_process_group"
                ),
            ),
            "parallel.LARC": (_names("apex_half", "LARC"),),
        },
    ),
    Package(
        "causal_conv1d",
        "1.5.0",
        "torch's grouped conv1d",
        "states of packed sequences (causal_conv1d_varlen)",
        {
            "": (_names("causal_conv1d", "causal_conv1d_fn causal_conv1d_update"),),
            "cpp_functions": (
                _names(
                    "causal_conv1d_functions",
                    "causal_conv1d_bwd_function causal_conv1d_fwd_function causal_conv1d_update_function",
                ),
            ),
            "causal_conv1d_interface": (_names("causal_conv1d", "causal_conv1d_fn causal_conv1d_update"),),
        },
    ),
    Package(
        "mamba_ssm",
        "2.2.4",
        "a scan in blocks of steps, by torch's element-wise operators",
        "whole models, complex states, caches inside layers, Mamba 3 (a mamba_ssm that was installed without kernels "
        "has them: `MAMBA_FORCE_BUILD=TRUE MAMBA_SKIP_CUDA_BUILD=TRUE pip install --no-deps --no-build-isolation "
        "mamba-ssm`)",
        {
            "": (_names("mamba_ssm", "mamba_inner_fn selective_scan_fn"), _names("mamba_modules", "Mamba Mamba2")),
            "modules.block": (_names("mamba_modules", "Block"),),
            "modules.mamba2": (_names("mamba_modules", "Mamba2"),),
            "modules.mamba_simple": (_names("mamba_modules", "Mamba"), _names("mamba_simple", "Block")),
            "ops.selective_scan_interface": (
                _names("mamba_ssm", "mamba_inner_fn selective_scan_fn selective_scan_ref"),
            ),
            "ops.triton.layer_norm": (_names("flash_attn_norms", "RMSNorm layer_norm_fn rms_norm_fn"),),
            "ops.triton.layernorm": (_names("flash_attn_norms", "RMSNorm layer_norm_fn rms_norm_fn"),),
            "ops.triton.layernorm_gated": (_names("gated_norms", "RMSNorm layernorm_fn rmsnorm_fn"),),
            "ops.triton.selective_state_update": (_names("mamba_ssm", "selective_state_update"),),
            "ops.triton.ssd_combined": (
                _names("mamba_ssm", "mamba_chunk_scan_combined mamba_split_conv1d_scan_combined"),
            ),
        },
    ),
    Package(
        "selective_scan_cuda",
        "2.2.4",
        "the scan of the stand-in for mamba_ssm",
        "states before the last one",
        {"": (_names("selective_scan_cuda", "bwd fwd"),)},
    ),
    Package(
        "sageattention",
        "2.2.0",
        "torch's scaled_dot_product_attention, which does not quantise",
        "sequences of different lengths, functions of single GPU generations",
        {"": (_names("sageattention", "sageattn"),)},
    ),
    Package(
        "fast_hadamard_transform",
        "1.0.4",
        "sums and differences",
        "matrices that are not a power of two (hadamard_transform_12N and similar functions)",
        {"": (_names("fast_hadamard_transform", "hadamard_transform"),)},
    ),
    Package(
        "deepspeed",
        "0.17.0",
        "torch.optim",
        "deepspeed.initialize and everything across processes, ZeRO, its other operators",
        {"ops.adam": (_names("deepspeed", "DeepSpeedCPUAdam FusedAdam"),)},
    ),
    Package(
        "transformer_engine",
        "2.6.0",
        "torch.nn and scaled_dot_product_attention",
        "float8 (raises an error), MultiheadAttention, TransformerLayer, parallel layers",
        {
            "common.recipe": (_names("transformer_engine", "DelayedScaling Format MXFP8BlockScaling"),),
            "pytorch": (
                _names(
                    "transformer_engine",
                    "DotProductAttention LayerNorm LayerNormLinear LayerNormMLP Linear RMSNorm fp8_autocast "
                    "fp8_model_init",
                ),
            ),
            "pytorch.optimizers": (_names("apex", "FusedAdam FusedSGD"),),
            "pytorch.optimizers.fused_adam": (_names("apex", "FusedAdam"),),
        },
    ),
    Package(
        "triton",
        "3.5.0",
        "Triton's own interpreter if it is installed; else modules can be imported, and a launch raises an error",
        "launches without an installed triton, Gluon, custom backends",
        {
            "": (
                _names(
                    "triton_stub",
                    "CompilationError Config JITFunction KernelInterface OutOfResources autotune cdiv heuristics jit "
                    "next_power_of_2",
                ),
            ),
            "compiler": (_names("triton_stub", "CompilationError CompiledKernel"),),
            "compiler.compiler": (_names("triton_stub", "CompiledKernel triton_key"),),
            "language": (_TRITON_LANGUAGE,),
            "language.core": (_TRITON_LANGUAGE,),
            "language.extra.cuda.libdevice": (_TRITON_MATH,),
            "language.extra.libdevice": (_TRITON_MATH,),
            "language.math": (_TRITON_MATH,),
            "language.standard": (_TRITON_LANGUAGE,),
            "runtime": (
                _names("triton_stub", "Config JITFunction KernelInterface OutOfResources autotune driver heuristics"),
            ),
            "runtime.autotuner": (_names("triton_stub", "Config OutOfResources autotune heuristics"),),
            "runtime.cache": (_names("triton_stub", "triton_key"),),
            "runtime.errors": (_names("triton_stub", "OutOfResources"),),
            "runtime.jit": (_names("triton_stub", "JITFunction KernelInterface jit"),),
            "testing": (_names("triton_stub", "do_bench"),),
        },
    ),
)

PACKAGES: Mapping[str, Package] = {row.name: row for row in ROWS}


@dataclass(frozen=True)
class Module:
    """A module of such a package: its names, and whether it has submodules."""

    package: Package
    offers: tuple[Names, ...]
    is_package: bool

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the module."""
        return tuple(name for offer in self.offers for name in offer.names)


def _modules() -> dict[str, Module]:
    """Every module by its full name, including the parents of a listed module."""
    found: dict[str, Module] = {}
    for row in ROWS:
        listed = {f"{row.name}.{below}".rstrip("."): offers for below, offers in row.modules.items()}
        names = {".".join(name.split(".")[:depth]) for name in listed for depth in range(1, name.count(".") + 2)}
        for name in sorted(names):
            below = any(other.startswith(f"{name}.") for other in names)
            found[name] = Module(row, listed.get(name, ()), below)
    return found


MODULES: Mapping[str, Module] = _modules()
