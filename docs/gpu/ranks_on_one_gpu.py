"""Can several NCCL ranks share one GPU? Tries each way that docs/gpu names, in processes of their own.

usage: python3 docs/gpu/ranks_on_one_gpu.py [WORLD_SIZE]      prints Markdown
"""
import os, subprocess, sys, time

RANK_PROGRAM = r"""
import datetime, os, sys, torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(0)
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=40))
x = torch.full((1 << 20,), float(rank + 1), device="cuda")
dist.all_reduce(x)
assert bool((x == world * (world + 1) / 2).all()), x[:4]
y = torch.full((4,), float(rank), device="cuda"); dist.broadcast(y, 1 % world)
assert bool((y == 1 % world).all()), y
out = torch.empty(4 * world, device="cuda"); dist.all_gather_into_tensor(out, torch.full((4,), float(rank), device="cuda"))
assert out.view(world, 4)[:, 0].tolist() == list(map(float, range(world))), out
torch.cuda.synchronize()
for n in (1, 1 << 14, 1 << 20, 1 << 24):
    z = torch.ones(n, device="cuda"); begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3): dist.all_reduce(z)
    begin.record()
    for _ in range(10): dist.all_reduce(z)
    end.record(); torch.cuda.synchronize()
    if rank == 0: print(f"all_reduce of {4 * n} bytes: {begin.elapsed_time(end) * 100:.1f} us", flush=True)
dist.destroy_process_group()
print(f"rank {rank}: right", flush=True)
"""

WAYS = {
    "plain": {},
    "a host id per rank": {"NCCL_HOSTID": "lockstep-{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_MNNVL_ENABLE": "0"},
    "NCCL_MULTI_RANK_GPU_ENABLE": {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_NVLS_ENABLE": "0"},
}


def attempt(world, port, way):
    ranks = []
    for rank in range(world):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        env.update({key: value.format(rank=rank) for key, value in way.items()})
        ranks.append(subprocess.Popen([sys.executable, "-c", RANK_PROGRAM], env=env, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True))
    deadline, outputs = time.monotonic() + 90, []
    for process in ranks:
        try:
            outputs.append(process.communicate(timeout=max(1, deadline - time.monotonic()))[0])
        except subprocess.TimeoutExpired:
            process.kill()
            outputs.append(process.communicate()[0] + "\nkilled after 90 s")
    right = all(process.returncode == 0 for process in ranks)
    lines = [line for output in outputs for line in output.splitlines()]
    keep = [line for line in lines if right or any(w in line for w in ("Error", "error", "Duplicate", "killed", "NCCL"))]
    return right, keep[:12]


def main():
    world = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    import torch
    version = ".".join(map(str, torch.cuda.nccl.version()))
    driver = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                            capture_output=True, text=True).stdout.strip()
    print(f"# {world} NCCL ranks on one GPU\n\n{driver}; CUDA {torch.version.cuda}, torch {torch.__version__}, NCCL {version}\n")
    for port, (name, way) in enumerate(WAYS.items(), 29611):
        right, lines = attempt(world, port, way)
        settings = " ".join(f"{key}={value}" for key, value in way.items()) or "no setting"
        print(f"## {name}: {'works' if right else 'fails'}\n\n`{settings}`\n\n```\n" + "\n".join(lines) + "\n```\n", flush=True)


main()
