import torch

anchors = 66000
weights = torch.arange(16.0).view(1, 16, 1, 1)
scores = torch.ones(1, 16, 4, anchors, device="mps").softmax(1)
boxes = torch.nn.functional.conv2d(scores, weights.to("mps")).view(1, 4, anchors)
torch.testing.assert_close(boxes.mean().cpu(), torch.tensor(7.5))
