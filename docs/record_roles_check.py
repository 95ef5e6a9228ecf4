"""Holds `lockstep record --ranks roles` against the recording of every rank: the plans have the same calls.

    python docs/record_roles_check.py target/release/lockstep
    python docs/record_roles_check.py target/release/lockstep fsdp_tp hidden_rank

Run it with a Python that has torch. The jobs are those of `record_roles_cases.py`, each in a script of its own: what
the script of a job compares its rank with counts.
"""

import ast
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "record_roles_cases.py")


def write_script(name, folder):
    """The script with one job of all."""
    with open(SCRIPT) as file:
        tree = ast.parse(file.read())
    tree.body = [one for one in tree.body
                 if not (isinstance(one, ast.FunctionDef) and one.decorator_list and one.name != name)]
    script = os.path.join(folder, f"{name}.py")
    with open(script, "w") as file:
        file.write(ast.unparse(tree))
    return script


def calls_of(plan):
    """By rank, its calls: every field, groups and tensors by what they are instead of by number."""

    def spelled(value, key=None):
        if key == "group":
            return plan["groups"][value]["ranks"]
        if key in ("input", "output", "tensor") and value is not None and isinstance(value, int):
            return plan["tensors"][value]["name"]
        if isinstance(value, dict):
            return {name: spelled(one, name) for name, one in value.items()}
        return [spelled(one) for one in value] if isinstance(value, list) else value

    ranks = []
    for program in plan["program_of"]:
        calls = []
        for op in plan["programs"][program]["ops"]:
            action = op["action"]
            if isinstance(action, dict) and ("call" in action or "coalesced" in action or "die" in action):
                calls.append((spelled(action), op["at"] and op["at"]["line"], op["via"]))
        ranks.append(calls)
    return ranks


def recorded(lockstep, name, ranks, how, folder):
    plan = os.path.join(folder, f"{how}.json")
    command = [lockstep, "record", "-n", str(ranks), "--ranks", how, "--json", "--python", sys.executable, "-o", plan,
               "--", write_script(name, folder), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if not os.path.exists(plan):
        raise SystemExit(done.stderr)
    with open(plan) as file:
        return calls_of(json.load(file)), len(json.loads(done.stdout)["ranks"]), done.stderr


def main():
    from record_roles_cases import CASES

    lockstep, names = os.path.abspath(sys.argv[1]), sys.argv[2:]
    failed = []
    for name, (ranks, _) in CASES.items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            every, _, _ = recorded(lockstep, name, ranks, "all", folder)
            roles, processes, said = recorded(lockstep, name, ranks, "roles", folder)
        differing = [rank for rank in range(ranks) if every[rank] != roles[rank]]
        shown = f"{sum(map(len, every))} calls of {ranks} ranks from {processes}"
        if differing:
            failed.append(name)
            rank = differing[0]
            at = next((at for at, (a, b) in enumerate(zip(every[rank], roles[rank])) if a != b), None)
            shown += f": rank {rank} has {len(every[rank])} and {len(roles[rank])} calls, call {at} differs"
            if at is not None:
                shown += f"\n  all    {every[rank][at]}\n  roles  {roles[rank][at]}"
            shown += f"\n{said}"
        print(f"{'differs' if differing else 'equal':8}{name:22}{shown}", flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
