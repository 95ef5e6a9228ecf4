//! Programs that run: the effect of each kind of step, and the programs that Microsoft ships.

use super::super::read;
use super::{Xml, prove_table};
use lockstep_core::schedule::{Proof, Schedule, prove};
use std::path::Path;

/// Reads and proves a program.
fn proved(text: &str) -> (Schedule, Proof) {
    let table = read(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let schedule = prove_table(table);
    let schedule = schedule.unwrap_or_else(|error| panic!("{error}\n{text}"));
    let proof = prove(&schedule).unwrap();
    (schedule, proof)
}

fn shipped(name: &str) -> (String, Schedule, Proof) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/msccl");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    let (schedule, proof) = proved(&text);
    (text, schedule, proof)
}

/// The number of steps of these types in a text, each times its count.
fn steps(text: &str, types: &[&str]) -> u64 {
    let lines = text
        .lines()
        .filter(|line| types.iter().any(|kind| line.contains(&format!("type=\"{kind}\""))));
    let count = |line: &str| {
        let (_, rest) = line.split_once("cnt=\"").unwrap();
        rest.split_once('"').unwrap().0.parse::<u64>().unwrap()
    };
    lines.map(count).sum()
}

#[test]
fn what_microsoft_ships_does_what_it_claims() {
    let programs = [
        ("ncv4_ar_tree_12_LL.xml", 4, 24),
        ("ndv4_r48ll.xml", 8, 64),
        ("ncv4_ag_hier_4_LL.xml", 4, 4),
        ("ndv4_a2a2ll.xml", 8, 2),
        ("ndv4_ag-1k-512k.xml", 8, 2),
    ];
    for (name, size, cut) in programs {
        let (text, schedule, proof) = shipped(name);
        assert_eq!((schedule.size(), schedule.chunks_per_part()), (size, cut), "{name}");
        assert_eq!(proof.chunks_moved, steps(&text, &["s", "rcs", "rrs", "rrcs"]), "{name}");
        assert_eq!(proof.chunks_reduced, steps(&text, &["re", "rrs", "rrc", "rrcs"]), "{name}");
    }
}

/// Eight rings with four channels each, seven messages to reduce and seven to gather: as many steps
/// as a ring all_reduce has, although a thread block starts with a send.
#[test]
fn a_ring_of_blocks_that_send_first_has_a_rings_steps() {
    let (_, schedule, _) = shipped("ndv4_r48ll.xml");
    assert_eq!(schedule.steps(), 2 * (8 - 1));
}

#[test]
fn one_block_can_do_a_whole_ring() {
    for n in [2u32, 3, 4, 7] {
        let mut xml = Xml::new("allreduce", n, n, true);
        for rank in 0..n {
            let chunk = |back: u32| format!("i{}", (rank + 2 * n - back) % n);
            let (next, previous) = ((rank + 1) % n, (rank + n - 1) % n);
            xml = xml.gpu(rank, 0).tb(0, next as i32, previous as i32);
            xml = xml.op("s", &chunk(0), &chunk(0));
            for step in 1..n - 1 {
                xml = xml.op("rrs", &chunk(step), &chunk(step));
            }
            xml = xml.op("rrcs", &chunk(n - 1), &chunk(n - 1));
            for step in n..2 * n - 2 {
                xml = xml.op("rcs", &chunk(step), &chunk(step));
            }
            xml = xml.op("r", &chunk(2 * n - 2), &chunk(2 * n - 2));
        }
        let (schedule, proof) = proved(&xml.end());
        assert_eq!(proof.messages, u64::from(2 * n * (n - 1)), "{n} ranks");
        assert_eq!(schedule.steps(), 2 * (n - 1), "{n} ranks");
    }
}

/// Both send the chunk that they then overwrite: NCCL's buffers make that an exchange.
#[test]
fn an_exchange_in_place_goes_through_scratch() {
    let mut xml = Xml::new("allreduce", 2, 1, true);
    for rank in 0..2 {
        let peer = 1 - rank as i32;
        xml = xml.gpu(rank, 0).tb(0, peer, peer).op("s", "i0", "i0").op("rrc", "i0", "i0");
    }
    let (schedule, proof) = proved(&xml.end());
    assert_eq!((proof.messages, schedule.steps()), (2, 2));
}

/// The message that is sent first is needed last: it waits where it came.
#[test]
fn messages_may_be_taken_in_another_order_than_they_are_sent() {
    let xml = Xml::new("broadcast", 2, 2, true)
        .gpu(0, 0)
        .tb_on(0, 1, -1, 0)
        .flagged("s", "i0", "i0")
        .tb_on(1, 1, -1, 1)
        .after("s", "i1", "i1", (0, 0))
        .gpu(1, 1)
        .tb_on(0, -1, 0, 0)
        .after("r", "i0", "i0", (1, 1))
        .tb_on(1, -1, 0, 1)
        .op("r", "i0", "i0")
        .flagged("cpy", "i0", "i1");
    let (_, proof) = proved(&xml.end());
    assert_eq!(proof.messages, 2);
}

/// Out of place, `o` holds nothing at first, though our output does.
#[test]
fn out_of_place_copies_its_input_first() {
    let program = |first: &str| {
        let mut xml = Xml::new("allreduce", 2, 1, false);
        for rank in 0..2 {
            let peer = 1 - rank as i32;
            xml = xml.gpu(rank, 0).tb(0, peer, peer).op("s", "i0", "i0").op("rrc", first, "o0");
        }
        xml
    };
    proved(&program("i0").end());
    let refusal = program("o0").refusal().to_string();
    assert_eq!(refusal, "gpu 0, tb 0, step 1: reads o[0], where nothing was written yet");
}

#[test]
fn in_place_reduce_scatter_and_all_gather_name_parts_of_the_larger_tensor() {
    let mut scatter = Xml::new("reducescatter", 2, 4, true);
    let mut gather = Xml::new("allgather", 2, 4, true);
    for rank in 0..2u32 {
        let peer = 1 - rank as i32;
        let (mine, theirs) = (format!("i{}", 2 * rank), format!("i{}", 2 * (1 - rank)));
        scatter = scatter.gpu(rank, 0).tb(0, peer, peer);
        scatter = scatter.full("s", &theirs, &theirs, 2, None, false);
        // `o` begins where this rank's part of `i` does.
        scatter = scatter.full("rrc", &mine, "o0", 2, None, false);
        let theirs = format!("o{}", 2 * (1 - rank));
        gather = gather.gpu(rank, 0).tb(0, peer, peer);
        gather = gather.full("s", "i0", "i0", 2, None, false);
        gather = gather.full("r", &theirs, &theirs, 2, None, false);
    }
    assert_eq!(proved(&scatter.end()).1.chunks_reduced, 4);
    assert_eq!(proved(&gather.end()).1.chunks_moved, 4);
}

#[test]
fn a_nop_waits_for_the_step_after_it() {
    // Two parts arrive in two blocks; a third sends both on once both are there.
    let xml = Xml::new("allgather", 2, 4, false)
        .gpu(0, 0)
        .tb(0, 1, 1)
        .full("s", "i0", "i0", 2, None, false)
        .full("r", "o2", "o2", 2, None, false)
        .tb(1, -1, -1)
        .full("cpy", "i0", "o0", 2, None, false)
        .gpu(1, 2)
        .tb_on(0, -1, -1, 0)
        .flagged("cpy", "i0", "s0")
        .tb_on(1, -1, -1, 0)
        .flagged("cpy", "i1", "s1")
        .tb_on(2, 0, 0, 0)
        .full("nop", "i-1", "o-1", 0, Some((0, 0)), false)
        .full("s", "s0", "s0", 2, Some((1, 0)), false)
        .full("r", "o0", "o0", 2, None, false)
        .tb_on(3, -1, -1, 0)
        .full("cpy", "i0", "o2", 2, None, false);
    assert_eq!(proved(&xml.end()).1.messages, 2);
}
