//! NCCL's own lines of a failed transfer between two machines (`transport/net_ib.cc`, `misc/socket.cc`).

use super::line_words::after;
use super::statement::Said;

/// A name or an address is kept up to this many characters.
const MOST_CHARS: usize = 100;

/// The failed transfer of a line:
/// `node-1:2311:2502 [3] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.4.12<39112> with
/// status=12 …`, or one of a socket's that the other side closed.
pub(super) fn of_line(line: &str) -> Option<Said> {
    let (before, said) = line.split_once(" NCCL WARN ")?;
    let (peer, why) = if let Some(rest) = after(said, "Got completion from peer ") {
        let status = after(rest, "status=").or_else(|| after(rest, "with error "))?;
        (rest, transfer_error(super::line_words::number(status)?))
    } else if let Some(rest) =
        after(said, "Call to recv from ").or_else(|| after(said, "Call to send to "))
    {
        (rest, rest.split_once("failed : ")?.1.trim_end())
    } else if let Some(rest) = after(said, "Connection closed by remote peer ") {
        (rest, "Connection closed")
    } else {
        return None;
    };
    let short = |text: &str| text.trim().chars().take(MOST_CHARS).collect::<String>();
    let peer = short(peer.split('<').next()?);
    // Behind prefixes of launchers: `[default3]:node-1:2311:2502 [3] transport/…`.
    let process = before.split_whitespace().find(|word| word.matches(':').count() >= 2)?;
    let host = process.rsplitn(3, ':').nth(2)?.rsplit("]:").next()?;
    let is_follow_up = why.is_empty();
    (!peer.is_empty() && !is_follow_up).then(|| Said::NetworkFailed {
        host: short(host),
        peer,
        why: short(why),
    })
}

/// The meaning of a status of InfiniBand's verbs (`ibv_wc_status`); empty where it follows from an earlier error.
fn transfer_error(status: u64) -> &'static str {
    match status {
        4 | 9..=11 => {
            "the memory or the request was refused (protection, access or operation error)"
        }
        5 => "",
        12 => "the other side did not acknowledge (transport retry counter exceeded)",
        13 => "the other side was not ready to receive (receiver not ready, retries exceeded)",
        _ => "the transfer ended with an error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_transfers_name_both_machines() {
        let of = |line: &str| match of_line(line) {
            Some(Said::NetworkFailed { host, peer, why }) => (host, peer, why),
            other => panic!("{line}: {other:?}"),
        };
        let ib = "node-1:2311:2502 [3] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer \
                  10.0.4.12<39112> with status=12 opcode=32544 len=0 vendor err 129 (Recv) localGid ::ffff:10.0.4.11";
        let (host, peer, why) = of(ib);
        assert_eq!((host.as_str(), peer.as_str()), ("node-1", "10.0.4.12"));
        assert!(why.contains("retry counter"), "{why}");
        let old = "[default3]:gpu7:9:12 [0] transport/net_ib.cc:95 NCCL WARN NET/IB : Got completion from peer \
                   10.0.0.2<1> with error 13, opcode 0, len 0, vendor err 135";
        assert_eq!(of(old).0, "gpu7");
        assert!(of(old).2.contains("not ready"), "{}", of(old).2);
        let socket = "a:1:2 [0] misc/socket.cc:550 NCCL WARN socketProgressOpt: Call to recv from 10.0.0.9<551> \
                      failed : Connection reset by peer";
        assert_eq!(of(socket), ("a".into(), "10.0.0.9".into(), "Connection reset by peer".into()));
        let closed =
            "a:1:2 [0] NCCL WARN socketProgress: Connection closed by remote peer b.cluster<551>";
        assert_eq!(of(closed).1, "b.cluster");
        for none in [
            "a:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.9<1> with status=5 opcode=0 len=0",
            "a:1:2 [0] NCCL INFO transport/net.cc:1298 -> 6",
            "NCCL WARN Got completion from peer",
        ] {
            assert_eq!(of_line(none), None, "{none}");
        }
    }
}
