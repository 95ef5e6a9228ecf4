import torch.distributed as dist; dist.init_process_group("gloo")
from collections import defaultdict, Counter, OrderedDict, deque, namedtuple
import collections
import itertools
from itertools import cycle, islice, chain, count, repeat, accumulate, zip_longest
d = defaultdict(list)
d["a"].append(1)
d["a"].append(2)
d["b"].append(3)
print(dict(d), len(d), "a" in d, d.get("z"), sorted(d.items()))
e = collections.defaultdict(int)
for c in ["x", "y", "x"]:
    e[c] += 1
print(dict(e))
f = defaultdict(lambda: 0.5)
print(f["q"])
for k, v in d.items():
    print(k, v)
c = Counter(["a", "b", "a"])
print(c["a"], c["zz"], c.most_common(1))
o = OrderedDict()
o["z"] = 1
o["y"] = 2
print(list(o.keys()), list(o.items()))
q = deque(maxlen=3)
for i in range(5):
    q.append(i)
print(list(q), len(q), sum(q) / len(q), q[0], q[-1])
q2 = deque([1, 2])
q2.appendleft(0)
print(q2.popleft(), q2.pop(), list(q2))
P = namedtuple("P", ["x", "y"])
p = P(1, y=2)
print(p.x, p[1], p)
a, b = p
print(a + b)
cyc = cycle([1, 2, 3])
print([next(cyc) for _ in range(5)])
print(list(islice(cycle("ab"), 5)), list(islice(count(3), 3)), list(islice(range(10), 2, 8, 3)))
for i, x in zip(range(4), cycle([0, 1])):
    print(i, x)
it = iter(range(10))
print(list(islice(it, 3)), next(it))
print(list(accumulate([1, 2, 3])), list(repeat(1, 2)), list(chain.from_iterable([[1], [2, 3]])))
print(list(zip_longest([1, 2], [3])))
for i, x in enumerate(cycle([5, 6])):
    if i >= 3:
        break
    print(i, x)
