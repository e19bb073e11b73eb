"""timm: create_model(...).cuda(), its optimizer, scheduler, loss, Mixup, EMA and NativeScaler in a training loop."""

import json

import numpy as np
import timm
import torch
from timm.data import Mixup, create_transform, resolve_data_config
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import ModelEmaV3, NativeScaler, accuracy, random_seed

random_seed(0)
np.random.seed(0)
rng = np.random.RandomState(0)
device = torch.device("cuda")
sizes = dict(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2)
model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=5, **sizes).to(device=device)
model_ema = ModelEmaV3(model, decay=0.9)
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-2, weight_decay=0.05)
scheduler, _ = create_scheduler_v2(optimizer, sched="cosine", num_epochs=3, warmup_epochs=1, warmup_lr=1e-5)
mixup_fn = Mixup(mixup_alpha=0.8, cutmix_alpha=0.0, num_classes=5)
loss_scaler, train_loss_fn = NativeScaler(device="cuda"), SoftTargetCrossEntropy().cuda()
losses = []
for epoch in range(2):
    model.train()
    for _ in range(3):
        input = torch.from_numpy(rng.rand(8, 3, 32, 32).astype(np.float32)).cuda(non_blocking=True)
        target = torch.from_numpy(rng.randint(0, 5, 8)).cuda(non_blocking=True)
        input, target = mixup_fn(input, target)
        with torch.amp.autocast("cuda", dtype=torch.bfloat16):
            loss = train_loss_fn(model(input), target)
        optimizer.zero_grad()
        loss_scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
        model_ema.update(model)
        torch.cuda.synchronize()
        losses.append(loss.item())
    scheduler.step(epoch + 1)

resnet = timm.create_model("resnet10t", pretrained=False, num_classes=5).cuda().eval()
resnet = resnet.to(memory_format=torch.channels_last)
transform = create_transform(**resolve_data_config({"input_size": (3, 32, 32)}, model=resnet))
image = torch.from_numpy(rng.rand(4, 3, 32, 32).astype(np.float32)).cuda()
with torch.inference_mode():
    logits = resnet(image)
    features = timm.create_model("resnet10t", features_only=True).cuda()(image)
    acc1, acc5 = accuracy(model_ema(image), torch.tensor([0, 1, 2, 3]).cuda(), topk=(1, 5))
print(
    f"{len(features)} levels of features, acc@1 {acc1.item():.1f}, acc@5 {acc5.item():.1f}, {len(transform.transforms)}"
)
devices = sorted({str(parameter.device) for parameter in model.parameters()} | {str(features[-1].device)})
values = losses + logits.flatten().tolist()
print("RESULT", json.dumps({"steps": len(losses), "devices": devices, "values": values}))
