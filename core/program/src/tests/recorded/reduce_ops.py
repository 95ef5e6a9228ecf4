import torch
import torch.distributed as dist
from datetime import timedelta
def t(name, f):
    try:
        print(name, f())
    except Exception as e:
        print(name, type(e).__name__, e)
dist.init_process_group("gloo", timeout=timedelta(seconds=8))
r = dist.get_rank()
x = torch.ones(3)
y = torch.ones(3)
R = dist.ReduceOp
t("1", lambda: R.SUM)
t("2", lambda: (R.AVG, R.PRODUCT, R.MIN, R.MAX, R.BAND, R.BOR, R.BXOR))
t("3", lambda: R.PREMUL_SUM)
t("4", lambda: R.SUM == R.SUM)
t("5", lambda: R.SUM == R.MAX)
t("6", lambda: R.SUM != R.MAX)
t("7", lambda: R.SUM.name)
t("8", lambda: str(R.MIN))
t("9", lambda: repr(R.MIN))
t("10", lambda: f"{R.MIN}")
t("11", lambda: dist.reduce_op.SUM)
t("14", lambda: R.RedOpType.SUM)
t("16", lambda: {R.SUM: 1}[R.SUM])
t("18", lambda: R.SUM in [R.SUM, R.MAX])
t("20", lambda: dist.all_reduce(x, dist._make_nccl_premul_sum(2.0)))
t("21", lambda: getattr(R, "SUM"))
t("23", lambda: [op for op in (R.SUM, R.MIN)])
t("25", lambda: R.SUM is R.SUM)
t("28", lambda: dist.ReduceOp.SUM.value)
t("29", lambda: dist.all_reduce(x, dist.reduce_op.SUM))
t("30", lambda: dist.all_reduce(x, R.RedOpType.MAX))
def dt(d, op):
    def f():
        a = torch.ones(2).to(d)
        dist.all_reduce(a, op)
        return a.dtype
    return f
for d in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool, torch.complex64, torch.complex128):
    for op in (R.SUM, R.BAND):
        t(f"{d} {op}", dt(d, op))
