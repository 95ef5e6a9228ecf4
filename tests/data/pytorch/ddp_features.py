"""Writes ddp_features.json: what torch 2.7.1 did with hooks, averagers, sharded optimizers and values.

    python ddp_features.py ddp_features.json [CASE ...]

Ranks are processes over gloo on CPU. An event is [call, dtype, elements, extra]: extra is the root of a
broadcast, or the size of a group smaller than the world. Calls are those made through torch.distributed's
functions (also in the callbacks of a hook's futures, which run in gloo's threads) and those that the
reducer makes itself.
"""

import json
import os
import sys
import tempfile
import threading
from collections import OrderedDict

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (
    ddp_zero_hook,
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_hooks,
)
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging import averagers, hierarchical_model_averager
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils._python_dispatch import TorchDispatchMode

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(z):
    z = z ^ (z >> np.uint64(30))
    z = z * np.uint64(0xBF58476D1CE4E5B9)
    z = z ^ (z >> np.uint64(27))
    z = z * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def seeded(seed, rank, n):
    """The floats of Lockstep's `Fill::Seeded`."""
    with np.errstate(over="ignore"):
        key = mix(np.array([(seed * 1000003 + rank) & (2**64 - 1)], dtype=np.uint64))
        u = mix(key + (np.arange(n, dtype=np.uint64) + np.uint64(1)) * GOLDEN)
    m = (u >> np.uint64(40)).astype(np.int64) - (1 << 23)
    e = (u & np.uint64(7)).astype(np.int64) - 4
    return torch.from_numpy(np.ldexp(m.astype(np.float64), e - 23).astype(np.float32))


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.events, self.inside = [], threading.local()
        # The future of an all_gather over NCCL holds one tensor of all results, which the quantization hooks
        # ask for; over gloo it holds a list.
        self.like_nccl = False
        for name in ["all_reduce", "broadcast", "all_gather"]:
            self.patch(name, getattr(dist, name))

    def patch(self, name, call):
        def patched(*args, **kwargs):
            tensor = args[1] if name == "all_gather" else kwargs.get("tensor", args[0] if args else None)
            group = kwargs.get("group") or dist.group.WORLD
            extra = {}
            if name == "broadcast":
                extra["root"] = dist.get_group_rank(group, kwargs.get("src", 0))
            if group.size() < dist.get_world_size():
                extra["group_size"] = group.size()
            self.events.append([name, name_of(tensor.dtype), tensor.numel(), extra])
            self.inside.on = True
            try:
                if self.like_nccl and name == "all_gather":
                    call(*args, **{**kwargs, "async_op": False})
                    future = torch.futures.Future()
                    future.set_result([torch.stack(args[0])])
                    return type("Work", (), {"get_future": lambda self: future})()
                return call(*args, **kwargs)
            finally:
                self.inside.on = False

        setattr(dist, name, patched)
        setattr(dist.distributed_c10d, name, patched)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d" and not getattr(self.inside, "on", False):
            name = {"allreduce_": "all_reduce", "broadcast_": "broadcast", "allgather_": "all_gather"}
            name = name.get(func._schema.name.split("::")[1])
            tensor = args[1][0] if name == "all_gather" else args[0][0]
            extra = {"root": args[2]} if name == "broadcast" else {}
            if name:
                self.events.append([name, name_of(tensor.dtype), tensor.numel(), extra])
        return func(*args, **(kwargs or {}))

    def take(self):
        events, self.events = self.events, []
        return events


class Shapes(torch.nn.Module):
    """Convolutions, equal and narrow linear layers, a norm: what PowerSGD treats differently."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.first = torch.nn.Linear(32, 64)
        self.second = torch.nn.Linear(64, 64)
        self.third = torch.nn.Linear(64, 64)
        self.norm = torch.nn.LayerNorm(64)
        self.head = torch.nn.Linear(64, 3)

    def forward(self, x):
        h = self.conv(x).mean(dim=(2, 3)).repeat(1, 4)
        h = torch.relu(self.first(h))
        h = torch.relu(self.second(h))
        return self.head(self.norm(self.third(h)))


def describe(model):
    entry = lambda name, t: [name, list(t.shape), t.numel(), name_of(t.dtype)]
    return {
        "params": [entry(n, p) + [p.requires_grad] for n, p in model.named_parameters()],
        "tied": [],
        "buffers": [entry(n, b) for n, b in model.named_buffers()],
    }


def train(recorder, ddp, steps, after=None):
    done = []
    for step in range(steps):
        torch.manual_seed(step)
        recorder.take()
        loss = ddp(torch.randn(4, 3, 8, 8)).sum()
        forward = recorder.take()
        loss.backward()
        backward = recorder.take()
        entry = {"forward": forward, "backward": backward}
        if after:
            entry.update(after() or {})
        for p in ddp.parameters():
            p.grad = None
        done.append(entry)
    return done


def ready_order(ddp):
    text = ddp._get_ddp_logging_data()["prev_iteration_grad_ready_order_indices"]
    return [int(n) for n in text.replace(",", " ").split()]


def in_order(hook):
    """The hook, each bucket waited for: gloo's threads would run the callbacks of several buckets in any
    order, and abort; on CUDA they run in the order of the buckets."""

    def waited(state, bucket):
        future = hook(state, bucket)
        future.wait()
        return future

    return waited


def power_sgd(recorder, rank, world):
    result = {"model": describe(Shapes())}
    states = {
        "rank1": dict(matrix_approximation_rank=1, start_powerSGD_iter=2),
        "rank2": dict(matrix_approximation_rank=2, start_powerSGD_iter=3),
        "rank4": dict(matrix_approximation_rank=4, start_powerSGD_iter=2, min_compression_rate=4),
        "rank64": dict(matrix_approximation_rank=64, start_powerSGD_iter=2),
        "rate1": dict(matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=1),
        "rate1000": dict(matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=1000),
        "plain": dict(
            matrix_approximation_rank=2, start_powerSGD_iter=1, use_error_feedback=False, warm_start=False
        ),
        "cold": dict(matrix_approximation_rank=1, start_powerSGD_iter=2, warm_start=False),
        "batched_same_shape": dict(
            matrix_approximation_rank=1, start_powerSGD_iter=2, batch_tensors_with_same_shape=True
        ),
    }
    orthogonalize = powerSGD_hook._orthogonalize
    for hook_name in ["powerSGD_hook", "batched_powerSGD_hook"]:
        if hook_name == "batched_powerSGD_hook":
            # As it is, the hook fails in its first compressed iteration: it passes one matrix to what asks
            # for a batch of them.
            try:
                torch.manual_seed(0)
                state = powerSGD_hook.PowerSGDState(process_group=None, start_powerSGD_iter=2)
                ddp = DDP(Shapes())
                ddp.register_comm_hook(state, powerSGD_hook.batched_powerSGD_hook)
                train(recorder, ddp, 5)
            except AssertionError:
                result["batched_powerSGD_hook"] = "AssertionError"
            del ddp
            batch = lambda m: m.unsqueeze(0) if m.dim() == 2 else m
            powerSGD_hook._orthogonalize = lambda m, epsilon=0: orthogonalize(batch(m), epsilon)
        for name, arguments in states.items():
            if (hook_name, name) == ("batched_powerSGD_hook", "rank64"):
                continue  # An assertion fails: the rank is larger than the side of a bucket's square.
            for cap in [None, 0.01]:
                torch.manual_seed(0)
                state = powerSGD_hook.PowerSGDState(process_group=None, **arguments)
                options = {} if cap is None else {"bucket_cap_mb": cap}
                ddp = DDP(Shapes(), **options)
                ddp.register_comm_hook(state, in_order(getattr(powerSGD_hook, hook_name)))
                steps = train(recorder, ddp, 5, lambda: {"stats": list(state.compression_stats())})
                result[f"{hook_name}/{name}/{cap}"] = {
                    "state": arguments,
                    "bucket_cap_mb": cap,
                    "grad_ready_order": ready_order(ddp),
                    "iterations": steps,
                    "error_elements": {str(k): v.numel() for k, v in sorted(state.error_dict.items())},
                    "p_elements": {str(k): v.numel() for k, v in sorted(state.p_memory_dict.items())},
                    "q_elements": {str(k): v.numel() for k, v in sorted(state.q_memory_dict.items())},
                }
    for arguments in [
        dict(start_powerSGD_iter=1),
        dict(start_powerSGD_iter=1, use_error_feedback=False),
        dict(start_powerSGD_iter=0, warm_start=False),
    ]:
        try:
            powerSGD_hook.PowerSGDState(process_group=None, **arguments)
        except ValueError as error:
            result["refused/" + json.dumps(arguments)] = str(error)
    return result


def other_hooks(recorder, rank, world):
    result = {"model": describe(Shapes())}
    hooks = {
        "allreduce_hook": (None, default_hooks.allreduce_hook),
        "fp16_compress_hook": (None, default_hooks.fp16_compress_hook),
        "bf16_compress_hook": (None, default_hooks.bf16_compress_hook),
        "fp16_compress_wrapper(powerSGD_hook)": (
            "power",
            default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook),
        ),
        "bf16_compress_wrapper(allreduce_hook)": (
            None,
            default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook),
        ),
        "quantization_pertensor_hook": (None, quantization_hooks.quantization_pertensor_hook),
        "quantization_perchannel_hook": (None, quantization_hooks.quantization_perchannel_hook),
    }
    for name, (state, hook) in hooks.items():
        for cap in [None, 0.01]:
            torch.manual_seed(0)
            if state == "power":
                state_of = powerSGD_hook.PowerSGDState(
                    process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=2,
                    orthogonalization_epsilon=1e-3,
                )
            else:
                state_of = dist.group.WORLD if name.startswith("quant") else None
            options = {} if cap is None else {"bucket_cap_mb": cap}
            ddp = DDP(Shapes(), **options)
            ddp.register_comm_hook(state_of, in_order(hook))
            recorder.like_nccl = name.startswith("quant")
            result[f"{name}/{cap}"] = {"iterations": train(recorder, ddp, 4), "grad_ready_order": ready_order(ddp)}
            recorder.like_nccl = False
    return result


def local_sgd(recorder, rank, world):
    subgroup, _ = dist.new_subgroups(group_size=2)
    result = {"model": describe(Shapes())}
    makers = {
        "periodic": lambda: averagers.PeriodicModelAverager(period=2, warmup_steps=3),
        "periodic_warmup_0": lambda: averagers.PeriodicModelAverager(period=3, warmup_steps=0),
        "hierarchical": lambda: hierarchical_model_averager.HierarchicalModelAverager(
            period_group_size_dict=OrderedDict([(2, 2), (4, 4)]), warmup_steps=3
        ),
        "hierarchical_one_level": lambda: hierarchical_model_averager.HierarchicalModelAverager(
            period_group_size_dict=OrderedDict([(3, 4)]), warmup_steps=1
        ),
    }
    for name, make in makers.items():
        for local in [True, False]:
            torch.manual_seed(0)
            ddp = DDP(Shapes())
            state = post_localSGD_hook.PostLocalSGDState(
                process_group=None, subgroup=subgroup, start_localSGD_iter=3, post_local_gradient_allreduce=local
            )
            ddp.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
            optimizer = PostLocalSGDOptimizer(torch.optim.SGD(ddp.parameters(), lr=0.1), make())

            def step():
                optimizer.step()
                return {"optimizer": recorder.take()}

            result[f"{name}/{local}"] = {"iterations": train(recorder, ddp, 9, step)}
    return result


def mixed_model():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(24, 24) for _ in range(5)])
    model[1].weight.requires_grad = False
    return model


def zero(recorder, rank, world):
    result = {}
    for frozen in [False, True]:
        for view in [False, True]:
            model = mixed_model()
            if not frozen:
                model[1].weight.requires_grad = True
            ddp = DDP(model)
            optimizer = ZeroRedundancyOptimizer(
                ddp.parameters(), torch.optim.SGD, lr=0.1, parameters_as_bucket_view=view
            )
            index = {id(p): i for i, p in enumerate(ddp.parameters())}
            steps = []
            for _ in range(3):
                ddp(torch.ones(2, 24)).sum().backward()
                recorder.take()
                optimizer.step()
                steps.append(recorder.take())
            result[f"frozen={frozen}/view={view}"] = {
                "model": describe(model),
                "partition": [
                    [index[id(p)] for g in groups for p in g["params"]] for groups in optimizer._partition_parameters()
                ],
                "steps": steps,
            }
    return result


def zero_overlap(recorder, rank, world):
    # PyTorch asks for NCCL, because gloo may hang: it does where callbacks run in its threads.
    ddp_zero_hook.dist = type("Patched", (), dict(vars(dist), get_backend=staticmethod(lambda group: "nccl")))
    result = {}
    for hook_name in ["hook_with_zero_step", "hook_with_zero_step_interleaved"]:
        for shard in [False, True]:
            for static in [False, True]:
                torch.manual_seed(0)
                model = torch.nn.Sequential(*[torch.nn.Linear(24, 24) for _ in range(5)])
                ddp = DDP(model, bucket_cap_mb=0.004, static_graph=static)
                optimizer = ZeroRedundancyOptimizer(
                    ddp.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.1
                )
                hook = getattr(ddp_zero_hook, hook_name)(
                    in_order(default_hooks.allreduce_hook), ddp, optimizer, shard_buckets=shard
                )
                ddp.register_comm_hook(None, hook)
                steps = []
                for _ in range(6):
                    recorder.take()
                    ddp(torch.ones(2, 24)).sum().backward()
                    dist.barrier()
                    steps.append([event for event in recorder.take() if event[0]])
                index = {id(p): i for i, p in enumerate(ddp.parameters())}
                assigned = [
                    {str(b): [index[id(p)] for p in a.parameters] for b, a in sorted(own.items())}
                    for own in optimizer._bucket_assignments_per_rank
                ]
                result[f"{hook_name}/shard={shard}/static={static}"] = {
                    "model": describe(model),
                    "steps": steps,
                    "assigned": assigned,
                }
    return result


def join_several(recorder, rank, world):
    result = {}
    # "zero" alone hangs: a joined rank's `step()` tells the context that it has not joined. "zero,ddp" does
    # too: ranks that have not joined reduce gradients before they tell.
    for order in ["ddp", "ddp,zero"]:
        for throw in [False, True]:
            torch.manual_seed(0)
            ddp = DDP(torch.nn.Linear(4, 3))
            optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, lr=0.5)
            objects = {"ddp": ddp, "zero": optimizer}
            joinables = [objects[name] for name in order.split(",")]
            iterations, error = [], None
            recorder.take()
            try:
                with Join(joinables, throw_on_early_termination=throw, divide_by_initial_world_size=True):
                    for _ in range(2 + rank):
                        step = {}
                        iterations.append(step)
                        loss = ddp(torch.ones(2, 4)).sum()
                        step["forward"] = recorder.take()
                        loss.backward()
                        step["backward"] = recorder.take()
                        if "zero" in order:
                            optimizer.step()
                        step["optimizer"] = recorder.take()
                        optimizer.zero_grad()
            except RuntimeError as raised:
                error = str(raised)
            result[f"{order}/throw={throw}"] = {
                "iterations": iterations, "after": recorder.take(), "error": error
            }
            dist.barrier()
            recorder.take()
    try:
        Join([])
    except ValueError as raised:
        result["empty"] = str(raised)
    group = dist.new_group(list(range(world)))
    ddp = DDP(torch.nn.Linear(4, 3))
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, lr=0.5, process_group=group)
    try:
        Join([ddp, optimizer])
    except ValueError as raised:
        result["groups"] = str(raised)
    return result


SIZES = [5, 70, 33, 16]


class Terms(torch.nn.Module):
    """Every gradient is g(step, rank) + p/4, exactly."""

    def __init__(self):
        super().__init__()
        self.p = torch.nn.ParameterList(seeded(1 + i, 0, n) for i, n in enumerate(SIZES))

    def forward(self, g, used):
        terms = [(p * (g[i] + 0.25 * p.detach())).sum() for i, p in enumerate(self.p) if i in used]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total


def skipped(step, rank):
    """What find_unused_parameters has to find: each rank another, then all the same, then none."""
    return {0: {rank % 4}, 1: {2}}.get(step % 3, set())


def values(recorder, rank, world):
    result = {"sizes": SIZES}
    tiny = 0.0002
    variants = {
        "default": {},
        "buckets": dict(bucket_cap_mb=tiny),
        "one_a_parameter": dict(bucket_cap_mb=0),
        "bucket_view": dict(bucket_cap_mb=tiny, gradient_as_bucket_view=True),
        "bucket_view_kept": dict(bucket_cap_mb=tiny, gradient_as_bucket_view=True),
        "kept": dict(bucket_cap_mb=tiny),
        "accumulate": dict(bucket_cap_mb=tiny),
        "accumulate_bucket_view": dict(bucket_cap_mb=tiny, gradient_as_bucket_view=True),
        "static_graph": dict(bucket_cap_mb=tiny, static_graph=True),
        "find_unused": dict(bucket_cap_mb=tiny, find_unused_parameters=True),
        "join": dict(bucket_cap_mb=tiny),
        "join_effective": dict(bucket_cap_mb=tiny),
        "allreduce_hook": dict(bucket_cap_mb=tiny),
        "fp16_compress_hook": dict(bucket_cap_mb=tiny),
        "bf16_compress_hook": dict(bucket_cap_mb=tiny),
    }
    for name, options in variants.items():
        model = Terms()
        ddp = DDP(model, **options)
        if name.endswith("_hook"):
            ddp.register_comm_hook(None, getattr(default_hooks, name))
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.5)
        keep = name in ["bucket_view_kept", "kept"]

        def iteration(step):
            used = set(range(4)) - (skipped(step, rank) if name == "find_unused" else set())
            g = [seeded(100 * (step + 1) + i, rank, n) for i, n in enumerate(SIZES)]
            if name.startswith("accumulate") and step % 3 != 2:
                with ddp.no_sync():
                    ddp(g, used).backward()
                return
            ddp(g, used).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=not keep)

        if name.startswith("join"):
            with ddp.join(divide_by_initial_world_size=name == "join"):
                for step in range(2 + rank):
                    iteration(step)
        else:
            for step in range(6):
                iteration(step)
        digits = [p.detach().numpy().astype("<f4").tobytes().hex() for p in model.p]
        result[name] = {"grad_ready_order": ready_order(ddp), "params": digits}
    return result


CASES = {
    "power_sgd": (power_sgd, [2]),
    "other_hooks": (other_hooks, [2, 3]),
    "local_sgd": (local_sgd, [4]),
    "zero": (zero, [2, 3]),
    "zero_overlap": (zero_overlap, [2, 3]),
    "join_several": (join_several, [2, 3]),
    "values": (values, [2, 3, 4]),
}


def run(rank, world, store, folder, case):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    recorder = Recorder()
    with recorder:
        result = CASES[case][0](recorder, rank, world)
    with open(os.path.join(folder, f"{rank}.json"), "w") as file:
        json.dump(result, file)
    dist.barrier()
    dist.destroy_process_group()


def same(results):
    """One object where all ranks agree, else one a rank, two levels deep."""
    first = results[0]
    if all(result == first for result in results):
        return first
    if isinstance(first, dict) and all(isinstance(r, dict) and r.keys() == first.keys() for r in results):
        return {key: same([result[key] for result in results]) for key in first}
    return {"per_rank": results}


def main():
    path, wanted = sys.argv[1], sys.argv[2:]
    written = {}
    if wanted and os.path.exists(path):
        with open(path) as file:
            written = json.load(file)
    for case, (_, worlds) in CASES.items():
        if wanted and case not in wanted:
            continue
        for world in worlds:
            with tempfile.TemporaryDirectory() as folder:
                arguments = (world, os.path.join(folder, "store"), folder, case)
                torch.multiprocessing.spawn(run, arguments, nprocs=world)
                results = [json.load(open(os.path.join(folder, f"{rank}.json"))) for rank in range(world)]
            written.setdefault(case, {})[str(world)] = same(results)
            print(case, world, "done", flush=True)
    written["torch"] = torch.__version__
    with open(path, "w") as file:
        json.dump(written, file, separators=(",", ":"))


if __name__ == "__main__":
    main()
