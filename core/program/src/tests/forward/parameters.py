"""Writes parameters.json: the parameters of layers as PyTorch registers them, with a Python that has torch.

    python core/program/src/tests/forward/parameters.py
"""

import json
import pathlib

import torch
import torch.nn as nn

LAYERS = [
    "nn.LSTM(8, 16)",
    "nn.LSTM(8, 16, num_layers=2, bidirectional=True)",
    "nn.LSTM(8, 16, 2, bias=False)",
    "nn.LSTM(8, 16, num_layers=2, proj_size=4, bidirectional=True)",
    "nn.GRU(8, 16, 2, bidirectional=True)",
    "nn.RNN(8, 16, 2, nonlinearity='relu', bias=False)",
    "nn.LSTMCell(8, 16)",
    "nn.GRUCell(8, 16, bias=False)",
    "nn.RNNCell(8, 16)",
    "nn.MultiheadAttention(8, 2)",
    "nn.MultiheadAttention(8, 2, bias=False)",
    "nn.MultiheadAttention(8, 2, kdim=4, vdim=6)",
    "nn.MultiheadAttention(8, 2, add_bias_kv=True)",
    "nn.TransformerEncoderLayer(8, 2, 16)",
    "nn.TransformerEncoderLayer(d_model=8, nhead=2, bias=False)",
    "nn.TransformerDecoderLayer(8, 2, 16, norm_first=True)",
    "nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, nn.LayerNorm(8))",
    "nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), num_layers=2)",
    "nn.Transformer(8, 2, 1, 2, 16)",
    "nn.SyncBatchNorm(8)",
    "nn.SyncBatchNorm(8, affine=False)",
    "nn.Sequential(nn.Embedding(9, 8), nn.GRU(8, 4), nn.LayerNorm(4))",
]

layers = {made: [[name, list(own.shape)] for name, own in eval(made).named_parameters()] for made in LAYERS}
lines = ",\n".join(f"{json.dumps(made)}: {json.dumps(parameters)}" for made, parameters in layers.items())
text = f'{{"torch": "{torch.__version__}", "layers": {{\n{lines}\n}}}}\n'
(pathlib.Path(__file__).parent / "parameters.json").write_text(text)
