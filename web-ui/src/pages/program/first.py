import torch.distributed as dist

def main():
    dist.init_process_group("gloo", timeout = seconds(30))
    rank = dist.get_rank()
    dp = dist.new_group([0, 1, 2, 3])
    grad = tensor(1 << 12, dtype = "float32", fill = rank)
    for step in range(8):
        compute("forward", us = 800)
        if rank != 2 or step != 5:      # the bug
            dist.all_reduce(grad, group = dp)
    dist.barrier()

run(main, world_size = 4)
