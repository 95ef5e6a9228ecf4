import os, sys, time, torch, torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import profile, ProfilerActivity, ExecutionTraceObserver
mode = sys.argv[1]; steps=int(sys.argv[2]); out = sys.argv[3]
rank=int(os.environ['RANK']); world=int(os.environ['WORLD_SIZE'])
os.environ.setdefault('TORCH_FR_BUFFER_SIZE','2000')
import datetime
dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=6))
torch.set_num_threads(1)
torch.manual_seed(0)
sub = dist.new_group([0,1]); 
model = DDP(nn.Sequential(nn.Linear(256,512),nn.ReLU(),nn.Linear(512,512),nn.ReLU(),nn.Linear(512,10)), bucket_cap_mb=0.5)
opt=torch.optim.SGD(model.parameters(), lr=.01)
et=ExecutionTraceObserver(); et.register_callback(f'{out}/et_rank{rank}.json')
def step(i):
    if rank==2 and mode=='straggler': time.sleep(0.03)
    x=torch.randn(64,256)
    with torch.profiler.record_function('fwd'):
        loss=model(x).sum()
    loss.backward()
    if rank in (0,1): 
        t=torch.ones(33,dtype=torch.float64); dist.all_reduce(t, group=sub, op=dist.ReduceOp.MAX)
    if not(mode=='skip' and rank==1 and i==4):
        g=[torch.zeros(7,dtype=torch.int32) for _ in range(world)]; dist.all_gather(g, torch.ones(7,dtype=torch.int32))
    if rank==0: dist.send(torch.ones(1000), 2)
    if rank==2: 
        b=torch.zeros(1000); dist.recv(b, 0)
    if mode!='nob': 
        bb=torch.zeros(50); dist.broadcast(bb, src=1)
    opt.step(); opt.zero_grad()
try:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=True) as p:
        et.start()
        for i in range(steps): step(i)
        et.stop()
except Exception as e:
    print(rank, type(e), str(e)[:300], file=sys.stderr)
et.unregister_callback()
p.export_chrome_trace(f'{out}/kineto_rank{rank}.json')
import pickle
from torch._C._distributed_c10d import _dump_fr_trace
open(f'{out}/fr_{rank}','wb').write(_dump_fr_trace())
time.sleep(1)
os._exit(0)
