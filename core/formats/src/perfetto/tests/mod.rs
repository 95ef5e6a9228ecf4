//! Checks the files for Perfetto against the decoder of its own schema, and against the trace.

use super::schema::{self, TYPE_COUNTER, TYPE_INSTANT, TYPE_SLICE_BEGIN, TYPE_SLICE_END};
use super::{BEGINNING, write};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{
    Call, CallLog, CallState, Event, Frame, Origin, Outcome, TensorShape, Trace, TraceEnd,
    TraceHeader, What,
};
use prost::Message;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/export").join(name)
}

fn written(trace: &Trace) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(trace, &mut bytes).unwrap();
    bytes
}

/// Two ranks: an all_reduce, a send whose receive was made before it, and a barrier that only one rank makes.
fn example() -> Trace {
    let call = |op: &str, seq, p2p, peer: Option<u32>| {
        let shape = || vec![TensorShape { shape: vec![4, 4], dtype: Dtype::Float32 }];
        let barrier = op == "barrier";
        std::sync::Arc::new(Call {
            op: op.to_owned(),
            group: GroupId::WORLD,
            seq: Some(seq),
            p2p,
            peer: peer.map(GroupRank),
            tag: 0,
            inputs: if barrier || op == "recv" { vec![] } else { shape() },
            outputs: if barrier || op == "send" { vec![] } else { shape() },
            reduce_op: (op == "all_reduce").then_some(ReduceOp::Sum),
            root: None,
            plan_op: None,
            stack: vec![Frame { function: "step".into(), file: "train.py".into(), line: 7 }],
            record_id: None,
        })
    };
    let mut events = Vec::new();
    let mut at = |ns: u64, rank, what| {
        events.push(Event { time_ps: ns * 1000 + 999, rank: GlobalRank(rank), what });
    };
    let scheduled = |work, call| What::Scheduled { work, call };
    at(10, 0, scheduled(0, call("all_reduce", 1, false, None)));
    at(12, 0, What::Started { work: 0 });
    at(30, 0, What::Completed { work: 0 });
    at(50, 0, scheduled(1, call("send", 1, true, Some(1))));
    at(50, 0, What::Started { work: 1 });
    at(70, 0, What::Completed { work: 1 });
    at(80, 0, scheduled(2, call("barrier", 2, false, None)));
    at(11, 1, scheduled(0, call("all_reduce", 1, false, None)));
    at(12, 1, What::Started { work: 0 });
    at(31, 1, What::Completed { work: 0 });
    at(40, 1, scheduled(1, call("recv", 1, true, Some(0))));
    at(40, 1, What::Started { work: 1 });
    at(70, 1, What::Completed { work: 1 });
    Trace {
        header: TraceHeader {
            origin: Origin::Recorded { by: "hand".into(), files: vec![] },
            world_size: 2,
            groups: vec![ProcessGroup::world(2, BackendName::Gloo).unwrap()],
            plan: None,
            epoch_ns: 1_700_000_000_000_000_000,
        },
        events,
        end: Some(TraceEnd { time_ps: 100_000, outcome: Outcome::TimedOut }),
    }
}

/// Recorded kernels are slices of the compute stream's track, which lie one behind the other: of two that overlap the
/// one that began last is seen.
#[test]
fn recorded_kernels_are_slices_of_the_compute_stream() {
    let mut trace = example();
    for (ns, name, took_ns) in [(20, "gemm", 50), (40, "copy", 10)] {
        let what = What::Kernel { name: name.into(), took_ps: took_ns * 1000 };
        trace.events.push(Event { time_ps: ns * 1000, rank: GlobalRank(0), what });
    }
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let mut edges = Vec::new();
    for packet in schema::Trace::decode(written(&trace).as_slice()).unwrap().packet {
        if packet.trusted_packet_sequence_id != Some(2) {
            continue;
        }
        let interned = packet.interned_data.unwrap_or_default();
        names
            .extend(interned.event_names.into_iter().map(|it| (it.iid.unwrap(), it.name.unwrap())));
        let Some(event) = packet.track_event.filter(|it| it.track_uuid == Some(1 << 32 | 2)) else {
            continue;
        };
        let name = event.name_iid.map_or("", |iid| &names[&iid]).to_owned();
        edges.push((packet.timestamp.unwrap(), name));
    }
    let edge = |(ns, name): (u64, &str)| (ns, name.to_owned());
    let wanted = [(20, "gemm"), (40, ""), (40, "copy"), (50, ""), (50, "gemm"), (70, "")];
    assert_eq!(edges, wanted.map(edge));
}

/// `example.pftrace.txt` is the output of `protoc` for these bytes by Perfetto's own schema (see the README
/// beside it): the bytes must stay those that were decoded.
#[test]
fn the_example_is_what_protoc_has_decoded() {
    let bytes = written(&example());
    assert!(bytes.starts_with(BEGINNING));
    if std::env::var_os("LOCKSTEP_WRITE_EXPORT_EXAMPLE").is_some() {
        std::fs::write(data("example.pftrace"), &bytes).unwrap();
    }
    assert_eq!(bytes, std::fs::read(data("example.pftrace")).unwrap());
    let text = std::fs::read_to_string(data("example.pftrace.txt")).unwrap();
    let lines = |what: &str| text.lines().filter(|line| line.trim() == what).count();
    // Four slices that end, one that does not, three marks (began, received, timed out), and two counters of each call's
    // begin and end.
    let types = [
        "type: TYPE_SLICE_BEGIN",
        "type: TYPE_SLICE_END",
        "type: TYPE_INSTANT",
        "type: TYPE_COUNTER",
    ];
    assert_eq!(types.map(lines), [5, 4, 3, 18]);
    for named in [
        "process_name: \"rank 1\"",
        "name: \"communication default_pg\"",
        "name: \"barrier (unfinished)\"",
        "str: \"train.py:7\"",
        "str: \"scheduled\"",
    ] {
        assert!(text.contains(named), "{named}");
    }
    // A field of another number or type would be decoded as a bare number.
    let unknown = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
    assert_eq!(text.lines().find(unknown), None);
}

/// A slice as it comes of begin and end.
#[derive(Debug, Clone, PartialEq)]
struct Slice {
    track: u64,
    name: String,
    from_ns: u64,
    to_ns: Option<u64>,
}

/// The slices of a file, and the values of its counters by track.
fn read(bytes: &[u8]) -> (Vec<Slice>, BTreeMap<u64, Vec<i64>>, Vec<schema::TracePacket>) {
    let trace = schema::Trace::decode(bytes).unwrap();
    let mut names: BTreeMap<(u32, u64), String> = BTreeMap::new();
    let (mut slices, mut open) = (Vec::<Slice>::new(), BTreeMap::<u64, Vec<usize>>::new());
    let mut counters: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
    let mut last_ns = 0;
    for packet in &trace.packet {
        let sequence = packet.trusted_packet_sequence_id.unwrap();
        for name in packet.interned_data.iter().flat_map(|data| &data.event_names) {
            names.insert((sequence, name.iid.unwrap()), name.name.clone().unwrap());
        }
        let Some(event) = &packet.track_event else { continue };
        let (track, now_ns) = (event.track_uuid.unwrap(), packet.timestamp.unwrap());
        assert!(now_ns >= last_ns, "packets are in the order of time");
        last_ns = now_ns;
        match event.r#type.unwrap() {
            TYPE_SLICE_BEGIN => {
                open.entry(track).or_default().push(slices.len());
                let name = names[&(sequence, event.name_iid.unwrap())].clone();
                slices.push(Slice { track, name, from_ns: now_ns, to_ns: None });
            }
            TYPE_SLICE_END => {
                let at = open.get_mut(&track).and_then(Vec::pop).expect("something to end");
                slices[at].to_ns = Some(now_ns);
            }
            TYPE_COUNTER => counters.entry(track).or_default().push(event.counter_value.unwrap()),
            other => assert_eq!(other, TYPE_INSTANT),
        }
    }
    (slices, counters, trace.packet)
}

#[test]
fn slices_and_counters_are_those_of_the_trace() {
    for (name, hangs) in [("healthy.lks", false), ("hang.lks", true)] {
        let trace = Trace::read(&std::fs::read(data(name)).unwrap()).unwrap();
        let (slices, counters, packets) = read(&written(&trace));
        let log = CallLog::of(&trace);
        let mut expected: Vec<(u32, String, u64, Option<u64>)> = Vec::new();
        for (rank, own) in log.logs() {
            for record in &own.calls {
                let ended = record.state == CallState::Completed;
                let name = record.call.op.clone() + if ended { "" } else { " (unfinished)" };
                let from_ns = record.started_ps.unwrap_or(record.scheduled_ps) / 1000;
                expected.push((rank.0, name, from_ns, record.completed_ps.map(|ps| ps / 1000)));
            }
        }
        let mut seen: Vec<(u32, String, u64, Option<u64>)> = slices
            .iter()
            .filter(|slice| slice.track & 0xffff_ffff >= 16)
            .map(|it| ((it.track >> 32) as u32 - 1, it.name.clone(), it.from_ns, it.to_ns))
            .collect();
        seen.sort();
        expected.sort();
        assert_eq!(seen, expected, "{name}");
        assert_eq!(slices.iter().any(|slice| slice.to_ns.is_none()), hangs, "{name}");
        // Programs: one slice an operation that was begun.
        let began = trace.events.iter().filter(|it| matches!(it.what, What::OpBegan { .. }));
        let programs = slices.iter().filter(|slice| slice.track & 0xffff_ffff == 1);
        assert_eq!(programs.count(), began.count());
        for values in counters.values() {
            assert!(values.iter().all(|value| *value >= 0));
            assert!(hangs || values.last() == Some(&0), "all that left has arrived");
        }
        // A flow leads through as many slices as members made the call.
        let mut flows: BTreeMap<u64, usize> = BTreeMap::new();
        for event in packets.iter().filter_map(|packet| packet.track_event.as_ref()) {
            for flow in event.flow_ids.iter().chain(&event.terminating_flow_ids) {
                *flows.entry(*flow).or_default() += 1;
            }
        }
        let mut rows: BTreeMap<(u32, u64), usize> = BTreeMap::new();
        let mut p2p = 0;
        for (_, own) in log.logs() {
            for record in &own.calls {
                match record.call.p2p {
                    true => p2p += usize::from(record.state == CallState::Completed),
                    false => {
                        *rows.entry((record.call.group.0, record.seq.unwrap())).or_default() += 1
                    }
                }
            }
        }
        let mut sizes: Vec<usize> = rows.into_values().chain(vec![2; p2p / 2]).collect();
        let mut seen: Vec<usize> = flows.into_values().collect();
        sizes.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, sizes, "{name}");
    }
}

/// Calls of which only the making was recorded overlap: each of them has a track while it lasts.
#[test]
fn calls_that_overlap_have_tracks_of_their_own() {
    let mut trace = example();
    trace.events.retain(|event| !matches!(event.what, What::Started { .. }));
    for event in &mut trace.events {
        if matches!(event.what, What::Completed { .. }) {
            event.time_ps = 90_000;
        }
    }
    trace.events.sort_by_key(|event| (event.rank, event.time_ps));
    let (slices, counters, _) = read(&written(&trace));
    let of_rank_0: Vec<&Slice> = slices.iter().filter(|it| it.track >> 32 == 1).collect();
    let tracks: Vec<u64> = of_rank_0.iter().map(|it| it.track & 0xffff).collect();
    assert_eq!(tracks, [16, 17, 18]);
    assert_eq!(of_rank_0[1].to_ns, Some(90));
    // 64 bytes each of all_reduce and send.
    assert_eq!(counters[&((1 << 32) | 3)], [64, 128, 128, 64, 0]);
}
