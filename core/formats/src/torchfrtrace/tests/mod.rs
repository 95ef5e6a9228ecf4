use super::*;

#[test]
fn missing_ranks_and_errors_are_statements_of_ranks() {
    let text = "Not all ranks joining collective: sequence number: 31\ninternal record id: 30\n\
        group info: 0:default_pg\ncollective: nccl:all_reduce\nmissing ranks: {3, 4}\n\
        input sizes: [[15]]\noutput sizes: [[15]]\nworld size: 5\n\
        2026-01-01 INFO Collective sequence number: 7 has errors\ngroup info: 1:dp\n\
        collective: nccl:broadcast\nworld size: 9\n\
        error msg: Culprit rank 1; Error type: SIZE_OR_SYNTAX_MISMATCH, Detailed Description: x, \
        Culprit rank 2; Error type: COLLECTIVE_DTYPE_MISMATCH\n";
    let log = read("out.txt", text.as_bytes());
    let said = |rank: u32, line: u64, said: Said| Statement {
        rank: GlobalRank(rank),
        said,
        place: Place::new("out.txt", line),
    };
    let missing =
        || Said::NotJoined { group: "0:default_pg".into(), seq: Some(31), op: "all_reduce".into() };
    let differs = |what: &str| Said::Differs {
        group: "1:dp".into(),
        seq: 7,
        op: "broadcast".into(),
        what: what.into(),
    };
    assert_eq!(
        log.statements,
        [
            said(3, 1, missing()),
            said(4, 1, missing()),
            said(1, 9, differs("SIZE_OR_SYNTAX_MISMATCH")),
            said(2, 9, differs("COLLECTIVE_DTYPE_MISMATCH")),
        ]
    );
    assert_eq!(log.world_size, Some(5));
    let older = "INFO Not all ranks joining collective 5 at entry 4\ngroup info: 0:default_pg\n\
        collective: nccl:all_reduce\nmissing ranks: {1}\n";
    let missing =
        |seq| Said::NotJoined { group: "0:default_pg".into(), seq, op: "all_reduce".into() };
    assert_eq!(read("out.txt", older.as_bytes()).statements, [said(1, 1, missing(Some(5)))]);
    let oldest = "Not all ranks joining collective for group 0:default_pg collective nccl:all_reduce \
        Missing ranks are {1} [[3, 4]]\n";
    assert_eq!(read("out.txt", oldest.as_bytes()).statements, [said(1, 1, missing(None))]);
    assert!(
        read("out.txt", b"Collective sequence number: 7 is fine\nmissing ranks: {1}\n").is_empty()
    );
}
