//! One line of NCCL's log, taken apart.
//!
//! `INFO(NCCL_COLL, …)` of `src/enqueue.cc` and `INFO(NCCL_INIT, …)` of `src/init.cc`, as NCCL 2.4 to
//! 2.30 and RCCL write them, behind the prefix of `src/debug.cc`: `host:pid:tid [device] NCCL INFO`.

use lockstep_core::dtype::Dtype;
use lockstep_core::reduce::ReduceOp;

/// A larger communicator is a damaged number.
const MAX_NRANKS: u32 = 1 << 17;

/// The writer of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Writer<'a> {
    pub(super) host: &'a str,
    pub(super) pid: u64,
    /// The device in brackets: several may be of one process.
    pub(super) device: u32,
    /// The rank that a launcher, or RCCL, writes beside: `[rank3]:`, `globalrank 3`.
    pub(super) rank: Option<u32>,
}

/// The content of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A communicator is being made, or was made.
    Init(Init),
    /// A call.
    Call(Call),
}

/// A communicator of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Init {
    /// Its address in the process.
    pub(super) comm: u64,
    pub(super) rank: u32,
    pub(super) nranks: u32,
    pub(super) from: From,
}

/// The origin of a communicator: the same for all of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// A unique id, which the line hashes.
    Id(u64),
    /// Another communicator, by `ncclCommSplit`.
    Split {
        /// The address of the other one.
        parent: u64,
        /// The number of the split; not written before NCCL 2.24.
        count: Option<u32>,
        color: i64,
    },
    /// The line does not say: before NCCL 2.15.
    Unknown,
}

/// A call of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) what: Verb,
    /// The communicator's own count of its launches: calls of one `ncclGroupStart` share it.
    pub(super) op_count: u64,
    pub(super) count: u64,
    pub(super) dtype: Dtype,
    /// `ncclRedOp_t`: the five built-in ones, then those that a program made.
    pub(super) redop: u32,
    /// The root; of Send and Recv the other side.
    pub(super) root: u32,
    pub(super) comm: u64,
    pub(super) nranks: u32,
}

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verb {
    AllReduce,
    Broadcast,
    Reduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    Gather,
    Scatter,
    Send,
    Recv,
}

impl Verb {
    fn named(name: &str) -> Option<Verb> {
        Some(match name {
            "AllReduce" => Verb::AllReduce,
            "Broadcast" | "Bcast" => Verb::Broadcast,
            "Reduce" => Verb::Reduce,
            "AllGather" => Verb::AllGather,
            "ReduceScatter" => Verb::ReduceScatter,
            "AlltoAll" | "AllToAll" => Verb::AllToAll,
            "Gather" => Verb::Gather,
            "Scatter" => Verb::Scatter,
            "Send" => Verb::Send,
            "Recv" => Verb::Recv,
            _ => return None,
        })
    }

    /// PyTorch's name.
    pub(super) fn op(self) -> &'static str {
        match self {
            Verb::AllReduce => "all_reduce",
            Verb::Broadcast => "broadcast",
            Verb::Reduce => "reduce",
            Verb::AllGather => "all_gather",
            Verb::ReduceScatter => "reduce_scatter",
            Verb::AllToAll => "all_to_all",
            Verb::Gather => "gather",
            Verb::Scatter => "scatter",
            Verb::Send => "send",
            Verb::Recv => "recv",
        }
    }

    pub(super) fn is_p2p(self) -> bool {
        matches!(self, Verb::Send | Verb::Recv)
    }

    fn reduces(self) -> bool {
        matches!(self, Verb::AllReduce | Verb::Reduce | Verb::ReduceScatter)
    }

    fn is_rooted(self) -> bool {
        matches!(self, Verb::Broadcast | Verb::Reduce | Verb::Gather | Verb::Scatter)
    }
}

impl Call {
    /// The reduction, where the call has one that NCCL names.
    pub(super) fn reduce_op(&self) -> Option<ReduceOp> {
        let op = match self.redop {
            0 => ReduceOp::Sum,
            1 => ReduceOp::Product,
            2 => ReduceOp::Max,
            3 => ReduceOp::Min,
            4 => ReduceOp::Avg,
            _ => return None,
        };
        self.what.reduces().then_some(op)
    }

    /// The root, where the call has one.
    pub(super) fn root(&self) -> Option<u32> {
        self.what.is_rooted().then_some(self.root)
    }
}

/// Takes a line apart; `None` for all that is not about communicators and calls.
pub(super) fn line(text: &str) -> Option<(Writer<'_>, Line)> {
    let (before, said) = text.split_once("NCCL INFO ")?;
    let line = match said.split_once(": opCount ") {
        Some((name, fields)) => Line::Call(call(name.rsplit(' ').next()?, fields)?),
        None if said.contains("- Init ") => Line::Init(init(said)?),
        None => return None,
    };
    let mut writer = writer(before)?;
    if let Some(rank) = field(said, "globalrank") {
        writer.rank = rank.parse().ok();
    }
    Some((writer, line))
}

/// `[rank3]: host:pid:tid [device] `, or with a time in brackets before it.
fn writer(before: &str) -> Option<Writer<'_>> {
    let mut words = before.split_whitespace().rev();
    let device = words.next()?.strip_prefix('[')?.strip_suffix(']')?;
    let mut place = words.next()?.rsplitn(3, ':');
    let (_tid, pid, host) = (place.next()?, place.next()?, place.next()?);
    // A prefix may stand right before it: `1: host`, `[rank1]:host`.
    let host = host.rsplit([':', ']', ' ']).next()?;
    let said = before.split_once("[rank").and_then(|(_, rest)| rest.split_once(']'));
    Some(Writer {
        host,
        pid: pid.parse().ok()?,
        // Without a device of its own, a thread of NCCL's writes -1.
        device: device.parse().ok()?,
        rank: said.and_then(|(rank, _)| rank.parse().ok()),
    })
}

fn call(name: &str, fields: &str) -> Option<Call> {
    let op_count = fields.split(' ').next()?;
    let nranks = fields.split_once("[nranks=").and_then(|(_, rest)| rest.split_once(']'))?.0;
    let nranks = nranks.parse().ok().filter(|nranks| (1..=MAX_NRANKS).contains(nranks))?;
    Some(Call {
        what: Verb::named(name)?,
        op_count: u64::from_str_radix(op_count, 16).ok()?,
        count: field(fields, "count")?.parse().ok()?,
        dtype: dtype(field(fields, "datatype")?.parse().ok()?),
        redop: field(fields, "op")?.parse().ok()?,
        root: field(fields, "root")?.parse().ok()?,
        comm: address(field(fields, "comm")?)?,
        nranks,
    })
}

fn init(said: &str) -> Option<Init> {
    let from = match (field(said, "parent").and_then(address), field(said, "commId")) {
        // 2.19 to 2.21 write an id that is not one beside the parent.
        (Some(parent), _) if parent != 0 => From::Split {
            parent,
            count: ["splitCount", "childCount"]
                .into_iter()
                .find_map(|name| field(said, name)?.parse().ok()),
            color: field(said, "color")?.parse().ok()?,
        },
        (_, Some(id)) => From::Id(address(id)?),
        (_, None) => From::Unknown,
    };
    let nranks = field(said, "nranks")?.parse().ok().filter(|nranks| *nranks <= MAX_NRANKS)?;
    let rank = field(said, "rank")?.parse().ok().filter(|rank| *rank < nranks)?;
    Some(Init { comm: address(field(said, "comm")?)?, rank, nranks, from })
}

/// The word behind a name.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut words = text.split_whitespace();
    words.find(|word| *word == name)?;
    words.next()
}

fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// `ncclDataType_t` of `src/nccl.h.in`.
fn dtype(number: u32) -> Dtype {
    match number {
        0 => Dtype::Int8,
        1 => Dtype::Uint8,
        2 => Dtype::Int32,
        4 => Dtype::Int64,
        6 => Dtype::Float16,
        7 => Dtype::Float32,
        8 => Dtype::Float64,
        9 => Dtype::Bfloat16,
        10 => Dtype::Float8E4m3fn,
        11 => Dtype::Float8E5m2,
        _ => Dtype::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Writer<'_>, Line) {
        line(text).unwrap_or_else(|| panic!("{text}"))
    }

    /// Lines that people posted with their questions to NCCL's developers (numbers changed).
    #[test]
    fn lines_of_many_versions_are_taken_apart() {
        let (writer, said) = read(
            "gpu1:13135:13922 [0] NCCL INFO AllReduce: opCount 1a sendbuff 0x10048f82700 recvbuff \
             0x10048f82800 count 64 datatype 7 op 0 root 0 comm 0x7f0c741162f0 [nranks=2] stream \
             0x7f0c74002f00",
        );
        assert_eq!(writer, Writer { host: "gpu1", pid: 13135, device: 0, rank: None });
        let Line::Call(call) = said else { panic!() };
        assert_eq!((call.what, call.op_count, call.count), (Verb::AllReduce, 26, 64));
        assert_eq!(
            (call.dtype, call.reduce_op(), call.root()),
            (Dtype::Float32, Some(ReduceOp::Sum), None)
        );
        assert_eq!((call.comm, call.nranks), (0x7f0c741162f0, 2));
        // A pointer that is nil, a name that is prefixed, a launcher's prefix.
        let (writer, said) = read(
            "(RayTrainWorker pid=615, ip=10.0.0.1) node-1:199574:201142 [3] NCCL INFO [2] Send: \
             opCount d60 sendbuff 0x7f50 recvbuff (nil) count 5 datatype 9 op 0 root 1 comm 0xfe \
             [nranks=8] stream 0x55f1",
        );
        assert_eq!(writer, Writer { host: "node-1", pid: 199574, device: 3, rank: None });
        let Line::Call(call) = said else { panic!() };
        assert_eq!((call.what, call.root, call.reduce_op()), (Verb::Send, 1, None));
        assert_eq!(
            read(
                "[rank3]: a:1:2 [0] NCCL INFO comm 0xa rank 3 nranks 8 cudaDev 0 busId 1 \
            commId 0xbd10cc2bcb56e132 - Init COMPLETE"
            )
            .0
            .rank,
            Some(3)
        );
        let init = |text: &str| match read(text).1 {
            Line::Init(init) => init,
            Line::Call(_) => panic!("{text}"),
        };
        let id = From::Id(0x5ae7);
        for text in [
            "h:1:2 [4] NCCL INFO comm 0x55 rank 36 nranks 64 cudaDev 4 nvmlDev 4 busId 9b000 commId \
             0x5ae7 - Init COMPLETE",
            "h:1:2 [4] NCCL INFO ncclCommInitRank comm 0x55 rank 36 nranks 64 cudaDev 4 nvmlDev 4 \
             busId 9b000 commId 0x5ae7 - Init START",
            "2026-11-21 10:00:00 h:1:2 [4] NCCL INFO [Rank 36] ncclCommInitRankConfig comm 0x55 rank \
             36 nranks 64 cudaDev 4 nvmlDev 4 busId 9b000 commId 0x5ae7 - Init START",
        ] {
            assert_eq!(init(text), Init { comm: 0x55, rank: 36, nranks: 64, from: id }, "{text}");
        }
        for (text, count) in [
            ("splitCount 2 color 7 key 0- Init START", Some(2)),
            ("splitCount 2 color 7 key 0 - Init COMPLETE", Some(2)),
            ("childCount 2 color 7 key 0 - Init COMPLETE", Some(2)),
            ("color 7 key 0 - Init COMPLETE", None),
            ("color 7 key 0 commId 0x3 - Init COMPLETE", None),
        ] {
            let text = format!(
                "h:1:2 [4] NCCL INFO ncclCommSplit comm 0x56 rank 0 nranks 2 cudaDev 4 nvmlDev 4 \
                 busId 9b000 parent 0x55 {text}"
            );
            let from = From::Split { parent: 0x55, count, color: 7 };
            assert_eq!(init(&text), Init { comm: 0x56, rank: 0, nranks: 2, from }, "{text}");
        }
        let old = "h:1:2 [7] NCCL INFO comm 0x7f rank 15 nranks 16 cudaDev 7 busId e7000 - Init \
                   COMPLETE";
        assert_eq!(init(old), Init { comm: 0x7f, rank: 15, nranks: 16, from: From::Unknown });
    }

    #[test]
    fn other_lines_are_passed_over() {
        for text in [
            "h:1:2 [0] NCCL INFO Connected all trees",
            "h:1:2 [0] NCCL INFO Broken: opCount",
            "h:1:2 [0] NCCL INFO AllReduce: opCount zz count 1",
            "NCCL INFO AllReduce: opCount 0 sendbuff 0x0 recvbuff 0x0 count 1 datatype 7 op 0 root 0 \
             comm 0x1 [nranks=2] stream 0x0",
            "h:1:2 [0] NCCL INFO AllReduce: 8 Bytes -> Algo 1 proto 2",
            "",
        ] {
            assert_eq!(line(text), None, "{text}");
        }
    }
}
