import torch
import torch.distributed as dist
def t(name, f):
    try:
        print(name, f())
    except Exception as e:
        print(name, type(e).__name__, e)
dist.init_process_group("gloo")
r = dist.get_rank()
o = 1 - r
x = torch.ones(2)
L = [torch.ones(2), torch.ones(2)]
L2 = [torch.ones(2), torch.ones(2)]
y = torch.ones(4)
def fut(w):
    try:
        f = w.get_future()
        v = f.wait()
        print("  value", type(v).__name__, len(v))
    except Exception as e:
        print("  future", type(e).__name__, e)
    w.wait()
    try:
        print("  result", len(w.result()))
    except Exception as e:
        print("  result", type(e).__name__, e)
    try:
        w.synchronize()
        print("  sync")
    except Exception as e:
        print("  sync", type(e).__name__, e)
    try:
        print("  src", w.source_rank())
    except Exception as e:
        print("  src", type(e).__name__, e)
t("broadcast", lambda: fut(dist.broadcast(x, 0, async_op=True)))
t("all_reduce", lambda: fut(dist.all_reduce(x, async_op=True)))
t("reduce", lambda: fut(dist.reduce(x, 0, async_op=True)))
t("all_gather", lambda: fut(dist.all_gather(L, x, async_op=True)))
t("agit", lambda: fut(dist.all_gather_into_tensor(y, x, async_op=True)))
t("gather", lambda: fut(dist.gather(x, L if r == 0 else None, async_op=True)))
t("scatter", lambda: fut(dist.scatter(x, L if r == 0 else None, async_op=True)))
t("rst", lambda: fut(dist.reduce_scatter_tensor(x, y, async_op=True)))
t("aas", lambda: fut(dist.all_to_all_single(torch.ones(4), y, async_op=True)))
t("barrier", lambda: fut(dist.barrier(async_op=True)))
t("isend", lambda: fut(dist.isend(x, 1) if r == 0 else dist.irecv(x, 0)))
t("rs", lambda: fut(dist.reduce_scatter(x, L, async_op=True)))
t("aa", lambda: fut(dist.all_to_all(L, L2, async_op=True)))
def co(w):
    print(type(w).__name__)
    v = w.wait()
    print(type(v).__name__, len(v), w.done())
    return w.then(lambda f: 3).wait()
t("arc", lambda: co(dist.all_reduce_coalesced(L, async_op=True)))
t("arc sync", lambda: dist.all_reduce_coalesced(L))
t("agc sync", lambda: dist.all_gather_coalesced([L[:1], L2[:1]], [x]))
t("wait 3.0", lambda: dist.barrier(async_op=True).wait(3.0))
