import os
import sys
import torch
import torch.distributed as dist
try:
    import apexxx
except ImportError:
    apexxx = None
try:
    from flash_attnnn import f
    HAS = True
except (ImportError, ModuleNotFoundError) as e:
    HAS = False
    print("no", e)

class MyError(Exception):
    pass

class Coded(RuntimeError):
    def __init__(self, code, msg="x"):
        super().__init__(msg)
        self.code = code
    def twice(self):
        return self.code * 2

def work(rank):
    for step in range(4):
        try:
            if step == 1:
                continue
            if step == 3:
                break
            dist.all_reduce(torch.ones(2))
            print(step)
            if step == 2:
                raise MyError("step", step)
        except MyError as e:
            print("mine", e, repr(e), e.args, type(e).__name__)
        else:
            print("fine", step)
        finally:
            print("finally", step)
    try:
        d = {"a": 1}
        d["b"] += 1
    except KeyError as e:
        print("key", e, repr(e), str(e), e.args[0])
    try:
        a, b = "1 2 3".split()
    except ValueError as e:
        print(e)
    try:
        int("abc")
    except (TypeError, ValueError) as exc:
        print(f"bad: {exc} {exc!r} {type(exc)}")
    try:
        raise Coded(3)
    except RuntimeError as e:
        print(e.code, e, e.twice(), isinstance(e, Coded), isinstance(e, ValueError))
    try:
        try:
            1 // 0
        except ZeroDivisionError:
            print("inner")
            raise
    except ArithmeticError as e:
        print("outer", e)
    try:
        try:
            raise ValueError("a")
        except ValueError as e:
            raise RuntimeError("b") from e
    except Exception as e:
        print(type(e).__name__, e)
    def g():
        try:
            return 1
        finally:
            print("left g")
    print(g())
    def h():
        try:
            return [1][5]
        except IndexError:
            return "idx"
        finally:
            print("left h")
    print(h())
    try:
        dist.broadcast(torch.ones(1), src=99)
    except Exception as e:
        print("refused", type(e).__name__, e)
    try:
        raise KeyError
    except LookupError as e:
        print("lookup", repr(e), str(e) == "")
    n = 0
    while True:
        try:
            n += 1
            if n < 3:
                raise RuntimeError("again")
            break
        except RuntimeError:
            continue
    print("tries", n)
    try:
        sys.exit(0)
    except SystemExit as e:
        print("exit", e.code)
    try:
        sys.exit(3)
    except SystemExit as e:
        print("exit", e.code)

def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    try:
        work(rank)
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        dist.destroy_process_group()
        print("destroyed")

if __name__ == "__main__":
    try:
        main()
    except Exception as e:
        print(f"failed: {e}")
        raise
