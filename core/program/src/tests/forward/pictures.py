import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.pool = nn.AdaptiveAvgPool2d((2, 2))
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(32, 10)

    def features(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        return self.pool(F.relu(self.bn2(self.conv2(x))))

    def forward(self, x):
        x = torch.flatten(self.features(x), 1)
        if self.training:
            x = self.drop(x)
        return F.log_softmax(self.fc(x), dim=1)


dist.init_process_group("gloo")
model = DDP(Net(), bucket_cap_mb=0.0005)
opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for step in range(2):
    model.train()
    output = model(torch.randn(4, 1, 16, 16))
    loss = F.nll_loss(output, torch.randint(0, 10, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    model.eval()
    with torch.no_grad():
        output = model(torch.randn(4, 1, 16, 16))
        correct = (output.argmax(dim=1) == torch.randint(0, 10, (4,))).sum()
        dist.all_reduce(correct)
print(output.shape, loss.shape)
dist.destroy_process_group()
