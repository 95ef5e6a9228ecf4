"""What ranks have in common after each pass of a real DDP: 4 gloo ranks, SGD, inputs that differ by rank.

    python ddp_agreement.py ddp_agreement.json

Per run and pass: `same`, the largest number of neighbouring ranks that have the same parameters, bit for bit, after
the optimizer's step (and after the model averager's); `same_gradients`, the same of the gradients that the optimizer
stepped with; or `raised`, the beginning of what the forward pass raised. A run ends with a pass that raises.
"""

import contextlib
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook as power
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as local
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

WORLD = 4
SIZES = [16, 32, 32, 8]


class Mlp(torch.nn.Module):
    def __init__(self, skip):
        super().__init__()
        pairs = zip(SIZES, SIZES[1:])
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in pairs)
        self.skip = skip

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            x = x if index == self.skip else torch.tanh(layer(x))
        return x


RUNS = {
    "plain": {},
    "small buckets": {"bucket_cap_mb": 0.001},
    "accumulate": {"accumulate": 2},
    "unused": {"skip": 1},
    "unused, small buckets": {"skip": 1, "bucket_cap_mb": 0.001},
    "unused, found": {"skip": 1, "find_unused_parameters": True, "bucket_cap_mb": 0.001},
    "unused, static": {"skip": 1, "static_graph": True, "bucket_cap_mb": 0.001},
    "noop": {"hook": "noop"},
    "noop, averaged": {"hook": "noop", "averager": 2},
    "fp16": {"hook": "fp16"},
    "powersgd": {"hook": "powersgd"},
    "localsgd": {"hook": "localsgd"},
    "localsgd, alone": {"hook": "localsgd alone"},
    "localsgd, averaged": {"hook": "localsgd", "averager": 2},
}


def largest(equal):
    """Of the divisors of the world, the largest whose blocks of neighbours all have the same."""
    for size in (4, 2):
        if all(equal(first, first + other) for first in range(0, WORLD, size) for other in range(size)):
            return size
    return 1


def common(tensors):
    flat = torch.cat([t.detach().reshape(-1) for t in tensors])
    gathered = [torch.empty_like(flat) for _ in range(WORLD)]
    dist.all_gather(gathered, flat)
    return largest(lambda a, b: torch.equal(gathered[a], gathered[b]))


def hook_of(ddp, name):
    if name == "noop":
        ddp.register_comm_hook(None, noop_hook)
    elif name == "fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif name == "powersgd":
        state = power.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
        ddp.register_comm_hook(state, power.powerSGD_hook)
    elif name is not None:
        subgroup, _ = dist.new_subgroups(group_size=2)
        state = local.PostLocalSGDState(None, subgroup, start_localSGD_iter=2,
                                        post_local_gradient_allreduce=name == "localsgd")
        ddp.register_comm_hook(state, local.post_localSGD_hook)


def train(rank, run):
    torch.manual_seed(0)
    options = {k: v for k, v in run.items() if k not in ("skip", "hook", "averager", "accumulate")}
    ddp = DistributedDataParallel(Mlp(run.get("skip")), **options)
    hook_of(ddp, run.get("hook"))
    averager = PeriodicModelAverager(run["averager"]) if "averager" in run else None
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    torch.manual_seed(1 + rank)
    accumulate, passes = run.get("accumulate", 1), []
    for number in range(6):
        sync = (number + 1) % accumulate == 0
        try:
            with contextlib.nullcontext() if sync else ddp.no_sync():
                ddp(torch.randn(3, SIZES[0])).square().sum().backward()
        except RuntimeError as error:
            passes.append({"raised": str(error).split(". ")[0]})
            break
        if not sync:
            passes.append({"same": common(ddp.parameters())})
            continue
        gradients = [p.grad for p in ddp.parameters() if p.grad is not None]
        entry = {"same_gradients": common(gradients)}
        optimizer.step()
        entry["same_after_step"] = common(ddp.parameters())
        if averager is not None:
            averager.average_parameters(ddp.parameters())
        entry["same"] = common(ddp.parameters())
        optimizer.zero_grad()
        passes.append(entry)
    return passes


def main_of(rank, store, result):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    runs = {name: {"run": run, "passes": train(rank, run)} for name, run in RUNS.items()}
    if rank == 0:
        written = {"torch": torch.__version__, "world_size": WORLD, "sizes": SIZES, "runs": runs}
        with open(result, "w") as file:
            json.dump(written, file, indent=1)
            file.write("\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        arguments = (os.path.join(folder, "store"), os.path.abspath(sys.argv[1]))
        torch.multiprocessing.spawn(main_of, arguments, nprocs=WORLD)
