//! Programs that do not run, or do not carry out their collective.

use super::super::{MscclError, read, write};
use super::{Xml, prove_table};
use lockstep_core::collective::Collective;
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::{Algorithm, ProvedTable, Schedule};
use proptest::prelude::*;

fn pair() -> Xml {
    Xml::new("allreduce", 2, 1, true)
}

#[test]
fn ends_of_a_message_that_do_not_meet_are_named() {
    let texts = [
        pair().gpu(0, 0).tb(0, 1, -1).op("s", "i0", "i0").gpu(1, 0).refusal(),
        pair().gpu(0, 0).gpu(1, 0).tb(0, -1, 0).op("r", "i0", "i0").refusal(),
        Xml::new("allreduce", 2, 2, true)
            .gpu(0, 0)
            .tb(0, 1, -1)
            .op("s", "i0", "i0")
            .gpu(1, 0)
            .tb(0, -1, 0)
            .full("r", "i0", "i0", 2, None, false)
            .refusal(),
        pair().gpu(0, 0).tb(0, -1, -1).op("s", "i0", "i0").gpu(1, 0).refusal(),
        pair()
            .gpu(0, 0)
            .tb(0, 1, -1)
            .op("s", "i0", "i0")
            .tb(1, 1, -1)
            .op("s", "i0", "i0")
            .gpu(1, 0)
            .refusal(),
    ];
    insta::assert_snapshot!(texts.map(|error| error.to_string()).join("\n"));
}

#[test]
fn circles_are_named() {
    let inside = pair()
        .gpu(0, 1)
        .tb(0, -1, -1)
        .full("cpy", "i0", "s0", 1, Some((1, 0)), true)
        .tb(1, -1, -1)
        .full("cpy", "i0", "s0", 1, Some((0, 0)), true)
        .gpu(1, 0);
    // Both receive before they send.
    let mut across = pair();
    for rank in 0..2 {
        let peer = 1 - rank as i32;
        across = across.gpu(rank, 1).tb(0, peer, peer).op("r", "s0", "s0").op("s", "i0", "i0");
    }
    let itself = pair().gpu(0, 1).tb(0, -1, -1).after("cpy", "i0", "s0", (0, 0)).gpu(1, 0);
    let texts = [inside, across, itself].map(|xml| xml.refusal().to_string());
    insta::assert_snapshot!(texts.join("\n"));
}

/// The steps of ours would hide a missing dependency, since one comes after the other by chance.
#[test]
fn accesses_that_nothing_orders_are_refused() {
    let program = |after| {
        let mut xml = Xml::new("allreduce", 2, 2, true);
        for rank in 0..2 {
            let peer = 1 - rank as i32;
            xml = xml
                .gpu(rank, 1)
                .tb(0, peer, peer)
                .full("s", "i0", "i0", 2, None, true)
                .flagged("r", "i1", "s0")
                .tb(1, -1, -1)
                .full("re", "s0", "i0", 1, after, false);
        }
        xml
    };
    // The receive has to be done before; it sends two and receives one, too.
    let texts = [program(None).refusal(), program(Some((0, 0))).refusal()];
    assert!(matches!(texts[0], MscclError::Step { .. }), "{}", texts[0]);
    let race = |after| {
        let mut xml = Xml::new("allreduce", 2, 1, true);
        for rank in 0..2 {
            let peer = 1 - rank as i32;
            xml = xml
                .gpu(rank, 1)
                .tb(0, peer, peer)
                .flagged("s", "i0", "i0")
                .flagged("r", "s0", "s0")
                .tb(1, -1, -1)
                .full("re", "s0", "i0", 1, after, false);
        }
        xml
    };
    assert!(read(&race(Some((0, 1))).end()).is_ok());
    let texts = [race(None), race(Some((0, 0)))].map(|xml| xml.refusal().to_string());
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn what_is_no_program_is_refused_in_a_sentence() {
    let good = pair().gpu(0, 0).gpu(1, 0).end();
    let step = |kind: &str, src: &str, dst: &str, count, after| {
        pair().gpu(0, 1).tb(0, 1, 1).full(kind, src, dst, count, after, false).gpu(1, 0).end()
    };
    let deep = format!("{}<step>", "<algo>".repeat(100_000));
    let texts = [
        String::new(),
        "{\"schema\": \"lockstep.plan/1\"}".to_owned(),
        "<graph/>".to_owned(),
        good.replace("</algo>", ""),
        good.replace("</gpu>", "</tb>"),
        good.replace("coll=\"allreduce\"", "coll=\"custom\""),
        good.replace("ngpus=\"2\"", "ngpus=\"1000000000\""),
        good.replace("ngpus=\"2\"", "ngpus=\"3\""),
        good.replace("<gpu id=\"1\"", "<gpu id=\"0\""),
        good.replace("s_chunks=\"0\"", "s_chunks=\"99999999999999999999\""),
        good.replace("nchunksperloop=\"1\"", "nchunksperloop=\"-1\""),
        good.replace("inplace=\"1\"", "inplace=\"1\" inplace=\"1\""),
        format!("<!DOCTYPE algo [<!ENTITY a \"&a;&a;\">]>{good}"),
        good.replace("name=\"test\"", "name=\"&bomb;\""),
        good.replace("<gpu id=\"0\"", "words <gpu id=\"0\""),
        deep,
        step("s", "i0", "i0", 1_000_000_000, None),
        step("s", "i7", "i0", 1, None),
        step("s", "q0", "i0", 1, None),
        step("cpy", "i-1", "s0", 1, None),
        step("cpy", "s0", "s0", 60_000, None),
        step("send", "i0", "i0", 1, None),
        step("cpy", "i0", "s0", 1, Some((7, 0))),
        step("cpy", "i0", "s0", 1, Some((7, -1))),
        step("cpy", "i0", "s0", 0, None),
    ];
    let mut said = String::new();
    for text in texts {
        let why = read(&text).err().unwrap_or_else(|| panic!("not refused: {text}")).to_string();
        assert!(why.len() < 300 && !why.contains('\n'), "{why}");
        said += &(why + "\n");
    }
    insta::assert_snapshot!(said);
}

/// A dependency on a step that raises no flag waits for the next that does; if none does, for ever.
#[test]
fn flags_are_those_of_the_executor() {
    let program = |flags: [bool; 2]| {
        pair()
            .gpu(0, 2)
            .tb(0, -1, -1)
            .full("cpy", "i0", "s0", 1, None, flags[0])
            .full("cpy", "i0", "s1", 1, None, flags[1])
            .tb(1, -1, -1)
            .after("cpy", "s0", "i0", (0, 0))
            .gpu(1, 0)
    };
    assert!(read(&program([false, true]).end()).is_ok());
    // The first flag is not enough for the second copy, which reads what the waiting step writes.
    assert!(matches!(program([true, true]).refusal(), MscclError::Race { .. }));
    let refusal = program([false, false]).refusal().to_string();
    assert!(refusal.starts_with("gpu 0, tb 1, step 0: waits for ever"), "{refusal}");
}

#[test]
fn a_program_that_does_not_do_what_it_claims_is_refused_where_it_is_wrong() {
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let prove = |text: &str| {
        let table = read(text).unwrap();
        prove_table(table).unwrap_err().to_string()
    };
    // Both send both chunks; rank 1 adds what came to the chunks that are named.
    let program = |of_rank_1: &[(&str, &str)]| {
        let mut xml = Xml::new("allreduce", 2, 2, true);
        for rank in 0..2 {
            let peer = 1 - rank as i32;
            xml = xml.gpu(rank, 2).tb(0, peer, peer);
            xml = xml.full("s", "i0", "i0", 2, None, false).full("r", "s0", "s0", 2, None, false);
            let right = [("s0", "i0"), ("s1", "i1")];
            for (from, into) in if rank == 1 { of_rank_1 } else { &right } {
                xml = xml.op("re", from, into);
            }
        }
        xml.end()
    };
    let wrong = program(&[("s0", "i0"), ("s0", "i1")]);
    let missing = program(&[("s0", "i0")]);
    let twice = program(&[("s0", "i0"), ("s1", "i1"), ("s0", "i0")]);
    let right = ProvedTable::new(read(&program(&[("s0", "i0"), ("s1", "i1")])).unwrap()).unwrap();
    let broadcast = Collective::Broadcast { root: GroupRank(1) };
    let other = Schedule::from_table(&right, broadcast, 2).unwrap_err();
    assert!(Schedule::from_table(&right, sum, 3).is_err());
    let texts = [prove(&wrong), prove(&missing), prove(&twice), other.to_string()];
    insta::assert_snapshot!(texts.join("\n"));
}

fn any_program() -> impl Strategy<Value = String> {
    let kinds =
        prop::sample::select(vec!["s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop"]);
    let place = (prop::sample::select(vec!["i", "o", "s"]), -1i32..3)
        .prop_map(|(memory, offset)| format!("{memory}{offset}"));
    let after = prop::option::of((0i32..3, 0i32..3));
    let step = (kinds, place.clone(), place, 0u32..3, after, any::<bool>());
    let block = (-1i32..3, -1i32..3, 0u32..2, prop::collection::vec(step, 0..4));
    let gpus = prop::collection::vec(prop::collection::vec(block, 0..3), 1..4);
    let coll = prop::sample::select(vec!["allreduce", "allgather", "reducescatter", "alltoall"]);
    (coll, any::<bool>(), gpus).prop_map(|(coll, in_place, gpus)| {
        let size = gpus.len() as u32;
        let mut xml = Xml::new(coll, size, 2 * size, in_place);
        for (id, blocks) in (0..).zip(gpus) {
            xml = xml.gpu(id, 2);
            for (tb, (send, recv, chan, steps)) in (0..).zip(blocks) {
                let peer =
                    |peer: i32| if peer == id as i32 || peer >= size as i32 { -1 } else { peer };
                xml = xml.tb_on(tb, peer(send), peer(recv), chan);
                for (kind, src, dst, count, after, flagged) in steps {
                    xml = xml.full(kind, &src, &dst, count, after, flagged);
                }
            }
        }
        xml.end()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,300}") {
        let _ = read(&text);
        let _ = read(&format!("<algo {text}"));
    }

    /// Whatever is read keeps the laws of steps: a proof fails for its promise, not its order.
    #[test]
    fn what_is_read_keeps_the_laws(text in any_program()) {
        let wrong = read(&text).ok().and_then(|table| prove_table(table).err());
        if let Some(why) = wrong.map(|error| error.to_string()) {
            for law in ["two actions", "waits for ever", "nobody receives", "outside"] {
                prop_assert!(!why.contains(law), "{why}\n{text}");
            }
        }
    }

    #[test]
    fn a_damaged_program_is_refused_or_read(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let sum = Collective::AllReduce { op: ReduceOp::Sum };
        let good = write(&Schedule::new(sum, Algorithm::Tree, 3).unwrap()).unwrap();
        let mut bytes = good.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(text) = String::from_utf8(bytes)
            && let Ok(table) = read(&text)
        {
            let _ = prove_table(table);
        }
    }
}

#[test]
fn goal_is_told_where_it_goes() {
    let goal = "num_ranks 2\n\nrank 0 {\nl1: send 16b to 1 tag 0\n}\n\nrank 1 {\nl1: recv 16b from 0 \
                tag 0\n}\n";
    let refusal = read(goal).unwrap_err().to_string();
    assert!(refusal.contains("this is GOAL") && refusal.contains("lockstep sim"), "{refusal}");
}

/// The receive says where data goes; MSCCL looks at a send's `dst` as little.
#[test]
fn a_send_goes_where_it_is_received() {
    let schedule = Schedule::new(Collective::AllGather, Algorithm::Ring, 2).unwrap();
    let text = write(&schedule).unwrap();
    let sends = text.lines().find(|line| line.contains("type=\"s\"")).unwrap();
    let (before, after) = sends.split_once("dstoff=\"").unwrap();
    let rest = after.split_once('"').unwrap().1;
    let elsewhere = text.replacen(sends, &format!("{before}dstoff=\"99\"{rest}"), 1);
    assert_ne!(elsewhere, text);
    assert!(ProvedTable::new(read(&elsewhere).unwrap()).is_ok());
}
