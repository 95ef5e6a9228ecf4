import torch
import torch.distributed as dist
class P:
    def __init__(self, x, y):
        self.x = x
        self.y = y
    def __eq__(self, o):
        return isinstance(o, P) and self.x == o.x and self.y == o.y
    def __hash__(self):
        return hash((self.x, self.y))
    def __lt__(self, o):
        return (self.x, self.y) < (o.x, o.y)
    def __add__(self, o):
        if isinstance(o, P):
            return P(self.x + o.x, self.y + o.y)
        return P(self.x + o, self.y + o)
    def __radd__(self, o):
        return P(self.x + o, self.y + o)
    def __mul__(self, k):
        return P(self.x * k, self.y * k)
    def __sub__(self, o):
        return P(self.x - o.x, self.y - o.y)
    def __neg__(self):
        return P(-self.x, -self.y)
    def __truediv__(self, k):
        return P(self.x / k, self.y / k)
    def __pow__(self, k):
        return P(self.x ** k, self.y ** k)
    def __repr__(self):
        return f"P({self.x}, {self.y})"
class Q:
    def __init__(self, v):
        self.v = v
    def __iadd__(self, o):
        self.v += o
        return self
class R:
    pass
def t(name, f):
    try:
        print(name, f())
    except Exception as e:
        print(name, type(e).__name__, e)
a = P(1, 2)
b = P(3, 4)
print(a + b, a - b, a * 2, a + 1, 1 + a, -a, -a + b, b / 2, a + b * 2 - a, a ** 2)
print(a < b, b < a, a == P(1, 2), a != b, a > b)
print(sorted([b, a, P(0, 9)]), min(b, a), max([a, b]), sorted([a, b], reverse=True))
c = a
c += b
print(c, a)
q = Q(3)
q2 = q
q += 4
print(q.v, q2.v, q is q2)
l = [b, a]
l.sort()
print(l)
print(sum([a, b], P(0, 0)), sum([a, b]))
d = {a: 1, b: 2}
print(d[P(1, 2)], P(3, 4) in d, P(9, 9) in d, len(d))
d[P(1, 2)] = 7
print(d, d.get(P(3, 4)), d.get(P(8, 8), 0))
t("e1", lambda: a <= b)
t("e2", lambda: Q(1) < Q(2))
t("e3", lambda: R() + 1)
t("e4", lambda: 1 + R())
t("e5", lambda: R() < R())
t("e6", lambda: -R())
t("e7", lambda: R().foo)
t("e8", lambda: R().foo())
t("e9", lambda: a.zz)
t("e10", lambda: {R(): 1}.popitem()[1])
t("e12", lambda: sorted([R(), R()]))
t("e13", lambda: R() ** 2)
x = 3
x **= 2
print(x)
y = [2, 3]
y[0] **= 3
print(y)
a.x **= 3
print(a.x)
w = torch.tensor([1.0, 2.0, 3.0])
v = w
w **= 2
print(v, -True, +True, 3 - -True)
