"""How far replays and what-if are from what really happens, on this machine.

    python docs/replay_check.py target/release/lockstep [--python PYTHON_WITH_TORCH]

Nothing else should run meanwhile. Three comparisons, each of a prediction with a run that it has not seen:

- a job on the host backend is run twice: the replay of the first is held against the second;
- its straggler is taken away by `whatif`, and then really;
- with a Python that has torch: DDP on gloo, profiled for 20 steps and for 20 more.

Each error stands beside the spread: by how much two runs of the same job differ.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TRAIN = '''
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import profile, ProfilerActivity
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
layers = [m for _ in range(4) for m in (torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512))]
ddp = DDP(torch.nn.Sequential(*layers), bucket_cap_mb=4)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
x = torch.ones(64, 512)
def step():
    loss = ddp(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
for _ in range(5):
    step()
for part in range(3):
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
        for _ in range(20):
            step()
    folder = os.path.join(os.environ["PROFILES"], str(part))
    os.makedirs(folder, exist_ok=True)
    profiled.export_chrome_trace(os.path.join(folder, f"rank{dist.get_rank()}.json"))
dist.destroy_process_group()
'''


def said(lockstep, *arguments):
    done = subprocess.run([lockstep, *map(str, arguments)], capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(f"{' '.join(map(str, arguments))}: {done.stderr}")
    return json.loads(done.stdout)


def step_ms(analysis):
    return (analysis["step_ps"] or analysis["time_ps"]) / 1e9


def tell(what, predicted, measured, again):
    error = abs(predicted / measured - 1)
    spread = abs(again / measured - 1)
    print(f"{what:<34}{predicted:>10.2f} ms {measured:>10.2f} ms {error:>8.1%} {spread:>8.1%}")


def host(lockstep, folder):
    def plan(name, *more):
        path = folder / f"{name}.json"
        subprocess.run([lockstep, "plan", "throttled-gpu", "--world-size", "3", *more, "-o", path], check=True)
        # Processes that only wait: how many cores there are does not matter.
        path.write_text(path.read_text().replace('"compute"', '"sleep"'))
        return path

    def run(name, of):
        trace = folder / f"{name}.trace"
        subprocess.run([lockstep, "run", of, "-o", trace], capture_output=True, check=False)
        return trace

    slow, even = plan("slow"), plan("even", "--repaired")
    first, second, third = (run(name, slow) for name in ("first", "second", "third"))
    measured = [step_ms(said(lockstep, "analyze", trace, "--json")) for trace in (second, third)]
    asked = said(lockstep, "whatif", first, "--without-straggler", 2, "--json")
    tell("host run, replayed", step_ms(asked["before"]), *measured)
    without = [step_ms(said(lockstep, "analyze", run(name, even), "--json")) for name in ("a", "b")]
    tell("host run without its straggler", step_ms(asked["after"]), *without)


def gloo(lockstep, folder, python):
    script = folder / "train.py"
    script.write_text(TRAIN)
    command = [python, "-m", "torch.distributed.run", "--nproc-per-node", "2", script]
    env = {**os.environ, "PROFILES": str(folder), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, env=env, capture_output=True, check=True)
    parts = [folder / str(part) for part in range(3)]
    asked = said(lockstep, "whatif", parts[0], "--scale", "compute=1", "--json")
    measured = [step_ms(said(lockstep, "analyze", part, "--json")) for part in parts[1:]]
    tell("DDP on gloo, replayed", step_ms(asked["before"]), *measured)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("--python")
    options = parser.parse_args()
    lockstep = str(pathlib.Path(options.lockstep).resolve())
    print(f"{'':<34}{'predicted':>13} {'measured':>13} {'error':>8} {'spread':>8}")
    with tempfile.TemporaryDirectory() as folder:
        host(lockstep, pathlib.Path(folder))
        if options.python:
            gloo(lockstep, pathlib.Path(folder), options.python)


if __name__ == "__main__":
    main()
