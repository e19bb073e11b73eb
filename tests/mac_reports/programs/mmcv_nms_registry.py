import torch

KERNELS = {kind: lambda boxes, scores: scores.argsort(descending=True) for kind in ("cpu", "cuda")}


def nms_impl(boxes, scores):
    if boxes.device.type not in KERNELS:
        raise RuntimeError(f"nms_impl: implementation for device {boxes.device} not found.")
    return KERNELS[boxes.device.type](boxes, scores)


device = torch.device("cuda" if torch.cuda.is_available() else "mps")
kept = nms_impl(torch.rand(3, 4, device=device), torch.tensor([0.1, 0.9, 0.5], device=device))
assert kept.tolist() == [1, 2, 0]
