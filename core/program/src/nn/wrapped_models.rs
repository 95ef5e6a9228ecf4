//! The models that a process has wrapped in DDP, while one of them works.

use crate::nn::state::Wrapped;
use crate::process::state::Process;

/// The process's wrapped model of that number, taken out while it works.
pub(crate) fn with_module<T>(
    process: &mut Process<'_>,
    at: usize,
    work: impl FnOnce(&mut Process<'_>, &mut Wrapped) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    anyhow::ensure!(at < process.modules.len(), "this process has no such model");
    let mut module = process.modules.swap_remove(at);
    let done = work(process, &mut module);
    // Back to its number.
    process.modules.push(module);
    let last = process.modules.len() - 1;
    process.modules.swap(at, last);
    done
}
