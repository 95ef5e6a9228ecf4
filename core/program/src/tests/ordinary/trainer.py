import os, sys
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
def setup():
    try:
        local_rank = int(os.environ["LOCAL_RANK"])
    except KeyError:
        sys.exit("run with torchrun")
    dist.init_process_group(backend="gloo", init_method="env://")
    return local_rank
class Trainer:
    def __init__(self, model, opt):
        self.model, self.opt = model, opt
        self.step_no = 0
        try:
            self._load("ckpt.pt")
        except FileNotFoundError:
            print("no snapshot")
    def _load(self, path):
        if not os.path.exists(path):
            raise FileNotFoundError(path)
        snapshot = torch.load(path)
        self.step_no = snapshot["step"]
    def train(self, n):
        for epoch in range(n):
            try:
                self.opt.zero_grad(set_to_none=True)
                out = self.model(torch.randn(4, 8))
                loss = out.pow(2).mean() if epoch < 10 else None
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.opt.step()
                self.step_no += 1
                if epoch == 1:
                    raise torch.cuda.OutOfMemoryError("oom")
            except torch.cuda.OutOfMemoryError as e:
                print("skipping batch:", e)
                torch.cuda.empty_cache()
                continue
            except (RuntimeError, ValueError):
                raise
            if dist.get_rank() == 0:
                print(f"epoch {epoch} step {self.step_no}")
            with self.model.no_sync():
                try:
                    self.model(torch.randn(4, 8)).sum().backward()
                finally:
                    pass
def main():
    rank = setup()
    model = DDP(nn.Linear(8, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    t = Trainer(model, opt)
    t.train(3)
    try:
        dist.monitored_barrier()
    except RuntimeError as e:
        print("barrier", e)
    try:
        x = torch.zeros(2)
        outs = [torch.zeros(3) for _ in range(2)]
        dist.all_gather(outs, x)
    except RuntimeError as e:
        print(e)
    try:
        dist.reduce_scatter(torch.zeros(2), [torch.zeros(2)] * 2)
    except (RuntimeError, dist.DistBackendError) as e:
        print("rs", type(e).__name__)
    try:
        dist.send(torch.ones(1), dst=rank)
    except ValueError as e:
        print(e)
    try:
        dist.scatter(torch.zeros(1), [torch.zeros(1)] if rank == 1 else None, src=0)
    except (ValueError, RuntimeError) as e:
        print(type(e).__name__, e)
    g = dist.new_group([0])
    try:
        print(dist.get_rank(g), dist.get_world_size(g))
        dist.all_reduce(torch.ones(1), group=g)
        print(dist.get_group_rank(g, 1))
    except Exception as e:
        print(type(e).__name__)
if __name__ == "__main__":
    code = 0
    try:
        main()
    except KeyboardInterrupt:
        code = 130
    except Exception as exc:
        print("FAILED", exc, file=sys.stderr)
        code = 1
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    print("code", code)
    sys.exit(code)
