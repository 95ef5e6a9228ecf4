import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def step(rank, dp, tp, grad, activation):
    compute("forward_backward", ms=2)
    if rank not in (1, 2):
        dist.all_reduce(activation, group=tp)
        dist.all_reduce(grad, group=dp)
    else:
        dist.all_reduce(grad, group=dp)     # this rank's gradients were ready first
        dist.all_reduce(activation, group=tp)

def main():
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    grad, activation = torch.ones(512), torch.ones(128)
    step(dist.get_rank(), mesh.get_group("dp"), mesh.get_group("tp"), grad, activation)
    torch.cuda.synchronize()

run(main, world_size=4)
