from itertools import count, islice, product
import torch.distributed as dist


class Shown:
    def __str__(self):
        return "str"

    def __repr__(self):
        return "repr"


class A:
    name = "A"


class B(A):
    pass


class C(A):
    name = "C"


class D(B, C):
    pass



class Several(Exception):
    pass


class Late(Several, OSError):
    pass


def main():
    dist.init_process_group("gloo")
    data = [1, 2, 3, 4, 5, 6, 7]
    print(list(islice(data, 2, None)), list(islice(data, None, 3)), list(islice(data, 1, 6, 2)))
    print(list(islice(data, None)), list(islice(data, 1, None, 3)), list(islice(data, 9, 2)))
    it = iter(data)
    print(list(islice(it, 2)), list(islice(it, 2)), next(it))
    it = iter(data)
    for x in it:
        break
    print(x, next(it))
    for x in islice(it, 4):
        if x == 4:
            break
    print(x, next(it), list(it), next(it, "none"))
    it = iter(data)
    print(list(islice(it, 0, 5, 3)), list(it))
    for x in islice(count(10), 2, None, 5):
        if x > 20:
            break
    print(x)
    for bounds in [(-1,), (2, -1), (-1, 2), (0, 3, 0), ("a",)]:
        try:
            print(list(islice(data, *bounds)))
        except ValueError as e:
            print(e)
    print(list(product([1, 2], ["a", "b"])), list(product([0, 1], repeat=2)), list(product()))
    print(list(product([], repeat=4000000)), list(product([1, 2], repeat=0)), list(product([], repeat=0)))
    print("{{x}} {!r} {}".format(Shown(), Shown()))
    print("{0} {0!r} {a!r:>6} {a}".format(Shown(), a=Shown()))
    print(D.name, D().name, isinstance(D(), A))
    try:
        raise Late("late")
    except OSError as e:
        print("caught", e)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
