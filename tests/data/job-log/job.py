import os, sys, time, datetime, torch, torch.distributed as dist
mode = sys.argv[1]
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
r = dist.get_rank()
x = torch.ones(64)
def load(i):
    if mode == "raise" and r == 3 and i == 2:
        raise ValueError("bad batch %d" % i)
    if mode == "once" and r == 3 and i == 2 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise KeyError("first attempt")
    if mode == "once" and r == 1 and i == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
        raise ValueError("second attempt")
    if mode == "stuck" and r == 3 and i == 2:
        print("rank 3 loads", flush=True); time.sleep(12)
    if mode == "kill" and r == 2 and i == 2:
        os.kill(os.getpid(), 9)
    return x
for i in range(4):
    y = load(i)
    dist.all_reduce(y)
    print("step", i, flush=True)
