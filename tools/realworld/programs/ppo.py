"""PPO in the manner of CleanRL: NumPy environments, rollouts in tensors on the GPU, Categorical, clipped losses."""

import json
import random

import numpy as np
import torch
from torch import nn, optim
from torch.distributions.categorical import Categorical

seed, num_envs, num_steps, iterations = 1, 4, 32, 4
gamma, gae_lambda, clip_coef, ent_coef, vf_coef, max_grad_norm = 0.99, 0.95, 0.2, 0.01, 0.5, 0.5

random.seed(seed)
np.random.seed(seed)
torch.manual_seed(seed)
torch.backends.cudnn.deterministic = True
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Envs:
    """Balance a point at the origin by pushing it left or right; float64 observations, as Gym gives them."""

    def __init__(self):
        self.rng = np.random.RandomState(seed)
        self.state = np.zeros((num_envs, 2))

    def reset(self):
        self.state = self.rng.uniform(-0.5, 0.5, (num_envs, 2))
        return self.state.copy()

    def step(self, action):
        self.state[:, 1] += 0.1 * (2 * action - 1) + 0.05 * self.state[:, 0]
        self.state[:, 0] += 0.1 * self.state[:, 1]
        done = np.abs(self.state[:, 0]) > 1.0
        self.state[done] = self.rng.uniform(-0.5, 0.5, (int(done.sum()), 2))
        return self.state.copy(), 1.0 - np.abs(self.state[:, 0]), done


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(2, 32)),
            nn.Tanh(),
            layer_init(nn.Linear(32, 32)),
            nn.Tanh(),
            layer_init(nn.Linear(32, 1)),
        )
        self.actor = nn.Sequential(
            layer_init(nn.Linear(2, 32)),
            nn.Tanh(),
            layer_init(nn.Linear(32, 32)),
            nn.Tanh(),
            layer_init(nn.Linear(32, 2), 0.01),
        )

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


envs = Envs()
agent = Agent().to(device)
optimizer = optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)

obs = torch.zeros((num_steps, num_envs, 2)).to(device)
actions = torch.zeros((num_steps, num_envs)).to(device)
logprobs = torch.zeros((num_steps, num_envs)).to(device)
rewards = torch.zeros((num_steps, num_envs)).to(device)
dones = torch.zeros((num_steps, num_envs)).to(device)
values = torch.zeros((num_steps, num_envs)).to(device)

next_obs = torch.Tensor(envs.reset()).to(device)
next_done = torch.zeros(num_envs).to(device)
told, steps = [], 0
for iteration in range(1, iterations + 1):
    optimizer.param_groups[0]["lr"] = (1.0 - (iteration - 1.0) / iterations) * 2.5e-3
    for step in range(num_steps):
        obs[step], dones[step] = next_obs, next_done
        with torch.no_grad():
            action, logprob, _, value = agent.get_action_and_value(next_obs)
            values[step] = value.flatten()
        actions[step], logprobs[step] = action, logprob
        next_obs, reward, done = envs.step(action.cpu().numpy())
        rewards[step] = torch.tensor(reward).to(device).view(-1)
        next_obs, next_done = torch.Tensor(next_obs).to(device), torch.Tensor(done).to(device)

    with torch.no_grad():
        next_value = agent.get_value(next_obs).reshape(1, -1)
        advantages = torch.zeros_like(rewards).to(device)
        lastgaelam = 0
        for t in reversed(range(num_steps)):
            nextnonterminal = 1.0 - (next_done if t == num_steps - 1 else dones[t + 1])
            nextvalues = next_value if t == num_steps - 1 else values[t + 1]
            delta = rewards[t] + gamma * nextvalues * nextnonterminal - values[t]
            advantages[t] = lastgaelam = delta + gamma * gae_lambda * nextnonterminal * lastgaelam
        returns = advantages + values

    b_obs, b_actions, b_logprobs = obs.reshape(-1, 2), actions.reshape(-1), logprobs.reshape(-1)
    b_advantages, b_returns, b_values = advantages.reshape(-1), returns.reshape(-1), values.reshape(-1)
    b_inds, clipfracs = np.arange(num_steps * num_envs), []
    for _ in range(2):
        np.random.shuffle(b_inds)
        for start in range(0, len(b_inds), 32):
            mb_inds = b_inds[start : start + 32]
            _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb_inds], b_actions.long()[mb_inds])
            logratio = newlogprob - b_logprobs[mb_inds]
            ratio = logratio.exp()
            with torch.no_grad():
                clipfracs += [((ratio - 1.0).abs() > clip_coef).float().mean().item()]
            mb_advantages = b_advantages[mb_inds]
            mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
            pg_loss = torch.max(
                -mb_advantages * ratio, -mb_advantages * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)
            ).mean()
            newvalue = newvalue.view(-1)
            v_clipped = b_values[mb_inds] + torch.clamp(newvalue - b_values[mb_inds], -clip_coef, clip_coef)
            v_loss_max = torch.max((newvalue - b_returns[mb_inds]) ** 2, (v_clipped - b_returns[mb_inds]) ** 2)
            loss = pg_loss - ent_coef * entropy.mean() + 0.5 * v_loss_max.mean() * vf_coef
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), max_grad_norm)
            optimizer.step()
            steps += 1
    y_pred, y_true = b_values.cpu().numpy(), b_returns.cpu().numpy()
    explained_var = 1 - np.var(y_true - y_pred) / np.var(y_true)
    told += [loss.item(), float(explained_var), float(np.mean(clipfracs)), rewards.mean().item()]
    print(f"iteration {iteration}: loss {told[-4]:.4f}, explained variance {explained_var:.3f}")

devices = sorted({str(parameter.device) for parameter in agent.parameters()})
print("RESULT", json.dumps({"steps": steps, "devices": devices, "values": told}))
