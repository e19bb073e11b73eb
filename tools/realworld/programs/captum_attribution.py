"""captum: integrated gradients, saliency, Grad-CAM, occlusion, feature ablation and SHAP for a convnet on the GPU."""

import json

import numpy as np
import torch
from captum.attr import (
    DeepLift,
    FeatureAblation,
    GradientShap,
    IntegratedGradients,
    LayerGradCam,
    NoiseTunnel,
    Occlusion,
    Saliency,
)
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
rng = np.random.RandomState(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.fc = nn.Linear(64, 5)

    def forward(self, x):
        return self.fc(self.pool(self.relu(self.conv(x))).flatten(1))


net = Net().to(device).eval()
input = torch.from_numpy(rng.rand(2, 3, 12, 12).astype(np.float32)).to(device)
input.requires_grad = True
baseline = torch.zeros_like(input)
attributions, delta = IntegratedGradients(net).attribute(
    input, baseline, target=1, n_steps=20, return_convergence_delta=True
)
values = [attributions.sum().item(), delta.abs().max().item()]
values.append(Saliency(net).attribute(input, target=torch.tensor([0, 3]).cuda()).sum().item())
values.append(DeepLift(net).attribute(input, baseline, target=2).sum().item())
values.append(LayerGradCam(net, net.conv).attribute(input, target=1).sum().item())
windows = dict(sliding_window_shapes=(3, 4, 4), strides=(3, 4, 4))
values.append(Occlusion(net).attribute(input, target=1, baselines=0, **windows).sum().item())
mask = torch.arange(9, device=device).view(1, 1, 3, 3).repeat_interleave(4, 2).repeat_interleave(4, 3)
values.append(FeatureAblation(net).attribute(input, target=4, feature_mask=mask).sum().item())
tunnel = NoiseTunnel(IntegratedGradients(net))
smooth = tunnel.attribute(input, nt_samples=2, nt_type="smoothgrad", stdevs=0.0, target=1, n_steps=5)
values.append(smooth.sum().item())
shap = GradientShap(net).attribute(input, baselines=torch.cat([baseline, input.detach()]), n_samples=2, target=0)
assert shap.shape == input.shape
assert np.transpose(attributions[0].cpu().detach().numpy(), (1, 2, 0)).shape == (12, 12, 3)
devices = sorted({str(parameter.device) for parameter in net.parameters()} | {str(shap.device)})
print("RESULT", json.dumps({"steps": len(values), "devices": devices, "values": values}))
