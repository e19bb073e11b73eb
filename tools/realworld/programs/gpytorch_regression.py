"""gpytorch: the simple GP regression with CUDA: .cuda() on data, model and likelihood, fit, predict in double."""

import json
import math

import gpytorch
import torch

train_x = torch.linspace(0, 1, 40).cuda()
train_y = torch.sin(train_x * (2 * math.pi)) + 0.1 * torch.cos(train_x * 40)


class ExactGPModel(gpytorch.models.ExactGP):
    def __init__(self, train_x, train_y, likelihood):
        super().__init__(train_x, train_y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
model = ExactGPModel(train_x, train_y, likelihood).cuda()
model.train()
likelihood.train()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
losses = []
for i in range(12):
    optimizer.zero_grad()
    loss = -mll(model(train_x), train_y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    print(f"Iter {i + 1} - Loss: {loss.item():.3f} - noise: {model.likelihood.noise.item():.3f}")

model.eval()
likelihood.eval()
test_x = torch.linspace(0, 1, 11).cuda()
with torch.no_grad(), gpytorch.settings.fast_pred_var():
    observed_pred = likelihood(model(test_x))
    mean = observed_pred.mean
    lower, upper = observed_pred.confidence_region()
mean, lower, upper = mean.cpu(), lower.cpu(), upper.cpu()
assert (lower.numpy() <= mean.numpy()).all()
devices = sorted({str(parameter.device) for parameter in model.parameters()})
values = losses + mean.tolist() + (upper - lower).tolist()
print("RESULT", json.dumps({"steps": len(losses), "devices": devices, "values": values}))
