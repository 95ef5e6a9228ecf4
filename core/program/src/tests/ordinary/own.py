import contextlib
import os
import time
import torch
import torch.distributed as dist
class Timer:
    def __init__(self, name):
        self.name = name
    def __enter__(self):
        print("enter", self.name)
        self.t = time.time()
        return self
    def __exit__(self, exc_type, exc, tb):
        print("exit", self.name, exc_type is None, exc, tb is None)
        if exc_type is not None:
            print(exc_type.__name__, exc_type is KeyError, issubclass_of(exc))
        return False
    def run(self): return self.name
class Other:
    def __enter__(self): return 7
    def __exit__(self, *args):
        print("other", len(args), args[0] is None)
class Wrong(Timer):
    def __exit__(self, exc_type, exc, tb):
        raise OSError("in exit")
class Odd(Exception): pass
class Empty: """nothing"""
class Odder(Odd): ...
class Buf:
    def __init__(self, *items):
        self.items = list(items)
    def __len__(self):
        return len(self.items)
class Flag:
    def __init__(self, on):
        self.on = on
    def __bool__(self):
        return self.on
    def __int__(self):
        return 41
    def __float__(self):
        return 1.5
class Plain:
    buf = Buf()
def issubclass_of(exc):
    return isinstance(exc, Exception)
def early(n):
    for i in range(n):
        with Timer("early") as t:
            if i == 1: return t.name
            if i == 0: continue
    return None
def inner():
    with Timer("outer"), Other() as seven:
        print(seven)
        raise KeyError("k")
def final():
    try:
        with Timer("a"):
            try:
                raise Odd("odd")
            finally:
                print("finally")
    except Odd as e:
        print("caught", e)
        return "done"
def grad(c):
    with torch.no_grad():
        if c: return 1
    return 2
def main():
    dist.init_process_group("gloo")
    with Timer("barrier") as t:
        dist.barrier()
        print(t.name)
    print(early(3), final(), grad(True), torch.is_grad_enabled())
    try:
        inner()
    except KeyError as e:
        print("caught", e)
    try:
        with Wrong("w"):
            raise ValueError("v")
    except ValueError:
        print("no")
    except OSError as e:
        print("instead", e)
    try:
        with Empty():
            print("no")
    except TypeError as e:
        print(e)
    try:
        raise Odder("y")
    except Odd as e:
        print(repr(e))
    with contextlib.nullcontext():
        print("null")
    b = Buf()
    if b:
        print("nonempty")
    elif not b and (b or True):
        print("empty")
    print(not b, bool(b), "yes" if b else "no", [1 for x in (1, 2) if b], len(b))
    b.items.append(1)
    while b:
        b.items.pop()
    p = Plain()
    if not p.buf and p: print("plain")
    f, g = Flag(False), Flag(True)
    if f or g:
        print("or", bool(f), bool(g), int(f) + 1, float(g))
    assert g, "g"
    try:
        assert f, "asserted"
    except AssertionError as e:
        print(e)
    try:
        int(Empty())
    except TypeError as e:
        print(e)
    print(main.__name__, early.__name__, Timer.run.__name__, Timer("x").run.__name__, (lambda: 1).__name__)
    for h in (early, inner): print(h.__name__)
print({key: os.environ[key] for key in ("MASTER_ADDR", "WORLD_SIZE")})
main()
