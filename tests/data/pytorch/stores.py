"""Records what PyTorch's stores answer: python stores.py > stores.json

Each case is a program as Lockstep's, executed by fresh processes: what each rank printed, and the
last line of what it raised. `print`, `run` and `timedelta` are as Lockstep has them.
"""

import json
import multiprocessing
import os
import re
import sys
import tempfile

CASES = [
    ("hash_methods", 1, """
store = dist.HashStore()
store.set("a", "1")
print(store.get("a"), store.get("a") == b"1", store.get("a") == "1", store.get("a").decode())
print(store.add("n", 5), store.add("n", -7), store.get("n"), int(store.get("n")))
store.append("a", "23")
print(store.get("a"), store.check(["a", "n"]), store.check(["a", "x"]), store.check([]))
print(store.compare_set("a", "123", "4"), store.compare_set("a", "no", "5"))
print(store.compare_set("m", "old", "new"), store.compare_set("m", "", "first"))
print(store.num_keys(), store.delete_key("a"), store.delete_key("a"), store.num_keys())
store.multi_set(["x", "y"], ["1", "2"])
print(store.multi_get(["y", "x"]), store.wait(["x", "y"]), len(store.get("x")))
"""),
    ("file_methods", 1, """
store = dist.FileStore("the_store", 1)
store.set("a", "1")
print(store.get("a"), store.add("n", 5), store.add("n", -7), store.get("n"))
store.append("a", "23")
print(store.get("a"), store.check(["a", "n"]), store.check(["a", "x"]))
print(store.compare_set("a", "123", "4"), store.compare_set("a", "no", "5"))
print(store.compare_set("m", "old", "new"), store.compare_set("m", "", "first"))
print(store.num_keys(), store.delete_key("a"), store.delete_key("a"), store.num_keys())
store.multi_set(["x", "y"], ["1", "2"])
print(store.multi_get(["y", "x"]), store.wait(["x", "y"]), store.path)
"""),
    ("tcp_methods", 1, """
store = dist.TCPStore("127.0.0.1", 29631, 1, True)
store.set("a", "1")
print(store.get("a"), store.add("n", 5), store.add("n", -7), store.get("n"))
store.append("a", "23")
print(store.get("a"), store.check(["a", "n"]), store.check(["a", "x"]))
print(store.compare_set("a", "123", "4"), store.compare_set("a", "no", "5"))
print(store.compare_set("m", "old", "new"), store.compare_set("m", "", "first"))
print(store.num_keys(), store.delete_key("a"), store.delete_key("a"), store.num_keys())
store.multi_set(["x", "y"], ["1", "2"])
print(store.multi_get(["y", "x"]), store.wait(["x", "y"]), store.host, store.port)
"""),
    ("tcp_without_world_size", 1, """
store = dist.TCPStore("127.0.0.1", 29632, is_master=True, wait_for_workers=False)
print(store.num_keys())
store.set("a", b"1")
print(store.num_keys(), store.get("a"))
"""),
    ("prefix", 1, """
hash = dist.HashStore()
outer = dist.PrefixStore("outer", dist.PrefixStore("inner", hash))
outer.set("k", "v")
print(hash.get("inner/outer/k"), outer.get("k"), outer.num_keys(), hash.num_keys())
print(outer.underlying_store.get("outer/k"), outer.check(["k"]), hash.check(["k"]))
print(outer.delete_key("k"), outer.num_keys(), outer.add("n", 2), hash.add("inner/outer/n", 3))
"""),
    ("timeouts", 1, """
store = dist.HashStore()
print(store.timeout == timedelta(seconds=300))
store.set_timeout(timedelta(seconds=1))
print(store.timeout == timedelta(seconds=1))
prefix = dist.PrefixStore("p", store)
prefix.set_timeout(timedelta(seconds=2))
print(store.timeout == timedelta(seconds=2))
"""),
    ("hash_wait_times_out", 1, """
store = dist.HashStore()
store.set("a", "1")
store.wait(["a", "b"], timedelta(milliseconds=300))
"""),
    ("hash_get_times_out", 1, """
store = dist.HashStore()
store.set_timeout(timedelta(milliseconds=300))
store.get("b")
"""),
    ("file_get_times_out", 1, """
store = dist.FileStore("the_store", 1)
store.set_timeout(timedelta(milliseconds=300))
store.get("b")
"""),
    ("file_wait_times_out", 1, """
store = dist.FileStore("the_store", 1)
store.wait(["b"], timedelta(milliseconds=300))
"""),
    ("tcp_get_times_out", 1, """
store = dist.TCPStore("127.0.0.1", 29633, 1, True, timedelta(milliseconds=300))
store.get("b")
"""),
    ("tcp_wait_times_out", 1, """
store = dist.TCPStore("127.0.0.1", 29634, 1, True)
dist.PrefixStore("p", store).wait(["b", "c"], timedelta(milliseconds=300))
"""),
    ("tcp_add_on_no_number", 1, """
store = dist.TCPStore("127.0.0.1", 29635, 1, True)
store.set("k", "apples")
store.add("k", 1)
"""),
    ("hash_add_on_no_number", 1, """
store = dist.HashStore()
store.set("k", "apples")
store.add("k", 1)
"""),
    ("more_values_than_keys", 1, """
store = dist.PrefixStore("p", dist.HashStore())
store.multi_set(["a"], ["1", "2"])
print(store.get("a"), store.num_keys())
"""),
    ("more_values_than_keys_in_a_file", 1, """
store = dist.FileStore("the_store", 1)
store.multi_set(["a"], ["1", "2"])
print(store.get("a"))
"""),
    ("more_values_than_keys_over_tcp", 1, """
store = dist.PrefixStore("p", dist.TCPStore("127.0.0.1", 29636, 1, True))
store.multi_set(["a"], ["1", "2"])
"""),
    ("a_port_of_the_system", 1, """
store = dist.TCPStore("localhost", 0, 1, True)
client = dist.TCPStore("localhost", store.port, 1, False)
client.set("a", "1")
print(store.port > 1024, store.host, client.host, store.get("a"))
"""),
    ("two_servers_of_one_process", 1, """
store = dist.TCPStore("localhost", 29637, 1, True)
dist.TCPStore("localhost", 29637, 1, True)
"""),
    ("two_tenants_of_one_process", 1, """
store = dist.TCPStore("localhost", 29638, 1, True, multi_tenant=True)
store.set("a", "1")
print(dist.TCPStore("localhost", 29638, 1, True, multi_tenant=True).get("a"))
"""),
    ("bytes_and_json", 1, """
store = dist.HashStore()
store.set("cfg", json.dumps({"lr": 0.1, "n": [1, 2], "on": True, "x": None}).encode())
print(store.get("cfg"), json.loads(store.get("cfg")), json.loads(store.get("cfg").decode())["n"])
print(json.dumps([1, 2.5, 'a"b', None, ("x", {})], indent=1), json.dumps({"b": 1, "a": "\u00e9"}, sort_keys=True))
print(json.dumps([1e20, 0.1, 1e-07, 3.0, -2]), json.loads('[1.0, null, "x"]'), json.dumps({1: [], "t": 2}))
store.set("k", b"ab")
k = store.get("k")
print(k + b"c", k * 2, k[0], k[-1:], k[:1], b"b" in k, k < b"b", b"a,b".split(b","), list(k), k.hex())
print(f"{rank}:x".encode("utf-8"), "a".encode() == b"a", k.startswith(b"a"), sorted([b"b", b"a"]))
"""),
    ("durations", 1, """
for one in [timedelta(seconds=1), timedelta(milliseconds=1500), timedelta(days=1, seconds=3), timedelta(0)]:
    print(one, repr(one), one.total_seconds())
print(dist.HashStore().timeout, timedelta(seconds=2) * 2, timedelta(seconds=1) < timedelta(minutes=1), timedelta(days=2))
"""),
    ("set_a_number", 1, """
dist.HashStore().set("k", 1)
"""),
    ("add_a_text", 1, """
dist.HashStore().add("k", "1")
"""),
    ("get_without_a_key", 1, """
dist.HashStore().get()
"""),
    ("check_a_text", 1, """
dist.HashStore().check("k")
"""),
    ("wait_for_seconds", 1, """
dist.HashStore().wait(["k"], 3)
"""),
    ("prefix_of_nothing", 1, """
dist.PrefixStore("p", None)
"""),
    ("one_writes_all_read", 4, """
store = dist.TCPStore("127.0.0.1", 29641, 4, rank == 0)
if rank == 0:
    store.set("id", "0f3a")
print(store.get("id"))
"""),
    ("all_write_all_read", 4, """
store = dist.TCPStore("127.0.0.1", 29642, 4, rank == 0)
store.set(f"rank{rank}", str(rank * rank))
print([int(store.get(f"rank{peer}")) for peer in range(4)])
store.wait([f"rank{peer}" for peer in range(4)])
print(store.multi_get(["rank3", "rank1"]), store.check(["rank0", "rank2"]), store.num_keys())
"""),
    ("the_last_rank_first", 4, """
store = dist.TCPStore("127.0.0.1", 29643, 4, rank == 0)
seen = store.get(f"from{rank + 1}").decode() if rank < 3 else "end"
store.set(f"from{rank}", f"{rank}-{seen}")
print(seen)
"""),
    ("a_counter_as_barrier", 4, """
store = dist.TCPStore("127.0.0.1", 29644, 4, rank == 0)
store.add("arrived", 1)
while store.add("arrived", 0) < 4:
    time.sleep(0.01)
print("all there")
"""),
    ("a_counter_read_by_get", 3, """
store = dist.FileStore("the_store", 3)
store.add("arrived", 2)
while int(store.get("arrived")) < 6:
    time.sleep(0.01)
print("all there")
"""),
    ("a_counter_for_each_step", 3, """
store = dist.TCPStore("127.0.0.1", 29645, 3, rank == 0)
for step in range(1, 4):
    store.add("steps", 1)
    while store.add("steps", 0) < 3 * step:
        time.sleep(0.01)
    print(step)
"""),
    ("a_polled_key", 2, """
store = dist.FileStore("the_store", 2)
if rank == 1:
    time.sleep(0.1)
    store.set("ready", "yes")
while not store.check(["ready"]):
    time.sleep(0.01)
print(store.get("ready"))
"""),
    ("answers_after_a_barrier", 3, """
dist.init_process_group("gloo")
store = dist.PrefixStore("mine", dist.distributed_c10d._get_default_store())
if rank == 0:
    store.set("turn", "0")
dist.barrier()
print(store.check(["turn"]), store.check(["none"]))
dist.barrier()
if rank == 1:
    print(store.compare_set("turn", "0", "1"), store.delete_key("none"))
    store.append("turn", "!")
dist.barrier()
print(store.get("turn"))
store.add("count", rank + 1)
dist.barrier()
print(store.add("count", 0), store.get("count"))
dist.barrier()
if rank == 2:
    print(store.delete_key("turn"), store.add("count", 10))
dist.barrier()
print(store.check(["turn"]), int(store.get("count")))
dist.destroy_process_group()
"""),
    ("one_after_the_other", 2, """
store = dist.TCPStore("127.0.0.1", 29646, 2, rank == 0)
if rank == 0:
    store.set("k", "a")
    store.set("go", "1")
    store.wait(["done"])
    print(store.get("k"), store.add("n", 1))
    print(store.delete_key("k"), store.delete_key("k"))
else:
    store.wait(["go"])
    print(store.get("k"))
    store.set("k", "b")
    store.add("n", 41)
    store.set("done", "")
"""),
    ("ping_pong", 2, """
store = dist.TCPStore("127.0.0.1", 29647, 2, rank == 0)
for step in range(5):
    if step % 2 == rank:
        store.set(f"step{step}", f"{rank}:{step}")
    print(store.get(f"step{step}"))
"""),
    ("values_given_to_many", 3, """
store = dist.FileStore("the_store", 3)
if rank == 2:
    store.multi_set(["lr", "steps"], ["0.1", "100"])
lr, steps = store.multi_get(["lr", "steps"])
print(float(lr.decode()), int(steps))
"""),
    ("a_store_of_ones_own", 2, """
store = dist.TCPStore("127.0.0.1", 29648, 2, rank == 0)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
dist.distributed_c10d._get_default_store().set(f"r{rank}", str(rank))
dist.barrier()
print(store.get("0//r0"), store.get("0//r1"))
dist.barrier()
dist.destroy_process_group()
"""),
    ("a_key_that_nobody_sets", 2, """
store = dist.TCPStore("127.0.0.1", 29649, 2, rank == 0)
if rank == 1:
    store.set("redy", "1")
    store.wait(["ready"], timedelta(milliseconds=500))
else:
    time.sleep(1.5)
print("on")
"""),
    ("stores_of_ones_own_do_not_meet", 2, """
store = dist.HashStore()
dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=2))
"""),
    ("files_do_not_meet", 3, """
store = dist.FileStore("store%d" % rank, 3)
dist.init_process_group("gloo", store=store, rank=rank, world_size=3, timeout=timedelta(seconds=2))
"""),
    ("prefixes_do_not_meet", 4, """
base = dist.TCPStore("127.0.0.1", 29652, 4, rank == 0)
store = dist.PrefixStore("job%d" % (rank // 2), base)
print(base.timeout)
dist.init_process_group("gloo", store=store, rank=rank, world_size=4, timeout=timedelta(seconds=3))
"""),
    ("ports_do_not_meet", 2, """
store = dist.TCPStore("127.0.0.1", 29653 + rank, 1, True)
dist.init_process_group("cpu:gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=2))
"""),
    ("two_servers", 2, """
if rank == 1:
    time.sleep(1)
dist.TCPStore("127.0.0.1", 29656, 2, True, timedelta(seconds=3))
"""),
    ("a_key_that_comes_too_late", 2, """
store = dist.TCPStore("127.0.0.1", 29657, 2, rank == 0, timedelta(seconds=1))
if rank == 0:
    time.sleep(3)
    store.set("k", "v")
    print("set")
else:
    print(store.get("k"))
"""),
    ("a_wait_that_is_long_enough", 2, """
store = dist.TCPStore("127.0.0.1", 29658, 2, rank == 0, timedelta(seconds=1))
if rank == 0:
    time.sleep(2)
    store.set("k", "v")
else:
    store.wait(["k"], timedelta(seconds=20))
    print(store.get("k"))
"""),
    ("a_key_too_late_for_one_of_two", 3, """
store = dist.FileStore("the_store", 3)
dist.init_process_group("gloo", store=store, rank=rank, world_size=3)
if rank == 0:
    time.sleep(2)
    store.set("k", "v")
elif rank == 1:
    store.wait(["k"], timedelta(seconds=1))
print(rank, store.get("k"))
"""),
    ("too_late_behind_another_one", 3, """
store = dist.FileStore("the_store", 3)
dist.init_process_group("gloo", store=store, rank=rank, world_size=3)
if rank == 0:
    time.sleep(5)
    store.set("a", "1")
elif rank == 1:
    store.get("a")
    store.set("b", "1")
else:
    store.wait(["b"], timedelta(seconds=1))
print("on")
"""),
    ("a_client_that_comes_too_late", 2, """
if rank == 1:
    time.sleep(4)
dist.TCPStore("127.0.0.1", 29659, 2, rank == 0, timedelta(seconds=1))
"""),
    ("keys_in_a_circle", 3, """
store = dist.FileStore("the_store", 3)
store.set_timeout(timedelta(seconds=1))
store.get("from%d" % ((rank + 1) % 3))
store.set("from%d" % rank, "1")
"""),
    ("the_last_one_says_go", 3, """
store = dist.TCPStore("127.0.0.1", 29660, 3, rank == 0)
for step in range(3):
    n = store.add("at/%d" % step, 1)
    if n == 3:
        store.set("go/%d" % step, "1")
    store.wait(["go/%d" % step])
    print(step)
"""),
    ("numbers_that_nobody_looks_at", 3, """
store = dist.TCPStore("127.0.0.1", 29661, 3, rank == 0)
n = store.add("n", 1)
_ = store.compare_set("leader", "", "x")
while store.add("n", 0) != 3:
    time.sleep(0.01)
print(store.get("leader"), store.add("n", 0))
"""),
    ("a_loop_that_is_left_from_within", 2, """
store = dist.PrefixStore("job", dist.TCPStore("127.0.0.1", 29662, 2, rank == 0))
while True:
    if rank == 0:
        store.set("go", "yes")
    if store.check(["go"]):
        break
    time.sleep(0.05)
store.add("n", 1)
while True:
    time.sleep(0.01)
    if store.add("n", 0) >= 2: break
print("on")
"""),
    ("a_state_that_is_polled", 3, """
store = dist.FileStore("the_store", 3)
if rank == 0:
    store.set("state", "init")
    time.sleep(0.3)
    store.set("state", "go")
store.wait(["state"])
while store.get("state") != b"go":
    time.sleep(0.05)
while store.get("state").decode() != "go":
    time.sleep(0.05)
print(store.get("state"))
"""),
    ("asked_before_and_after", 2, """
store = dist.FileStore("the_store", 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
if rank == 0:
    time.sleep(0.6)
    store.set("k", "v")
else:
    print(store.check(["k"]))
    time.sleep(1.2)
    print(store.check(["k"]), store.get("k"))
"""),
    ("a_number_of_tries", 2, """
store = dist.FileStore("the_store", 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
if rank == 0:
    time.sleep(1)
    store.set("k", "v")
else:
    tries = 0
    for _ in range(20):
        if store.check(["k"]):
            break
        tries += 1
        time.sleep(0.3)
    print(tries)
"""),
    ("no_server", 2, """
if rank == 1:
    dist.TCPStore("127.0.0.1", 29650, 2, False, timedelta(seconds=1))
print("on")
"""),
    ("a_client_that_does_not_come", 2, """
if rank == 0:
    dist.TCPStore("127.0.0.1", 29651, 2, True, timedelta(seconds=1))
print("on")
"""),
]


def text_of(world_size, body):
    lines = "".join(f"    {line}\n" if line else "\n" for line in body.strip().split("\n"))
    head = 'import json, os, time\nimport torch.distributed as dist\nfrom datetime import timedelta\n\n'
    return f'{head}def main():\n    rank = int(os.environ["RANK"])\n{lines}\nrun(main, world_size = {world_size})\n'


def process(text, rank, world_size, port, folder, answers, all_told):
    import torch.distributed as dist

    # Whoever serves a store ends it when the handle is gone: keep it until all have asked.
    kept, served = [], dist.TCPStore

    def keep(*args, **kwargs):
        kept.append(served(*args, **kwargs))
        return kept[-1]

    dist.TCPStore = keep
    os.chdir(folder)
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(world_size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    said = []
    names = {
        "print": lambda *values: said.append(" ".join(str(value) for value in values)),
        "run": lambda main, world_size: main(),
        "__name__": "program",
    }
    raised = None
    try:
        exec(compile(text, "program.py", "exec"), names)
    except Exception as error:
        raised = f"{type(error).__name__}: {error}"
        raised = re.sub(r"\n(Exception raised from|Invoked with:|C\+\+ CapturedTraceback).*", "", raised, flags=re.S)
    answers.put((rank, said, raised))
    all_told.wait(120)


def record(name, world_size, body, port):
    text = text_of(world_size, body)
    context = multiprocessing.get_context("spawn")
    answers, all_told = context.Queue(), context.Event()
    with tempfile.TemporaryDirectory() as folder:
        started = [
            context.Process(target=process, args=(text, rank, world_size, port, folder, answers, all_told))
            for rank in range(world_size)
        ]
        for one in started:
            one.start()
        told = sorted(answers.get(timeout=120) for _ in started)
        all_told.set()
        for one in started:
            one.join()
    ranks = [{"said": said, "raised": raised} for _, said, raised in told]
    return {"name": name, "text": text, "ranks": ranks}


if __name__ == "__main__":
    import torch

    chosen = [case for case in CASES if len(sys.argv) < 2 or case[0] in sys.argv[1:]]
    cases = [record(*case, 29700 + at) for at, case in enumerate(chosen)]
    print(json.dumps({"torch": torch.__version__, "cases": cases}, indent=1))
