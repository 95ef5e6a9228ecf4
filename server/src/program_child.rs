//! Programs, executed by a child of this process: one that takes all memory, or recurses until its
//! stack is gone, ends there.

use anyhow::{Context, Result, bail};
use lockstep_gpu_exec::MemoryGroup;
use lockstep_program::compile;
use lockstep_scenarios::program::{Compiled, Options, ProgramError};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The memory of a program: the values of a rank, its plan, and the temporaries of both.
const MEMORY_BYTES: u64 = 1 << 30;
const STACK_BYTES: usize = 64 << 20;
const TIME: Duration = Duration::from_secs(120);

/// The question to the child.
#[derive(Serialize, Deserialize)]
struct Question {
    path: String,
    text: String,
    world_size: Option<u32>,
    ranks_per_node: Option<u32>,
    timeout_ms: Option<u64>,
    arguments: Vec<String>,
    files: Vec<(String, String)>,
    steps: Option<u32>,
}

/// The plan of a program.
///
/// # Errors
/// An error in the program, with its line, or a program that takes too much time or memory.
pub(crate) fn plan_of(path: &str, text: &str, options: &Options) -> Result<Compiled> {
    let question = Question {
        path: path.to_owned(),
        text: text.to_owned(),
        world_size: options.world_size,
        ranks_per_node: options.ranks_per_node,
        timeout_ms: options.timeout_ms,
        arguments: options.arguments.clone(),
        files: options.files.clone(),
        steps: options.steps,
    };
    let question = serde_json::to_vec(&question)?;
    let oom_kills = MemoryGroup::now().oom_kills;
    let itself = std::env::current_exe().context("cannot find the lockstep binary itself")?;
    let mut child = Command::new(itself)
        .arg("compile-program")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start a process for the program")?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let reader = std::thread::spawn(move || {
        let mut answer = Vec::new();
        stdout.map_or(Ok(0), |mut stdout| stdout.read_to_end(&mut answer)).map(|_| answer)
    });
    if let Some(mut stdin) = stdin {
        // A child that has ended says why below.
        let _ = stdin.write_all(&question);
    }
    let status = wait(&mut child)?;
    let answer = reader.join().map_err(|_| anyhow::anyhow!("the program's answer was lost"))??;
    let Some(status) = status else {
        bail!("{path} takes more than {} s to become a plan", TIME.as_secs());
    };
    let answer: Result<Compiled, ProgramError> = match serde_json::from_slice(&answer) {
        Ok(answer) => answer,
        Err(_) => {
            match MemoryGroup::now().killed_since(oom_kills).filter(|_| status.signal() == Some(9))
            {
                Some(why) => bail!("{path}: the process that executes it was killed: {why}"),
                None => bail!("{path}: {}", without_answer(status, options.limits.heap_bytes)),
            }
        }
    };
    answer.with_context(|| format!("cannot use {path}"))
}

/// The sentence about a child that ended without an answer, with the likely reason.
fn without_answer(status: ExitStatus, heap_bytes: usize) -> String {
    let limits = format!(
        "more memory than a program may use ({} MB of values a rank, {} GiB in all)",
        heap_bytes >> 20,
        MEMORY_BYTES >> 30
    );
    let ended = match status.signal() {
        // Rust aborts if memory is refused or a stack has come to its end.
        Some(6) => {
            return format!(
                "the process that executes it gave up (signal 6, SIGABRT): it takes {limits}, or nests \
             its values too deep"
            );
        }
        Some(2) => return "stopped by Ctrl-C before it became a plan".to_owned(),
        Some(9) => "was killed (signal 9, SIGKILL)".to_owned(),
        Some(15) => "was told to end (signal 15, SIGTERM)".to_owned(),
        Some(11) => "crashed (signal 11, SIGSEGV)".to_owned(),
        Some(signal) => format!("was ended by signal {signal}"),
        None => {
            return format!(
                "the process that executes it ended without an answer ({status}): it may take {limits}, \
             or nest its values too deep"
            );
        }
    };
    format!(
        "the process that executes it {ended}: by somebody, by a system that is out of memory, or \
         because it takes {limits} or nests its values too deep"
    )
}

/// Waits for a child; how it ended, unless it had to be ended.
fn wait(child: &mut Child) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + TIME;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// The child: reads a question, and writes the answer.
///
/// # Errors
/// When it is asked nothing.
pub(crate) fn answer() -> Result<ExitCode> {
    // Limits memory that is written to, not addresses that are reserved and stay empty.
    let bytes =
        MEMORY_BYTES.min(MemoryGroup::now().limit_bytes.map_or(u64::MAX, |limit| limit / 2));
    let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::Data, limit).context("cannot limit the memory of a program")?;
    // Whoever asked may be killed, and cannot end this process then.
    let seconds = Some(TIME.as_secs() + 10);
    setrlimit(Resource::Cpu, Rlimit { current: seconds, maximum: seconds })
        .context("cannot limit the time of a program")?;
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot be ended with the process that asked")?;
    let mut question = Vec::new();
    std::io::stdin().lock().read_to_end(&mut question)?;
    let Question { path, text, world_size, ranks_per_node, timeout_ms, arguments, files, steps } =
        serde_json::from_slice(&question)?;
    let limits = Options::default().limits;
    let options =
        Options { world_size, ranks_per_node, timeout_ms, arguments, steps, files, limits };
    let worker = std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || compile(&path, &text, &options))?;
    let answer = worker.join().map_err(|_| anyhow::anyhow!("the program could not be executed"))?;
    std::io::stdout().lock().write_all(&serde_json::to_vec(&answer)?)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_is_no_fact() {
        let told = |raw| without_answer(ExitStatus::from_raw(raw), 256 << 20);
        let killed = told(9);
        assert!(killed.contains("was killed (signal 9, SIGKILL): by somebody, "), "{killed}");
        let refused = told(6);
        assert!(refused.contains("SIGABRT") && refused.contains("256 MB"), "{refused}");
        assert!(!refused.contains("by somebody"), "{refused}");
        assert!(told(1 << 8).contains("exit status: 1"), "{}", told(1 << 8));
    }
}
