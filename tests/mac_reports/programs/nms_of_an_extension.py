import torch

library = torch.library.Library("torchvision", "DEF")
library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
library.impl("nms", lambda boxes, scores, threshold: scores.argsort(descending=True)[:1], "CPU")
boxes, scores = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 1.9]], device="mps"), torch.tensor([0.3, 0.9], device="mps")
kept = torch.ops.torchvision.nms(boxes, scores, 0.5)
assert kept.tolist() == [1]
assert kept.device.type == "mps"
