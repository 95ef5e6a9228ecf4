"""Lockstep, a visual debugger and simulator for distributed training: a program, found by `find_program`."""

import os
import shutil
import sysconfig


def find_program():
    """Returns the path of the installed `lockstep` program; raises FileNotFoundError if there is none."""
    folders = [sysconfig.get_path("scripts")]
    folders += [sysconfig.get_path("scripts", scheme=sysconfig.get_preferred_scheme("user"))]
    for folder in folders:
        program = shutil.which("lockstep", path=folder)
        if program:
            return os.path.abspath(program)
    raise FileNotFoundError(f"lockstep is not in {' or '.join(folders)}: install the wheel again")
