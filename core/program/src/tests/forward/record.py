"""Writes truth.json: the calls of each program here on real gloo, with a Python that has torch.

    python core/program/src/tests/forward/record.py [PROGRAM …]

Every rank's list has, for each call: its name, element type, elements in and out, reduction, root or peer, and line.
"""

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


def calls(program):
    world = WORLD.get(program, 2)
    with tempfile.TemporaryDirectory() as folder:
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
    programs = sys.argv[1:] or sorted(own.stem for own in HERE.glob("*.py") if own.stem != "record")
    for program in programs:
        known["programs"][program] = calls(program)
        print(program, [len(rank) for rank in known["programs"][program]["ranks"]], flush=True)
        text = json.dumps(known, sort_keys=True)
        text = text.replace("]], [[", "]],\n[[").replace("], [\"", "],\n[\"")
        path.write_text(text + "\n")


if __name__ == "__main__":
    main()
