"""segmentation-models-pytorch: a U-Net with a ResNet encoder, dice and focal losses, metrics."""

import json
import os
import tempfile

import numpy as np
import segmentation_models_pytorch as smp
import torch

torch.manual_seed(0)
rng = np.random.RandomState(0)
model = smp.Unet("resnet18", encoder_weights=None, in_channels=3, classes=1, decoder_channels=(32, 16, 16, 8, 8)).cuda()
dice = smp.losses.DiceLoss(smp.losses.BINARY_MODE, from_logits=True)
focal = smp.losses.FocalLoss(smp.losses.BINARY_MODE)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for _ in range(2):
    image = torch.from_numpy(rng.rand(2, 3, 64, 64).astype(np.float32)).cuda()
    mask = (image.mean(1, keepdim=True) > 0.5).float()
    logits_mask = model(image)
    loss = dice(logits_mask, mask) + focal(logits_mask, mask)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
pred_mask = (logits_mask.sigmoid() > 0.5).long()
tp, fp, fn, tn = smp.metrics.get_stats(pred_mask, mask.long(), mode="binary")
iou = smp.metrics.iou_score(tp, fp, fn, tn, reduction="micro")
path = os.path.join(tempfile.mkdtemp(), "best_model.pth")
torch.save(model.state_dict(), path)
model.load_state_dict(torch.load(path))
model.eval()
with torch.inference_mode():
    again = model(image)
print(f"IoU {iou.item():.3f}, {again.shape}")
devices = sorted({str(parameter.device) for parameter in model.parameters()})
print("RESULT", json.dumps({"steps": len(losses), "devices": devices, "values": losses}))
