import time

import torch
import torch.distributed as dist
from torch.distributed.debug import start_debug_server


def main():
    dist.init_process_group("gloo")
    start_debug_server(port=25999)
    rank = dist.get_rank()
    loss = torch.ones(8)
    for step in range(5):
        dist.all_reduce(loss)
        if step == 3 and rank == 1:
            load_batch()
        dist.broadcast(loss, 0)


def load_batch():
    time.sleep(1200)


main()
