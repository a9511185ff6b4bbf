"""Written by a robotics group that learns from a plant simulator.
Collects a short rollout with the present policy, then makes one actor-critic update on it."""

import math
import random
import time

import torch
import torch.nn as nn
from instrument_me import Watch

HORIZON = 16


class Plant:
    """Talks to the simulator, which answers when its tick is over."""

    tick = 0.007

    def __init__(self, seed):
        self.random = random.Random(seed)

    def reset(self):
        self.angle, self.speed = self.random.uniform(-0.5, 0.5), 0.0
        return [self.angle, self.speed, math.sin(self.angle), math.cos(self.angle)]

    def step(self, action):
        time.sleep(self.tick)
        push = (-1.0, 0.0, 1.0)[action]
        self.speed += 0.1 * (math.sin(self.angle) + 0.8 * push) + self.random.gauss(0, 0.01)
        self.angle += 0.1 * self.speed
        done = abs(self.angle) > 1.5
        return (
            [self.angle, self.speed, math.sin(self.angle), math.cos(self.angle)],
            -abs(self.angle),
            done,
        )


class Policy(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.actor, self.critic = nn.Linear(width, 3), nn.Linear(width, 1)

    def forward(self, state):
        hidden = self.body(state)
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


torch.set_num_threads(1)
torch.manual_seed(2)
plant, policy = Plant(2), Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
state = plant.reset()
memory = []

watch = Watch()
for iteration in range(20):
    watch("rollout")
    states, actions, rewards = [], [], []
    for _ in range(HORIZON):
        with torch.no_grad():
            logits, _ = policy(torch.tensor([state]))
        action = torch.distributions.Categorical(logits=logits).sample().item()
        following, reward, done = plant.step(action)
        states.append(state)
        actions.append(action)
        rewards.append(reward)
        state = plant.reset() if done else following
    returns, value = [], 0.0
    for reward in reversed(rewards):
        value = reward + 0.97 * value
        returns.insert(0, value)
    memory = memory[-1999:] + list(zip(states, actions, returns, strict=True))
    watch("update")
    s, a, r = (torch.tensor(column) for column in zip(*memory, strict=True))
    for _ in range(6):
        logits, critic = policy(s)
        advantage = (r - critic).detach()
        chosen = torch.log_softmax(logits, 1).gather(1, a[:, None]).squeeze(1)
        loss = -(chosen * advantage).mean() + 0.5 * (r - critic).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if iteration % 5 == 0:
        print(iteration, round(sum(rewards) / HORIZON, 3), round(loss.item(), 4))
    watch.step()
watch.close()
