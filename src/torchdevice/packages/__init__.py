"""Stand-ins for CUDA-only packages, implemented with torch's own operators. This module imports nothing.

    table                 the rows: package, its modules, the names in each
    finder, choices       decide which imports find a stand-in: required ones, not optional ones
    libraries             availability checks of libraries that precede an explicit request
    counting, refusals    record each call with its line; raise errors for unsupported arguments
    attention, norms      functions that several packages share
    flash_attn            functions of flash_attn; flash_attn_3: flash_attn_interface; flash_attn_1: older names
    flash_attn_losses, flash_attn_mlp, flash_attn_modules, flash_attn_norms, flash_attn_padding, flash_attn_rotary
    xformers              xformers.ops; xformers_masks: its masks
    apex, apex_amp        apex; apex_half: fp16_utils and multi_tensor_apply
    optimizers            optimizers of apex and DeepSpeed
    causal_conv1d         causal_conv1d; causal_conv1d_functions: its gradients
    mamba_ssm             scans of mamba_ssm; gated_norms: normalisations; mamba_modules, mamba_simple: layers
    selective_scan_cuda   the compiled module that mamba_ssm calls
    sageattention, fast_hadamard_transform
    deepspeed             deepspeed.ops
    transformer_engine    transformer_engine.pytorch
    triton_interpreter    an installed triton
    triton_stub           triton if it is not installed; triton_language: the names of triton.language

A module implements the names of a package. Only the table decides which names exist.
"""
