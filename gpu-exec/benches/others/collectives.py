"""One collective through torch.distributed's gloo, timed as bench_collectives.rs times ours.

    python collectives.py RANKS OP ITERATIONS BYTES [ITERATIONS BYTES ...]

See collectives.c for what BYTES means and what is printed.
"""

import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def timed(rank, ranks, op, port, cells):
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
    for iterations, size in cells:
        count = max(1, size // 4)
        part = -(-count // ranks)
        whole, piece, tensor = torch.zeros(part * ranks), torch.zeros(part), torch.zeros(count)
        parts = torch.zeros(part * ranks if op == "all_to_all" else 1)
        call = {
            "all_reduce": lambda: dist.all_reduce(tensor),
            "broadcast": lambda: dist.broadcast(tensor, 0),
            "all_gather": lambda: dist.all_gather_into_tensor(whole, piece),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(piece, whole),
            "all_to_all": lambda: dist.all_to_all_single(whole, parts),
        }[op]
        took = []
        for i in range(-(iterations // 5 + 3), iterations):
            if op == "broadcast":
                dist.barrier()
            start = time.perf_counter()
            call()
            if i >= 0:
                took.append(time.perf_counter() - start)
        slowest = torch.tensor(took, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        if rank == 0:
            print(size, f"{slowest.sort().values[iterations // 2].item() * 1e6:.3f}", flush=True)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    ranks, op, *numbers = sys.argv[1:]
    cells = list(zip(map(int, numbers[::2]), map(int, numbers[1::2])))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    args = (int(ranks), op, port, cells)
    context = mp.get_context("fork")
    processes = [context.Process(target=timed, args=(rank, *args)) for rank in range(int(ranks))]
    [process.start() for process in processes]
    [process.join() for process in processes]
