"""`python -m lockstep`: becomes the program."""

import os
import sys

from lockstep import find_program

program = find_program()
os.execv(program, [program, *sys.argv[1:]])
