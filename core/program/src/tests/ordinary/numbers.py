import torch.distributed as dist; dist.init_process_group("gloo")
import torch
a = torch.ones(2, 3)
b = torch.ones(3, 4)
c = a @ b
print(c.shape, c[0, 0].item())
print((a @ b).sum().item(), torch.matmul(a, b).shape, torch.mm(a, b).shape, a.matmul(b).shape)
d = a.T @ a
print(d.shape, (a @ torch.ones(3)).shape)
for c in "abc":
    print(c)
print(list("abc"), [c for c in "xy"], "-".join(c for c in "hey"), set("aab") == {"a", "b"}, sorted("cba"), tuple("ab"))
for i, c in enumerate("ab"):
    print(i, c)
print(max("abc"), "b" in "abc", dict(zip("ab", [1, 2])))
class A: pass
class B(A): pass
print(issubclass(B, A), issubclass(A, B), issubclass(bool, int), issubclass(ValueError, Exception), issubclass(int, (str, int)))
print(1 + True, True + True, sum([True, False, True]), 3 * True, True - 1, True * 2.5, True / 2)
n = 0
n += (3 > 2)
print(n, (3 > 2) + (2 > 1))
from contextlib import nullcontext
with nullcontext(5) as y:
    print(y)
with nullcontext() as y:
    print(y)
