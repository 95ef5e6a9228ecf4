//! The messages of DDP, of `monitored_barrier` and of `TORCH_DISTRIBUTED_DEBUG=DETAIL`, each of which is in
//! one line.

use super::line_words::{after, number, word};
use super::statement::{Said, Unmatched};

/// The statements of one line, each with its rank.
pub(super) fn of_line(line: &str, say: &mut dyn FnMut(u64, Said)) {
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
    if line.contains("NCCL WARN Mismatched collective detected")
        && let Some(rank) = after(line, "around rank ").and_then(number)
    {
        say(rank, Said::MismatchedInNccl);
    }
    if line.contains("Detected mismatch between collectives on ranks") {
        detail(line, say);
    }
}

/// The statement of DETAIL about two ranks.
fn detail(line: &str, say: &mut dyn FnMut(u64, Said)) {
    for side in
        line.split(" is running collective: CollectiveFingerPrint(").collect::<Vec<_>>().windows(2)
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
        let op = word(after(print, "OpType=").unwrap_or_default());
        // A barrier has no tensor. Of another call the wrapper prints what it could not read.
        if shape.is_empty() && !op.contains("BARRIER") && !print.contains("TensorShape=") {
            say(rank, Said::RunsElsewhere);
            continue;
        }
        say(rank, Said::Runs { seq, op, shape, dtype: word(&until("TensorDtypes=", ", ")) });
    }
}

/// The words of a line about a store that cannot be reached, or that has gone (`TCPStore.cpp`, `socket.cpp`).
pub(super) fn of_store(text: &str) -> Option<String> {
    const SAYS: [&str; 6] = [
        "The client socket has timed out after",
        "The client socket has failed to connect to any network address of",
        "The client socket has timed out while trying to connect",
        "TCPStore server has shut down too early",
        "Timed out after",
        "The server socket has failed to listen on any local network address",
    ];
    let at = SAYS.iter().find_map(|what| text.find(what))?;
    let error = text.get(at..)?;
    // The store's: `Timed out after 901 seconds waiting for clients. 1/2 clients joined.`
    let is_store = !error.starts_with("Timed out after") || error.contains("waiting for clients");
    is_store.then(|| error.trim_end().chars().take(super::traceback::MOST_CHARS).collect())
}

/// The sizes in gloo's error about a message that is too long for the call of the rank that got it,
/// if the line is that: `op.preamble.length <= op.nbytes. 400 vs 8`.
pub(super) fn unmatched(line: u64, text: &str) -> Option<Unmatched> {
    let (_, sizes) = text.split_once("op.preamble.length <= op.nbytes. ")?;
    let mut numbers = sizes.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    let mut next = || -> Option<u64> { numbers.next()?.parse().ok() };
    Some(Unmatched { line, came: next()?, expected: next()? })
}
