"""Robotics student: advantage actor-critic for a hanging load under a crane trolley.

The simulator is the one from the lab course and keeps its own clock, like the real trolley.
"""

import math
import time

import torch
from instrument_me import Watch
from torch import nn
from torch.distributions import Categorical


class CraneSim:
    """Trolley with a pendulum; answers at its control rate."""

    rate = 100.0

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.deadline = time.monotonic()

    def reset(self):
        self.x, self.v, self.w = 0.0, 0.0, 0.0
        self.a = 0.2 * float(torch.rand(1, generator=self.gen)) - 0.1
        self.t = 0
        self.deadline = time.monotonic()
        return [self.x, self.v, self.a, self.w]

    def step(self, action):
        dt = 1 / self.rate
        force = (-4.0, 0.0, 4.0)[action]
        self.w += dt * (-9.81 * math.sin(self.a) - force * math.cos(self.a))
        self.a += dt * self.w
        self.v += dt * force
        self.x += dt * self.v
        self.t += 1
        self.deadline = max(self.deadline + dt, time.monotonic())
        time.sleep(self.deadline - time.monotonic() if self.deadline > time.monotonic() else 0)
        reward = -(self.a**2) - 0.1 * (self.x - 1) ** 2
        return [self.x, self.v, self.a, self.w], reward, self.t >= 200 or abs(self.a) > 1.2


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
        self.pi, self.v = nn.Linear(256, 3), nn.Linear(256, 1)

    def forward(self, s):
        h = self.body(s)
        return self.pi(h), self.v(h).squeeze(-1)


def main(updates=14, horizon=16, gamma=0.99):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    env, net = CraneSim(0), ActorCritic()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=7e-4)
    state = env.reset()
    watch = Watch()
    for update in range(updates):
        watch("rollout")
        states, actions, rewards, masks = [], [], [], []
        for _ in range(horizon):
            with torch.no_grad():
                logits, _ = net(torch.tensor(state))
                action = int(Categorical(logits=logits).sample())
            states.append(state)
            state, reward, done = env.step(action)
            actions.append(action)
            rewards.append(reward)
            masks.append(0.0 if done else 1.0)
            if done:
                state = env.reset()

        watch("update")
        with torch.no_grad():
            ret = net(torch.tensor(state))[1].item()
        returns = []
        for r, m in zip(reversed(rewards), reversed(masks), strict=True):
            ret = r + gamma * m * ret
            returns.insert(0, ret)
        returns = torch.tensor(returns)
        for _ in range(2):
            logits, value = net(torch.tensor(states))
            adv = returns - value
            dist = Categorical(logits=logits)
            loss = (
                -(dist.log_prob(torch.tensor(actions)) * adv.detach()).mean()
                + 0.5 * adv.pow(2).mean()
            )
            loss = loss - 0.01 * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if update % 4 == 0:
            print(
                f"update {update:3d} | mean reward {sum(rewards) / horizon:7.4f} | loss {loss.item():.4f}"
            )
        watch.step()
    watch.close()


if __name__ == "__main__":
    main()
