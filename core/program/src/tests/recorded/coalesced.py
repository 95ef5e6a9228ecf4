import torch
import torch.distributed as dist
from datetime import timedelta
def t(name, f):
    try:
        print(name, f())
    except Exception as e:
        print(name, type(e).__name__, e)
dist.init_process_group("gloo", timeout=timedelta(seconds=8))
r = dist.get_rank()
x = torch.ones(3)
y = torch.ones(3)
z = torch.ones(6)
L = [torch.zeros(3), torch.zeros(3)]
t("c1", lambda: dist.all_reduce_coalesced([x, y]))
t("c3", lambda: dist.all_reduce_coalesced(x))
t("c5", lambda: dist.all_reduce_coalesced([x, torch.ones(3, dtype=torch.int32)]))
t("c6", lambda: dist.all_reduce_coalesced([x, torch.ones(2)]))
t("c9", lambda: dist.all_gather_coalesced(x, [x]))
t("c10", lambda: dist.all_gather_coalesced([x], x))
t("c11", lambda: dist.all_gather_coalesced([x], [x]))
t("c12", lambda: dist.all_gather_coalesced([L], [x, y]))
def man1():
    with dist._coalescing_manager() as cm:
        dist.all_reduce(x)
        dist.all_reduce(y)
    return cm
def man2(asy):
    with dist._coalescing_manager(async_ops=asy) as cm:
        dist.all_reduce(x)
        dist.all_reduce(y)
    return cm.wait()
def man3():
    with dist._coalescing_manager():
        dist.all_gather_into_tensor(z, x)
        dist.all_gather_into_tensor(z, y)
def man4():
    with dist._coalescing_manager():
        dist.reduce_scatter_tensor(x, z)
        dist.reduce_scatter_tensor(y, z)
def man5():
    with dist._coalescing_manager():
        dist.all_reduce(x)
        dist.broadcast(y, 0)
def man6():
    with dist._coalescing_manager():
        pass
def man7():
    with dist._coalescing_manager(dist.group.WORLD, torch.device("cpu"), True) as cm:
        dist.all_reduce(x)
    cm.wait()
def man8():
    with dist._coalescing_manager():
        dist.all_reduce(x)
        dist.all_gather_into_tensor(z, y)
def man9():
    with dist._coalescing_manager():
        dist.all_reduce(x)
        dist.all_reduce(y, op=dist.ReduceOp.MAX)
def man10():
    with dist._coalescing_manager():
        with dist._coalescing_manager():
            dist.all_reduce(x)
t("m2", lambda: man2(True))
t("m3", lambda: man2(False))
t("m4", man3)
t("m5", man4)
t("m6", man5)
t("m7", man6)
t("m8", man7)
t("m9", man8)
t("m10", man9)
t("m11", man10)
