"""Holds a recording against the same script on real gloo, call by call.

    python docs/record_compare.py target/release/lockstep -- torchrun --nproc-per-node 4 train.py --epochs 1

Run it with a Python that has torch, in the script's folder. The script runs twice: under `lockstep record`, and for
real, one process a rank, with every process group wrapped so that it notes its calls and then makes them. The two
lists must be equal: call, group, element type, sizes, reduction, root or peer, tag, split sizes and line.
"""

import importlib.util
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile

COMPARED = ("op", "dtype", "in", "out", "reduce", "root", "peer", "tag", "in_splits", "out_splits", "at")


def load_recorder(path):
    spec = importlib.util.spec_from_file_location("lockstep_recorder", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_real_rank(recorder_path, out_path, script, arguments):
    """One rank of the real job: torchrun's variables are set."""
    recorder = load_recorder(recorder_path)
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d

    rank = int(os.environ["RANK"])
    out = open(out_path, "w")

    class File:
        def tell(self, message, payload=b""):
            out.write(json.dumps({"rank": rank, "event": message}) + "\n")
            out.flush()

    class NoExchange:
        counts = {}

        def key(self, *_):
            return ""

        def post(self, *_):
            pass

        def take(self, *_):
            return None

    class Options:
        module, code = False, None

    Options.script = script
    tape = recorder.Tape(File(), Options, rank)

    class RealGroup(recorder.RecordedGroup):
        """Notes a call as the recorder does, and has gloo make it."""

        def __init__(self, inner, *args):
            super().__init__(*args)
            self.inner = inner

        def _nothing(self, *_, **__):
            return None

        _everybodys = _roots = _fill = _reduce_into = _meet = _all_to_all = _received = _unheard = _nothing
        _gather_into = _scatter_reduced = _nothing

    def both(name):
        noted = getattr(recorder.RecordedGroup, name)

        def call(self, *args, **kwargs):
            noted(self, *args, **kwargs)
            return getattr(self.inner, name)(*args, **kwargs)

        return call

    for name in dir(recorder.RecordedGroup):
        if hasattr(c10d.ProcessGroupGloo, name) and name in recorder.RECORDED_CALLS:
            setattr(RealGroup, name, both(name))

    tape.assumed = lambda what: None
    gloo = c10d.ProcessGroupGloo
    making = {}

    def create(store, group_rank, group_size, timeout):
        inner = gloo(store, group_rank, group_size, timeout)
        ranks = list(making["ranks"]) or list(range(group_size))
        return RealGroup(inner, tape, NoExchange(), group_rank, ranks, str(making["name"]), "gloo", "", None)

    recorder.stand_for_backends(create, making)
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        out.close()
        sys.stdout.flush()
    os._exit(0)


def calls_of(lines):
    groups, ranks = {}, {}
    for line in lines:
        noted = json.loads(line)
        event = noted["event"]
        if event["t"] == "group":
            groups[event["id"]] = event["ranks"]
        if event["t"] == "call":
            call = {name: event.get(name) for name in COMPARED}
            call["at"] = list(call["at"]) if call["at"] else None
            call["ranks"] = groups[event["group"]]
            ranks.setdefault(noted["rank"], []).append(call)
    return ranks


def compare(recorded, real):
    differing = 0
    for rank in sorted(real):
        mine, theirs = recorded.get(rank, []), real[rank]
        for at in range(max(len(mine), len(theirs))):
            one = mine[at] if at < len(mine) else None
            other = theirs[at] if at < len(theirs) else None
            # A callback of a future runs on a thread of gloo's, which no line of the script leads to.
            if one and other and other["at"] is None:
                one = {**one, "at": None}
            if one != other:
                differing += 1
                if differing <= 5:
                    print(f"rank {rank}, call {at}\n  recorded {one}\n  real     {other}")
    return differing, sum(map(len, real.values()))


def main():
    lockstep, command = os.path.abspath(sys.argv[1]), sys.argv[sys.argv.index("--") + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        recorder = os.path.join(folder, "lockstep_recorder.py")
        with open(recorder, "w") as file:
            file.write(subprocess.run([lockstep, "record", "--print-recorder"], capture_output=True, text=True, check=True).stdout)
        notes, plan = os.path.join(folder, "notes.jsonl"), os.path.join(folder, "plan.json")
        done = subprocess.run(
            [lockstep, "record", "--no-cuda", "--json", "--python", sys.executable, "--notes", notes, "-o", plan, "--", *command],
            capture_output=True, text=True,
        )
        if not os.path.exists(notes):
            sys.exit(done.stderr)
        recorded = calls_of(open(notes))
        world = json.loads(done.stdout)["world_size"]
        script = next(index for index, word in enumerate(command) if word.endswith(".py"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        processes = []
        for rank in range(world):
            environment = {
                **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
                "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
            }
            out = os.path.join(folder, f"real_{rank}.jsonl")
            arguments = [sys.executable, os.path.abspath(__file__), "--rank", recorder, out, *command[script:]]
            processes.append(subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL))
        codes = [process.wait(timeout=600) for process in processes]
        real = {}
        for rank in range(world):
            real.update(calls_of(open(os.path.join(folder, f"real_{rank}.jsonl"))))
    differing, total = compare(recorded, real)
    print(f"{'equal' if not differing else f'{differing} differ'}: {total} calls on {world} ranks (exit codes {codes})")
    sys.exit(bool(differing) or any(codes))


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--rank":
        run_real_rank(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
    main()
