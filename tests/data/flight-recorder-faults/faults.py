"""Real gloo jobs with a deliberate fault each, and the Flight Recorder dumps of their hang.

usage: faults.py OUTDIR [SCENARIO …]; torch 2.9 or later. torch is imported once and every rank is a fork.
"""
import sys
import os, json, threading, time, traceback, datetime, signal, socket
os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")
os.environ["MASTER_ADDR"] = "127.0.0.1"
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
import torch, torch.distributed as dist, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
torch.set_num_threads(1)
c = torch._C._distributed_c10d
rank = world = 0
out = ""

def ones(n, dtype=torch.float32): return torch.ones(n, dtype=dtype)
def warm():
    dist.all_reduce(ones(1024)); dist.broadcast(ones(16), src=0); dist.barrier()
def step(n=256, group=None): dist.all_reduce(ones(n), group=group)
def hang(): time.sleep(1e6)

def extra_same_size():
    warm()
    for i in range(6):
        step()
        if rank == 1 and i == 2: dist.all_reduce(ones(256))   # the bug
    hang()
def extra_other_size():
    warm()
    for i in range(6):
        step()
        if rank == 1 and i == 2: dist.all_reduce(ones(3))     # the bug
    hang()
def rank0_logging():
    warm()
    for i in range(6):
        step()
        if rank == 0 and i % 2 == 1: dist.all_reduce(ones(1)) # the bug
    hang()
def rank0_checkpoint_barrier():
    warm()
    for i in range(6):
        step()
        if rank == 0 and i == 3: dist.barrier()               # the bug
    hang()
def rank0_gather_at_end():
    warm()
    for i in range(4): step()
    if rank == 0: dist.all_gather([torch.empty(8) for _ in range(world)], ones(8))
    hang()
def swapped_same_size():
    warm(); a, b = ones(256), ones(256)
    def A(): dist.all_reduce(a)
    def B(): dist.broadcast(b, src=0)
    if rank == 2: B(); A()
    else: A(); B()
    step(); hang()
def swapped_sizes():
    warm()
    for n in ([64, 512] if rank == 1 else [512, 64]): dist.all_reduce(ones(n))
    step(); hang()
def loop_shorter():
    warm()
    for i in range(4 if rank == 3 else 7): step()
    dist.all_gather([torch.empty(8) for _ in range(world)], ones(8)); hang()
def early_stop():
    warm()
    for i in range(8):
        step()
        dist.broadcast(ones(32), src=0)
        if rank == 1 and i == 4: break
    dist.all_reduce(ones(2)); hang()
def skip_same_size():
    warm()
    for i in range(6):
        if rank == 1 and i == 2: continue
        step()
    hang()
def skip_one_of_two():
    warm()
    for i in range(5):
        step(512)
        if not (rank == 2 and i == 3): dist.all_gather([torch.empty(64) for _ in range(world)], ones(64))
    hang()
def size_all_gather():
    warm(); n = 65 if rank == 3 else 64
    dist.all_gather_into_tensor(torch.empty(n * world), ones(n)); step(); hang()
def size_reduce_scatter():
    warm(); n = 96 if rank == 0 else 64
    dist.reduce_scatter_tensor(torch.empty(n), ones(n * world)); step(); hang()
def size_broadcast():
    warm(); dist.broadcast(ones(20 if rank == 2 else 10), src=0); step(); hang()
def dtype_broadcast():
    warm(); dist.broadcast(ones(64, torch.float64 if rank == 1 else torch.float32), src=0); step(); hang()
def size_tie():
    warm(); step(300 if rank < 2 else 256); step(); hang()
def split_mismatch():
    warm(); ins, outs = [4] * world, [4] * world
    if rank == 1: ins = [4, 4, 6, 4]
    dist.all_to_all_single(torch.empty(sum(outs)), ones(sum(ins)), outs, ins); step(); hang()
def uneven_all_to_all_ok():
    warm()
    for i in range(3):
        ins = [(rank + d + i) % 3 + 1 for d in range(world)]
        outs = [(s + rank + i) % 3 + 1 for s in range(world)]
        dist.all_to_all_single(torch.empty(sum(outs)), ones(sum(ins)), outs, ins)
    step(); dist.barrier()
def root_mismatch():
    warm(); dist.broadcast(ones(64), src=2 if rank == 2 else 0); step(); hang()
def p2p_cycle():
    warm()
    if rank < 2: dist.recv(torch.empty(4), 1 - rank); dist.send(ones(4), 1 - rank)
    step(); hang()
def ring_of_groups():
    warm(); gs = [dist.new_group(r, group_desc=d) for r, d in (([0, 1], "ab"), ([1, 2], "bc"), ([0, 2], "ca"))]
    if rank == 0: order = [0, 2]
    elif rank == 1: order = [1, 0]
    elif rank == 2: order = [2, 1]
    else: order = []
    for g in order: step(32, gs[g])
    step(); hang()
def mesh():
    tp = [dist.new_group([2 * i, 2 * i + 1], group_desc=f"tp{i}") for i in range(world // 2)]
    dp = [dist.new_group(list(range(j, world, 2)), group_desc=f"dp{j}") for j in range(2)]
    return tp[rank // 2], dp[rank % 2]
def mesh_order():
    warm(); tp, dp = mesh()
    for i in range(4):
        if rank == 1 and i == 2: step(32, dp); step(64, tp)   # the bug
        else: step(64, tp); step(32, dp)
    hang()
def mesh_healthy():
    warm(); tp, dp = mesh()
    for i in range(4): step(64, tp); step(64, tp); step(32, dp)
    dist.barrier()
def mesh_stuck():
    warm(); tp, dp = mesh()
    for i in range(4):
        step(64, tp)
        if rank == 2 and i == 2: hang()
        step(32, dp)
    dist.barrier(); hang()
def mesh_size():
    warm(); tp, dp = mesh()
    for i in range(4): step(64, tp); step(33 if rank == 1 and i == 2 else 32, dp)
    dist.barrier(); hang()
def two_stuck():
    warm()
    for i in range(6):
        if rank in (0, 2) and i == 3: hang()
        step()
    hang()
def two_faults():
    warm(); gs = [dist.new_group([0, 1], group_desc="left"), dist.new_group([2, 3], group_desc="right")]; g = gs[rank // 2]
    for i in range(5):
        if rank == 1 and i == 2: hang()
        step(99 if rank == 2 and i == 3 else 64, g)
    hang()
def object_rank0():
    warm(); step()
    if rank == 0: dist.all_gather_object([None] * world, {"loss": 1.0})
    step(); hang()
def swallowed_exception():
    warm()
    try:
        for i in range(6):
            if rank == 2 and i == 3: raise ValueError("bad batch")
            step()
    except ValueError: pass
    dist.barrier(); hang()
def barrier_missing():
    warm(); step()
    if rank != 1: dist.barrier()
    hang()
def async_pending():
    warm()
    if rank == 2: step(100); hang()
    ws = [dist.all_reduce(ones(100 + i), async_op=True) for i in range(4)]
    for w in ws: w.wait()
    hang()
def ring_wrap():
    warm(); g = [dist.new_group([0, 1], group_desc="a"), dist.new_group([2, 3], group_desc="b")][rank // 2]
    for i in range(12):
        for _ in range(1 + 2 * (rank // 2)): step(64, g)
        if rank == 3 and i == 10: hang()
        step(128)
    hang()
def crash_subgroup():
    warm(); tp, dp = mesh()
    for i in range(5):
        step(64, tp)
        if rank == 3 and i == 3: os._exit(1)
        step(32, dp)
    hang()
def straggler():
    warm()
    for i in range(400):
        if rank == 1: time.sleep(0.15)
        step()
def straggler_mesh():
    warm(); tp, dp = mesh()
    for i in range(400):
        if rank == 2: time.sleep(0.15)
        step(64, tp); step(32, dp)
class Net(nn.Module):
    def __init__(s, wide=128):
        super().__init__(); s.a = nn.Linear(64, wide); s.b = nn.Linear(wide, 64); s.c = nn.Linear(64, 8); s.n = nn.BatchNorm1d(64)
    def forward(s, x, skip=False):
        h = s.n(s.b(s.a(x).relu()))
        return s.c(h).sum() if not skip else h.sum()
def ddp(**kw):
    torch.manual_seed(0); m = DDP(Net(), bucket_cap_mb=0.03, **kw); return m, torch.optim.SGD(m.parameters(), 0.1)
def batch(): return torch.randn(16, 64)
def ddp_healthy():
    m, o = ddp()
    for i in range(6): o.zero_grad(); m(batch()).backward(); o.step()
    dist.barrier()
def ddp_unused():
    m, o = ddp()
    for i in range(6): o.zero_grad(); m(batch(), skip=(rank == 1 and i == 3)).backward(); o.step()
    dist.barrier(); hang()
def ddp_unused_all():
    m, o = ddp()
    for i in range(6): o.zero_grad(); m(batch(), skip=(i == 3)).backward(); o.step()
    dist.barrier(); hang()
def ddp_uneven_then_idle():
    m, o = ddp()
    for i in range(5 if rank == 2 else 8): o.zero_grad(); m(batch()).backward(); o.step()
    hang()
def ddp_uneven_then_eval():
    m, o = ddp()
    for i in range(5 if rank == 0 else 8): o.zero_grad(); m(batch()).backward(); o.step()
    dist.all_reduce(ones(2)); hang()
def ddp_no_sync():
    import contextlib
    m, o = ddp()
    for i in range(6):
        o.zero_grad()
        with (m.no_sync() if rank == 1 and i == 3 else contextlib.nullcontext()): m(batch()).backward()
        o.step()
    dist.barrier(); hang()
def ddp_rank0_eval():
    m, o = ddp()
    for i in range(6):
        o.zero_grad(); m(batch()).backward(); o.step()
        if rank == 0 and i == 3:
            m.train()
            with torch.no_grad(): m(batch())                  # the bug: DDP's forward broadcasts buffers
    dist.barrier(); hang()
def ddp_model_mismatch():
    torch.manual_seed(0); m = DDP(Net(96 if rank == 2 else 128)); hang()
def ddp_more_params():
    torch.manual_seed(0); net = Net()
    if rank == 2: net.extra = nn.Linear(4, 4)
    m = DDP(net); hang()
def ddp_find_unused_mismatch():
    m, o = ddp(find_unused_parameters=(rank == 3))
    for i in range(6): o.zero_grad(); m(batch()).backward(); o.step()
    dist.barrier(); hang()
def ddp_straggler():
    m, o = ddp()
    for i in range(400):
        if rank == 3: time.sleep(0.15)
        o.zero_grad(); m(batch()).backward(); o.step()
def ddp_skip_batch():
    m, o = ddp()
    for i in range(6):
        if rank == 2 and i == 3: continue
        o.zero_grad(); m(batch()).backward(); o.step()
    dist.barrier(); hang()

def reduce_root():
    warm(); dist.reduce(ones(64), dst=1 if rank == 3 else 0); step(); hang()
def gather_vs_all_gather():
    warm(); step()
    if rank == 2: dist.gather(ones(16), [torch.empty(16) for _ in range(world)] if rank == 0 else None, dst=0)
    else: dist.all_gather([torch.empty(16) for _ in range(world)], ones(16))
    step(); hang()
def dtype_bf16_gather():
    warm(); t = torch.bfloat16 if rank == 2 else torch.float32
    dist.all_gather([torch.empty(32, dtype=t) for _ in range(world)], ones(32, t)); step(); hang()
def dtype_same_width():
    warm()
    for i in range(3): step(64)
    dist.all_reduce(ones(64, torch.int32 if rank == 1 else torch.float32)); step(); dist.barrier(); hang()
def rank0_broadcast_object():
    warm()
    for i in range(5):
        step()
        if rank == 0 and i == 2: dist.broadcast_object_list([{"best": 1.0}], src=0)
    dist.barrier(); hang()
def rank_killed():
    warm()
    for i in range(6):
        step(128)
        if rank == 1 and i == 3: os.kill(os.getpid(), signal.SIGKILL)
    hang()
def two_killed():
    warm()
    for i in range(6):
        step(128)
        if rank in (1, 4) and i == 3: os.kill(os.getpid(), signal.SIGKILL)
    hang()
def stuck_before_wait():
    warm()
    for i in range(5):
        w = dist.all_reduce(ones(256), async_op=True)
        if rank == 1 and i == 3: hang()
        w.wait()
    hang()
def inner_loop_uneven():
    warm()
    for i in range(5):
        for m in range(3 if rank == 1 and i == 2 else 4): step(64)
        dist.broadcast(ones(16), src=0)
    dist.barrier(); hang()
def loop_shorter_two_calls():
    warm()
    for i in range(4 if rank == 2 else 7): step(64); dist.all_gather([torch.empty(32) for _ in range(world)], ones(32))
    for i in range(8): dist.broadcast(ones(100 + i), src=0)
    hang()
def skip_in_dp():
    warm(); tp, dp = mesh()
    for i in range(5):
        step(64, tp); step(48, tp)
        if not (rank == 5 and i == 2): step(32, dp)
        step(16, dp)
    dist.barrier(); hang()
def extra_in_tp():
    warm(); tp, dp = mesh()
    for i in range(5):
        step(64, tp)
        if rank == 4 and i == 3: dist.broadcast(ones(7), src=4, group=tp)
        step(32, dp)
    dist.barrier(); hang()
def swapped_then_more():
    warm()
    for i in range(5):
        a = [lambda: step(64), lambda: step(128)]
        if rank == 3 and i == 2: a.reverse()
        for f in a: f()
        step(256)
    hang()
def accumulate_differently():
    import contextlib
    m, o = ddp()
    for i in range(9):
        last = (i + 1) % (2 if rank == 1 else 3) == 0
        with (contextlib.nullcontext() if last else m.no_sync()): m(batch()).backward()
        if last: o.step(); o.zero_grad()
    dist.barrier(); hang()
def ddp_one_more_batch():
    m, o = ddp()
    for i in range(7 if rank == 1 else 6): o.zero_grad(); m(batch()).backward(); o.step()
    dist.barrier(); hang()
def half_skip():
    warm()
    for i in range(4):
        step(64)
        if rank >= world // 2 or i != 2: step(128)
    dist.barrier(); hang()
def reduce_scatter_vs_all_reduce():
    warm(); step()
    if rank == 1: dist.all_reduce(ones(256))
    else: dist.reduce_scatter_tensor(torch.empty(64), ones(256))
    step(); hang()
def objects_healthy():
    warm()
    for i in range(3):
        out_ = [None] * world; dist.all_gather_object(out_, "x" * (10 + 40 * rank + i))
        dist.gather_object("y" * (5 + 7 * rank), [None] * world if rank == 0 else None, dst=0)
        r = [None]; dist.scatter_object_list(r, ["z" * (1 + 9 * k) for k in range(world)] if rank == 0 else None, src=0)
        l = [{"a": i}] if rank == 1 else [None]; dist.broadcast_object_list(l, src=1)
    dist.barrier()
def scatter_sizes():
    warm(); n = 24 if rank == 3 else 16
    dist.scatter(torch.empty(n), [ones(16) for _ in range(world)] if rank == 0 else None, src=0); step(); hang()
def early_return_before_barrier():
    warm()
    for i in range(5):
        step(64)
        if rank == 2 and i == 4: hang()
        dist.barrier()
    hang()
def new_shape_second_epoch():
    warm()
    for e in range(2):
        for i in range(4):
            n = 64
            if e == 1 and i == 3 and rank == 0: n = 32        # a last batch that is smaller
            dist.all_gather([torch.empty(n) for _ in range(world)], ones(n))
        step(8)
    hang()
def mesh_tp_skip_world_waits():
    warm(); tp, dp = mesh()
    for i in range(4):
        if not (rank == 3 and i == 1): step(64, tp)
        step(32, dp)
    dist.barrier(); hang()
def three_groups_chain():
    warm(); tp, dp = mesh()
    for i in range(4):
        step(64, tp); step(32, dp)
        if rank == 6 and i == 2: hang()
        dist.all_reduce(ones(5))
    hang()
def unused_on_most():
    m, o = ddp()
    for i in range(6): o.zero_grad(); m(batch(), skip=(rank != 0 and i == 3)).backward(); o.step()
    dist.barrier(); hang()
def ddp_rank0_val():
    m, o = ddp()
    for i in range(6):
        o.zero_grad(); m(batch()).backward(); o.step()
        if rank == 0 and i == 3: dist.all_reduce(ones(1))
    dist.barrier(); hang()
def ddp_stuck():
    m, o = ddp()
    for i in range(8):
        if rank == 2 and i == 4: hang()
        o.zero_grad(); m(batch()).backward(); o.step()
    hang()
def ddp_killed():
    m, o = ddp()
    for i in range(8):
        o.zero_grad(); l = m(batch())
        if rank == 1 and i == 4: os._exit(9)
        l.backward(); o.step()
    hang()
def two_skip_same():
    warm()
    for i in range(5):
        step(512)
        if not (rank in (1, 5) and i == 3): dist.all_gather([torch.empty(64) for _ in range(world)], ones(64))
    hang()
def monitored():
    warm()
    if rank != 2: dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    hang()
def coalesced_size():
    warm(); dist.all_reduce_coalesced([ones(8), ones(17 if rank == 1 else 16)]); step(); hang()
def only_one_arrives():
    warm(); step()
    if rank == 0: dist.all_reduce(ones(64))
    hang()
def broadcast_extra_on_two():
    warm()
    for i in range(6):
        step(64)
        if rank in (0, 1) and i == 3: dist.broadcast(ones(9), src=0)
    dist.barrier(); hang()
def first_call_skipped():
    if rank != 2: dist.all_reduce(ones(40))
    for i in range(4): step(50 + i)
    hang()

class Bare(nn.Module):
    """No buffers: nothing is called in a forward pass."""
    def __init__(s):
        super().__init__(); s.a = nn.Linear(64, 64); s.b = nn.Linear(64, 128); s.c = nn.Linear(128, 8)
    def forward(s, x, skip=False): return s.c(s.b(x if skip else s.a(x).relu())).sum()
def bare():
    torch.manual_seed(0); m = DDP(Bare(), bucket_cap_mb=0.03); return m, torch.optim.SGD(m.parameters(), 0.1)
def timed_out():
    warm()
    for i in range(4 if rank == 3 else 6): step()             # the bug
    if rank == 3: hang()
def timed_out_ddp():
    m, o = bare()
    for i in range(6):
        if rank == 2 and i == 3: hang()                       # the bug
        o.zero_grad(); m(batch()).backward(); o.step()
def dumped_apart():
    warm()
    for i in range(200):
        if (i * 7 + 3) % 4 == rank: time.sleep(.05)
        step()
def ddp_stuck_bare():
    m, o = bare()
    for i in range(6):
        if rank == 2 and i == 3: hang()                       # the bug
        o.zero_grad(); m(batch()).backward(); o.step()
def ddp_unused_bare():
    m, o = bare()
    for i in range(6):
        # The bug: the first layer, whose bucket is the last, takes no part.
        o.zero_grad(); m(batch(), skip=(rank == 1 and i == 3)).backward(); o.step()
    hang()
def skip_one_of_two_lines():
    warm()
    for i in range(6):
        step()
        if not (rank == 2 and i == 2): dist.all_reduce(ones(256))   # the bug
    dist.barrier(); hang()
def ddp_validate_rank0():
    m, o = ddp()
    for epoch in range(2):
        for i in range(2): o.zero_grad(); m(batch()).backward(); o.step()
        if rank == 0:                                         # the bug
            for i in range(2): m(batch())
    dist.barrier(); hang()

def newgroup_members_later():
    warm()
    if rank < 2: g = dist.new_group([0, 1]); step(8, g)       # the bug
    for i in range(3):
        step(64)
        if rank < 2: step(8, g)
    h = dist.new_group([1, 2, 3])
    if rank: step(16, h)
    dist.barrier(); hang()
def barrier_in_try_then_gather():
    warm()
    for i in range(6):
        step(64)
        try:
            if rank == 1 and i == 3: raise OSError("disk full")
            dist.barrier(); dist.all_gather([torch.empty(4) for _ in range(world)], ones(4))
        except OSError: pass
    dist.all_reduce(ones(7)); hang()
def killed_before_group():
    warm(); tp, dp = mesh()
    step(64, tp)
    if rank == 6: os.kill(os.getpid(), signal.SIGKILL)
    for i in range(3): step(32, dp); step(64, tp)
    dist.barrier(); hang()
def killed_last():
    warm()
    for i in range(4): step(64)
    if rank == 3: os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier(); hang()
def all_to_all_outputs():
    warm(); ins, outs = [2] * world, [2] * world
    if rank == 3: outs = [2, 2, 2, 5]
    dist.all_to_all_single(torch.empty(sum(outs)), ones(sum(ins)), outs, ins); step(); hang()
def all_to_all_pair():
    warm(); ins, outs = [4] * world, [4] * world
    if rank == 0: ins[1] = 6
    if rank == 2: ins[1] = 2
    dist.all_to_all_single(torch.empty(sum(outs)), ones(sum(ins)), outs, ins); step(); hang()
def all_to_all_input_splits():     # recorded by another script, of the same calls
    warm()
    for i in range(2):
        ins = [5, 3, 4, 4] if rank == 2 and i == 1 else [4] * world
        dist.all_to_all_single(torch.empty(4 * world), torch.ones(4 * world), [4] * world, ins)
    dist.barrier(); hang()
def broadcast_own():
    warm(); dist.broadcast(ones(64), src=rank); step(); dist.barrier(); hang()
def mesh_dims():
    from torch.distributed.device_mesh import init_device_mesh
    warm(); m = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp")); return m.get_group("tp"), m.get_group("dp")
def hsdp_cross():
    tp, dp = mesh_dims()
    for i in range(4):
        if i == 2 and rank in (1, 6): step(32, dp); step(64, tp)     # the bug
        else: step(64, tp); step(32, dp)
    dist.barrier(); hang()
def fsdp_real_skip():
    from torch.distributed.fsdp import fully_shard
    torch.manual_seed(0); m = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 32), nn.Linear(32, 8))
    for l in m: fully_shard(l)
    fully_shard(m); o = torch.optim.SGD(m.parameters(), 0.1)
    for i in range(5):
        loss = m(torch.randn(4, 64)).sum()
        if rank == 1 and i == 3: continue                     # the bug: skips the backward pass
        loss.backward(); o.step(); o.zero_grad()
    dist.barrier(); hang()
def straggler_sleep():
    warm()
    for i in range(400):
        time.sleep(.02 + (.1 if rank == 2 else 0)); step(64); dist.all_gather([torch.empty(4) for _ in range(world)], ones(4))
def eval_half():
    warm()
    for i in range(4):
        step(64)
        if rank < 2 and i == 2: dist.all_reduce(ones(2))
        step(32)
    hang()
def object_skip():
    warm()
    for i in range(4):
        step(64)
        if not (rank == 3 and i == 2): dist.all_gather_object([None] * world, {"rank": rank})
    dist.barrier(); hang()
def one_more_epoch():
    warm(); tp, dp = mesh()
    for e in range(3 if rank == 6 else 2):
        for i in range(3): step(64, tp); step(32, dp)
    dist.barrier(); hang()
def pipeline_microbatch():
    warm(); x = ones(1 << 18)
    for i in range(3):
        n = 4 - (rank == 2 and i == 1)
        for m in range(n):
            if rank > 0: dist.recv(x, rank - 1)
            if rank < world - 1: dist.send(x, rank + 1)
        step(64)
    hang()

def groups_opposite():
    a = dist.new_group([0, 1], group_desc="a"); b = dist.new_group([0, 1], group_desc="b")
    warm()
    if rank < 2:
        for g in ([b, a] if rank == 1 else [a, b]): step(8, g) # the bug
    dist.barrier(); hang()
def skip_between_sizes():
    warm()
    for i in range(4):
        step(100 + i)
        if not (rank == 3 and i == 1): dist.barrier()         # the bug
    dist.barrier(); hang()
def object_once():
    warm()
    for i in range(3):
        step()
        if rank == 0 or i != 1: dist.broadcast_object_list([{"epoch": i}], src=0)   # the bug
    dist.barrier(); hang()
def halves(n=2):
    gs = [dist.new_group(list(range(i, i + world // n)), group_desc=f"h{i}") for i in range(0, world, world // n)]
    return gs[rank * n // world]
def busy(): time.sleep(0.002 + 0.002 * ((rank * 7 + int(time.monotonic() * 1000)) % 3))
def group_left_out_world_loop():
    g = halves()
    for i in range(6):
        dist.all_reduce(ones(100))
        if rank == 1 and i == 3: dist.all_reduce(ones(64))
        else: dist.all_reduce(ones(64), group=g)
    dist.barrier(); hang()
def group_left_out_line():
    warm(); g = halves()
    for i in range(6):
        if rank == 3 and i == 3: dist.all_reduce(ones(64))   # the bug
        else: dist.all_reduce(ones(64), group=g)
        dist.all_reduce(ones(4), group=g)
    dist.barrier(); hang()
def group_always_left_out_barrier():
    warm(); g = halves()
    if rank == 2: g = None
    for i in range(6):
        step(64, g)
    dist.barrier(); hang()
def ddp_nan_continue():
    m, o = ddp()
    for i in range(8):
        o.zero_grad(); loss = m(batch())
        if rank == 2 and i == 4: continue   # isnan(loss)
        loss.backward(); o.step()
    dist.barrier(); hang()
def ddp_no_sync_once_in_join():
    import contextlib
    m, o = ddp()
    with m.join():
        for i in range(8):
            with (m.no_sync() if rank == 1 and i == 3 else contextlib.nullcontext()): m(batch()).backward()
            o.step()
    hang()
def ddp_no_sync_in_join():
    import contextlib
    m, o = ddp()
    with m.join():
        for i in range(9):
            sync = i % 3 == 2 if rank != 1 else i % 3 == 1
            with (contextlib.nullcontext() if sync else m.no_sync()): m(batch()).backward()
            if sync: o.step(); o.zero_grad()
    hang()
def ddp_nan_all_but_one():
    m, o = ddp()
    for i in range(8):
        o.zero_grad(); loss = m(batch())
        if rank != 0 and i == 4: continue   # isnan(loss)
        loss.backward(); o.step()
    dist.barrier(); hang()
def ddp_nan_two_ranks():
    m, o = ddp()
    for i in range(8):
        o.zero_grad(); loss = m(batch())
        if rank in (1, 2) and i == 4: continue   # isnan(loss)
        loss.backward(); o.step()
    dist.barrier(); hang()
def eval_shorter_metrics():
    m, o = ddp()
    for epoch in range(2):
        for i in range(3): o.zero_grad(); m(batch()).backward(); o.step()
        for i in range(3 if rank == 3 and epoch == 1 else 4):       # the bug
            dist.all_reduce(ones(1))
        dist.all_reduce(ones(5))
    dist.barrier(); hang()
def eval_shorter_first_epoch():
    warm()
    for epoch in range(3):
        for i in range(3): step(256)
        for i in range(3 if rank == 2 and epoch == 0 else 4):       # the bug
            dist.all_reduce(ones(1))
    dist.barrier(); hang()
def object_rank0_step():
    m, o = ddp()
    for i in range(6):
        o.zero_grad(); m(batch()).backward(); o.step()
        if rank == 0 and i % 2 == 1: dist.all_gather_object([None] * world, {"loss": 1.0})
    dist.barrier(); hang()
def run_mesh():
    warm(); tp, dp = mesh()
    for i in range(4000): busy(); step(64, tp); busy(); step(32, dp)
def stopped():
    warm()
    for i in range(6):
        if rank == 2 and i == 3: os.kill(os.getpid(), signal.SIGSTOP)
        step(64)
    hang()

NEEDS = {"ring_wrap": {"TORCH_FR_BUFFER_SIZE": "12"}}
WORLDS = {"killed_before_group": 8, "hsdp_cross": 8, "one_more_epoch": 8, "mesh_order": 4, "mesh_stuck": 8, "mesh_size": 8, "mesh_healthy": 8, "ring_of_groups": 4, "loop_shorter": 6, "two_killed": 6, "skip_in_dp": 8, "extra_in_tp": 8, "mesh_tp_skip_world_waits": 8, "three_groups_chain": 8, "two_skip_same": 6, "broadcast_extra_on_two": 6}
NO_DUMP = {"crash_subgroup": [3]}
MID = {"run_mesh", "straggler_sleep", "straggler", "straggler_mesh", "ddp_straggler", "dumped_apart"}
TIMEOUTS = {"timed_out": 2, "timed_out_ddp": 2}

def child(name, r, w, folder, port):
    global rank, world, out
    rank, world, out = r, w, folder
    os.environ["MASTER_PORT"] = str(port)
    log = os.open(os.path.join(folder, f"log_{r}.txt"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC); os.dup2(log, 1); os.dup2(log, 2)
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
            time.sleep(0.3); n = state(); now = time.monotonic()
            if n != last: last, since = n, now
            if name in MID and n[0] >= 40: break
            if n[0] and now - since > 4: break
            if now - start > 40: break
        with open(os.path.join(out, f"rank_{rank}"), "wb") as f: f.write(c._dump_fr_trace())
        j = c._dump_fr_trace_json(); os.makedirs(os.path.join(out, "json"), exist_ok=True)
        with open(os.path.join(out, "json", f"rank_{rank}.json"), "wb") as f: f.write(j if isinstance(j, bytes) else j.encode())
        open(os.path.join(out, f".done{rank}"), "w").close(); t = time.monotonic()
        while time.monotonic() - t < 30 and sum(os.path.exists(os.path.join(out, f".done{r}")) for r in range(world)) < world: time.sleep(0.1)
        os._exit(3)
    threading.Thread(target=side, daemon=True).start()
    try:
        dist.init_process_group("gloo", rank=r, world_size=w, timeout=datetime.timedelta(seconds=TIMEOUTS.get(name, 60)))
        globals()[name]()
        print("returned", flush=True)
    except BaseException:
        traceback.print_exc(); sys.stderr.flush()
    time.sleep(100)

def run(name, base):
    w = WORLDS.get(name, 4); folder = os.path.join(base, name); os.makedirs(folder, exist_ok=True)
    s = socket.socket(); s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]; s.close()
    old = dict(os.environ); os.environ.update(NEEDS.get(name, {})); pids = []
    for r in range(w):
        pid = os.fork()
        if pid == 0:
            try: child(name, r, w, folder, port)
            finally: os._exit(1)
        pids.append(pid)
    os.environ.clear(); os.environ.update(old)
    t = time.monotonic(); alive = dict(enumerate(pids))
    while alive and time.monotonic() - t < 80:
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
    skip = {"halves", "busy", "mesh_dims", "warm", "step", "hang", "ones", "child", "run", "mesh", "ddp", "bare", "batch"}
    names = sys.argv[2:] or [n for n, f in list(globals().items()) if callable(f) and getattr(f, "__module__", "") == "__main__" and not isinstance(f, type) and n not in skip]
    for n in names: run(n, sys.argv[1])
