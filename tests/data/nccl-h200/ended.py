"""Two NCCL ranks on one GPU; rank 1 skips one all_reduce of a batch without data, and writes its checkpoint."""
import datetime, os, time
rank = int(os.environ["RANK"])
os.environ.update(NCCL_HOSTID=f"lockstep-{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_MNNVL_ENABLE="0", NCCL_NET="Socket", NCCL_IB_DISABLE="1")
import torch, torch.distributed as dist

torch.cuda.set_device(0)
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=120 if os.environ.get("ASK") else 12))
if os.environ.get("ASK"):
    import torch.distributed.debug
    torch.distributed.debug.start_debug_server()
gradient = torch.ones(1 << 18, device="cuda")


def step(number):
    gradient.mul_(0.5)
    if rank == 1 and number == 10:
        return
    dist.all_reduce(gradient)
    torch.cuda.synchronize()


for number in range(20):
    step(number)
time.sleep(30)
dist.destroy_process_group()
