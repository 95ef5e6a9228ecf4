import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
dist.init_process_group("gloo")
r = dist.get_rank()
mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
print(mesh.mesh.dtype)
print(mesh.mesh.tolist(), mesh.mesh.shape, mesh["dp"].mesh.tolist())
t = torch.arange(4)
for e in t:
    print(e.item(), e.shape)
n = 0
for q in [True, False]:
    n += q
print(n, sum([True, False]))
m = t > 2
print(m.tolist(), m.sum().item(), 3 > 2)
k = r < 2
print(k or False)
print((t > 2).sum().item(), (t >= 1).shape)
fmt = "rank %d"
print(fmt % r)
class P:
    def __init__(self, x): self.x = x
    def __repr__(self): return f"P({self.x})"
    def __str__(self): return f"p:{self.x}"
p = P(3)
print("%r %s" % (p, p), "%r" % p)
template = "{} {!r} {:>5}"
print(template.format(p, p, 3), "{0} {name}".format(p, name=p))
a, b = t[0], t[1]
x, y, z, w = t
print(w.item())
print([int(v) for v in t], list(t)[1].item())
msg = "%s/%s"
pair = (1, 2)
print(msg % pair)
s = "x=%d"
vals = [1, 2]
for v in vals:
    print(s % v, s % vals[0], s % (v + 1))
print(7 % v, "%5.2f" % 3.14159, "%-5s|" % "ab")
dist.destroy_process_group()
