"""A small job on gloo, for `lockstep watch`: healthy, or with one fault on rank 2 in its step 30."""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

fault = sys.argv[1]
dist.init_process_group("gloo", timeout=timedelta(seconds=float(os.environ.get("GROUP_TIMEOUT", "15"))))
rank = dist.get_rank()
grad = torch.ones(16384)
for step in range(60):
    time.sleep(0.02)
    if rank == 2 and step == 30:
        if fault == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "raise":
            raise ValueError("a bad batch")
    if not (fault == "skip" and rank == 2 and step == 30):
        dist.all_reduce(grad)
    if step % 10 == 9:
        dist.broadcast(grad, src=0)
dist.barrier()
dist.destroy_process_group()
if fault == "exit":
    sys.exit(7)
