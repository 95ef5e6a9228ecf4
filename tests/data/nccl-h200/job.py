"""Two NCCL ranks on one GPU: `job.py FOLDER ddp` is profiled, `job.py FOLDER skip` hangs."""
import datetime, os, sys
rank = int(os.environ["RANK"])
os.environ.update(NCCL_HOSTID=f"lockstep-{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_MNNVL_ENABLE="0", NCCL_NET="Socket", NCCL_IB_DISABLE="1")
out, what = sys.argv[1], sys.argv[2]
os.makedirs(out, exist_ok=True)
os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
os.environ["TORCH_NCCL_TRACE_BUFFER_SIZE"] = "2000"
os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "1"
os.environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] = f"{out}/{what}_nccl_trace_rank_"
os.environ["TORCH_FR_DUMP_TEMP_FILE"] = f"{out}/{what}_nccl_trace_rank_"
os.environ["NCCL_DEBUG"] = "INFO"
os.environ["NCCL_DEBUG_SUBSYS"] = "INIT,COLL,TUNING"
os.environ["NCCL_DEBUG_FILE"] = f"{out}/{what}_nccl_log_rank{rank}.txt"
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
torch.cuda.set_device(0)
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=12))
if what == "ddp":
    import torchvision
    torch.manual_seed(0)
    model = DDP(torchvision.models.resnet18().cuda(), device_ids=[0])
    optim = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function, schedule
    et = ExecutionTraceObserver(); et.register_callback(f"{out}/ddp_et_rank{rank}.json")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], schedule=schedule(wait=2, warmup=1, active=3),
                 on_trace_ready=lambda p: p.export_chrome_trace(f"{out}/ddp_kineto_rank{rank}.json")) as prof:
        for step in range(6):
            if step == 3: et.start()
            x = torch.randn(16, 3, 64, 64, device="cuda")
            loss = model(x).sum(); loss.backward(); optim.step(); optim.zero_grad()
            torch.cuda.synchronize(); prof.step()
    et.stop(); et.unregister_callback()
    import pickle
    open(f"{out}/ddp_nccl_trace_rank_{rank}", "wb").write(torch._C._distributed_c10d._dump_nccl_trace())
    dist.destroy_process_group()
else:
    x = torch.ones(1 << 18, device="cuda")
    for step in range(3):
        dist.all_reduce(x); torch.cuda.synchronize()
    if rank == 0 or what != "skip":
        dist.all_reduce(x)       # rank 1 leaves this one out
    dist.all_gather_into_tensor(torch.empty(2 << 18, device="cuda"), x)
    torch.cuda.synchronize()
    print("rank", rank, "ends", flush=True)
