"""Records faulty jobs past their fault, simulates them, and holds the finding against the known cause.

    python docs/record_jobs_check.py target/release/lockstep JOBS [NAME …]

JOBS holds a folder a job with its `truth.json` (who is to blame, which kind, which lines, how it is run), and `src/`
with their scripts. Run it with a Python that has torch. A job whose cause is no line of its code has no `run`.
"""

import json
import os
import subprocess
import sys
import tempfile
import time


def finding(lockstep, source, name, run, folder):
    """The report of the recorded job's simulation, and what the recorder said."""
    plan = os.path.join(folder, "job.plan.json")
    os.makedirs(os.path.join(folder, "dumps"))  # where the jobs write what their recorders hold
    environment = {**os.environ, **run["env"], "JOB_OUT": folder}
    module = name if os.path.exists(os.path.join(source, f"{name}.py")) else run["module"]
    code = f"import {module}; {module}.{run['function']}()"
    recorded = subprocess.run(
        [lockstep, "record", "-n", str(run["world_size"]), "--python", sys.executable, "-o", plan, "--", "-c", code],
        cwd=source, env=environment, capture_output=True, text=True, timeout=300)
    if not os.path.exists(plan):
        return None, recorded.stderr[-600:]
    simulated = subprocess.run([lockstep, "sim", "--json", plan], capture_output=True, text=True, timeout=120)
    return json.loads(simulated.stdout)["findings"], recorded.stderr[-600:]


def judge(truth, report):
    """True if the first finding is the known cause, and the finding in words."""
    accepted = [sorted(truth["culprits"]), *map(sorted, truth["also_accepted"])]
    kinds = {truth["kind"], *truth["also_accepted_kinds"]}
    if not report["findings"]:
        return [] in accepted, f"no finding, verdict {report['verdict']}"
    first = report["findings"][0]
    on_line = not truth["lines"] or any(line in json.dumps(first) for line in truth["lines"])
    right = sorted(first["culprits"]) in accepted and first["kind"] in kinds and on_line
    return right, f"{first['kind']} of {first['culprits']}, {first['certainty']}" + ("" if on_line else ", another line")


def main():
    lockstep, jobs, names = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]
    wrong = tried = 0
    for name in sorted(os.listdir(jobs)):
        path = os.path.join(jobs, name, "truth.json")
        if not os.path.exists(path) or names and name not in names:
            continue
        with open(path) as file:
            truth = json.load(file)
        if not truth["run"]["module"]:
            continue
        tried, began = tried + 1, time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            report, said = finding(lockstep, os.path.join(jobs, "src"), name, truth["run"], folder)
        right, words = judge(truth, report) if report else (False, said)
        wrong += not right
        print(f"{'same' if right else 'OTHER':7}{name:17}{words} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{tried - wrong} of {tried} the same")
    sys.exit(bool(wrong) or not tried)


if __name__ == "__main__":
    main()
