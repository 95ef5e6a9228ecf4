"""Writes truth.json: the calls of each program here on real gloo, with a Python that has torch.

    python core/program/src/tests/forward/record.py [PROGRAM …]

Every rank's list has, for each call: its name, element type, elements in and out, reduction, root or peer, and line.
"""

import contextlib
import json
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[4]
sys.path.insert(0, str(ROOT / "docs"))
import record_compare  # noqa: E402

RECORDER = str(ROOT / "server/src/commands/record/recorder.py")
WORLD = {"pipeline": 3}


# PyTorch's SyncBatchNorm itself, on a machine without a GPU: its five kernels, which only CUDA has, in plain operators,
# and the CPU among the devices that it is allowed on. Which calls it makes is left to PyTorch.
ON_THE_CPU = '''
import sys
if sys.argv[1:2] == ["--ranks"]:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    kernels = torch.library.Library("aten", "IMPL")

    def shaped(values, like):
        return values.view(1, -1, *[1] * (like.dim() - 2))

    def dims(of):
        return [dim for dim in range(of.dim()) if dim != 1]

    def stats(values, eps):
        return values.mean(dims(values)), torch.rsqrt(values.var(dims(values), unbiased=False) + eps)

    def gathered(values, means, deviations, running_mean, running_var, momentum, eps, counts):
        share = counts.view(-1, 1) / counts.sum()
        return (means * share).sum(0), (deviations * share).sum(0)

    def normed(values, weight, bias, mean, deviation, eps):
        out = (values - shaped(mean, values)) * shaped(deviation, values)
        return out if weight is None else out * shaped(weight, values) + shaped(bias, values)

    def reduced(grad, values, mean, deviation, weight, of_input, of_weight, of_bias):
        centred = (grad * (values - shaped(mean, values))).sum(dims(values))
        return grad.sum(dims(values)), centred, centred * deviation, grad.sum(dims(values))

    def of_input(grad, values, mean, deviation, weight, sums, centred, counts):
        return grad * shaped(deviation, values)

    for name, kernel in (
        ("batch_norm_stats", stats), ("batch_norm_gather_stats_with_counts", gathered), ("batch_norm_elemt", normed),
        ("batch_norm_backward_reduce", reduced), ("batch_norm_backward_elemt", of_input),
    ):
        kernels.impl(name, kernel, "CPU")
    torch._C._get_privateuse1_backend_name = lambda: "cpu"
    DistributedDataParallel._passing_sync_batchnorm_handle = lambda self, module: None
'''


@contextlib.contextmanager
def prepared(program, folder):
    """What a program needs of its Python."""
    if program != "sync_batch_norm":
        yield
        return
    (pathlib.Path(folder) / "sitecustomize.py").write_text(ON_THE_CPU)
    os.environ.update(PYTHONPATH=folder, SYNC_BATCH_NORM_ON="cpu")
    yield
    del os.environ["PYTHONPATH"], os.environ["SYNC_BATCH_NORM_ON"]


def calls(program):
    world = WORLD.get(program, 2)
    with tempfile.TemporaryDirectory() as folder, prepared(program, folder):
        real = record_compare.run_for_real(RECORDER, [str(HERE / f"{program}.py")], world, folder, folder)
        real = real[0] if isinstance(real, tuple) else real
    ranks = {}
    for rank, made in sorted(real.items()):
        ranks[rank] = [
            [call["op"], call["dtype"], call["in"], call["out"], call["reduce"], call["root"], call["peer"],
             call["at"][-1] if call["at"] else None]
            for call in made
        ]
    return {"world_size": world, "ranks": [ranks[rank] for rank in sorted(ranks)]}


def main():
    import torch

    path = HERE / "truth.json"
    known = json.loads(path.read_text()) if path.exists() else {"programs": {}}
    known["torch"] = torch.__version__
    programs = sys.argv[1:] or sorted(own.stem for own in HERE.glob("*.py") if own.stem not in ("record", "parameters"))
    for program in programs:
        known["programs"][program] = calls(program)
        print(program, [len(rank) for rank in known["programs"][program]["ranks"]], flush=True)
        text = json.dumps(known, sort_keys=True)
        text = text.replace("]], [[", "]],\n[[").replace("], [\"", "],\n[\"")
        path.write_text(text + "\n")


if __name__ == "__main__":
    main()
