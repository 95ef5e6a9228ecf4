import traceback
import torch.distributed as dist


def fails(what):
    try:
        what()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return "nothing"


def again():
    raise


def handles():
    try:
        raise KeyError("inner")
    except KeyError:
        return traceback.format_exc().splitlines()[-1]


def main():
    dist.init_process_group("gloo")
    d = {}
    try:
        a, d["k"] = 1, 2
        (b, c), d["m"] = (3, 4), 5
        i, d[i] = 7, 8
    except ValueError:
        print("no")
    except NameError as e:
        print("not yet", d)
    a += 1
    print(a, b, c, d)
    i = 0
    try:
        d[i], i = "old", 1
        print(i, d)
        (b, c), a = (1, 2, 3), 3
    except ValueError as e:
        print(e, a)
    try:
        a, [b, c] = 1, [2]
    except ValueError as e:
        print(e)
    try:
        a, b = 5
    except TypeError as e:
        print(e)
    l = [1]
    try:
        a, l[3] = 6, 7
    except IndexError as e:
        print("index", a)
    x = 12
    try:
        x //= 5
        x <<= 3
        x %= 100
        print(x)
        x //= 0
    except ZeroDivisionError as e:
        print(e, x)
    try:
        x %= 0
    except ZeroDivisionError:
        print("modulo", x)
    s = {1}
    try:
        s |= {2}
        d["s"] = 9
        d["s"] //= 0
    except ZeroDivisionError:
        print(sorted(s), d["s"])

    print(fails(again))
    try:
        raise ValueError("first")
    except ValueError:
        print(handles())
        print(traceback.format_exc().splitlines()[-1])
        print(fails(again))
    print(fails(again))
    for n in range(2):
        try:
            raise OSError("looped")
        except OSError:
            if n == 1: break
            continue
    print(fails(again), traceback.format_exc().strip())
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise IndexError("b")
    except IndexError:
        print(traceback.format_exc().splitlines()[-1])
    print(fails(again))
    it = iter([1, 2, 3])
    for x in it:
        break
    print(x, next(it))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
