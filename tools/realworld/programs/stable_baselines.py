"""stable-baselines3: PPO and DQN with device="cuda" on a Gymnasium environment of our own, saved and loaded."""

import json
import os
import tempfile

import gymnasium as gym
import numpy as np
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy


class Balance(gym.Env):
    observation_space = gym.spaces.Box(-4.0, 4.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-0.5, 0.5, 2).astype(np.float32)
        self.count = 0
        return self.state.copy(), {}

    def step(self, action):
        self.state[1] += 0.1 * (2 * action - 1)
        self.state[0] = np.clip(self.state[0] + 0.1 * self.state[1], -4, 4)
        self.state[1] = np.clip(self.state[1], -4, 4)
        self.count += 1
        return self.state.copy(), float(1 - abs(self.state[0])), bool(abs(self.state[0]) > 2), self.count >= 40, {}


vec_env = make_vec_env(Balance, n_envs=2, seed=0)
model = PPO("MlpPolicy", vec_env, n_steps=32, batch_size=32, n_epochs=2, device="cuda", seed=0, verbose=0)
model.learn(total_timesteps=128)
path = os.path.join(tempfile.mkdtemp(), "ppo_balance")
model.save(path)
loaded = PPO.load(path, env=vec_env, device="cuda")
obs = np.array([[0.1, -0.2], [0.3, 0.1]], dtype=np.float32)
assert (model.predict(obs, deterministic=True)[0] == loaded.predict(obs, deterministic=True)[0]).all()
reward, _ = evaluate_policy(loaded, vec_env, n_eval_episodes=4)
values = [float(reward)]
values += [float(value) for value in model.policy.predict_values(model.policy.obs_to_tensor(obs)[0]).flatten()]

dqn = DQN("MlpPolicy", Balance(), learning_starts=20, buffer_size=200, batch_size=16, device="cuda", seed=0)
dqn.learn(total_timesteps=60)
values += [float(value) for value in dqn.q_net(dqn.policy.obs_to_tensor(obs)[0]).flatten()]
devices = sorted({str(parameter.device) for each in (model, dqn) for parameter in each.policy.parameters()})
print("RESULT", json.dumps({"steps": model.num_timesteps + dqn.num_timesteps, "devices": devices, "values": values}))
