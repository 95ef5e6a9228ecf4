//! Files that the schema's own compiler has read or written, round trips, and files of strangers.

use super::schema::{Attribute, AttributeValue, GlobalMetadata, Node, NodeType};
use super::{ChakraReader, ChakraWriter, is_written_by_lockstep, looks_like_et};
use crate::reader::{File, Reader};
use crate::recording::{Piece, RecordedJob, Sources};
use lockstep_core::trace::{CallLog, CallState, Trace};
use proptest::prelude::*;
use prost::Message;
use std::io::Read;
use std::path::Path;

fn data(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/export");
    std::fs::read(folder.join(name)).unwrap()
}

fn joined(files: &[(String, Vec<u8>)]) -> RecordedJob {
    let mut sources = Sources::default();
    files.iter().for_each(|(name, bytes)| sources.take(Piece::read(name, bytes)));
    sources.join().unwrap()
}

fn written(trace: &Trace) -> Vec<(String, Vec<u8>)> {
    let writer = ChakraWriter::new(trace);
    let file = |rank| {
        let mut bytes = Vec::new();
        writer.write(rank, &mut bytes).unwrap();
        (ChakraWriter::file_name(rank), bytes)
    };
    writer.ranks().map(file).collect()
}

/// Every call, with times in nanoseconds since the first one was made.
fn told(log: &CallLog) -> Vec<String> {
    let mut told = Vec::new();
    let made =
        log.logs().flat_map(|(_, own)| own.calls.iter().map(|call| call.scheduled_ps / 1000));
    let first_ns = made.min().unwrap();
    for (rank, own) in log.logs() {
        for record in &own.calls {
            let call = &record.call;
            let numel = |of: &[lockstep_core::trace::TensorShape]| -> Vec<(u64, &str)> {
                of.iter().map(|tensor| (tensor.numel(), tensor.dtype.name())).collect()
            };
            let group = log.groups[call.group.index()].label();
            let ns = |ps: Option<u64>| ps.map(|ps| ps / 1000 - first_ns);
            told.push(format!(
                "{rank}: {} {group} #{:?} to {:?} tag {} {:?} {:?} {:?} root {:?} {:?} {:?} {:?}",
                crate::flight_recorder::public_name(&call.op),
                record.seq,
                call.peer,
                call.tag,
                numel(&call.inputs),
                numel(&call.outputs),
                call.reduce_op,
                call.root,
                record.state,
                (ns(Some(record.scheduled_ps)), ns(record.started_ps)),
                ns(record.completed_ps),
            ));
        }
    }
    told
}

/// A job whose calls are made again by the file: same group, number, sizes, states and times to the nanosecond.
#[test]
fn a_trace_comes_back_as_the_same_calls() {
    for name in ["healthy.lks", "hang.lks"] {
        let trace = Trace::read(&data(name)).unwrap();
        let files = written(&trace);
        assert!(
            files.iter().all(|(name, bytes)| looks_like_et("x", bytes) && name.ends_with(".et"))
        );
        assert!(files.iter().all(|(_, bytes)| is_written_by_lockstep(bytes)));
        let job = joined(&files);
        let (read, before) = (job.calls.unwrap().merged.log, CallLog::of(&trace));
        assert_eq!(told(&read), told(&before), "{name}");
        assert_eq!(read.groups.len(), before.groups.len());
        for (read, before) in read.groups.iter().zip(&before.groups) {
            assert_eq!((read.label(), read.ranks()), (before.label(), before.ranks()));
        }
    }
    let hang = CallLog::of(&Trace::read(&data("hang.lks")).unwrap());
    let mut states = hang.logs().flat_map(|(_, own)| own.calls.iter().map(|call| call.state));
    assert!(states.any(|it| it != CallState::Completed), "it does not hang");
}

/// `protoc` has encoded `example.txtpb` by Chakra's own `et_def.proto`: see the README beside it.
#[test]
fn what_protoc_encodes_is_read() {
    let file = |rank: u32| (format!("example.{rank}.et"), data(&format!("example.{rank}.et")));
    let job = joined(&[file(0), file(1)]);
    let calls = job.calls.unwrap();
    let log = &calls.merged.log;
    let seen: Vec<String> = log
        .logs()
        .flat_map(|(rank, own)| own.calls.iter().map(move |it| (rank, it)))
        .map(|(rank, it)| {
            let call = &it.call;
            let group = log.groups[call.group.index()].label();
            let tensors: Vec<_> =
                call.inputs.iter().map(|it| format!("{} {}", it.numel(), it.dtype)).collect();
            format!(
                "{rank}: {} {group} {tensors:?} peer {:?} at {} to {:?}",
                call.op,
                call.peer.map(|peer| peer.0),
                it.scheduled_ps / 1000,
                it.completed_ps.map(|ps| ps / 1000)
            )
        })
        .collect();
    // Behind a computation an all_reduce that the next computation, of 7 µs, does not need; then a call that needs both.
    // No call has a time of its own.
    assert_eq!(
        seen,
        [
            "0: all_reduce default_pg [\"1024 float32\"] peer None at 0 to Some(7000)",
            "0: all_gather pair [\"64 uint8\"] peer None at 7000 to Some(7000)",
            "0: send default_pg [\"16 uint8\"] peer Some(1) at 7000 to Some(7000)",
            "1: all_reduce default_pg [\"1024 float32\"] peer None at 0 to Some(7000)",
            "1: all_gather pair [\"64 uint8\"] peer None at 7000 to Some(7000)",
            "1: recv default_pg [\"16 uint8\"] peer Some(0) at 7000 to Some(7000)",
        ]
    );
    assert!(calls.notes.iter().any(|note| note.contains("hold no times")), "{:?}", calls.notes);
}

/// PyTorch's own execution traces of two of four ranks show the same calls as the job's profiles.
#[test]
fn pytorchs_execution_traces_hold_the_calls_in_order() {
    let file = |rank: u32| {
        let (packed, mut bytes) = (data(&format!("et_rank{rank}.json.gz")), Vec::new());
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
        (format!("et_rank{rank}.json"), bytes)
    };
    let job = joined(&[file(0), file(1)]);
    let calls = job.calls.unwrap();
    let log = &calls.merged.log;
    let ops = |rank: usize| -> Vec<(String, Option<u32>, u64)> {
        let own = log.ranks[rank].as_ref().unwrap();
        let of = |it: &lockstep_core::trace::CallRecord| {
            let numel = it.call.inputs.iter().map(|it| it.numel()).sum();
            (it.call.op.clone(), it.call.root.or(it.call.peer).map(|root| root.0), numel)
        };
        own.calls.iter().map(of).collect()
    };
    let both = [
        ("all_reduce", None, 4680),
        ("broadcast", Some(0), 5),
        ("broadcast", Some(0), 1),
        ("all_reduce", None, 4680),
        ("all_reduce", None, 32),
        ("all_gather", None, 64),
        ("broadcast", Some(1), 8),
        ("barrier", None, 0),
        ("all_to_all", None, 16),
    ];
    for (rank, last) in [(0, ("send", Some(1), 3)), (1, ("recv", Some(0), 3))] {
        let wanted: Vec<_> = both
            .iter()
            .chain([&last])
            .map(|(op, root, numel)| ((*op).to_owned(), *root, *numel))
            .collect();
        assert_eq!(ops(rank), wanted);
    }
    let groups: Vec<&str> = log.groups.iter().map(|group| group.label()).collect();
    assert_eq!(groups, ["default_pg", "dp_even", "dp_odd"]);
    assert_eq!(log.world_size, 4);
}

fn node(id: u64, kind: NodeType, data_deps: Vec<u64>) -> Node {
    let name = format!("node {id}");
    Node { id, name, r#type: kind.into(), data_deps, ..Node::default() }
}

fn file_of(nodes: &[Node]) -> Vec<u8> {
    let metadata = GlobalMetadata { version: "0.0.4".to_owned(), attr: Vec::new() };
    let mut bytes = metadata.encode_length_delimited_to_vec();
    nodes.iter().for_each(|node| bytes.extend(node.encode_length_delimited_to_vec()));
    bytes
}

fn call(id: u64, data_deps: Vec<u64>) -> Node {
    let kinds = [("comm_type", AttributeValue::Int64(0)), ("comm_size", AttributeValue::Int64(8))];
    let attr = kinds.into_iter().map(|(name, value)| Attribute::new(name, value)).collect();
    Node { attr, ..node(id, NodeType::CommColl, data_deps) }
}

fn refused(name: &str, bytes: &[u8]) -> String {
    let file = File { name, bytes };
    assert!(ChakraReader.recognises(file), "{name}");
    ChakraReader.read(file).map(drop).unwrap_err().why
}

#[test]
fn what_cannot_run_is_refused_in_a_sentence() {
    let good = file_of(&[call(1, vec![]), call(2, vec![1])]);
    assert!(ChakraReader.read(File { name: "job.0.et", bytes: &good }).is_ok());
    let circle =
        file_of(&[call(1, vec![]), call(2, vec![4, 1]), call(3, vec![2]), call(4, vec![3])]);
    let said = [
        refused("job.0.et", &file_of(&[call(1, vec![])])[..30]),
        refused("job.0.et", &circle),
        refused("job.0.et", &file_of(&[call(5, vec![5])])),
        refused("job.0.et", &file_of(&[call(1, vec![]), call(2, vec![9])])),
        refused("job.0.et", &file_of(&[call(1, vec![]), call(1, vec![])])),
        refused("job.0.et", &file_of(&[node(1, NodeType::Comp, vec![])])),
        refused("job.et", &good),
        refused("job.0.et", b""),
        refused("et.json", b"{\"schema\": \"1.1.1-chakra.0.0.4\", \"nodes\": [{\"id\": 1}"),
        refused("et_0.json", b"{\"schema\": \"1.1.1-chakra.0.0.4\", \"nodes\": [{\"id\": 1}"),
        refused("et_0.json", b"{\"schema\": \"1.1.1-chakra.0.0.4\", \"nodes\": [{\"id\": 1}]}"),
        refused("et_0.json", pytorchs(&[(2, 3), (3, 4), (4, 2)]).as_bytes()),
        refused("et_0.json", pytorchs(&[(1, 1), (2, 9)]).as_bytes()),
    ];
    insta::assert_snapshot!(said.join("\n"));
}

/// An execution trace of PyTorch's own: nodes and their callers.
fn pytorchs(nodes: &[(u64, u64)]) -> String {
    let node = |(id, by): &(u64, u64)| {
        format!(
            "{{\"id\": {id}, \"name\": \"c10d::barrier\", \"ctrl_deps\": {by}, \"inputs\": {{}}}}"
        )
    };
    let nodes: Vec<String> = nodes.iter().map(node).collect();
    format!("{{\"schema\": \"1.1.1-chakra.0.0.4\", \"nodes\": [{}]}}", nodes.join(", "))
}

/// All that stands before the place at which a file breaks is used, and a note says where that is.
#[test]
fn what_is_read_before_a_file_breaks_is_used() {
    let good = file_of(&[call(1, vec![]), call(2, vec![1])]);
    // The rest may hold what is missing.
    let unmet = file_of(&[call(1, vec![]), call(2, vec![7])]);
    let broken: [&[u8]; 3] = [&[0xff, 0xff, 0xff, 0x7f, 1, 2], &[0xff; 12], &[3, 0x12, 0x7f, 1]];
    let mut said = Vec::new();
    for (begin, end) in broken.iter().map(|end| (&good, *end)).chain([(&unmet, &[9, 1][..])]) {
        let bytes = [begin.as_slice(), end].concat();
        let job = joined(&[("job.0.et".to_owned(), bytes)]);
        let calls = job.calls.unwrap();
        assert_eq!(calls.merged.log.ranks[0].as_ref().unwrap().calls.len(), 2);
        said.extend(job.problems);
    }
    let text = pytorchs(&[(2, 1), (3, 2), (1, 1)]);
    let cut = text.as_bytes()[..text.len() - 20].to_vec();
    said.extend(joined(&[("et_0.json".to_owned(), cut)]).problems);
    assert_eq!(said.len(), 5);
    insta::assert_snapshot!(said.join("\n"));
}

/// A dependency for control names a caller. Converters may have left it out, and in real files callers and data
/// dependencies go in circles together.
#[test]
fn callers_are_no_dependencies() {
    let called = |by, of| Node { ctrl_deps: vec![by], ..of };
    for nodes in [
        vec![called(77, call(2, vec![]))],
        vec![called(2, call(1, vec![])), call(2, vec![1])],
        vec![call(1, vec![]), called(1, call(2, vec![]))],
    ] {
        let bytes = file_of(&nodes);
        assert!(ChakraReader.read(File { name: "job.0.et", bytes: &bytes }).is_ok());
    }
    // If nothing else orders them, they do.
    let circle = file_of(&[called(2, call(1, vec![])), called(1, call(2, vec![]))]);
    assert!(refused("job.0.et", &circle).contains("in a circle"));
}

proptest! {
    /// No bytes make the reader panic, or take more than they are worth.
    #[test]
    fn any_bytes_are_read_or_refused(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
        cut in 0usize..200,
    ) {
        let _ = ChakraReader.read(File { name: "job.0.et", bytes: &bytes });
        let mut good = file_of(&[call(1, vec![]), call(2, vec![1]), node(3, NodeType::Comp, vec![2])]);
        good.truncate(cut.min(good.len()));
        good.append(&mut bytes);
        let _ = ChakraReader.read(File { name: "job.0.et", bytes: &good });
    }

    /// Every node has a place in time, after all the nodes that it depends on.
    #[test]
    fn nodes_begin_when_what_they_need_has_ended(
        needs in proptest::collection::vec(proptest::collection::vec(any::<prop::sample::Index>(), 0..3), 1..30),
        durations in proptest::collection::vec(0u64..5, 30),
    ) {
        use super::graph::{Graph, GraphNode, Resource};
        let mut graph = Graph::default();
        for (at, own) in needs.iter().enumerate() {
            let from = graph.needs.len();
            let own: Vec<u64> = if at == 0 { vec![] } else { own.iter().map(|it| it.index(at) as u64).collect() };
            graph.needs.extend(own);
            let uses = [Resource::Nothing, Resource::Device, Resource::Processor][at % 3];
            let needs = from..graph.needs.len();
            graph.nodes.push(GraphNode { id: at as u64, needs, uses, duration_ns: durations[at] });
        }
        let slots = graph.layout("x", |_| String::new()).unwrap();
        for (at, node) in graph.nodes.iter().enumerate() {
            prop_assert!(slots[at].to_ns >= slots[at].from_ns + node.duration_ns);
            for on in &graph.needs[node.needs.clone()] {
                prop_assert!(slots[at].from_ns >= slots[*on as usize].to_ns, "{at} needs {on}: {slots:?}");
            }
        }
        // Computations of one resource follow each other.
        for resource in [Resource::Device, Resource::Processor] {
            let own = graph.nodes.iter().zip(&slots).filter(|(node, _)| node.uses == resource);
            let mut spans: Vec<_> = own.map(|(_, slot)| (slot.from_ns, slot.to_ns)).collect();
            spans.sort_unstable();
            prop_assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{spans:?}");
        }
    }
}
