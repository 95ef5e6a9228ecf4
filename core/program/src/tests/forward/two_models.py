import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def forward(self, x):
        return torch.sigmoid(self.net(x)).view(-1)


dist.init_process_group("gloo")
generator, critic = DDP(Generator()), DDP(Critic())
loss_fn = nn.BCELoss()
opt_g = torch.optim.Adam(generator.parameters())
opt_d = torch.optim.Adam(critic.parameters())
for step in range(2):
    critic.zero_grad()
    real = loss_fn(critic(torch.randn(4, 8)), torch.ones(4))
    real.backward()
    fake = generator(torch.randn(4, 4))
    loss = loss_fn(critic(fake.detach()), torch.zeros(4))
    loss.backward()
    opt_d.step()
    generator.zero_grad()
    loss_fn(critic(fake), torch.ones(4)).backward()
    opt_g.step()
dist.destroy_process_group()
