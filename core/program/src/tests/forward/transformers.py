import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=20, batch_first=True)
        # It is copied: without the assignment to self, the layer itself is no part of the model.
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, norm=nn.LayerNorm(8))
        self.first = nn.TransformerEncoderLayer(8, 4, 24, norm_first=True, bias=False, batch_first=True)
        self.cross = nn.MultiheadAttention(8, 2, kdim=6, vdim=5, batch_first=True)
        self.own = nn.MultiheadAttention(8, 2, add_bias_kv=True, batch_first=True)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 28), num_layers=1)
        self.both = nn.Transformer(d_model=8, nhead=2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=32)
        self.head = nn.Linear(8, 3)

    def forward(self, x, keys, values):
        x = self.first(self.encoder(x))
        x, weights = self.cross(x, keys, values)
        assert tuple(weights.shape) == (4, 6, 7), weights.shape
        x, weights = self.own(x, x, x, need_weights=False)
        assert weights is None
        x = x.transpose(0, 1)
        x = self.decoder(x, x, tgt_mask=nn.Transformer.generate_square_subsequent_mask(6))
        x = self.both(x, x[:3])
        x = F.scaled_dot_product_attention(x, x, x)
        assert tuple(x.shape) == (3, 4, 8), x.shape
        return self.head(x)


dist.init_process_group("gloo")
model = DDP(Model(), bucket_cap_mb=0.0001)
for step in range(2):
    loss = model(torch.randn(4, 6, 8), torch.randn(4, 7, 6), torch.randn(4, 7, 5)).sum()
    loss.backward()
print(sum(own.numel() for own in model.parameters()))


class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16)
        self.encoder = nn.TransformerEncoder(self.layer, num_layers=1)

    def forward(self, x):
        return self.encoder(x)


# The layer that was copied is a part of the model, and is not used.
kept = DDP(Kept(), find_unused_parameters=True, bucket_cap_mb=0.0001)
for step in range(2):
    kept(torch.randn(5, 2, 8)).sum().backward()
dist.destroy_process_group()
