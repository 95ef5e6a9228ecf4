"""Real gloo jobs, most with a deliberate fault, and the Flight Recorder dumps of them.

usage: jobs.py OUTDIR [NAME …]; torch 2.9 or later. torch is imported once and every rank is a fork.
"""
import sys
import os, json, threading, time, traceback, datetime, signal, socket
os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")
os.environ["MASTER_ADDR"] = "127.0.0.1"; os.environ["GLOO_SOCKET_IFNAME"] = "lo"
import torch, torch.distributed as dist, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.device_mesh import init_device_mesh
import torch.distributed.tensor
torch.set_num_threads(1)
c = torch._C._distributed_c10d
rank = world = 0
out = ""
CASES = {}
def case(w, **kw):
    def f(fn):
        CASES[fn.__name__] = dict(fn=fn, w=w, **kw); return fn
    return f
def hang(): time.sleep(1e6)
def ones(n, dtype=torch.float32): return torch.ones(n, dtype=dtype)

class Net(nn.Module):
    def __init__(s, bn=False, extra=0):
        super().__init__(); s.inp = nn.Linear(32, 64); s.bn = nn.BatchNorm1d(64) if bn else nn.Identity()
        s.mid = nn.Linear(64, 64 + extra); s.aux = nn.Linear(64, 4); s.out = nn.Linear(64 + extra, 4)
    def forward(s, x, aux=True):
        h = s.bn(s.inp(x)).relu(); y = s.out(s.mid(h).relu()).sum()
        return y + s.aux(h).sum() if aux else y
def ddp(bn=False, **kw):
    torch.manual_seed(0); m = DDP(Net(bn, kw.pop("extra", 0)), bucket_cap_mb=0.01, **kw); return m, torch.optim.SGD(m.parameters(), 1e-3)
def x(n=8): return torch.randn(n, 32)
def ddp_step(m, o, **kw):
    o.zero_grad(); l = m(x(), **kw); l.backward(); o.step(); return l.detach()
def avg_loss(l):
    l = l.reshape(1).clone(); dist.all_reduce(l); return l / world
def gather_list(n=4, g=None):
    w = dist.get_world_size(g); o = [torch.empty(n) for _ in range(w)]; dist.all_gather(o, ones(n), group=g)
def grads_sync(sizes, group=None):
    for n in sizes: dist.all_reduce(ones(n), group=group)

def grid(a, b, names=("dp", "tp")):
    m = init_device_mesh("cpu", (a, b), mesh_dim_names=names); return m.get_group(names[0]), m.get_group(names[1])
class FNet(nn.Module):
    def __init__(s):
        super().__init__(); s.a = nn.Linear(64, 128); s.b = nn.Linear(128, 64); s.c = nn.Linear(64, 8)
    def forward(s, x, skip=False):
        h = s.b(s.a(x).relu()); return s.c(h).sum() if not skip else h.sum()
def fddp(): torch.manual_seed(0); m = DDP(FNet(), bucket_cap_mb=0.03); return m, torch.optim.SGD(m.parameters(), 0.1)
def fstep(m, o, **k): o.zero_grad(); m(torch.randn(16, 64), **k).backward(); o.step()
def warm(): dist.all_reduce(ones(1024)); dist.broadcast(ones(16), src=0); dist.barrier()
def ar(n=256, g=None): dist.all_reduce(ones(n), group=g)
def ag(n=64, g=None): dist.all_gather([torch.empty(n) for _ in range(dist.get_world_size(g))], ones(n), group=g)


@case(4)
def all_gather_for_all_reduce():
    warm()
    for i in range(4):
        if rank == 1 and i == 2: dist.all_gather_into_tensor(torch.empty(64 * world), ones(64))
        else: dist.reduce_scatter_tensor(torch.empty(64), ones(64 * world))
        ar(8)
    hang()
@case(4)
def all_to_all_other_size():
    warm()
    for i in range(3):
        n = 8 * world if rank == 3 and i == 2 else 16 * world; dist.all_to_all_single(torch.empty(n), ones(n))
    hang()
@case(4)
def all_to_all_sends_less():
    warm()
    for i in range(3):
        parts = [[16 if (r, to) == (1, 2) else 8 for to in range(world)] for r in range(world)]
        send = list(parts[rank]); receive = [parts[r][rank] for r in range(world)]
        if rank == 1 and i == 2: send[2] = 8
        dist.all_to_all_single(ones(sum(receive)), ones(sum(send)), receive, send)
    hang()
@case(4)
def async_other_order():
    warm()
    a = [lambda: dist.all_reduce(ones(10), async_op=True), lambda: dist.all_reduce(ones(20), async_op=True), lambda: dist.broadcast(ones(30), 0, async_op=True), lambda: dist.all_reduce(ones(40), async_op=True)]
    if rank == 2: a = [a[2], a[1], a[0], a[3]]
    for w in [f() for f in a]: w.wait()
    hang()
@case(4)
def async_reversed():
    for i in range(2):
        sizes = [100, 200, 300, 400]
        if rank == 1: sizes = sizes[::-1]
        for w in [dist.all_reduce(ones(n), async_op=True) for n in sizes]: w.wait()
    hang()
@case(4)
def ddp_rank0_log():
    m, o = fddp()
    for i in range(6):
        fstep(m, o)
        if rank == 0 and i == 2: ar(1)
    hang()
@case(3)
def ddp_rank0_save():
    m, o = ddp(bn=True)
    for i in range(6):
        ddp_step(m, o)
        if i == 4 and rank == 0: torch.save(m.state_dict(), "/dev/null"); dist.barrier()
    hang()
@case(4)
def ddp_unused_first_bucket():
    m, o = fddp()
    for i in range(6): fstep(m, o, skip=rank == 2 and i == 3)
    hang()
@case(4)
def dict_order():
    warm()
    layers = ["embed", "attn", "mlp", "norm", "head"]; size = dict(zip(layers, (512, 256, 1024, 16, 512)))
    if rank == 1: layers = sorted(layers)
    ws = [dist.all_reduce(ones(size[l]), async_op=True) for l in layers]
    for w in ws: w.wait()
    hang()
@case(4)
def epoch_one_more():
    m, o = fddp()
    for e in range(3):
        for i in range(5 if rank == 1 and e == 2 else 4): fstep(m, o)
        ag(3)
    hang()
@case(4)
def epochs_plain():
    for e in range(3):
        for i in range(4 if rank == 2 and e == 2 else 5): ar(300); ar(20)
        ar(1)
    hang()
@case(4)
def epochs_two_loops():
    for e in range(3):
        for i in range(4): ar(300); ar(20)
        for i in range(2 if rank == 0 and e == 1 else 3): ag(8); ar(2)
        dist.barrier()
    hang()
@case(3)
def epochs_uneven():
    m, o = ddp()
    for e in range(3):
        for i in range(4 if rank == 1 and e == 2 else 5): ddp_step(m, o)
        avg_loss(torch.ones(1)); gather_list(3)
    hang()
@case(4)
def epochs_uneven_barrier():
    m, o = fddp()
    for e in range(3):
        for i in range(3 if rank == 3 and e == 1 else 4): fstep(m, o)
        dist.barrier()
    hang()
@case(3, env={"TORCH_FR_BUFFER_SIZE": "24"})
def epochs_uneven_ring():
    m, o = ddp()
    for e in range(3):
        for i in range(6 if not (rank == 2 and e == 2) else 5): ddp_step(m, o)
        avg_loss(torch.ones(1)); dist.barrier()
    hang()
@case(4)
def full_tensor_skip():
    mesh = init_device_mesh("cpu", (world,))
    from torch.distributed.tensor import distribute_tensor, Shard
    t = distribute_tensor(torch.ones(8, 8), mesh, [Shard(0)])
    for i in range(4):
        grads_sync([64])
        if not (rank == 2 and i == 2): t.full_tensor()
    hang()
@case(8)
def mesh_of_three_skip():
    m = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp")); g = [m.get_group(n) for n in ("pp", "dp", "tp")]
    for i in range(4):
        ar(96, g[2])
        if not (rank == 6 and i == 2): ar(64, g[1])
        ar(8, g[0])
    hang()
@case(2)
def model_of_two():
    m, o = ddp(extra=8 if rank == 1 else 0)
    for i in range(4): ddp_step(m, o)
    hang()
@case(4)
def model_rank0_odd():
    m, o = ddp(extra=8 if rank == 0 else 0); ddp_step(m, o); hang()
@case(4)
def monitored():
    for i in range(4): grads_sync([64])
    if rank != 3: dist.monitored_barrier(timeout=datetime.timedelta(seconds=3))
    grads_sync([64]); hang()
@case(3)
def object_left_out():
    for i in range(4):
        ar(8); o = [None] * world
        if not (rank == 2 and i == 2): dist.all_gather_object(o, {"r": rank})
    hang()
@case(4)
def odd_even_skip():
    a, b = dist.new_group([0, 2], group_desc="dp_even"), dist.new_group([1, 3], group_desc="dp_odd"); me = b if rank % 2 else a
    for i in range(5):
        ar(32)
        if not (rank == 3 and i == 2): ar(64, me)
        ar(16, me)
    hang()
@case(4)
def odd_even_wrong_group():
    a, b = dist.new_group([0, 2], group_desc="dp_even"), dist.new_group([1, 3], group_desc="dp_odd"); me = b if rank % 2 else a
    for i in range(5):
        ar(32)
        ar(64, None if rank == 2 and i == 3 else me)
    hang()
@case(4)
def resume_missing():
    obj = [{"epoch": 3}]
    if rank != 3: dist.broadcast_object_list(obj, src=0)
    for i in range(4): grads_sync([256])
    hang()
@case(6)
def ring_of_groups():
    members = [0, 1, 2], [2, 3, 4], [4, 5, 0]; g = [dist.new_group(m) for m in members]
    def each(order):
        for k in order:
            if rank in members[k]: ar(32, g[k])
    for i in range(3): ar(8); each([0, 1, 2])
    each({0: [2, 0], 2: [0, 1], 4: [1, 2]}.get(rank, [0, 1, 2])); hang()
@case(4)
def rotated():
    warm()
    a = [lambda: dist.all_reduce(ones(10), async_op=True), lambda: dist.all_reduce(ones(20), async_op=True), lambda: dist.broadcast(ones(30), 0, async_op=True)]
    if rank == 1: a = a[1:] + a[:1]
    for w in [f() for f in a]: w.wait()
    hang()
@case(4)
def rotated_back():
    warm()
    for i in range(2):
        s = [10, 20, 30, 40, 50]
        if rank == 2 and i == 1: s = s[-1:] + s[:-1]
        for w in [dist.all_reduce(ones(n), async_op=True) for n in s]: w.wait()
        ar(7)
    hang()
@case(4, mid=60)
def slow_ddp():
    m, o = ddp()
    for i in range(200):
        if rank == 0: time.sleep(0.1)
        avg_loss(ddp_step(m, o))
@case(4, mid=40)
def slow_gather():
    for i in range(400):
        time.sleep(0.13 if rank == 3 else 0.01); dist.gather(ones(4), [torch.empty(4) for _ in range(world)] if rank == 0 else None, dst=0)
@case(6, mid=40)
def slow_in_group():
    a, b = dist.new_group([0, 1, 2]), dist.new_group([3, 4, 5]); me = a if rank < 3 else b
    for i in range(200):
        time.sleep(0.12 if rank == 2 else 0.01); dist.all_reduce(ones(64), group=me); dist.all_reduce(ones(8))
@case(6, mid=45)
def slow_in_one_of_two():
    a, b = dist.new_group([0, 1, 2]), dist.new_group([2, 3, 4, 5])
    for i in range(400):
        time.sleep(0.13 if rank == 0 else 0.01)
        if rank < 3: ar(64, a)
        if rank >= 2: ar(32, b)
@case(8, mid=60)
def slow_mesh_of_three():
    m = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp")); g = [m.get_group(n) for n in ("pp", "dp", "tp")]
    for i in range(400):
        time.sleep(0.13 if rank == 6 else 0.01); ar(64, g[2]); ar(32, g[1]); ar(16, g[0])
@case(4)
def swapped_at_the_start():
    a = [lambda: dist.all_reduce(ones(64), async_op=True), lambda: dist.broadcast(ones(64), src=0, async_op=True)]
    if rank == 1: a = a[::-1]
    for w in [f() for f in a]: w.wait()
    hang()
@case(4)
def world_for_group():
    a, b = dist.new_group([0, 1]), dist.new_group([2, 3]); me = a if rank < 2 else b
    for i in range(5): ar(64, None if rank == 1 and i == 3 else me); ag(8)
    hang()
@case(4)
def wrong_group_barrier():
    a, b = dist.new_group([0, 1], group_desc="a"), dist.new_group([2, 3], group_desc="b")
    me = a if rank < 2 else b
    for i in range(4):
        dist.all_reduce(ones(64), group=me); dist.all_reduce(ones(8))
        if i == 2: dist.barrier(group=None if rank == 3 else me)
    hang()

def child(name, r, w, folder, port):
    global rank, world, out
    rank, world, out = r, w, folder; spec = CASES[name]
    os.environ["MASTER_PORT"] = str(port)
    log = os.open(os.path.join(folder, "logs", f"log_{r}.txt"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC); os.dup2(log, 1); os.dup2(log, 2)
    import ctypes; libc = ctypes.CDLL(None); libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal(6, ctypes.cast(libc.pause, ctypes.c_void_p))
    def state():
        try:
            e = json.loads(c._dump_fr_trace_json()).get("entries", [])
            return (e[-1]["record_id"] + 1, sum(bool(x["retired"]) for x in e)) if e else (0, 0)
        except Exception: return (0, 0)
    def side():
        last, since, start = None, time.monotonic(), time.monotonic()
        while True:
            time.sleep(0.1 if spec.get("mid") else 0.3); n = state(); now = time.monotonic()
            if n != last: last, since = n, now
            if spec.get("mid") and n[0] >= spec["mid"]: break
            if n[0] and now - since > max(7, 1.7 * spec.get("timeout", 0)): break
            if now - start > 40: break
        with open(os.path.join(out, f"rank_{rank}"), "wb") as f: f.write(c._dump_fr_trace())
        open(os.path.join(out, f".done{rank}"), "w").close(); t = time.monotonic()
        while time.monotonic() - t < 30 and sum(os.path.exists(os.path.join(out, f".done{r}")) for r in range(world)) < world: time.sleep(0.1)
        os._exit(3)
    threading.Thread(target=side, daemon=True).start()
    try:
        dist.init_process_group("gloo", rank=r, world_size=w, timeout=datetime.timedelta(seconds=spec.get("timeout", 60)))
        spec["fn"](); print("returned", flush=True)
    except BaseException:
        lines = traceback.format_exc().splitlines(); print("".join(f"[rank{r}]: {l}\n" for l in lines), end="", file=sys.stderr); sys.stderr.flush()
        if r in spec.get("dead", []): os._exit(1)
    time.sleep(100)

def run(name, base):
    spec = CASES[name]; w = spec["w"]; folder = os.path.join(base, name)
    os.system(f"rm -rf {folder}"); os.makedirs(folder + "/logs")
    s = socket.socket(); s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]; s.close()
    env = spec.get("env", {}); os.environ.update(env); pids = []
    for r in range(w):
        pid = os.fork()
        if pid == 0:
            try: child(name, r, w, folder, port)
            finally: os._exit(1)
        pids.append(pid)
    t = time.monotonic(); alive = dict(enumerate(pids))
    while alive and time.monotonic() - t < 60:
        for r, p in list(alive.items()):
            if os.waitpid(p, os.WNOHANG)[0]:
                alive.pop(r); open(os.path.join(folder, f".done{r}"), "w").close()
        time.sleep(0.1)
    for p in alive.values(): os.kill(p, signal.SIGKILL); os.waitpid(p, 0)
    for r in range(w):
        try: os.unlink(os.path.join(folder, f".done{r}"))
        except FileNotFoundError: pass
    print(name, len([f for f in os.listdir(folder) if f.startswith("rank_")]), f"{time.monotonic() - t:.0f}s", flush=True)

if __name__ == "__main__":
    base = sys.argv[1]; names = sys.argv[2:] or list(CASES); pool = []
    for n in names:
        while len(pool) >= 3:
            p = os.waitpid(-1, 0)[0]
            if p in pool: pool.remove(p)
        p = os.fork()
        if p == 0:
            try: run(n, base)
            finally: os._exit(0)
        pool.append(p)
    while pool: pool.remove(os.waitpid(-1, 0)[0])
