import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.lstm = nn.LSTM(8, 12, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1)
        self.gru = nn.GRU(24, 10)
        self.rnn = nn.RNN(10, 6, bias=False)
        self.projected = nn.LSTM(6, 9, proj_size=5)
        self.cell = nn.GRUCell(5, 7)
        self.step = nn.LSTMCell(7, 4)
        self.out = nn.Linear(4, 3)

    def forward(self, tokens):
        self.lstm.flatten_parameters()
        x, (hidden, memory) = self.lstm(self.embed(tokens))
        assert tuple(hidden.shape) == (4, x.shape[0], self.lstm.hidden_size), hidden.shape
        assert memory.shape == hidden.shape
        x, last = self.gru(x.transpose(0, 1))
        assert tuple(last.shape) == (1, 3, 10), last.shape
        x, _ = self.rnn(x)
        x, (last, memory) = self.projected(x, (torch.zeros(1, 3, 5), torch.zeros(1, 3, 9)))
        assert memory.size(2) == 9 and last.size(2) == 5
        state = torch.zeros(3, 7)
        for step in range(2):
            state = self.cell(x[step], state)
        state, _ = self.step(state)
        return self.out(state)


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        _, (hidden, _) = self.lstm(x)
        return self.head(hidden[-1])


dist.init_process_group("gloo")
model = DDP(Tagger(), bucket_cap_mb=0.0001)
for step in range(2):
    loss = model(torch.randint(0, 50, (3, 5))).sum()
    loss.backward()
# Its input is not trained: the order of the gradients is another.
model = DDP(Last(), bucket_cap_mb=0.0001)
for step in range(2):
    loss = model(torch.randn(5, 3, 4)).sum()
    loss.backward()
print([(name, tuple(own.shape)) for name, own in model.named_parameters()])
dist.destroy_process_group()
