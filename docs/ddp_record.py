"""Writes what a real 2-rank gloo DDP run did, for `lockstep ddp --verify-against`.

    pip install torch torchvision
    python docs/ddp_record.py run.json --model resnet18 [--bucket-cap-mb 25] [--find-unused-parameters]
        [--static-graph] [--accumulate 2] [--comm-hook fp16-compress] [--no-broadcast-buffers] …
    lockstep ddp --model run.json --verify-against run.json [the same options]

`--model` is a constructor of torchvision.models, `mlp:SIZES`, or `FILE.py:FUNCTION`, which returns a
module and a batch of inputs. The file also holds the model itself, so it serves as a model file.
"""

import argparse
import contextlib
import copy
import importlib.util
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.autograd.graph import get_gradient_edge
from torch.nn.parameter import is_lazy
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode


def build(name):
    if name.startswith("mlp:"):
        sizes = [int(size) for size in name[4:].split(",")]

        class Mlp(torch.nn.Module):
            def __init__(self):
                super().__init__()
                pairs = zip(sizes, sizes[1:])
                self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in pairs)

            def forward(self, x):
                for layer in self.layers:
                    x = torch.relu(layer(x))
                return x

        return Mlp(), torch.randn(4, sizes[0])
    if ":" in name:
        path, function = name.rsplit(":", 1)
        spec = importlib.util.spec_from_file_location("user_model", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, function)()
    try:
        import torchvision
    except ImportError:
        raise SystemExit(
            f"{name!r} is a model of torchvision, which is not installed: `pip install torchvision`, or give "
            "mlp:SIZES or FILE.py:FUNCTION, which returns a module and a batch of inputs"
        ) from None

    return getattr(torchvision.models, name)(), torch.randn(2, 3, 224, 224)


def describe(model):
    """A model as `lockstep ddp --model FILE` reads it."""
    params = dict(model.named_parameters())
    first = {id(p): name for name, p in params.items()}
    everything = model.named_parameters(remove_duplicate=False)
    dtype = lambda t: str(t.dtype).removeprefix("torch.")
    # What a lazy module has before its first batch has no shape to ask for.
    entry = lambda name, t: (
        [name, [0], 0, dtype(t)] if is_lazy(t) else [name, list(t.shape), t.numel(), dtype(t)]
    )
    embeddings = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    # DDP asks the first module that has a parameter, whatever others do with it.
    owner = {}
    for module in model.modules():
        for p in module.parameters(recurse=False):
            owner.setdefault(id(p), module)
    expected_sparse = lambda p: isinstance(owner[id(p)], embeddings) and owner[id(p)].sparse
    return {
        "params": [entry(name, p) + [p.requires_grad] for name, p in params.items()],
        "tied": [[name, first[id(p)]] for name, p in everything if first[id(p)] != name],
        "sparse": sorted(name for name, p in params.items() if expected_sparse(p)),
        "uninitialized": [name for name, p in params.items() if is_lazy(p)],
        "buffers": [entry(name, b) for name, b in model.named_buffers()],
    }


class Recorder(TorchDispatchMode):
    """Every call of c10d, in the order in which it is issued."""

    def __init__(self):
        super().__init__()
        self.events = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d":
            self.add(func._schema.name.split("::")[1], args)
        return func(*args, **(kwargs or {}))

    def add(self, name, args):
        shape = lambda t: [str(t.dtype).removeprefix("torch."), list(t.shape)]
        if name == "allgather_":
            self.events.append([name, [[[shape(t) for t in args[0][0]]], [shape(args[1][0])]]])
        elif name == "broadcast_":
            self.events.append([name, shape(args[0][0]), {"root": args[2]}])
        elif isinstance(args[0], (list, tuple)):
            self.events.append([name, shape(args[0][0])])

    def take(self):
        events, self.events = self.events, []
        return events


HOOKS = {
    "allreduce": default_hooks.allreduce_hook,
    "fp16-compress": default_hooks.fp16_compress_hook,
    "bf16-compress": default_hooks.bf16_compress_hook,
}


def merged(orders):
    """One order that all of them follow, as far as there is one."""
    order = []
    for own in orders:
        at = 0
        for index in own:
            if index not in order:
                order.insert(at, index)
            at = order.index(index) + 1
    return order


def walk(output):
    """The parameters that DDP finds from an output: not those of reentrant checkpoints."""
    found, seen, nodes = set(), set(), [output.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            found.add(id(getattr(node, "variable", None)))
            nodes += [after for after, _ in node.next_functions]
    return found


def syncs(ddp, step, args):
    """All passes but the last of so many are inside no_sync()."""
    last = (step + 1) % args.accumulate == 0 or step + 1 == args.iterations
    return contextlib.nullcontext() if last else ddp.no_sync()


class Gradients:
    """The gradients that came in each backward pass, and those among them that no walk of the graph
    finds, as indices among the parameters that require grad."""

    def __init__(self, model):
        self.came, self.hidden, self.nodes = [], set(), []
        self.trained = [p for p in model.parameters() if p.requires_grad]
        for index, p in enumerate(self.trained):
            if not is_lazy(p):
                # The hook of the reducer's is the node's: it is called for a gradient that a backward
                # function returns as None, too, and a hook of the tensor's is not. A tensor does not
                # keep its node.
                node = get_gradient_edge(p).node
                node.register_hook(lambda *_, index=index: self.came[-1].append(index))
                self.nodes.append(node)

    def backward(self, output):
        self.came.append([])
        found = walk(output)
        try:
            output.float().sum().backward()
        finally:
            self.hidden.update(i for i in self.came[-1] if id(self.trained[i]) not in found)


def alone(model, inputs, passes):
    """The gradients of so many passes of the module by itself, and what it raises then: where DDP
    raises in a backward pass, the gradients that were still to come are in here alone."""
    gradients = Gradients(model)
    try:
        for _ in range(passes):
            gradients.backward(model(inputs))
    except Exception as error:
        return gradients, f"{type(error).__name__}: {error}"
    return gradients, None


def events(model, inputs, options, args):
    """What a plain DDP issues, in the constructor and per iteration forward and backward; its log, and
    what it raises, after which nothing follows; the gradients that came; and their order that the
    buckets were rebuilt in, as DDP's log has it."""
    recorder, steps, construction, log, order = Recorder(), [], None, {}, None
    gradients = Gradients(model)
    try:
        with recorder:
            ddp = DistributedDataParallel(model, **options)
            construction = recorder.take()
            if args.comm_hook:
                ddp.register_comm_hook(None, HOOKS[args.comm_hook])
            for step in range(args.iterations):
                with syncs(ddp, step, args):
                    steps.append({"forward": [], "backward": []})
                    try:
                        output = ddp(inputs)
                    finally:
                        steps[-1]["forward"] = recorder.take()
                    try:
                        gradients.backward(output)
                    finally:
                        steps[-1]["backward"] = recorder.take()
                # By itself the log follows with the next forward pass that reduces, ahead of what that
                # pass rebuilds.
                ddp.logger.set_runtime_stats_and_log()
                log = ddp._get_ddp_logging_data()
                # Of the logs that know of no rebuilding yet, the last has the order that it took.
                if not log.get("has_rebuilt_buckets"):
                    order = log.get("prev_iteration_grad_ready_order_indices") or order
    except Exception as error:
        return construction, steps, log, f"{type(error).__name__}: {error}", gradients, order
    return construction, steps, log, None, gradients, order


def buckets(model, inputs, options, args):
    """Per pass that reduces, the parameters of each bucket as a communication hook sees them."""
    trained = [p for p in model.parameters() if p.requires_grad]
    index = {id(p): i for i, p in enumerate(trained)}
    ddp, seen = DistributedDataParallel(model, **options), []

    def hook(state, bucket):
        seen[-1].append([index[id(p)] for p in bucket.parameters()])
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda future: future.value()[0])

    ddp.register_comm_hook(None, hook)
    for step in range(args.iterations):
        with syncs(ddp, step, args):
            seen.append([])
            ddp(inputs).float().sum().backward()
    return [passed for passed in seen if passed]


def run(rank, store, args, result):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model, inputs = build(args.model)
    options = dict(
        find_unused_parameters=args.find_unused_parameters,
        static_graph=args.static_graph,
        gradient_as_bucket_view=args.gradient_as_bucket_view,
        broadcast_buffers=not args.no_broadcast_buffers,
        init_sync=not args.no_init_sync,
    )
    cap = 25 if args.bucket_cap_mb is None else args.bucket_cap_mb
    if args.bucket_cap_mb is not None:
        options["bucket_cap_mb"] = cap
    # What a lazy module has cannot be copied; DDP refuses it, or else materializes it itself.
    described, lazy = describe(model), any(map(is_lazy, [*model.parameters(), *model.buffers()]))
    own = lambda: model if lazy else copy.deepcopy(model)
    construction, steps, log, error, gradients, order = events(own(), inputs, options, args)
    seen = [] if error else buckets(own(), inputs, options, args)
    modules_own = False
    if error and steps:
        gradients, without_ddp = alone(own(), inputs, len(steps))
        modules_own = error == without_ddp
    came, hidden = gradients.came, gradients.hidden
    rebuilt = bool(log.get("has_rebuilt_buckets"))
    numbers = lambda text: [int(n) for n in text.replace(",", " ").split()]
    sizes = lambda name: numbers(log[name]) if name in log else None
    initial_bytes = sizes("bucket_sizes")
    rebuilt_bytes = sizes("rebuilt_bucket_sizes") if rebuilt else None
    # Of a pass that leaves a bucket over, the hook has not seen all of them.
    whole = lambda seen, bytes: seen if bytes and len(seen) == len(bytes) else None
    order = numbers(order or "") or None
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    unused = [[name for index, name in enumerate(trained) if index not in own] for own in came]
    if order is None and any(came):
        order = came[-1]  # A run that ended before DDP's log had one.
    if any(own != unused[0] for own in unused):
        order = merged(came)
    elif any(unused):
        unused = unused[:1]
    else:
        unused = []
    # DDP raises where a gradient is not of the kind that it expects of the parameter.
    sparse = lambda p: p.grad is not None and p.grad.is_sparse
    dense = lambda p: p.grad is not None and not p.grad.is_sparse
    unexpected = [
        name
        for name, p in zip(trained, gradients.trained)
        if (dense(p) if name in described["sparse"] else sparse(p))
    ]
    written = {
        "torch": torch.__version__,
        "name": args.model,
        **described,
        "world_size": 2,
        "backend": "gloo",
        "bucket_cap_mb": args.bucket_cap_mb,
        "find_unused_parameters": args.find_unused_parameters,
        "static_graph": args.static_graph,
        "accumulate": args.accumulate,
        "passes": args.iterations,
        "broadcast_buffers": not args.no_broadcast_buffers,
        "init_sync": not args.no_init_sync,
        "gradient_as_bucket_view": args.gradient_as_bucket_view,
        "set_last_bucket_cap": os.environ.get("DDP_SET_LAST_BUCKET_CAP") == "1",
        "distributed_debug": os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper(),
        "comm_hook": args.comm_hook,
        "cap_bytes": int(cap * 1024 * 1024),
        "first_bytes": 1 << 20 if args.bucket_cap_mb is None else int(cap * 1024 * 1024),
        "grad_ready_order": order,
        "unexpected": unexpected,
        "unused": unused,
        "reentrant": [trained[index] for index in sorted(hidden)],
        "initial": whole(seen[0], initial_bytes) if seen else None,
        "initial_bytes": initial_bytes,
        "rebuilt": whole(seen[-1], rebuilt_bytes) if seen else None,
        "rebuilt_bytes": rebuilt_bytes,
        "construction": construction,
        "iterations": steps,
        "error": error,
        "error_of_module": modules_own,
    }
    if rank == 0:
        with open(result, "w") as file:
            json.dump(written, file)
    # Destroying the group after an exception of a collective can deadlock in PyTorch 2.7: the last
    # reference goes with Python's lock held, gloo's thread is joined, and that thread waits for the
    # lock to free its tensors. The process ends without, with all that it has to say written.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("result")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--bucket-cap-mb", type=float)
    parser.add_argument("--find-unused-parameters", action="store_true")
    parser.add_argument("--static-graph", action="store_true")
    parser.add_argument("--gradient-as-bucket-view", action="store_true")
    parser.add_argument("--no-broadcast-buffers", action="store_true")
    parser.add_argument("--no-init-sync", action="store_true")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--comm-hook", choices=sorted(HOOKS))
    parser.add_argument("--iterations", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        torch.multiprocessing.spawn(run, (store, args, os.path.abspath(args.result)), nprocs=2)


if __name__ == "__main__":
    main()
