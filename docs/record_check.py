"""Holds `lockstep record` against real gloo for 30 and more kinds of job: every rank makes the same calls.

    python docs/record_check.py target/release/lockstep
    python docs/record_check.py target/release/lockstep ddp_join hsdp
    python docs/record_check.py target/release/lockstep --folder scripts

Run it with a Python that has torch: 2.15 has all that the jobs use. In 2.7.1 gloo has no ReduceOp.AVG, so that `hsdp`
and `mesh_of_three` raise for real. The jobs are the functions of `record_cases.py`;
`--folder` takes the scripts of a folder instead, each in its own with a `truth.json` that holds its `command`; they run
in copies.
`record_compare.py` says how a job is compared.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))


def jobs_of_cases(names):
    from record_cases import CASES

    script = os.path.join(HERE, "record_cases.py")
    for name, (ranks, _) in CASES.items():
        if not names or name in names:
            yield name, ["torchrun", "--nproc-per-node", str(ranks), script, name], tempfile.gettempdir()


def jobs_of_folder(folder, names):
    for name in sorted(os.listdir(folder)):
        truth = os.path.join(folder, name, "truth.json")
        if os.path.exists(truth) and (not names or name in names):
            with open(truth) as file:
                command = json.load(file)["command"].split()
            with tempfile.TemporaryDirectory() as copy:
                shutil.copytree(os.path.join(folder, name), copy, dirs_exist_ok=True)
                yield name, command, copy


def main():
    from record_compare import compare_job

    lockstep, names = os.path.abspath(sys.argv[1]), sys.argv[2:]
    jobs = jobs_of_folder(os.path.abspath(names[1]), names[2:]) if names[:1] == ["--folder"] else jobs_of_cases(names)
    failed, without, count = [], [], 0
    for name, command, workdir in jobs:
        count += 1
        try:
            differing, total, codes, assumed = compare_job(lockstep, command, workdir)
            if all(codes):  # what it raised is on stderr
                print(f"raises  {name:26}for real, on every rank, with this PyTorch", flush=True)
                without.append(name)
                continue
            said = f"{total:5} calls on {len(codes)} ranks"
            wrong = differing or any(codes) or total == 0
            said += f", {differing} differ" * bool(differing) + f", exit codes {codes}" * any(codes)
            said += "".join(f"; {what}" for what in assumed)
        except (SystemExit, ValueError, subprocess.SubprocessError):
            wrong, said = True, traceback.format_exc(limit=0)
        print(f"{'differs' if wrong else 'equal':8}{name:26}{said}", flush=True)
        failed += [name] * bool(wrong)
    tried = count - len(without)
    print(f"{tried - len(failed)} of {tried} equal" + f", {len(without)} do not run" * bool(without))
    sys.exit(bool(failed) or not tried)


if __name__ == "__main__":
    main()
