import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main():
    dist.init_process_group("nccl")
    model = DDP(models.mlp([256, 256, 256]))
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    batches = 3 if dist.get_rank() == 1 else 5
    with model.join():
        for batch in range(batches):
            loss = model(None).sum()
            loss.backward()
            torch.cuda.synchronize()            # loss.item()
            optimizer.step()
    dist.barrier()

run(main, world_size=4)
