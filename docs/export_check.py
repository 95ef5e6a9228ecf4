#!/usr/bin/env python3
"""Checks what `lockstep export` writes with the tools that it is for.

    pip install HolisticTraceAnalysis psutil perfetto grpcio-tools
    python docs/export_check.py [--lockstep target/release/lockstep] [--chakra CHECKOUT] [PLAN]

PLAN is anything that `lockstep sim` takes; without one, a small program on NCCL. What is checked:

- Perfetto: its own schema decodes every field; slices, flows and counters are those of the trace; and the tool
  trace_processor counts the same, where it can be had.
- HolisticTraceAnalysis: its breakdowns of the profiles are those of the trace, to 10 ns.
- Chakra: its own schema (`--chakra` names a checkout of mlcommons/chakra) decodes every node; the nodes can be issued as
  its feeder does; and Lockstep reads a replay of the same length from them.
"""

import argparse
import collections
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = """\
def main():
    dist.init_process_group('nccl')
    pair = dist.new_group([0, 1])
    grad = tensor(1 << 20)
    act = tensor(4096)
    for step in range(3):
        compute('forward', us = 800)
        work = dist.all_reduce(grad, async_op = True)
        compute('backward', us = 700)
        work.wait()
        if dist.get_rank() < 2:
            dist.broadcast(act, src = 0, group = pair)
        if dist.get_rank() == 0:
            dist.send(act, 3)
        if dist.get_rank() == 3:
            dist.recv(act, 0)
        compute('optimizer', us = 100)
    dist.barrier()
run(main, world_size = 4)
"""


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")
    print(f"  ok: {what}")


class Truth:
    """Calls and computations of a trace of Lockstep's, in nanoseconds."""

    def __init__(self, trace):
        self.header = trace["header"]
        self.calls = collections.defaultdict(dict)
        process, stream = collections.defaultdict(dict), collections.defaultdict(dict)
        for event in trace["events"]:
            rank, ns, what = event["rank"], event["time_ps"] // 1000, event["what"]
            if not isinstance(what, dict):
                continue
            (kind, said), = what.items()
            if kind == "scheduled":
                self.calls[rank][said["work"]] = {"call": said["call"], "scheduled": ns}
            elif kind in ("started", "completed"):
                self.calls[rank][said["work"]][kind] = ns
            elif kind in ("op_began", "op_ended"):
                process[rank].setdefault(said["op"], []).append(ns)
            elif kind in ("stream_began", "stream_ended"):
                stream[rank].setdefault(said["op"], []).append(ns)
        plan = self.header["plan"]
        self.computations = collections.defaultdict(list)
        for rank in range(self.header["world_size"]):
            for op, of in enumerate(plan["programs"][plan["program_of"][rank]]["ops"]):
                spans = stream[rank].get(op) or process[rank].get(op, [])
                if isinstance(of["action"], dict) and "compute" in of["action"] and len(spans) == 2:
                    self.computations[rank].append((of["action"]["compute"]["name"], *spans))

    def ended(self, rank):
        calls = self.calls[rank].values()
        return [(it.get("started", it["scheduled"]), it["completed"]) for it in calls if "completed" in it]


def merged(spans):
    """Disjoint spans that cover the same time."""
    out = []
    for begin, end in sorted(spans):
        if out and begin <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return out


def length(spans):
    return sum(end - begin for begin, end in spans)


def overlap(these, those):
    return sum(max(0, min(b, d) - max(a, c)) for a, b in these for c, d in those)


def check_perfetto(path, truth):
    print("Perfetto")
    from google.protobuf.unknown_fields import UnknownFieldSet
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

    trace = schema.Trace()
    trace.ParseFromString(path.read_bytes())

    def unknown(message):
        if len(UnknownFieldSet(message)):
            return True
        fields = ((field, value) for field, value in message.ListFields() if field.message_type)
        return any(unknown(it) for f, v in fields for it in (v if hasattr(v, "append") else [v]))

    check(not any(unknown(packet) for packet in trace.packet), "every field is one of Perfetto's schema")
    ranks = {p.track_descriptor.process.process_name for p in trace.packet if p.track_descriptor.HasField("process")}
    check(ranks == {f"rank {rank}" for rank in range(truth.header["world_size"])}, "a process for each rank")
    names, tracks, open_, slices, flows = {}, {}, collections.defaultdict(list), [], collections.defaultdict(list)
    counters, last = collections.defaultdict(list), 0
    for packet in trace.packet:
        for name in packet.interned_data.event_names:
            names[packet.trusted_packet_sequence_id, name.iid] = name.name
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        check(packet.timestamp >= last, "order of time") if packet.timestamp < last else None
        last = packet.timestamp
        if event.type == event.TYPE_SLICE_BEGIN:
            slices.append([event.track_uuid, names[packet.trusted_packet_sequence_id, event.name_iid], last, None])
            open_[event.track_uuid].append(slices[-1])
        elif event.type == event.TYPE_SLICE_END:
            open_[event.track_uuid].pop()[3] = last
        elif event.type == event.TYPE_COUNTER:
            counters[event.track_uuid].append(event.counter_value)
        for flow in [*event.flow_ids, *event.terminating_flow_ids]:
            flows[flow].append(last)
    on_calls = [it for it in slices if tracks[it[0]].name.startswith("communication ")]
    calls = sum(len(of) for of in truth.calls.values())
    check(len(on_calls) == calls, f"{calls} slices of calls")
    ours = sum(length(truth.ended(rank)) for rank in list(truth.calls))
    check(sum(it[3] - it[2] for it in on_calls if it[3] is not None) == ours, "calls take as long as in the trace")
    computed = sum(end - begin for of in truth.computations.values() for _, begin, end in of)
    kinds = {name for of in truth.computations.values() for name, *_ in of}
    has_stream = any(track.name == "compute stream" for track in tracks.values())
    wanted = "compute stream" if has_stream else ""
    own = [it for it in slices if it[1] in kinds and tracks[it[0]].name == wanted and it[3] is not None]
    check(sum(it[3] - it[2] for it in own) == computed, "computations take as long as in the trace")
    check(all(value >= 0 for of in counters.values() for value in of), "no counter falls below 0")
    check(all(times == sorted(times) and len(times) > 1 for times in flows.values()), f"{len(flows)} flows go on in time")
    try:
        from perfetto.trace_processor import TraceProcessor
        processor = TraceProcessor(trace=str(path))
    except Exception as error:
        print(f"  not checked: trace_processor cannot be had ({type(error).__name__})")
        return
    count = lambda query: next(iter(processor.query(query))).n
    check(count("select count(*) as n from slice where category is not null") == len(slices), "slices of trace_processor")
    arrows = sum(len(times) - 1 for times in flows.values())
    check(count("select count(*) as n from flow") == arrows, "flows of trace_processor")
    errors = "select count(*) as n from stats where severity = 'error' and value > 0"
    check(count(errors) == 0, "trace_processor has no errors")


def check_hta(folder, truth):
    print("HolisticTraceAnalysis")
    logging.disable(logging.WARNING)
    # By default it rounds every kernel inwards to whole microseconds, below which simulated ones can be.
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_dir=str(folder))
    breakdown = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
    overlaps = analysis.get_comm_comp_overlap(visualize=False).set_index("rank")
    types, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=1000, duration_ratio=1.0)
    total = collections.Counter()
    for rank in range(truth.header["world_size"]):
        compute = merged((begin, end) for _, begin, end in truth.computations[rank])
        communication = merged(truth.ended(rank))
        everything = merged([*map(tuple, compute), *map(tuple, communication)])
        # In microseconds: what floats lose.
        slack = 0.01
        row = breakdown.loc[rank]
        near = lambda us, ns: abs(us - ns / 1000) <= slack
        span = everything[-1][1] - everything[0][0] if everything else 0
        check(near(row["compute_time(us)"], length(compute)), f"rank {rank}: {length(compute) / 1000:.0f} µs of computation")
        check(near(row["idle_time(us)"], span - length(everything)), f"rank {rank}: idle time")
        exposed = length(everything) - length(compute)
        check(near(row["non_compute_time(us)"], exposed), f"rank {rank}: {exposed / 1000:.0f} µs of exposed communication")
        share = 100 * overlap(compute, communication) / max(1, length(communication))
        theirs = overlaps.loc[rank, "comp_comm_overlap_pctg"]
        allowed = 100 * slack * 1000 / max(1, length(communication)) + 0.01
        check(abs(theirs - share) <= allowed, f"rank {rank}: {theirs} % of communication overlapped, {share:.2f} by us")
        total["slack"] += slack
        for name, begin, end in truth.computations[rank]:
            total[name] += end - begin
        names = kernels[(kernels["rank"] == rank) & (kernels["kernel_type"] == "COMPUTATION")]
        check(set(names["name"]) >= {name for name, *_ in truth.computations[rank]}, f"rank {rank}: its kernels")
    for name in {name for of in truth.computations.values() for name, *_ in of}:
        theirs = kernels[kernels["name"] == name]["sum (us)"].sum()
        check(abs(theirs - total[name] / 1000) <= total["slack"], f"{name}: {theirs:.0f} µs in all")
    check({"COMPUTATION", "COMMUNICATION"} <= set(types["kernel_type"]), "both kinds of kernels")


def check_chakra(folder, truth, checkout):
    print("Chakra")
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as made:
        schema_folder = pathlib.Path(checkout) / "schema" / "protobuf"
        code = protoc.main(["protoc", f"-I{schema_folder}", f"--python_out={made}", str(schema_folder / "et_def.proto")])
        check(code == 0, "protoc takes et_def.proto")
        sys.path.insert(0, made)
        import et_def_pb2 as schema
    utils = pathlib.Path(checkout) / "src" / "third_party" / "utils"
    sys.path.insert(0, str(utils))
    from protolib import decodeMessage
    from google.protobuf.unknown_fields import UnknownFieldSet

    for rank in range(truth.header["world_size"]):
        nodes = []
        with open(folder / f"job.{rank}.et", "rb") as file:
            metadata = schema.GlobalMetadata()
            check(decodeMessage(file, metadata) and metadata.version != "", f"rank {rank}: metadata")
            while True:
                node = schema.Node()
                if not decodeMessage(file, node):
                    break
                nodes.append(node)
            check(file.read() == b"", f"rank {rank}: {len(nodes)} nodes")
        known = not any(len(UnknownFieldSet(it)) for node in nodes for it in [node, *node.attr])
        check(known, f"rank {rank}: every field is one of Chakra's schema")
        kinds = {"comm_type": "int64_val", "comm_size": "int64_val", "comm_src": "int32_val", "comm_dst": "int32_val",
                 "comm_tag": "int32_val", "pg_name": "string_val", "is_cpu_op": "bool_val"}
        typed = all(a.WhichOneof("value") == kinds.get(a.name, a.WhichOneof("value")) for n in nodes for a in n.attr)
        check(typed, f"rank {rank}: attributes have the types that the feeder reads")
        # As the feeder issues: any node whose data dependencies have been issued.
        issued, waiting = set(), {node.id: node for node in nodes}
        while ready := [node for node in waiting.values() if set(node.data_deps) <= issued]:
            issued.update(node.id for node in ready)
            for node in ready:
                del waiting[node.id]
        check(not waiting, f"rank {rank}: every node can be issued")
        of = lambda kind: [node for node in nodes if node.type == kind]
        calls = [it["call"] for it in truth.calls[rank].values()]
        p2p = sum(call["p2p"] for call in calls)
        check(len(of(schema.COMM_COLL_NODE)) == len(calls) - p2p, f"rank {rank}: its collectives")
        check(len(of(schema.COMM_SEND_NODE)) + len(of(schema.COMM_RECV_NODE)) == p2p, f"rank {rank}: its messages")
        wanted = sum(-(-(end - begin) // 1000) for _, begin, end in truth.computations[rank])
        computed = sum(node.duration_micros for node in of(schema.COMP_NODE) if not any(a.bool_val for a in node.attr if a.name == "is_cpu_op"))
        check(computed == wanted, f"rank {rank}: {computed} µs of computation")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", nargs="?")
    parser.add_argument("--lockstep", default="target/release/lockstep")
    parser.add_argument("--chakra", help="a checkout of mlcommons/chakra")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plan = arguments.plan
        if plan is None:
            plan = folder / "train.py"
            plan.write_text(PROGRAM)
        run = lambda *words: subprocess.run([arguments.lockstep, *map(str, words)], stdout=subprocess.DEVNULL).returncode
        trace = folder / "trace.json"
        if run("sim", plan, "-o", trace) not in (0, 1, 3):
            sys.exit("FAILED: lockstep sim")
        truth = Truth(json.loads(trace.read_text()))
        for form, out in [("perfetto", "job.pftrace"), ("kineto", "kineto"), ("chakra", "chakra")]:
            if run("export", f"--{form}", trace, "-o", folder / out) != 0:
                sys.exit(f"FAILED: lockstep export --{form}")
        check_perfetto(folder / "job.pftrace", truth)
        check_hta(folder / "kineto", truth)
        if arguments.chakra:
            check_chakra(folder / "chakra", truth, arguments.chakra)
        else:
            print("Chakra\n  not checked: --chakra names no checkout of mlcommons/chakra")


if __name__ == "__main__":
    main()
