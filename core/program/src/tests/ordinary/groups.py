import torch
import torch.distributed as dist

dist.init_process_group("gloo")
calls = [
    lambda: dist.get_rank(group="x"),
    lambda: dist.get_world_size(group="x"),
    lambda: dist.get_rank(3),
    lambda: dist.barrier(group="x"),
    lambda: dist.all_reduce(torch.ones(1), group="x"),
    lambda: dist.get_backend("x"),
    lambda: dist.new_group([0, 99]),
]
for call in calls:
    try:
        print(call())
    except Exception as e:
        print(type(e).__name__, e)
print(dist.GroupMember.NON_GROUP_MEMBER, dist.GroupMember.WORLD is dist.group.WORLD)
g = dist.new_group([0])
print(dist.get_rank(g) if dist.get_rank() == 0 else g == dist.GroupMember.NON_GROUP_MEMBER)
dist.barrier()
dist.destroy_process_group()
print(dist.is_initialized())
