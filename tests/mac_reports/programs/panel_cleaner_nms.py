import torch

library = torch.library.Library("torchvision", "DEF")
library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
library.impl("nms", lambda boxes, scores, threshold: scores.argsort(descending=True), "CPU")
found = torch.rand(5, 6, device="mps")
boxes, scores, classes = found[:, :4] + found[:, 5:6] * 4096, found[:, 4], found[:, 5:6]
kept = torch.ops.torchvision.nms(boxes, scores, 0.45)
torch.testing.assert_close(scores[kept].cpu(), scores.cpu().sort(descending=True).values)
