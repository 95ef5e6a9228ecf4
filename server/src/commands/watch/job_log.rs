//! The job's output goes on to the terminal, and into a file of bounded size.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdout};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The file is put aside when it has so many bytes, and the one that was put aside before goes.
const MAX_BYTES: u64 = 64 << 20;

/// Processes that outlive their launcher may hold its pipes: their output is waited for so long.
const LAST_OUTPUT: Duration = Duration::from_secs(2);

/// The file, as it is being written.
#[derive(Debug)]
struct Open {
    path: PathBuf,
    /// `None` when it cannot be written: the job goes on without it.
    file: Option<File>,
    bytes: u64,
}

impl Open {
    fn new(folder: &Path) -> Open {
        let path = folder.join("job.log");
        Open { file: File::create(&path).ok(), path, bytes: 0 }
    }

    fn write(&mut self, bytes: &[u8], most: u64) {
        if self.bytes + bytes.len() as u64 > most {
            // The last lines tell the most.
            let aside = self.path.with_file_name("job.before.log");
            let _ = std::fs::rename(&self.path, aside);
            (self.file, self.bytes) = (File::create(&self.path).ok(), 0);
        }
        self.bytes += bytes.len() as u64;
        if let Some(file) = &mut self.file
            && file.write_all(bytes).is_err()
        {
            self.file = None;
        }
    }
}

/// Copies the output of a job until it ends.
#[derive(Debug)]
pub(super) struct JobLogFile {
    ended: Receiver<()>,
    pipes: usize,
}

impl JobLogFile {
    /// Begins to copy.
    pub(super) fn begin(
        folder: &Path,
        (out, err): (Option<ChildStdout>, Option<ChildStderr>),
    ) -> JobLogFile {
        let open = Arc::new(Mutex::new(Open::new(folder)));
        let (sender, ended) = channel();
        let mut pipes = 0;
        if let Some(out) = out {
            copy(out, std::io::stdout(), open.clone(), sender.clone());
            pipes += 1;
        }
        if let Some(err) = err {
            copy(err, std::io::stderr(), open, sender);
            pipes += 1;
        }
        JobLogFile { ended, pipes }
    }

    /// Waits for the last output.
    pub(super) fn finish(&self) {
        let by = Instant::now() + LAST_OUTPUT;
        for _ in 0..self.pipes {
            let _ = self.ended.recv_timeout(by.saturating_duration_since(Instant::now()));
        }
    }
}

fn copy(
    mut from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
    open: Arc<Mutex<Open>>,
    ended: Sender<()>,
) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let bytes = &buffer[..count];
            // A terminal that is gone is no reason to stop the job.
            let _ = to.write_all(bytes).and_then(|()| to.flush());
            open.lock().unwrap_or_else(PoisonError::into_inner).write(bytes, MAX_BYTES);
        }
        let _ = ended.send(());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_output_is_kept_in_bounded_space() {
        let folder = tempfile::tempdir().unwrap();
        let mut open = Open::new(folder.path());
        for line in 0..100 {
            open.write(format!("line {line}\n").as_bytes(), 80);
        }
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let (before, last) = (read("job.before.log"), read("job.log"));
        assert!(before.len() <= 80 && last.len() <= 80);
        assert!(last.ends_with("line 99\n"), "{last}");
        assert!((before + &last).contains("line 90\nline 91\n"));
    }
}
