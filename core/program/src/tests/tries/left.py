import os
import torch
import torch.distributed as dist
import traceback
COUNT = 0
class Trainer:
    def __init__(self, n):
        self.n = n
        self.best = None
    def step(self, i):
        if i == 2:
            raise RuntimeError("CUDA out of memory")
        return i * self.n
    def run(self):
        global COUNT
        for i in range(4):
            try:
                out = self.step(
                    i,
                )
                self.best = out
                COUNT += 1
            except RuntimeError as e:
                if "out of memory" in str(e):
                    print("oom at", i)
                    continue
                else:
                    raise
            finally:
                print("end", i)
        return self.best
def handler():
    raise
def pairs():
    out = []
    try:
        for i, (a, b) in enumerate([(1, 2), (3, 0)]):
            out.append(a // b)
            print(i, [x for x in out if x > 0])
    except ZeroDivisionError as e:
        print(e, len(out))
    return out
def ring(r):
    t = torch.ones(4) * r
    s = torch.zeros(4)
    try:
        if r == 0:
            req = dist.isend(t, 1)
        else:
            req = dist.irecv(s, 0)
        req.wait()
    finally:
        print("ring", s.shape)
def main():
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    print(Trainer(rank + 1).run(), COUNT)
    pairs()
    ring(rank)
    try:
        with torch.no_grad():
            raise ValueError("in with")
    except ValueError:
        print(torch.is_grad_enabled())
    try:
        try:
            raise ValueError("q")
        except ValueError:
            handler()
    except ValueError as e:
        print("from handler", e)
    try:
        path = os.environ["NOPE"]
    except KeyError:
        path = "none"
    print(path)
    try:
        n = int(os.environ.get("N", "4"))
        x = {}
        x["k"] = n; y = n + 1
        assert y == 5
    except Exception:
        traceback.print_exc()
        raise SystemExit(1)
    print(x, y)
    try:
        print("def")
        z = [1, 2, 3]
        z[7]
    except IndexError as e:
        print("IndexError:", e)
    except Exception as e:
        print("other", e)
    try:
        "a" + 1
    except TypeError as e:
        print(type(e).__name__, e)
    try:
        torch.ones(4).view(3)
    except RuntimeError as e:
        print(e)
    try:
        object_list = [None] * 2
        dist.all_gather_object(object_list, {"rank": rank})
        if object_list[1]["rank"] == 1:
            raise ValueError(object_list)
    except ValueError as e:
        print(e)
if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
