"""Starts `train.py` on 16 ranks over gloo and writes each rank's Flight Recorder once nothing moves any more.

python record.py FOLDER
"""
import datetime, os, subprocess, sys, threading, time

WORLD = 16


def rank_main(folder):
    import torch, torch.distributed as dist
    from torch._C import _distributed_c10d as c10d
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=600))
    import train

    def last():
        import json
        entries = json.loads(c10d._dump_fr_trace_json()).get("entries", [])
        return entries and (entries[-1]["record_id"], sum(bool(e["retired"]) for e in entries))

    def watch():
        seen, since = None, time.monotonic()
        while time.monotonic() - since < 20:
            time.sleep(0.5)
            now = last()
            if now != seen or not now:
                seen, since = now, time.monotonic()
        with open(os.path.join(folder, f"nccl_trace_rank_{dist.get_rank()}"), "wb") as f:
            f.write(c10d._dump_fr_trace())
        # Nobody leaves before all have written, or the others would see a closed connection.
        until = time.monotonic() + 90
        while len(os.listdir(folder)) < WORLD and time.monotonic() < until:
            time.sleep(0.2)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    train.main()
    time.sleep(120)


if __name__ == "__main__":
    if "RANK" in os.environ:
        rank_main(sys.argv[1])
    else:
        os.makedirs(sys.argv[1], exist_ok=True)
        env = dict(os.environ, WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1", MASTER_PORT="29611", TORCH_FR_BUFFER_SIZE="4000", OMP_NUM_THREADS="1")
        ranks = [subprocess.Popen([sys.executable, __file__, sys.argv[1]], env=dict(env, RANK=str(r), LOCAL_RANK=str(r))) for r in range(WORLD)]
        for r in ranks:
            r.wait()
