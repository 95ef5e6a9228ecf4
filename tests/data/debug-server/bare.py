import os, time, torch, torch.distributed as dist
def step(i, x):
    if dist.get_rank() == 1 and i == 5:
        time.sleep(3600)   # rank 1 never gets to the call
    dist.all_reduce(x)
def main():
    dist.init_process_group("gloo")
    x = torch.zeros(16)
    for i in range(100):
        step(i, x)
main()
