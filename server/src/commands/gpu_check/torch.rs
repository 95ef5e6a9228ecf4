//! torch.distributed's times on the same GPUs, where a Python with PyTorch is.

use super::speed::{COUNTED, WARM_UP};
use anyhow::{Context, Result, bail};
use lockstep_gpu_exec::Sharing;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = include_str!("torch.py");

/// Time that all ranks may take together.
const LIMIT: Duration = Duration::from_secs(120);

/// Microseconds of an all_reduce by bytes, or why there are none.
pub(super) fn times(ranks: u32, sharing: Sharing, sizes: &[u64]) -> Result<BTreeMap<u64, f64>> {
    let found = Command::new("python3").args(["-c", "import torch; torch.cuda.init()"]).output();
    let found = found.context("cannot start python3")?;
    if !found.status.success() {
        let text = String::from_utf8_lossy(&found.stderr);
        let last = text.trim().lines().last().unwrap_or("it says nothing");
        bail!("python3 has no PyTorch with CUDA: {last}");
    }
    // Freed again before rank 0 takes it: nobody else asks for ports meanwhile.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = port.context("no free port")?.port().to_string();
    let mut children = Children(Vec::new());
    for rank in 0..ranks {
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM, &WARM_UP.to_string(), &COUNTED.to_string()]);
        command.args(sizes.iter().map(u64::to_string));
        command.envs([("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port)]);
        command.envs([("RANK", rank.to_string()), ("WORLD_SIZE", ranks.to_string())]);
        command.envs(sharing.environment(rank));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().context("cannot start python3")?;
        children.0.push(child);
    }
    let began = Instant::now();
    let mut output = None;
    for (rank, child) in children.0.iter_mut().enumerate() {
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => break,
                Ok(Some(status)) => bail!("rank {rank} of PyTorch's: {status}"),
                Ok(None) if began.elapsed() < LIMIT => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Ok(None) => bail!("not within {} s", LIMIT.as_secs()),
                Err(error) => return Err(error.into()),
            }
        }
        if rank == 0 {
            output = child.stdout.take();
        }
    }
    let mut text = String::new();
    if let Some(mut output) = output {
        let read = std::io::Read::read_to_string(&mut output, &mut text);
        read?;
    }
    let time = |line: &str| {
        let (bytes, us) = line.split_once(' ')?;
        Some((bytes.parse().ok()?, us.parse().ok()?))
    };
    Ok(text.lines().filter_map(time).collect())
}

/// Processes that do not outlive this.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
