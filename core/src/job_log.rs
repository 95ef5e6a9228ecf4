//! What PyTorch itself says in a job's log: DDP's, the watchdog's and `monitored_barrier`'s
//! messages, and what `TORCH_DISTRIBUTED_DEBUG=DETAIL` finds.
//!
//! A log is read line by line; what is no message of these is passed over. The texts are those of
//! `reducer.cpp`, `ProcessGroupNCCL.cpp`, `ProcessGroupGloo.cpp`, `ProcessGroupWrapper.cpp` and
//! `torch/csrc/distributed/c10d/reducer.cpp` (`verify_params_across_processes`), as torch 2.7 to 2.15
//! write them.

use crate::rank::GlobalRank;

/// Lines past this many bytes are cut: nothing that is looked for is as long.
const MAX_LINE_BYTES: usize = 1 << 16;

/// More statements than this repeat themselves.
const MAX_STATEMENTS: usize = 1 << 16;

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Said {
    /// DDP: parameters got no gradient on a rank.
    Unused {
        /// Their indices, as they stand there: `2 3`.
        parameters: String,
    },
    /// DDP: a rank has this many parameters.
    Parameters {
        /// How many.
        count: u64,
    },
    /// DDP: a parameter has other sizes on this rank than on the first.
    Shape {
        /// The parameter and its sizes: `params[2] in this process with sizes [9, 8]`.
        parameter: String,
    },
    /// DDP's `Join`: the rank has no inputs left.
    Exhausted,
    /// `monitored_barrier`: the rank did not come. Ranks of its group.
    MissedBarrier,
    /// The watchdog: a collective of the rank timed out.
    TimedOut {
        /// Its group, as it stands there: `0(default_pg)`; empty where the line names none.
        group: String,
        /// Its number in the group.
        seq: u64,
        /// Its name: `ALLREDUCE`.
        op: String,
        /// The elements that it was given, if said.
        numel_in: Option<u64>,
        /// The elements that it was to give back, if said.
        numel_out: Option<u64>,
        /// The number of the last collective that the rank has called in the group, if said.
        last_enqueued: Option<u64>,
    },
    /// Python: the rank ended by an exception that nobody caught.
    Raised {
        /// Its type and text: `torch.OutOfMemoryError: CUDA out of memory. …`.
        error: String,
    },
    /// torchrun: the rank was ended by a signal, and not by torchrun's own.
    Killed {
        /// Its number.
        signal: u64,
        /// True if the rank is the one on its machine, which torchrun says first.
        local: bool,
    },
    /// DETAIL: the rank runs this collective, while another runs another.
    Runs {
        /// Its number in the group.
        seq: u64,
        /// Its name: `ALLREDUCE`.
        op: String,
        /// The tensors' shapes, as they stand there: `[4]`; empty if it has none.
        shape: String,
        /// The tensors' element types, as they stand there: `Float`.
        dtype: String,
    },
}

/// A message, and whom it is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Statement {
    /// Whom.
    pub rank: GlobalRank,
    /// What.
    pub said: Said,
    /// The line of the log that says so, counted from 1.
    pub line: u64,
}

/// Every message of the kinds above in a log, each once; empty if the text is no such log.
pub fn read(text: &[u8]) -> Vec<Statement> {
    let mut found: Vec<Statement> = Vec::new();
    // Whom torchrun's summary is about.
    let mut summed_up = None;
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line =
            String::from_utf8_lossy(line.get(..line.len().min(MAX_LINE_BYTES)).unwrap_or(line));
        let before = found.len();
        let mut say = |rank: u64, said: Said| {
            let Ok(rank) = u32::try_from(rank) else { return };
            let statement = Statement { rank: GlobalRank(rank), said, line: number };
            if rank < crate::plan::MAX_WORLD_SIZE && found.len() < MAX_STATEMENTS {
                found.push(statement);
            }
        };
        of_line(&line, &mut say);
        of_torchrun(&line, &mut summed_up, &mut say);
        // What is one of the messages above says more than that it was raised.
        if found.len() == before
            && let Some((rank, error)) = raised(&line)
            && let Ok(rank) = u32::try_from(rank)
            && rank < crate::plan::MAX_WORLD_SIZE
            && found.len() < MAX_STATEMENTS
        {
            let said = Said::Raised { error };
            found.push(Statement { rank: GlobalRank(rank), said, line: number });
        }
    }
    // A number on a machine is not needed where the rank is said.
    let said = |it: &Statement| matches!(it.said, Said::Killed { local: false, .. });
    if found.iter().any(said) {
        found.retain(|it| !matches!(it.said, Said::Killed { local: true, .. }));
    }
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|statement| seen.insert((statement.rank, statement.said.clone())));
    found
}

fn of_line(line: &str, say: &mut dyn FnMut(u64, Said)) {
    // Most lines of a log are none of these.
    if let Some(rest) = after(line, "Parameter indices which did not receive grad for rank ")
        && let Some((rank, parameters)) = rest.split_once(':')
        && let Some(rank) = number(rank)
    {
        say(rank, Said::Unused { parameters: parameters.trim().to_owned() });
    }
    if let Some(rest) = after(line, "DDP expects same model across all ranks, but ") {
        // `Rank 0 has 4 params, while rank 1 has inconsistent 6 params.`
        for side in rest.split(", while ") {
            let rank = after(side, "ank ").and_then(number);
            let count = after(side, " has ").map(|it| it.trim_start_matches("inconsistent "));
            if let (Some(rank), Some(count)) = (rank, count.and_then(number)) {
                say(rank, Said::Parameters { count });
            }
        }
    }
    if line.contains("appears not to match sizes of the same param in process")
        && let Some(at) = line.find("]: params[")
        && let Some(open) = line.get(..at).and_then(|before| before.rfind('['))
        && let Some(rank) = line.get(open + 1..at).and_then(number)
    {
        let parameter = line.get(at + 3..).unwrap_or_default();
        let parameter = parameter.split(" appears not").next().unwrap_or_default().to_owned();
        say(rank, Said::Shape { parameter });
    }
    if line.contains(" exhausted all inputs")
        && let Some(rank) = after(line, "Rank ").and_then(number)
    {
        say(rank, Said::Exhausted);
    }
    if let Some((before, _)) = line.split_once(" failed to pass monitoredBarrier in ")
        && let Some(at) = before.rfind("Rank")
    {
        let ranks = before.get(at..).unwrap_or_default();
        for rank in ranks.trim_start_matches("Ranks").trim_start_matches("Rank").split(',') {
            if let Some(rank) = number(rank) {
                say(rank, Said::MissedBarrier);
            }
        }
    }
    // Behind `Rank` stands the rank in the group, which is another one in groups of some ranks.
    if line.contains("Watchdog caught collective operation timeout")
        && let Some(rank) =
            speaker(line).map(|(rank, _)| rank).or(after(line, "Rank ").and_then(number))
        && let Some(seq) = after(line, "SeqNum=").and_then(number)
    {
        let group = after(line, "PG GUID ").and_then(|rest| rest.split(" Rank").next());
        let say_number = |what: &str| after(line, what).and_then(number);
        let said = Said::TimedOut {
            group: group.unwrap_or_default().trim_end_matches(']').to_owned(),
            seq,
            op: word(after(line, "OpType=").unwrap_or_default()),
            numel_in: say_number("NumelIn="),
            numel_out: say_number("NumelOut="),
            last_enqueued: say_number("last enqueued work: "),
        };
        say(rank, said);
    }
    if line.contains("Detected mismatch between collectives on ranks") {
        for side in line
            .split(" is running collective: CollectiveFingerPrint(")
            .collect::<Vec<_>>()
            .windows(2)
        {
            let [before, print] = side else { continue };
            let rank = before.rfind("Rank ").and_then(|at| before.get(at + 5..)).and_then(number);
            let seq = after(print, "SequenceNumber=").and_then(number);
            let (Some(rank), Some(seq)) = (rank, seq) else { continue };
            let until = |start: &str, end: &str| {
                let rest = after(print, start).unwrap_or_default();
                rest.split(end).next().unwrap_or_default().to_owned()
            };
            let shape = match print.contains("TensorShape=") {
                true => until("TensorShape=", ", Tensor"),
                false => String::new(),
            };
            say(
                rank,
                Said::Runs {
                    seq,
                    op: word(after(print, "OpType=").unwrap_or_default()),
                    shape,
                    dtype: word(&until("TensorDtypes=", ", ")),
                },
            );
        }
    }
}

/// What torchrun says of a process that a signal ended. `summed_up` is the rank that the lines of its
/// summary are about.
fn of_torchrun(line: &str, summed_up: &mut Option<u64>, say: &mut dyn FnMut(u64, Said)) {
    // It ends the other ranks by SIGTERM itself, and users end all of them by SIGINT.
    let signal = |rest: &str| number(rest).filter(|signal| !matches!(signal, 0 | 2 | 15));
    if let Some(rest) = after(line, "failed (exitcode: -")
        && let Some(rank) = after(rest, "local_rank: ").and_then(number)
        && let Some(signal) = signal(rest)
    {
        say(rank, Said::Killed { signal, local: true });
    }
    match line.trim().split_once(':').map(|(name, value)| (name.trim_end(), value.trim())) {
        Some(("rank", value)) if value.contains("(local_rank:") => *summed_up = number(value),
        Some(("exitcode", value)) => {
            let signal = value.strip_prefix('-').and_then(signal);
            if let Some((rank, signal)) = summed_up.take().zip(signal) {
                say(rank, Said::Killed { signal, local: false });
            }
        }
        _ => {}
    }
}

/// Whose line it is, by the `[rank2]:` that PyTorch puts before what it prints, and what is behind.
fn speaker(line: &str) -> Option<(u64, &str)> {
    let (rank, rest) = after(line, "[rank")?.split_once("]:")?;
    Some((rank.parse().ok()?, rest))
}

/// The last line of a traceback that PyTorch's hook has printed: whose it is, and the error. What a
/// rank raises because another one is gone says nothing of itself.
fn raised(line: &str) -> Option<(u64, String)> {
    /// Longer texts are cut in findings.
    const MOST: usize = 160;
    const OTHERS_FAULT: [&str; 8] = [
        "Connection closed by peer",
        "Connection reset by peer",
        "Broken pipe",
        "Timed out waiting",
        "Application timeout caused pair closure",
        "NCCL",
        "atchdog",
        "Expected to have finished reduction",
    ];
    let (rank, rest) = speaker(line)?;
    let error = rest.strip_prefix(' ').unwrap_or(rest).trim_end();
    let name: &str = error.split(':').next().unwrap_or_default();
    let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    let raised = is_name && (name.ends_with("Error") || name.ends_with("Exception"));
    let consequence = name.starts_with("torch.distributed.")
        || OTHERS_FAULT.iter().any(|what| error.contains(what));
    (raised && !consequence).then(|| (rank, error.chars().take(MOST).collect()))
}

fn after<'a>(text: &'a str, what: &str) -> Option<&'a str> {
    text.split_once(what).map(|(_, rest)| rest)
}

/// The number that a text begins with.
fn number(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    text.get(..digits)?.parse().ok()
}

/// The word that a text begins with.
fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<(u32, Said)> {
        read(text.as_bytes()).into_iter().map(|it| (it.rank.0, it.said)).collect()
    }

    /// As torch 2.15 printed them.
    #[test]
    fn messages_are_understood() {
        assert_eq!(
            said("x\nParameter indices which did not receive grad for rank 1: 2 3\n In addition"),
            [(1, Said::Unused { parameters: "2 3".into() })]
        );
        assert_eq!(
            said(
                "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 4 params, \
                 while rank 1 has inconsistent 6 params."
            ),
            [(0, Said::Parameters { count: 4 }), (1, Said::Parameters { count: 6 })]
        );
        assert_eq!(
            said(
                "RuntimeError: [1]: params[2] in this process with sizes [9, 8] appears not to match \
                 sizes of the same param in process 0."
            ),
            [(1, Said::Shape { parameter: "params[2] in this process with sizes [9, 8]".into() })]
        );
        assert_eq!(said("RuntimeError: Rank 1 exhausted all inputs."), [(1, Said::Exhausted)]);
        assert_eq!(
            said("RuntimeError: [Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 5000 ms"),
            [(1, Said::MissedBarrier), (2, Said::MissedBarrier)]
        );
        let runs = |op: &str| Said::Runs {
            seq: 1,
            op: op.into(),
            shape: "[4]".into(),
            dtype: "Float".into(),
        };
        assert_eq!(
            said(
                "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running \
                 collective: CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE, \
                 TensorShape=[4], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float \
                 (default))), but Rank 1 is running collective: \
                 CollectiveFingerPrint(SequenceNumber=1, OpType=BROADCAST, TensorShape=[4], \
                 TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default)))."
            ),
            [(0, runs("ALLREDUCE")), (1, runs("BROADCAST"))]
        );
        assert_eq!(
            said(
                "[rank3]:[E] [PG ID 0 PG GUID 0(default_pg) Rank 3] Watchdog caught collective \
                 operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, \
                 Timeout(ms)=600000) ran for 600001 milliseconds before timing out."
            ),
            [(
                3,
                Said::TimedOut {
                    group: "0(default_pg)".into(),
                    seq: 12,
                    op: "ALLREDUCE".into(),
                    numel_in: Some(4),
                    numel_out: Some(4),
                    last_enqueued: None
                }
            )]
        );
        assert_eq!(
            said(
                "[rank2]: Traceback (most recent call last):\n[rank2]:   File \"a.py\", line 1\n\
                 [rank2]: torch.OutOfMemoryError: CUDA out of memory.\n\
                 [rank0]: torch.distributed.DistBackendError: NCCL error\n\
                 [rank1]: RuntimeError: Connection closed by peer [::1]:3"
            ),
            [(2, Said::Raised { error: "torch.OutOfMemoryError: CUDA out of memory.".into() })]
        );
        assert_eq!(said("Rank 7 is fine\n[2]: params\nSeqNum="), []);
    }

    proptest::proptest! {
        #[test]
        fn any_text_ends_without_a_panic(text in ".*", cut: usize) {
            let all = format!("{text}Detected mismatch between collectives on ranks. Rank {text} is \
                running collective: CollectiveFingerPrint(SequenceNumber={text}]: params[ appears \
                not to match sizes of the same param in process");
            let cut = (0..=cut % (all.len() + 1)).rev().find(|at| all.is_char_boundary(*at));
            let _ = read(&all.as_bytes()[..cut.unwrap_or(0)]);
        }
    }
}
