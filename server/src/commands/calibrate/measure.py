"""Times collectives of gloo (torch.distributed) or MPI (mpi4py), for `lockstep calibrate`.

    python measure.py gloo RANKS CELL ...
    mpirun -n RANKS python measure.py mpi RANKS CELL ...

A CELL is COLLECTIVE:CALLS:BYTES; BYTES is the whole float32 buffer, as nccl-tests counts it. A broadcast
follows a barrier, since its root need not wait for anybody. Rank 0 prints "on WORDS", and then for each cell
"COLLECTIVE BYTES MICROSECONDS": the median over the calls of the mean over the ranks.
"""

import os
import sys
import threading
import time


class Gloo:
    def __init__(self, rank, ranks, port):
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.ranks = torch, dist, ranks
        self.words = f"gloo of torch {torch.__version__} over TCP"
        torch.set_num_threads(1)
        address = f"tcp://127.0.0.1:{port}"
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
        self.barrier = dist.barrier

    def call(self, collective, count):
        part = -(-count // self.ranks)
        tensor = self.torch.zeros(count)
        if collective == "all_reduce":
            return lambda: self.dist.all_reduce(tensor)
        if collective == "broadcast":
            return lambda: self.dist.broadcast(tensor, 0)
        piece, whole = self.torch.zeros(part), self.torch.zeros(part * self.ranks)
        return lambda: self.dist.all_gather_into_tensor(whole, piece)

    def mean(self, values):
        values = self.torch.tensor(values, dtype=self.torch.float64)
        self.dist.all_reduce(values)
        return (values / self.ranks).tolist()


class Mpi:
    def __init__(self, ranks):
        from mpi4py import MPI

        self.MPI, self.all, self.ranks = MPI, MPI.COMM_WORLD, ranks
        self.barrier = self.all.Barrier
        if self.all.Get_size() != ranks:
            sys.exit(f"mpirun started {self.all.Get_size()} ranks that know of each other, not {ranks}: "
                     "it belongs to another MPI than mpi4py's")
        version = MPI.Get_library_version().rstrip("\0").splitlines()[0].split(",")[0]
        self.words = " ".join(version.split()) + " over TCP"

    def call(self, collective, count):
        part = -(-count // self.ranks)
        floats = lambda buffer: [buffer, self.MPI.FLOAT]
        buffer = bytearray(4 * count)
        if collective == "all_reduce":
            return lambda: self.all.Allreduce(self.MPI.IN_PLACE, floats(buffer))
        if collective == "broadcast":
            return lambda: self.all.Bcast(floats(buffer), 0)
        piece, whole = bytearray(4 * part), bytearray(4 * part * self.ranks)
        return lambda: self.all.Allgather(floats(piece), floats(whole))

    def mean(self, values):
        of_ranks = self.all.allgather(values)
        return [sum(values) / self.ranks for values in zip(*of_ranks)]


def end_with_lockstep(processes=()):
    def wait():
        sys.stdin.read()
        for process in processes:
            process.kill()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def timed(library, rank, cells):
    if rank == 0:
        print("on", library.words, flush=True)
    for collective, calls, size in cells:
        call = library.call(collective, max(1, size // 4))
        took = []
        for i in range(-(calls // 5 + 3), calls):
            if collective == "broadcast":
                library.barrier()
            start = time.perf_counter()
            call()
            if i >= 0:
                took.append(time.perf_counter() - start)
        means = sorted(library.mean(took))
        if rank == 0:
            print(collective, size, f"{means[len(means) // 2] * 1e6:.3f}", flush=True)
    library.barrier()


def gloo_rank(rank, ranks, port, cells):
    timed(Gloo(rank, ranks, port), rank, cells)
    os._exit(0)


def main():
    name, ranks, *cells = sys.argv[1:]
    ranks = int(ranks)
    cells = [(collective, int(calls), int(size))
             for collective, calls, size in (cell.split(":") for cell in cells)]
    if name == "mpi":
        library = Mpi(ranks)
        if library.all.Get_rank() == 0:  # mpirun passes its input on to this one
            end_with_lockstep()
        timed(library, library.all.Get_rank(), cells)
        return
    import multiprocessing
    import socket

    import torch  # once, before the ranks are forked

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=gloo_rank, args=(rank, ranks, port, cells)) for rank in range(ranks)]
    [process.start() for process in processes]
    end_with_lockstep(processes)
    [process.join() for process in processes]
    sys.exit(any(process.exitcode for process in processes))


main()
