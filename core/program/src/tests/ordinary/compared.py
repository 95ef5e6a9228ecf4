import torch.distributed as dist; dist.init_process_group("gloo")
class V:
    def __init__(self, x, y):
        self.x, self.y = x, y
    def __eq__(self, other):
        return isinstance(other, V) and self.x == other.x and self.y == other.y
    def __repr__(self):
        return f"V({self.x}, {self.y})"
print(V(1, 2) == V(1, 2), V(1, 2) != V(1, 2), V(1, 2) == 3)
print(V(1, 2) in [V(1, 2)])
class R:
    def __init__(self, n):
        self.n = n
    def __iter__(self):
        self.i = 0
        return self
    def __next__(self):
        if self.i >= self.n:
            raise StopIteration
        self.i += 1
        return self.i
for x in R(3):
    print(x)
print(list(R(2)), [y * 2 for y in R(3)], sum(R(3)))
class W:
    def __init__(self, items):
        self.items = items
    def __iter__(self):
        return iter(self.items)
    def __contains__(self, x):
        return x in self.items
    def __len__(self):
        return len(self.items)
for x in W([7, 8]):
    print(x)
print(7 in W([7]), 9 in W([7]), 9 not in W([7]))
for i, x in enumerate(W(["a", "b"])):
    print(i, x)
class K: pass
k = K()
d = {k: 1}
print(d[k])
s = {k, k}
print(len(s))
class T:
    def __init__(self):
        self._v = 0
    @property
    def v(self):
        return self._v
    @v.setter
    def v(self, value):
        self._v = value * 2
t = T()
t.v = 4
print(t.v)
t.v += 1
print(t.v)
