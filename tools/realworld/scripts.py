"""Rows of the programs for other libraries, of the classic scripts, and of what cannot work."""

from __future__ import annotations

from tools.realworld.program import Program, Replacements, by_package

CPU = (("cuda", "cpu"),)
# What torch.cpu has no word for.
_MEMORY = (
    ("torch.cuda.empty_cache()", "pass"),
    ("torch.cuda.reset_peak_memory_stats()", ""),
    ("torch.cuda.max_memory_allocated()", "0"),
)
_SEEDS = (("torch.cuda.manual_seed_all", "torch.manual_seed"), ("torch.cuda.manual_seed", "torch.manual_seed"))
_EVENTS = (
    ("start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)\n", ""),
    ("start.record()\n", ""),
    ("end.record()\n", ""),
    ('print(f"{start.elapsed_time(end):.1f} ms")\n', ""),
)
_GRAPHS = (
    ("g = torch.cuda.CUDAGraph()\n", ""),
    (
        "with torch.cuda.graph(g):\n",
        "def replay():\n    global static_y_pred, static_loss\n    optimizer.zero_grad(set_to_none=True)\n",
    ),
    ("    g.replay()\n", "    replay()\n"),
    ("torch.cuda.make_graphed_callables(module1, (x,))", "module1"),
    ("torch.cuda.make_graphed_callables(module2, (h,))", "module2"),
    ("torch.cuda.make_graphed_callables(module3, (h,))", "module3"),
    ("g1, g2 = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()\n", ""),
    ("with torch.cuda.graph(g1):\n", "def replay_1():\n    global static_out_1\n"),
    ("with torch.cuda.graph(g2, pool=g1.pool()):\n", "def replay_2():\n    global static_out_2\n"),
    ("g1.replay()", "replay_1()"),
    ("g2.replay()", "replay_2()"),
)
_RANKS = (
    ('"nccl"', '"gloo"'),
    (", device_ids=[rank], output_device=rank", ""),
    ("barrier(device_ids=[rank])", "barrier()"),
    (".to(rank", '.to("cpu"'),
    (".cuda(rank, non_blocking=True)", ""),
    ("device=rank", 'device="cpu"'),
    ("torch.cuda.device_count()", "2"),
)


def _text(*replacements: Replacements) -> Replacements:
    """Several lists of replacements, and then every `cuda` that is left."""
    return (*(pair for pairs in replacements for pair in pairs), *CPU)


# Trainers of transformers choose the device themselves; half precision is torch's on both.
_USE_CPU = (("    fp16=True,\n", "    fp16=True,\n    use_cpu=True,\n"),)

LIBRARIES = (
    Program("peft_lora", ("peft", "transformers"), tolerance=1e-2),
    Program("trl_sft", ("trl", "peft", "datasets"), on_cpu=_text(_USE_CPU), tolerance=1e-2),
    Program(
        "sentence_transformers_train",
        ("sentence-transformers", "datasets"),
        on_cpu=_text(_USE_CPU),
        tolerance=1e-2,
    ),
    Program("torchmetrics_on_cuda", ("torchmetrics",)),
    Program("einops_layers", ("einops",)),
    Program("x_transformers_enwik8", ("x-transformers",)),
    Program("vit_pytorch_train", ("vit-pytorch",), on_cpu=_text(_SEEDS), tolerance=1e-2),
    Program("denoising_diffusion", ("denoising-diffusion-pytorch",), on_cpu=_text(_SEEDS)),
    Program("whisper_transcribe", ("openai-whisper",), on_cpu=_text((("fp16=True", "fp16=False"), (".half()", "")))),
    Program("geometric_gnn", ("torch-geometric",)),
    Program("metric_learning", ("pytorch-metric-learning",)),
    Program("stable_baselines", ("stable-baselines3",)),
    Program("gpytorch_regression", ("gpytorch",), tolerance=1e-3),
    Program("botorch_optimization", ("botorch",), tolerance=1e-3),
    Program("captum_attribution", ("captum",), on_cpu=_text((("cuda:0", "cpu"),))),
    Program("kornia_vision", ("kornia",)),
    Program("segmentation_models", ("segmentation-models-pytorch", "timm")),
    Program("timm_train", ("timm",), on_cpu=_text(((".cuda(non_blocking=True)", ""),)), tolerance=1e-2),
)

CLASSIC = (
    Program(
        "imagenet_trainer",
        ("numpy",),
        fast=True,
        on_cpu=_text(
            (
                (".cuda(GPU, non_blocking=True)", ""),
                (".cuda(non_blocking=True)", ""),
                (".cuda(GPU)", ""),
                ('f"cuda:{GPU}"', '"cpu"'),
                ("images.record_stream(torch.cuda.current_stream())", "pass"),
                ("target.record_stream(torch.cuda.current_stream())", "pass"),
                ("torch.cuda.current_stream().wait_stream(self.stream)", "pass"),
            )
        ),
    ),
    Program(
        "char_gpt",
        ("numpy",),
        fast=True,
        on_cpu=_text(_SEEDS, (("backends.cuda.matmul", "backends.cudnn"), ('if device_type == "cuda":', "if False:"))),
    ),
    Program(
        "compile_tutorial",
        ("numpy",),
        on_cpu=_text(
            (
                ("    start = torch.cuda.Event(enable_timing=True)\n", ""),
                ("    end = torch.cuda.Event(enable_timing=True)\n", ""),
                ("start.record()", "pass"),
                ("end.record()", "pass"),
                ("start.elapsed_time(end)", "0"),
            )
        ),
    ),
    Program("wgan_gp", ("numpy",), fast=True, on_cpu=_text((("torch.cuda.FloatTensor", "torch.FloatTensor"),))),
    Program("nerf", ("numpy",), fast=True, on_cpu=_text((("torch.cuda.FloatTensor", "torch.FloatTensor"),))),
    Program(
        "cuda_graph_training",
        ("numpy",),
        fast=True,
        on_cpu=_text(
            (
                ("s.wait_stream(torch.cuda.current_stream())\n", ""),
                ("torch.cuda.current_stream().wait_stream(s)\n", ""),
            ),
            _GRAPHS,
        ),
    ),
    Program("ddp_spawn", ("numpy",), gpus=2, on_cpu=_text(_RANKS)),
    Program("ppo", ("numpy",), fast=True),
    Program("mixed_metrics", ("numpy", "scikit-learn")),
    Program(
        "memory_budget",
        ("numpy",),
        fast=True,
        on_cpu=_text(
            (
                ("torch.cuda.OutOfMemoryError", "RuntimeError"),
                ('"out of memory" in', '"DefaultCPUAllocator: " in'),
            ),
            _MEMORY,
        ),
    ),
    Program(
        "gradient_checkpointing",
        ("numpy",),
        fast=True,
        tolerance=2e-3,  # bfloat16: CUDA's autocast and the CPU's choose other operators
        on_cpu=_text(
            _SEEDS,
            _MEMORY,
            (("torch.cuda.get_rng_state", "torch.get_rng_state"), ("torch.cuda.set_rng_state", "torch.set_rng_state")),
        ),
    ),
    Program(
        "profiler_schedule",
        ("numpy",),
        fast=True,
        on_cpu=_text(
            _EVENTS,
            (
                ('torch.cuda.nvtx.range_push("step")', "pass"),
                ("torch.cuda.nvtx.range_pop()", "pass"),
                ('use_device="cuda"', ""),
                ("with torch.autograd.profiler.emit_nvtx():", "with torch.enable_grad():"),
            ),
        ),
    ),
    Program("sparse_gcn", ("numpy",), fast=True, on_cpu=_text(_SEEDS)),
)

# Packages that compute by CUDA itself: the judge is the same program with torch's own functions in their place.
FLASH_ATTN: Replacements = (
    (
        "from flash_attn import flash_attn_func, flash_attn_varlen_func\n",
        "from torch.nn.functional import scaled_dot_product_attention as attend\n"
        "def flash_attn_func(*qkv, causal):\n"
        "    return attend(*(x.transpose(1, 2) for x in qkv), is_causal=causal).transpose(1, 2)\n"
        "def flash_attn_varlen_func(q, k, v, starts, *rest, causal):\n"
        "    cut = [[x[a:b][None] for x in (q, k, v)] for a, b in zip(starts, starts[1:])]\n"
        "    return torch.cat([flash_attn_func(*one, causal=causal)[0] for one in cut])\n",
    ),
    (
        "from flash_attn.bert_padding import pad_input, unpad_input\n",
        "def unpad_input(x, mask):\n"
        "    starts = torch.nn.functional.pad(mask.sum(1).cumsum(0), (1, 0))\n"
        "    return x[mask], mask, starts, x.shape[1], None\n"
        "def pad_input(x, mask, *shape):\n"
        "    out = x.new_zeros(*shape, *x.shape[1:])\n"
        "    out[mask] = x\n"
        "    return out\n",
    ),
)
LIGER: Replacements = (
    ("from liger_kernel.ops.swiglu import LigerSiLUMulFunction\n", ""),
    (
        "from liger_kernel.transformers import LigerCrossEntropyLoss, LigerRMSNorm\n",
        "from torch.nn import CrossEntropyLoss as LigerCrossEntropyLoss\n"
        "LigerRMSNorm = lambda size: torch.nn.RMSNorm(size, eps=1e-6)\n",
    ),
    ("LigerSiLUMulFunction.apply(self.gate(y), self.up(y))", "torch.nn.functional.silu(self.gate(y)) * self.up(y)"),
)
MAMBA: Replacements = (
    (
        "from causal_conv1d import causal_conv1d_fn\n"
        "from mamba_ssm.ops.selective_scan_interface import mamba_inner_fn, selective_scan_fn\n"
        "from torch import nn\n",
        "from torch import nn\n"
        "from torch.nn import functional as F\n"
        "def causal_conv1d_fn(x, weight, bias, activation):\n"
        "    return F.silu(F.conv1d(F.pad(x, (3, 0)), weight.unsqueeze(1), bias, groups=len(weight)))\n"
        "def selective_scan_fn(u, delta, a, b, c, skip, z, bias, delta_softplus):\n"
        "    delta, state, out = F.softplus(delta + bias[:, None]), 0, []\n"
        "    for t in range(u.shape[2]):\n"
        "        step = delta[..., t, None]\n"
        "        state = state * torch.exp(step * a) + step * u[..., t, None] * b[:, None, :, t]\n"
        "        out.append((state * c[:, None, :, t]).sum(-1) + skip * u[..., t])\n"
        "    return torch.stack(out, dim=2) * F.silu(z)\n",
    ),
    ("if self.fused:", "if False:"),
)
# Without the module of its kernels mamba_ssm cannot be imported at all: the judge takes the package's scan and norms in
# plain torch.
MAMBA_SSM: Replacements = (
    (
        "import torch\n",
        "import sys, types\n"
        'sys.modules["selective_scan_" + "cuda"] = types.ModuleType("none")\n'
        "import torch\n"
        "from mamba_ssm.models import mixer_seq_simple\n"
        "from mamba_ssm.modules import mamba_simple\n"
        "from mamba_ssm.ops.selective_scan_interface import selective_scan_ref\n"
        "mamba_simple.selective_scan_fn = selective_scan_ref\n"
        "mixer_seq_simple.RMSNorm = torch.nn.RMSNorm\n",
    ),
    ("fused_add_norm=True", "fused_add_norm=False"),
)
# The package's own functions in plain torch.
FLA: Replacements = (
    ("from fla.ops.gla import chunk_gla\n", "from fla.ops.gla.naive import naive_recurrent_gla as chunk_gla\n"),
    (
        "from fla.ops.delta_rule import fused_recurrent_delta_rule\n",
        "from fla.ops.delta_rule.naive import delta_rule_recurrence\n"
        "def fused_recurrent_delta_rule(*given):\n"
        "    return delta_rule_recurrence(*(x.transpose(1, 2) for x in given))[0].transpose(1, 2), None\n",
    ),
)
TRITON: Replacements = (("total = add(x, y)", "total = x + y"),)
PACKAGES = (
    by_package("flash_attn_model", (), FLASH_ATTN, fast=True),
    by_package("triton_kernel", ("triton", "numpy"), TRITON),
    by_package("liger_kernels", ("liger-kernel", "triton", "numpy"), LIGER, tolerance=1e-3),
    by_package("linear_attention", ("flash-linear-attention", "triton", "numpy"), FLA, tolerance=1e-3),
    by_package("mamba_scan", (), MAMBA, fast=True),
    by_package(
        "mamba_language_model",
        ("mamba-ssm", "triton", "numpy"),
        MAMBA_SSM,
        cpu=('to("cuda")', 'to("cpu")'),
        tolerance=1e-3,
    ),
)

NEGATIVE = (
    Program("negative_cuda_extension", refusal="Hint:"),
    # Eight bits: the CPU's kernel and the one in plain torch round in their own ways.
    Program("negative_bitsandbytes", ("bitsandbytes", "numpy"), refusal="Hint:", tolerance=0.1),
)

PROGRAMS: tuple[Program, ...] = (*LIBRARIES, *CLASSIC, *PACKAGES, *NEGATIVE)
# Packages that do not install beside the torch of constraints.txt, and why.
UNAVAILABLE: dict[str, str] = {}
