import itertools

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

numbers = (i for i in range(3))
print(next(numbers), next(numbers), next(numbers, "none left"), next(numbers, "none left"))
texts = map(str, [1, 2, 3])
seen = []
while True:
    text = next(texts, None)
    if text is None:
        break
    seen.append(text)
print(seen, list(texts))

batches = zip([torch.full((4,), 1.0), torch.full((8,), 2.0), torch.full((2,), 3.0)], "abc")
first, name = next(batches)
dist.all_reduce(first)
for batch, name in batches:
    dist.all_reduce(batch)
    print(name, batch.shape[0])
print(list(batches), list(enumerate("ab", 1)), list(reversed([1, 2])))

a, b = map(int, "3 4".split())
first, *others = filter(None, [0, 1, 2, 3])
print(a + b, first, others, 2 in map(abs, [-1, -2]), dict(zip("ab", [1, 2])))
chained = itertools.chain([1], [2, 3])
print(next(chained), list(chained), list(itertools.accumulate([1, 2, 3])))
pairs = enumerate([10, 20, 30])
next(pairs)
print([value * 2 for _, value in pairs], max(map(abs, [-3, 2])), sorted(zip([2, 1], "ba")))
print(sum(x * x for x in range(4)), any(x > 2 for x in range(4)), (1 in (y for y in [0, 1])))

pi = torch.tensor(3.14159)
whole = torch.tensor(7)
print(f"{pi:.2f} {whole:03d} {pi:>8.3f} {pi!s}", "%.2f %d %s" % (pi, whole, pi))
print("{:.1f} {}".format(pi, whole), "{0:e}".format(pi))
print(torch.zeros(0).sum(), torch.zeros(2, 0).sum(dim=1), torch.zeros(2, 0) @ torch.zeros(0, 3))
dist.destroy_process_group()
