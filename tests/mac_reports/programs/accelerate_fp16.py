import torch

device = torch.device("cuda") if torch.cuda.is_available() else torch.device("mps")
if device.type not in ("xpu", "cuda", "npu", "mlu"):
    raise ValueError(f"fp16 mixed precision requires a GPU (not {device.type!r}).")
with torch.autocast(device.type, dtype=torch.float16):
    assert (torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)).dtype == torch.float16
