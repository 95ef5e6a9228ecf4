import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main():
    dist.init_process_group("nccl")
    model = DDP(models.mlp([512, 512, 512, 512]), bucket_cap_mb=1)
    for batch in range(4):
        # Rank 1's third batch has no sample for the head that the last layer is.
        unused = ["layers.2"] if dist.get_rank() == 1 and batch == 2 else []
        model.forward(None, unused=unused)
        model.backward(unused=unused)
        torch.cuda.synchronize()            # loss.item()

run(main, world_size=4)
