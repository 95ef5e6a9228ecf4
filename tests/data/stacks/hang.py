"""Four ranks on gloo; rank 2 loads data for ever, and the others wait for it in all_reduce."""
import faulthandler, os, signal, sys, threading, time
import torch
import torch.distributed as dist


def load_batch(step):
    if step == 3 and dist.get_rank() == 2:
        while True:
            time.sleep(0.1)
    return torch.ones(8) * step


def train_step(step):
    batch = load_batch(step)
    dist.all_reduce(batch)
    return batch.sum()


def heartbeat():
    while True:
        time.sleep(1)


def main():
    dist.init_process_group("gloo")
    threading.Thread(target=heartbeat, name="heartbeat", daemon=True).start()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if "--later" in sys.argv:
        faulthandler.dump_traceback_later(6)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} is {os.getpid()}", flush=True)
    for step in range(10):
        train_step(step)


if __name__ == "__main__":
    main()
