# One rank of torch.distributed's all_reduce, timed as nccl-tests does; rank 0 prints bytes and µs.
import datetime, os, sys, torch, torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank % torch.cuda.device_count())
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=40))
warm_up, counted = int(sys.argv[1]), int(sys.argv[2])
for size in map(int, sys.argv[3:]):
    tensor = torch.zeros(size // 4, device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for call in range(warm_up + counted):
        if call == warm_up:
            begin.record()
        dist.all_reduce(tensor)
    end.record()
    torch.cuda.synchronize()
    if rank == 0:
        print(size, begin.elapsed_time(end) * 1000 / counted, flush=True)
dist.destroy_process_group()
