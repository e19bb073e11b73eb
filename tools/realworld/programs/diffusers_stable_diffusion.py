"""A tiny Stable Diffusion .to("cuda", torch.float16): guidance, Generator("cuda"), several pictures a prompt."""

import json

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import CLIPTextConfig, CLIPTextModel, PreTrainedTokenizerFast

words = {word: i for i, word in enumerate(["<pad>", "<unk>", "a", "photo", "of", "an", "astronaut", "horse", "<end>"])}
backend = Tokenizer(WordLevel(words, unk_token="<unk>"))
backend.pre_tokenizer = Whitespace()
special = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<end>"}
torch.manual_seed(0)
text = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4}
StableDiffusionPipeline(
    unet=UNet2DConditionModel(
        block_out_channels=(32, 64),
        layers_per_block=1,
        sample_size=16,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
    ),
    vae=AutoencoderKL(
        block_out_channels=[32, 64],
        down_block_types=["DownEncoderBlock2D", "DownEncoderBlock2D"],
        up_block_types=["UpDecoderBlock2D", "UpDecoderBlock2D"],
        latent_channels=4,
    ),
    text_encoder=CLIPTextModel(CLIPTextConfig(vocab_size=16, max_position_embeddings=16, eos_token_id=8, **text)),
    tokenizer=PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=16, **special),
    scheduler=DDIMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False),
    safety_checker=None,
    feature_extractor=None,
    requires_safety_checker=False,
).save_pretrained("tiny-sd")

pipe = StableDiffusionPipeline.from_pretrained("tiny-sd", torch_dtype=torch.float16, safety_checker=None)
pipe = pipe.to("cuda", torch.float16)
pipe.set_progress_bar_config(disable=True)
assert pipe.unet.dtype == torch.float16
generator = torch.Generator("cuda").manual_seed(7)
options = {"num_inference_steps": 3, "guidance_scale": 5.0, "output_type": "np", "height": 32, "width": 32}
with torch.autocast("cuda", enabled=False):
    images = pipe("a photo of an astronaut", generator=generator, num_images_per_prompt=2, **options).images
generators = [torch.Generator(device="cuda").manual_seed(seed) for seed in (1, 2)]
both = pipe(["a horse", "a photo"], generator=generators, **options).images
values = images[:, ::8, ::8].flatten().tolist() + both[:, ::16, ::16].flatten().tolist()
devices = sorted({str(p.device) for part in (pipe.unet, pipe.vae, pipe.text_encoder) for p in part.parameters()})
print("RESULT", json.dumps({"steps": 6, "devices": devices, "values": values}))
