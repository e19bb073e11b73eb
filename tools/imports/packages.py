"""The packages whose imports are counted, and why some of what is imported has no stand-in."""

from __future__ import annotations

import re

from torchdevice.packages.table import MODULES, PACKAGES

# Packages without a stand-in.
OTHERS = {
    "amp_C": "apex's compiled module",
    "auto_gptq": "quantised weights; its kernels and formats are its own",
    "awq": "quantised weights; its kernels and formats are its own",
    "bitsandbytes": "installs without CUDA and has a CPU backend; `torchdevice run` says which calls have none",
    "causal_conv1d_cuda": "compiled module whose results are written to arguments; causal_conv1d itself has a stand-in",
    "deep_gemm": "float8",
    "fla": "installs as it is: its kernels run in Triton's interpreter",
    "flash_mla": "serving kernels of one GPU generation",
    "flashinfer": "serving: paged caches and plans of its own",
    "fused_layer_norm_cuda": "apex's compiled module; apex.normalization has a stand-in",
    "grouped_gemm": "not tried",
    "gsplat": "rasterises by CUDA; torch has no such operator",
    "liger_kernel": "installs as it is: its kernels run in Triton's interpreter",
    "megablocks": "sparse kernels of its own",
    "natten": "not tried",
    "nvdiffrast": "rasterises by CUDA; torch has no such operator",
    "selective_scan_cuda_oflex": "VMamba's own module, built from its repository",
    "sgl_kernel": "serving kernels",
    "spconv": "sparse convolutions; torch has no such operator",
    "tinycudann": "networks inside one CUDA kernel, with formats of their own",
    "torch_scatter": "installs without CUDA",
}
COUNTED = frozenset({*PACKAGES, *OTHERS})

# What begins with one of these is left out of a stand-in.
LEFT_OUT = {
    "apex.contrib": "kernels for single models, and sparsity of NVIDIA's hardware",
    "apex.fp16_utils.": "amp replaced it in 2019",
    "apex.optimizers.FP16_Optimizer": "amp replaced it in 2019",
    "apex.parallel.Reducer": "torch.distributed does it",
    "apex.transformer": "Megatron's parallel layers, across processes",
    "deepspeed": "deepspeed itself installs without CUDA: engine, ZeRO, communication",
    "flash_attn.cute": "version 4: kernels for two GPU generations, whose interface still moves",
    "flash_attn.flash_attn_interface._": "private: ring attention calls them, across processes",
    "flash_attn.flash_attn_interface.flash_attn_cuda": "the compiled module; programs look whether it is there",
    "flash_attn.models": "whole models",
    "flash_attn.modules.block": "parts of whole models",
    "flash_attn.modules.embedding": "parts of whole models",
    "flash_attn.modules.mha.FlashMHA": "never was in this module; flash_attn.flash_attention has it",
    "flash_attn.ops.activations.SwiGLUFunction": "the class behind swiglu, which is there",
    "flash_attn.ops.fused_dense.ColumnParallelLinear": "across processes",
    "flash_attn.ops.fused_dense.FusedDenseGeluDense": "an older name of FusedMLP with other arguments",
    "flash_attn.utils": "for its own models and benchmarks, or across processes",
    "flash_attn_interface._": "private: ring attention calls them, across processes",
    "mamba_ssm.models": "whole models: install mamba-ssm without its kernels",
    "mamba_ssm.utils": "generation and checkpoints of whole models: install mamba-ssm without its kernels",
    "transformer_engine.common.recipe": "float8 and float4",
    "transformer_engine.pytorch.Fp8": "float8",
    "transformer_engine.pytorch.GroupedLinear": "layers of Megatron",
    "transformer_engine.pytorch.TransformerLayer": "whole layers with parallel parts",
    "transformer_engine.pytorch.attention.rope": "Megatron's layers call it",
    "transformer_engine.pytorch.cpp_extensions": "the compiled module",
    "transformer_engine.pytorch.distributed": "across processes",
    "transformer_engine.pytorch.float8_tensor": "float8",
    "transformer_engine.pytorch.fp8": "float8",
    "transformer_engine.pytorch.module": "base classes of Megatron's layers",
    "transformer_engine.pytorch.optimizers.multi_tensor": "apex's functions under another name, for Megatron",
    "transformer_engine.pytorch.tensor": "float8 and float4",
    "triton": "an installed triton answers; without one nothing can be launched",
    "xformers.components": "layers and patterns that xformers itself no longer tests",
    "sageattention.": "for single GPU generations",
    "xformers.ops.common": "private",
    "xformers.ops.fmha._": "private",
    "xformers.ops.fmha.attn_bias.Paged": "paged caches",
    "xformers.ops.sparsify24": "sparsity of NVIDIA's hardware",
}
_VERSIONS = re.compile(r"\.(__version__|version|__file__|__path__)$")


def is_served(name: str) -> bool:
    """Whether a stand-in has this name, or the class or module that it is an attribute of."""
    if name in MODULES or (_VERSIONS.search(name) and name.partition(".")[0] in PACKAGES):
        return True
    parts = name.split(".")
    return any(
        ".".join(parts[:depth]) in MODULES and parts[depth] in MODULES[".".join(parts[:depth])].names
        for depth in range(1, len(parts))
    )


def reason(name: str) -> str:
    """Why there is no such name; the longest beginning decides. Empty if nothing is known."""
    found = max((prefix for prefix in LEFT_OUT if name.startswith(prefix)), key=len, default="")
    return LEFT_OUT.get(found, OTHERS.get(name.partition(".")[0], ""))
