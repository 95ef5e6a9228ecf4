import torch.distributed as dist; dist.init_process_group("gloo")
for i in range(3):
    if i == 5:
        break
else:
    print("none")
for i in range(3):
    if i == 1:
        print("found")
        break
else:
    print("never")
n = 0
while n < 3:
    n += 1
    if n == 10:
        break
else:
    print("while else", n)
def find(xs, y):
    for k, x in enumerate(xs):
        if x == y:
            break
    else:
        return -1
    return k
print(find([1, 2, 3], 2), find([1, 2, 3], 9))
for i in range(2):
    for j in range(2):
        if j == i:
            break
    else:
        print("inner none", i)
        continue
    print("inner", i, j)
else:
    print("outer else")
if (n := len([1, 2, 3])) > 2:
    print(n)
it = iter([1, 2, 0, 4])
while (x := next(it)) != 0:
    print(x)
def f():
    while chunk := next(it, None):
        print("chunk", chunk)
    if m := 5:
        return m
    return 0
print(f())
print([y for v in range(5) if (y := v * 2) > 4])
