"""Stand-ins for packages that compute by CUDA itself, in terms of torch's own operators. Nothing is imported here.

    table                 the rows: package, its modules, the names in each
    finder, choices       which imports find a stand-in: the program's demands, not its choices
    libraries             checks of libraries before an explicit request
    counting, refusals    each use with its line; arguments that cannot be honoured
    attention, norms      what several packages share
    flash_attn            flash_attn's functions, flash_attn_3 those of flash_attn_interface, flash_attn_1 older names
    flash_attn_losses, flash_attn_mlp, flash_attn_modules, flash_attn_norms, flash_attn_padding, flash_attn_rotary
    xformers              xformers.ops, xformers_masks its masks
    apex, apex_amp        apex, apex_half what came before its amp
    optimizers            those of apex and DeepSpeed
    causal_conv1d         causal_conv1d, causal_conv1d_functions its gradients
    mamba_ssm             mamba_ssm's scans, gated_norms its normalisations, mamba_modules and mamba_simple its layers
    selective_scan_cuda   the compiled module that mamba_ssm calls
    sageattention, fast_hadamard_transform
    deepspeed             deepspeed.ops
    transformer_engine    transformer_engine.pytorch
    triton_interpreter    triton where it is installed
    triton_stub           triton where it is not, triton_language its names for kernels

A module of a package holds what the package's names do; which names exist is in the table alone.
"""
