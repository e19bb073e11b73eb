"""botorch: Bayesian optimization in double on "cuda": SingleTaskGP, qLogExpectedImprovement by Sobol, optimize_acqf."""

import json

import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.mlls import ExactMarginalLogLikelihood

tkwargs = {"dtype": torch.double, "device": torch.device("cuda" if torch.cuda.is_available() else "cpu")}
torch.manual_seed(0)
bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **tkwargs)


def objective(x):
    return -((x - torch.tensor([0.3, 0.7], **tkwargs)) ** 2).sum(-1, keepdim=True)


train_x = draw_sobol_samples(bounds=bounds, n=6, q=1, seed=0).squeeze(1)
train_y = objective(train_x)
best = []
for iteration in range(2):
    gp = SingleTaskGP(train_x, train_y, input_transform=Normalize(d=2), outcome_transform=Standardize(m=1))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(gp.likelihood, gp))
    sampler = SobolQMCNormalSampler(sample_shape=torch.Size([16]), seed=iteration)
    acqf = qLogExpectedImprovement(model=gp, best_f=train_y.max(), sampler=sampler)
    options = {"batch_limit": 4, "maxiter": 20, "seed": 0}
    candidate, value = optimize_acqf(acqf, bounds=bounds, q=1, num_restarts=2, raw_samples=16, options=options)
    assert candidate.device == train_x.device
    train_x, train_y = torch.cat([train_x, candidate]), torch.cat([train_y, objective(candidate)])
    best.append(train_y.max().item())
    print(f"iteration {iteration}: best {best[-1]:.5f} at {candidate.tolist()}")
posterior = gp.posterior(bounds)
values = best + posterior.mean.flatten().tolist() + posterior.variance.flatten().tolist()
devices = sorted({str(parameter.device) for parameter in gp.parameters()})
print("RESULT", json.dumps({"steps": len(best), "devices": devices, "values": values}))
