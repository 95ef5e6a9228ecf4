//! The findings in runs that are not listed with theirs: those in progress, and those whose service was
//! killed. Worked out on request, and requests are unlimited: so one at a time, and requests that have waited
//! for one answer share it.

use lockstep_diagnosis::Report;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Mutex;

/// Answers that are kept.
const MOST: usize = 16;

/// The last answers. Locked by whoever works one out, until it has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    known: Arc<Mutex<VecDeque<Known>>>,
}

#[derive(Debug)]
struct Known {
    run: u64,
    /// The bytes of the trace that were looked at.
    bytes: u64,
    begun: Instant,
    report: Arc<Report>,
}

/// The reason that there is no answer.
#[derive(Debug)]
pub(crate) enum Unanswered<E> {
    /// It could not be worked out.
    Failed(E),
    /// A panic.
    Panicked,
}

impl Findings {
    /// The findings in the first `bytes` of a run's trace, or in all of it if it has grown by the
    /// time it is read; `diagnose` works it out, on a thread that may block.
    ///
    /// # Errors
    /// Those of `diagnose`.
    pub(crate) async fn of<E: Send + 'static>(
        &self,
        run: u64,
        bytes: u64,
        diagnose: impl FnOnce() -> Result<Report, E> + Send + 'static,
    ) -> Result<Arc<Report>, Unanswered<E>> {
        let asked = Instant::now();
        let mut known = self.known.clone().lock_owned().await;
        let found = known
            .iter()
            .find(|known| known.run == run && (known.bytes == bytes || known.begun >= asked));
        if let Some(found) = found {
            return Ok(found.report.clone());
        }
        // The lock goes along: whoever asks and hangs up does not make room for another.
        let work = move || {
            let begun = Instant::now();
            let report = Arc::new(diagnose()?);
            known.retain(|known| known.run != run);
            known.truncate(MOST - 1);
            known.push_front(Known { run, bytes, begun, report: report.clone() });
            Ok(report)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(done) => done.map_err(Unanswered::Failed),
            Err(_) => Err(Unanswered::Panicked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::trace::{Origin, Trace, TraceHeader};
    use lockstep_diagnosis::diagnose_trace;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn report() -> Report {
        let header = TraceHeader {
            origin: Origin::Recorded { by: "a test".into(), files: Vec::new() },
            world_size: 1,
            groups: Vec::new(),
            plan: None,
            epoch_ns: 0,
        };
        diagnose_trace(&Trace { header, events: Vec::new(), end: None })
    }

    /// Counts the findings that are worked out, and how many at once.
    #[derive(Default)]
    struct Counts {
        now: AtomicUsize,
        most: AtomicUsize,
        all: AtomicUsize,
    }

    impl Counts {
        fn work(&self) -> Result<Report, ()> {
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(5));
            self.all.fetch_add(1, Ordering::SeqCst);
            self.now.fetch_sub(1, Ordering::SeqCst);
            Ok(report())
        }
    }

    #[test]
    fn many_who_ask_at_once_cost_one_diagnosis_at_a_time() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
        let (findings, counts) = (Findings::default(), Arc::new(Counts::default()));
        let ask = |run: u64, bytes: u64| {
            let (findings, counts) = (findings.clone(), counts.clone());
            async move { findings.of(run, bytes, move || counts.work()).await.unwrap() }
        };
        // A trace that has grown each time that somebody asks.
        let asking: Vec<_> = (0..100).map(|bytes| runtime.spawn(ask(1, bytes))).collect();
        runtime.block_on(async {
            for asked in asking {
                asked.await.unwrap();
            }
        });
        assert_eq!(counts.most.load(Ordering::SeqCst), 1);
        let all = counts.all.load(Ordering::SeqCst);
        assert!(all < 100, "nobody shared an answer");
        // One that grows no more is worked out once; another one for itself.
        runtime.block_on(async {
            ask(1, 1000).await;
            ask(2, 1000).await;
            let before = counts.all.load(Ordering::SeqCst);
            for _ in 0..5 {
                ask(1, 1000).await;
                ask(2, 1000).await;
            }
            assert_eq!(counts.all.load(Ordering::SeqCst), before);
        });
        // Those who hang up leave nothing running beside another.
        runtime.block_on(async {
            for bytes in 2000..2010 {
                let gone = ask(3, bytes);
                let _ = tokio::time::timeout(std::time::Duration::ZERO, gone).await;
            }
            ask(3, 5000).await;
        });
        assert_eq!(counts.most.load(Ordering::SeqCst), 1);
    }
}
