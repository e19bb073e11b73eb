"""openai-whisper: a random tiny model on "cuda", log_mel_spectrogram there, detect_language, decode with fp16=True."""

import json

import numpy as np
import torch
import whisper
from whisper.model import ModelDimensions, Whisper

torch.manual_seed(0)
dims = ModelDimensions(
    n_mels=80,
    n_audio_ctx=1500,
    n_audio_state=32,
    n_audio_head=2,
    n_audio_layer=1,
    n_vocab=51865,
    n_text_ctx=448,
    n_text_state=32,
    n_text_head=2,
    n_text_layer=1,
)
model = Whisper(dims)
for parameter in model.parameters():
    torch.nn.init.normal_(parameter, std=0.05)
model = model.to("cuda").eval()
print(f"model on {model.device}, multilingual: {model.is_multilingual}")

seconds = np.arange(16000 * 2) / 16000
audio = (0.3 * np.sin(2 * np.pi * 440 * seconds * (1 + 0.1 * seconds))).astype(np.float32)
audio = whisper.pad_or_trim(audio)
mel = whisper.log_mel_spectrogram(audio, n_mels=model.dims.n_mels, device="cuda").to(model.device)

features = model.encoder(mel[None])
tokens = torch.tensor([[50258, 50259, 50359, 50363]], device=model.device)
logits = model.decoder(tokens, features)
options = whisper.DecodingOptions(language="en", fp16=True, without_timestamps=True, sample_len=6, temperature=0.0)
result = whisper.decode(model, mel.half(), options)
print(result.language, len(result.tokens), repr(result.text))
transcribed = model.transcribe(
    audio, fp16=True, language="en", temperature=0.0, sample_len=6, no_speech_threshold=None, logprob_threshold=None
)
print(len(transcribed["segments"]), "segments")
values = mel.flatten()[:: mel.numel() // 8].float().cpu().tolist() + logits[0, -1, :12].detach().cpu().tolist()
values += [result.avg_logprob]
devices = sorted({str(parameter.device) for parameter in model.parameters()})
print("RESULT", json.dumps({"steps": len(result.tokens), "devices": devices, "values": values}))
