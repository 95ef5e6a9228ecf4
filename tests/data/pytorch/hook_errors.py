"""Writes `hook_errors.json`: hooks on a model with a sparse gradient, and hooks that raise over gloo.

Per case the calls that rank 0's hook makes in each of four passes (type and elements), what it raises,
and PowerSGD's statistics. Run with the PyTorch that is to be recorded:

    python hook_errors.py hook_errors.json [CASE ...]
"""

import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, quantization_hooks
from torch.nn.parallel import DistributedDataParallel


class Embedded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.e = torch.nn.Embedding(50, 16, sparse=True)
        self.l = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.l(self.e(x))


def dense():
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Linear(128, 10)), torch.randn(4, 64)


def sparse():
    return Embedded(), torch.randint(0, 50, (4, 3))


def wrapped(wrapper, hook, state=None):
    return lambda: (state() if state else None, wrapper(hook))


def power():
    return powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)


CASES = {
    "sparse, fp16_compress_hook": (sparse, lambda: (None, default_hooks.fp16_compress_hook)),
    "sparse, bf16_compress_hook": (sparse, lambda: (None, default_hooks.bf16_compress_hook)),
    "sparse, fp16_compress_wrapper(allreduce_hook)": (
        sparse,
        lambda: (None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)),
    ),
    "sparse, fp16_compress_wrapper(powerSGD_hook)": (
        sparse,
        lambda: (power(), default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook)),
    ),
    "sparse, powerSGD_hook": (sparse, lambda: (power(), powerSGD_hook.powerSGD_hook)),
    "sparse, bf16_compress_wrapper(fp16_compress_hook)": (
        sparse,
        wrapped(default_hooks.bf16_compress_wrapper, default_hooks.fp16_compress_hook),
    ),
    "sparse, batched_powerSGD_hook": (sparse, lambda: (power(), powerSGD_hook.batched_powerSGD_hook)),
    "sparse, quantization_pertensor_hook": (
        sparse,
        lambda: (dist.group.WORLD, quantization_hooks.quantization_pertensor_hook),
    ),
    "sparse, quantization_perchannel_hook": (
        sparse,
        lambda: (dist.group.WORLD, quantization_hooks.quantization_perchannel_hook),
    ),
    "dense, fp16_compress_wrapper(bf16_compress_hook)": (
        dense,
        wrapped(default_hooks.fp16_compress_wrapper, default_hooks.bf16_compress_hook),
    ),
    "dense, bf16_compress_wrapper(fp16_compress_hook)": (
        dense,
        wrapped(default_hooks.bf16_compress_wrapper, default_hooks.fp16_compress_hook),
    ),
    "dense, bf16_compress_wrapper(quantization_pertensor_hook)": (
        dense,
        wrapped(
            default_hooks.bf16_compress_wrapper,
            quantization_hooks.quantization_pertensor_hook,
            lambda: dist.group.WORLD,
        ),
    ),
    "dense, quantization_pertensor_hook": (
        dense,
        lambda: (dist.group.WORLD, quantization_hooks.quantization_pertensor_hook),
    ),
    "dense, quantization_perchannel_hook": (
        dense,
        lambda: (dist.group.WORLD, quantization_hooks.quantization_perchannel_hook),
    ),
}


def run(rank, store, name, result):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    calls, reduce, gather = [], dist.all_reduce, dist.all_gather

    def entry(op, tensor):
        calls[-1].append([op, str(tensor.dtype).removeprefix("torch."), tensor.numel()])

    def all_reduce(tensor, *args, **kwargs):
        entry("all_reduce", tensor)
        return reduce(tensor, *args, **kwargs)

    def all_gather(tensors, tensor, *args, **kwargs):
        entry("all_gather", tensor)
        return gather(tensors, tensor, *args, **kwargs)

    dist.all_reduce, dist.all_gather = all_reduce, all_gather
    model, hook = CASES[name]
    (model, inputs), (state, hook), error = model(), hook(), None
    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(state, hook)
    try:
        for _ in range(4):
            calls.append([])
            ddp(inputs).sum().backward()
    except Exception as raised:
        # Behind this stand places in files.
        error = f"{type(raised).__name__}: {raised}".split("\n\nAt:")[0]
        # And behind this the backends that have an operation.
        error = error.split(" If you are a Facebook employee")[0]
    if rank == 0:
        written = {"calls": calls, "error": error}
        if hasattr(state, "compression_stats"):
            written["stats"] = state.compression_stats()[1:]
        with open(result, "w") as file:
            json.dump(written, file)
    sys.stdout.flush()
    os._exit(0)


def main():
    cases = {}
    for name in sys.argv[2:] or CASES:
        with tempfile.TemporaryDirectory() as folder:
            store, result = os.path.join(folder, "store"), os.path.join(folder, "result")
            torch.multiprocessing.spawn(run, (store, name, result), nprocs=2)
            with open(result) as file:
                cases[name] = json.load(file)
    with open(sys.argv[1], "w") as file:
        json.dump({"torch": torch.__version__.split("+")[0], "world_size": 2, "cases": cases}, file, indent=1)


if __name__ == "__main__":
    main()
