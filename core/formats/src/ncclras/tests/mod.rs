use super::*;

const MISMATCH: &str = "#0-0 (fa93daea854b060b) MISMATCH\n  Communicator ranks have different AllGather \
    operation counts\n  6 ranks have launched up to operation 64\n  2 ranks have launched up to operation 65\n  \
    Rank 2 -- GPU 2 managed by process 3032 on node 10.0.0.4\n  Rank 3 -- GPU 3 managed by process 3033 on \
    node 10.0.0.4\n";

#[test]
fn the_ranks_that_few_are_with_are_statements() {
    let log = read("ras.txt", MISMATCH.as_bytes());
    let said = Said::Launched { op: "AllGather".into(), count: 65, others: 64, most: 6 };
    let ranks: Vec<u32> = log.statements.iter().map(|it| it.rank.0).collect();
    assert_eq!((ranks, &log.statements[0].said), (vec![2, 3], &said));
    assert_eq!(log.world_size, Some(8));
}

#[test]
fn a_rank_that_is_alone_is_named_in_its_line() {
    let text = "#0-0 (78db921d1c117b4a) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n  \
        7 ranks have launched up to operation 64\n  Rank 7 has launched up to operation 60 -- GPU 3 managed by \
        process 1650386 on node node1\n";
    let log = read("ras.txt", text.as_bytes());
    let said = Said::Launched { op: "AllReduce".into(), count: 60, others: 64, most: 7 };
    assert_eq!(
        log.statements,
        [Statement { rank: GlobalRank(7), said, place: Place::new("ras.txt", 4) }]
    );
    assert_eq!(log.world_size, Some(8));
}

#[test]
fn ranks_of_several_communicators_are_nobodys() {
    assert!(read("ras.txt", format!("{MISMATCH}\n{MISMATCH}").as_bytes()).is_empty());
    assert!(
        read("ras.txt", b"Rank 2 -- GPU 2 managed by process 3032 on node 10.0.0.4\n").is_empty()
    );
}
