"""Rows of the programs for trainers and model libraries: transformers, accelerate, lightning and its kin, diffusers."""

from __future__ import annotations

from tools.realworld.program import Program, Replacements, by_package

TRANSFORMERS = ("transformers", "accelerate")
DIFFUSERS = ("diffusers", "transformers", "accelerate")
# The Trainer refuses fp16 on a CPU: the judge computes in float32.
NO_FP16: Replacements = (
    ("        fp16=True,\n", "        use_cpu=True,\n"),
    ("dataloader_pin_memory=True", "dataloader_pin_memory=False"),
)
BF16: Replacements = (("bf16=True,", "bf16=True,\n        use_cpu=True,"), ("pin_memory=True", "pin_memory=False"))
DEVICE_0: Replacements = (("device=0", 'device="cpu"'), ("cuda", "cpu"))
ON_CPU: Replacements = (("Accelerator(", "Accelerator(cpu=True, "),)
GPU: Replacements = (
    ('accelerator="gpu"', 'accelerator="cpu"'),
    ("devices=[0]", "devices=1"),
    ("16-mixed", "bf16-mixed"),
)
NO_CACHE: Replacements = (("torch.cuda.empty_cache()", ""),)
MPS_GPU: Replacements = (('accelerator="gpu"', 'accelerator="mps"'),)

PROGRAMS = (
    Program("transformers_trainer_fp16", TRANSFORMERS, on_cpu=NO_FP16, tolerance=5e-3),
    Program("transformers_trainer_bf16", TRANSFORMERS, on_cpu=BF16, tolerance=1e-2),
    Program("transformers_pipeline", ("transformers",), on_cpu=DEVICE_0),
    Program("transformers_device_map", TRANSFORMERS, on_cpu=(("cuda", "cpu"), ('"auto"', '"cpu"')), tolerance=2e-3),
    Program("transformers_gpt2", ("transformers",)),
    Program("transformers_llama", ("transformers",)),
    Program("transformers_mistral", ("transformers",), tolerance=1e-2),
    Program("transformers_t5", ("transformers",), on_cpu=(("cuda(non_blocking=True)", "cpu()"), ("cuda", "cpu"))),
    Program("transformers_bert", ("transformers",), tolerance=2e-2),
    Program("transformers_vit", ("transformers",), tolerance=2e-3),
    Program("transformers_clip", ("transformers",)),
    Program("transformers_whisper", ("transformers",), tolerance=5e-3),
    Program("transformers_sdpa", ("transformers",)),
    by_package("transformers_flash_attention", ("transformers",), (("flash_attention_2", "sdpa"),)),
    Program("transformers_mamba", ("transformers",)),
    by_package("diffusers_xformers", ("diffusers",), (("model.enable_xformers_memory_efficient_attention()\n", ""),)),
    Program("transformers_compile", ("transformers",), tolerance=1e-2),
    Program("accelerate_loop", ("accelerate",), on_cpu=ON_CPU, tolerance=1e-2),
    Program("accelerate_notebook_launcher", ("accelerate",), on_cpu=ON_CPU, gpus=2),
    Program(
        "accelerate_launch",
        ("accelerate",),
        on_cpu=(
            *ON_CPU,
            ("accelerate.commands.launch", "torch.distributed.run"),  # what it starts; it has no launcher for CPUs
            ("--num_processes", "--nproc-per-node"),
            ("--multi_gpu", "--standalone"),
        ),
        gpus=2,
        launch=("-m", "accelerate.commands.launch", "--num_processes", "2", "--multi_gpu"),
    ),
    Program(
        "accelerate_dispatch", ("accelerate",), on_cpu=(("to(0)", 'to("cpu")'), ('"": 0', '"": "cpu"')), tolerance=2e-3
    ),
    Program(
        "accelerate_cpu_offload",
        ("accelerate",),
        on_cpu=(('"cuda", 0', '"cpu"'), ("cuda", "cpu"), ("device=0", 'device="cpu"'), ('": 0', '": "cpu"')),
    ),
    Program("lightning_trainer", ("lightning",), on_cpu=GPU, on_mps=MPS_GPU, tolerance=2e-2),
    Program("lightning_ddp", ("lightning",), on_cpu=GPU, on_mps=MPS_GPU, gpus=2),
    Program("lightning_fabric", ("lightning",), tolerance=1e-2),
    Program(
        "ignite_trainer",
        ("pytorch-ignite",),
        on_cpu=(('"cuda"', '"cpu"'), (', amp_mode="amp", scaler=True', "")),
        tolerance=5e-3,
    ),
    Program("skorch_classifier", ("skorch",)),
    Program(
        "fastai_learner",
        ("fastai",),
        on_cpu=(("default_device()", "default_device(False)"), ("cuda", "cpu"), (".to_fp16()", "")),
        tolerance=5e-3,
    ),
    Program("diffusers_ddpm", DIFFUSERS, on_cpu=(*ON_CPU, ("fp16", "no"), ("cuda", "cpu")), tolerance=5e-3),
    Program("diffusers_stable_diffusion", DIFFUSERS, tolerance=2e-2),
    Program("diffusers_cpu_offload", DIFFUSERS, on_cpu=(("pipe.enable_model_cpu_offload()", ""), *NO_CACHE)),
    Program(
        "diffusers_sequential_offload", DIFFUSERS, on_cpu=(("pipe.enable_sequential_cpu_offload()", ""), *NO_CACHE)
    ),
    Program(
        "diffusers_attention_slicing",
        DIFFUSERS,
        on_cpu=(
            ("torch.cuda.reset_peak_memory_stats()", ""),
            ("torch.cuda.max_memory_allocated()", "0"),
            ("cuda", "cpu"),
        ),
    ),
)
# Packages that do not install beside the torch of constraints.txt, and why.
UNAVAILABLE: dict[str, str] = {}
