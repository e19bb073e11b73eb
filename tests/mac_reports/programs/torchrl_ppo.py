import torch

state = torch.zeros(2, dtype=torch.double)
policy = torch.nn.Linear(2, 2, device="mps")
mean, scale = policy(state.to("mps").float()).chunk(2)
action = torch.distributions.Normal(mean, scale.exp()).log_prob(mean)
torch.testing.assert_close(action.cpu(), (-scale - 0.9189385).detach().cpu(), rtol=1e-4, atol=1e-4)
