import torch

library = torch.library.Library("torch_cluster", "DEF")
library.define("fps(Tensor src, Tensor ptr, float ratio) -> Tensor")
library.impl("fps", lambda src, ptr, ratio: torch.arange(int(len(src) * ratio)), "CPU")
points, starts = torch.rand(6, 3, device="mps"), torch.tensor([0, 6], device="mps")
chosen = torch.ops.torch_cluster.fps(points, starts, 0.5)
torch.testing.assert_close(points[chosen].cpu(), points.cpu()[:3])
