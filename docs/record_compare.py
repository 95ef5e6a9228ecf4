"""Holds a recording against the same script on real gloo, call by call.

    python docs/record_compare.py target/release/lockstep -- torchrun --nproc-per-node 4 train.py --epochs 1

Run it with a Python that has torch, in the script's folder. The script runs twice: under `lockstep record`, and for
real, one process a rank, with every process group wrapped so that it notes its calls and then makes them. The two
lists must be equal: call, group, element type, sizes, reduction, root or peer, tag, split sizes and line.
"""

import contextlib
import importlib.util
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

COMPARED = ("op", "dtype", "in", "out", "reduce", "root", "peer", "tag", "in_splits", "out_splits", "at")

# A job that runs longer has hung.
LONGEST_S = 240


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

    class NoHub:
        def ask(self, *_):
            return {}, b""

    class NoExchange:
        counts, hub = {}, NoHub()

        def key(self, *_):
            return ""

        def post(self, *_):
            pass

        def take(self, *_):
            return None

    class Options:
        module, code, plays, finds_roles = False, None, None, False

    Options.script = script
    tape = recorder.Tape(File(), Options, rank)
    tape.files.kinds[__file__] = "inner"  # no script's line, though the script may lie beside it

    class RealGroup(recorder.RecordedGroup):
        """Notes a call as the recorder does, and has gloo make it."""

        def __init__(self, inner, *args):
            super().__init__(*args)
            self.inner = inner

        def _nothing(self, *_, **__):
            return None

        _everybodys = _roots = _fill = _reduce_into = _meet = _all_to_all = _received = _unheard = _nothing
        _gather_into = _scatter_reduced = _nothing

    # gloo gives up a send whose work is dropped, and 2.7.1's pipelines keep the last work of a batch alone.
    kept = []

    def both(name):
        noted = getattr(recorder.RecordedGroup, name)

        def call(self, *args, **kwargs):
            noted(self, *args, **kwargs)
            work = getattr(self.inner, name)(*args, **kwargs)
            kept.append(work)
            return work

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


def run_real_ranks(recorder_path, outs, script, arguments):
    """All ranks of the real job, forked from a process that has imported torch. The last line says how they ended."""
    recorder, own = load_recorder(recorder_path), os.getpid()
    recorder.end_with(os.getppid())
    shown, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    children = []
    for rank, out in enumerate(outs):
        child = os.fork()
        if child == 0:
            recorder.end_with(own)
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            try:
                run_real_rank(recorder_path, out, script, arguments)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.write(shown, f"\n{json.dumps(codes)}".encode())
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


def record(lockstep, command, folder, workdir):
    """The calls of each rank under `lockstep record`, and the world size."""
    notes, plan = os.path.join(folder, "notes.jsonl"), os.path.join(folder, "plan.json")
    options = ["--no-cuda", "--json", "--python", sys.executable, "--notes", notes, "-o", plan]
    done = subprocess.run(
        [lockstep, "record", *options, "--", *command], capture_output=True, text=True, cwd=workdir, timeout=LONGEST_S
    )
    if not os.path.exists(notes):
        raise SystemExit(done.stderr)
    printed = json.loads(done.stdout)
    for rank in printed["ranks"]:
        if rank["raised"]:
            print(f"recorded rank {rank['rank']} raised {rank['raised']}")
    return calls_of(open(notes)), printed["world_size"], printed["assumed"]


def run_for_real(recorder, command, world, folder, workdir):
    """The calls of each rank on gloo, and the ranks' exit codes."""
    script = next(index for index, word in enumerate(command) if word.endswith(".py"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outs = [os.path.join(folder, f"real_{rank}.jsonl") for rank in range(world)]
    environment = {
        **os.environ, "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1",
    }
    arguments = [sys.executable, os.path.abspath(__file__), "--ranks", recorder, json.dumps(outs), *command[script:]]
    job = subprocess.Popen(
        arguments, env=environment, stdout=subprocess.PIPE, text=True, cwd=workdir, start_new_session=True
    )
    try:
        codes = json.loads(job.communicate(timeout=LONGEST_S)[0].rpartition("\n")[2])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    real = {}
    for out in outs:
        real.update(calls_of(open(out)))
    return real, codes


def compare_job(lockstep, command, workdir=None):
    """Runs a job both ways: how many calls differ, how many there are, its ranks' exit codes, what was assumed."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = os.path.join(folder, "lockstep_recorder.py")
        printed = subprocess.run([lockstep, "record", "--print-recorder"], capture_output=True, text=True, check=True)
        with open(recorder, "w") as file:
            file.write(printed.stdout)
        recorded, world, assumed = record(lockstep, command, folder, workdir)
        real, codes = run_for_real(recorder, command, world, folder, workdir)
    differing, total = compare(recorded, real)
    return differing, total, codes, assumed


def main():
    lockstep, command = os.path.abspath(sys.argv[1]), sys.argv[sys.argv.index("--") + 1 :]
    differing, total, codes, _ = compare_job(lockstep, command)
    print(f"{'equal' if not differing else f'{differing} differ'}: {total} calls on {len(codes)} ranks (exit codes {codes})")
    sys.exit(bool(differing) or any(codes))


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--ranks":
        run_real_ranks(sys.argv[2], json.loads(sys.argv[3]), sys.argv[4], sys.argv[5:])
    main()
