//! Programs, executed by a child of this process: one that takes all memory, or recurses until its
//! stack is gone, ends there.

use anyhow::{Context, Result, bail};
use lockstep_core::program::{Compiled, Options, ProgramError, compile};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// What a program may take.
const MEMORY_BYTES: u64 = 4 << 30;
const STACK_BYTES: usize = 64 << 20;
const TIME: Duration = Duration::from_secs(120);

/// What the child is asked.
#[derive(Serialize, Deserialize)]
struct Question {
    path: String,
    text: String,
    world_size: Option<u32>,
    ranks_per_node: Option<u32>,
    timeout_ms: Option<u64>,
}

/// The plan of a program.
///
/// # Errors
/// What is wrong with the program, with its line, or that it takes too much.
pub(crate) fn plan_of(path: &str, text: &str, options: &Options) -> Result<Compiled> {
    let question = Question {
        path: path.to_owned(),
        text: text.to_owned(),
        world_size: options.world_size,
        ranks_per_node: options.ranks_per_node,
        timeout_ms: options.timeout_ms,
    };
    let question = serde_json::to_vec(&question)?;
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
    let ended = wait(&mut child)?;
    let answer = reader.join().map_err(|_| anyhow::anyhow!("the program's answer was lost"))??;
    if !ended {
        bail!("{path} takes more than {} s to become a plan", TIME.as_secs());
    }
    let answer: Result<Compiled, ProgramError> = match serde_json::from_slice(&answer) {
        Ok(answer) => answer,
        Err(_) => bail!(
            "{path} takes more memory than a program may use ({} MB of values a rank, {} GiB in \
             all), or nests its values too deep",
            options.limits.heap_bytes >> 20,
            MEMORY_BYTES >> 30
        ),
    };
    answer.with_context(|| format!("cannot use {path}"))
}

/// Waits for a child; false if it had to be ended.
fn wait(child: &mut Child) -> Result<bool> {
    let deadline = Instant::now() + TIME;
    let mut pause = Duration::from_millis(1);
    loop {
        if child.try_wait()?.is_some() {
            return Ok(true);
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(false);
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
    let limit = Rlimit { current: Some(MEMORY_BYTES), maximum: Some(MEMORY_BYTES) };
    setrlimit(Resource::As, limit).context("cannot limit the memory of a program")?;
    let mut question = Vec::new();
    std::io::stdin().lock().read_to_end(&mut question)?;
    let Question { path, text, world_size, ranks_per_node, timeout_ms } =
        serde_json::from_slice(&question)?;
    let options = Options { world_size, ranks_per_node, timeout_ms, ..Options::default() };
    let worker = std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || compile(&path, &text, &options))?;
    let answer = worker.join().map_err(|_| anyhow::anyhow!("the program could not be executed"))?;
    std::io::stdout().lock().write_all(&serde_json::to_vec(&answer)?)?;
    Ok(ExitCode::SUCCESS)
}
