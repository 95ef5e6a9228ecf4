//! One trace that the worker holds: a simulation that can be stepped, a run, a recording.

use super::class::Class;
use super::export::written;
use super::lanes::{Lanes, Row};
use super::raster::{Drawn, draw, pick};
use super::readers::Named;
use super::texts;
use lockstep_core::plan::{Plan, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, Origin, Trace, TraceEnd, TraceReader};
use lockstep_diagnosis::{Report, diagnose, diagnose_whole, wait_causes, who_waits};
use lockstep_formats::job_calls::Merged;
use lockstep_sim::{Comparison, Session, View, compare};
use lockstep_web_protocol::{Form, LiveCount, Opened, Picked, SessionId, SpanText, Window};
use std::rc::Rc;

/// More ranks than this do not fit in a browser's memory as lanes.
const MAX_WORLD_SIZE: u32 = 1 << 17;

/// Refuses a trace of more ranks than the page can show.
pub(super) fn bounded(world_size: u32) -> Result<(), String> {
    match world_size > MAX_WORLD_SIZE {
        true => Err(format!(
            "the trace is of {world_size} ranks; the page shows up to {MAX_WORLD_SIZE}"
        )),
        false => Ok(()),
    }
}

/// A trace with what the page may ask of it.
pub(super) struct Held {
    pub(super) simulation: Option<Session>,
    /// Without its events for a recording, whose calls in `log` say all of it.
    pub(super) trace: Option<Trace>,
    reader: Option<TraceReader>,
    pub(super) lanes: Lanes,
    pub(super) log: Option<CallLog>,
    /// The findings in it, where more than the calls was looked at.
    pub(super) report: Option<Report>,
    pub(super) problems: Vec<String>,
    /// The files of a recording, whose lines findings name.
    pub(super) files: Rc<[Named]>,
}

/// The word in the rows of ranks of which nothing was recorded.
fn unrecorded<'a>(log: &'a CallLog, window: &'a Window) -> impl Iterator<Item = SpanText> + 'a {
    let is_unrecorded = |rank: &u32| log.ranks.get(*rank as usize).is_some_and(Option::is_none);
    let ranks = window.ranks.iter().copied().filter(is_unrecorded);
    ranks.map(|rank| SpanText {
        rank,
        lane: 0,
        class: Class::FREE.0,
        from_ps: window.from_ps,
        to_ps: window.to_ps,
        text: "nothing was recorded of this rank".to_owned(),
    })
}

impl Held {
    /// A whole trace, already cut into lanes.
    pub(super) fn whole(trace: Trace, lanes: Lanes, log: CallLog) -> Held {
        Held {
            simulation: None,
            trace: Some(trace),
            reader: None,
            lanes,
            log: Some(log),
            report: None,
            problems: Vec::new(),
            files: Rc::default(),
        }
    }

    /// A recording: its calls are in the log, and become events when they are asked for.
    pub(super) fn recorded(merged: Merged, lanes: Lanes) -> Held {
        let end = TraceEnd { time_ps: merged.end_ps, outcome: merged.log.outcome.clone() };
        let trace = Trace { header: merged.header, events: Vec::new(), end: Some(end) };
        Held::whole(trace, lanes, merged.log)
    }

    /// A trace of which nothing has come yet.
    pub(super) fn live() -> Held {
        Held {
            simulation: None,
            trace: None,
            reader: Some(TraceReader::new()),
            lanes: Lanes::new(0),
            log: None,
            report: None,
            problems: Vec::new(),
            files: Rc::default(),
        }
    }

    /// Takes the next bytes of a live trace.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<LiveCount, String> {
        let reader = self.reader.as_mut().ok_or("this trace is not live")?;
        let events = reader.push(bytes).map_err(|error| error.to_string())?;
        if self.trace.is_none()
            && let Some(header) = reader.header()
        {
            bounded(header.world_size)?;
            self.lanes = Lanes::new(header.world_size);
            self.trace = Some(Trace { header: header.clone(), events: Vec::new(), end: None });
        }
        if let Some(trace) = &mut self.trace {
            for event in &events {
                self.lanes.take(event, trace.header.plan.as_deref());
            }
            trace.events.extend(events);
            trace.end = reader.end().cloned();
        }
        let trace = self.trace.as_ref();
        Ok(LiveCount {
            events: trace.map_or(0, |trace| trace.events.len() as u64),
            end_ps: self.lanes.end_ps,
            world_size: trace.map_or(0, |trace| trace.header.world_size),
            lanes: self.lanes.rows().len() as u32,
            ended: trace.is_some_and(|trace| trace.end.is_some()),
        })
    }

    /// The account of a live trace as far as it has come.
    pub(super) fn settle(&mut self, session: SessionId) -> Result<Opened, String> {
        let trace = self.trace.as_ref().ok_or("the run ended before it said anything")?;
        self.log = Some(CallLog::of(trace));
        self.opened(session)
    }

    /// The facts about the trace that the page gets.
    pub(super) fn opened(&self, session: SessionId) -> Result<Opened, String> {
        let (trace, log) = match (&self.trace, &self.log) {
            (Some(trace), Some(log)) => (trace, log),
            _ => return Err("the trace is not complete yet".to_owned()),
        };
        let calls = log.ranks.iter().flatten().map(|rank| rank.calls.len() as u64).sum();
        let (kinds, unfinished) = self.lanes.kinds();
        let moments = self.simulation.as_ref().map(Session::moments).unwrap_or_default();
        let report = self.report.clone().unwrap_or_else(|| match self.reader {
            Some(_) => diagnose(log),
            None => diagnose_whole(trace, log),
        });
        let waits = who_waits(log);
        let causes = wait_causes(log, &waits, &report.culprits());
        Ok(Opened {
            session,
            header: trace.header.clone(),
            outcome: trace.end.as_ref().map(|end| end.outcome.clone()),
            end_ps: trace
                .end
                .as_ref()
                .map_or(self.lanes.end_ps, |e| e.time_ps.max(self.lanes.end_ps)),
            last_ps: self.lanes.busy_ps,
            fit: self.lanes.fit(),
            lanes: self.lanes.rows().len() as u32,
            calls,
            kinds,
            has_messages: self.lanes.rows().iter().any(|row| matches!(row, Row::Messages)),
            unfinished,
            moments: moments.iter().map(|moment| moment.time_ps).collect(),
            report,
            waits,
            causes,
            problems: self.problems.clone(),
            answers: self.lanes.answers(trace.header.plan.as_deref()),
        })
    }

    /// A simulation at one of its moments.
    pub(super) fn see(&mut self, moment: usize) -> Result<View, String> {
        let simulation = self.simulation.as_mut().ok_or("only a simulation can be stepped")?;
        simulation.seek(moment).map_err(|error| error.to_string())?;
        Ok(simulation.view())
    }

    /// When each round of the schedules begins, the steps in which messages move: when its first
    /// message leaves; at last, when all is over.
    pub(super) fn step_times(&self) -> Result<Vec<u64>, String> {
        let simulation = self.simulation.as_ref().ok_or("only a simulation can be stepped")?;
        let mut times = simulation.round_begins();
        let last = simulation.moments().last().map_or(0, |moment| moment.time_ps);
        times.push(
            self.trace
                .as_ref()
                .and_then(|trace| trace.end.as_ref())
                .map_or(last, |end| end.time_ps),
        );
        Ok(times)
    }

    /// Elements of a rank's tensor at a moment: how many there are, and the bytes of those asked
    /// for. 0 when the plan carries no values or the rank does not use the tensor.
    pub(super) fn elements(
        &mut self,
        moment: usize,
        rank: GlobalRank,
        tensor: TensorId,
        first: u64,
        count: u64,
    ) -> Result<(u64, Vec<u8>), String> {
        let simulation = self.simulation.as_mut().ok_or("only a simulation can be stepped")?;
        simulation.seek(moment).map_err(|error| error.to_string())?;
        let plan = self.trace.as_ref().and_then(|trace| trace.header.plan.as_deref());
        let dtype = plan.and_then(|plan| plan.tensor(tensor)).map(|tensor| tensor.dtype);
        let size = dtype.map_or(1, |dtype| dtype.size_bytes().max(1));
        let bytes = simulation.tensor(rank, tensor).unwrap_or_default();
        let from = first.saturating_mul(size).min(bytes.len() as u64) as usize;
        let to = first.saturating_add(count).saturating_mul(size).min(bytes.len() as u64) as usize;
        Ok((bytes.len() as u64 / size, bytes[from..to].to_vec()))
    }

    /// A stretch of the timeline.
    pub(super) fn draw(&self, window: &Window) -> Drawn {
        let plan = self.trace.as_ref().and_then(|trace| trace.header.plan.as_deref());
        let ended = self.reader.is_none() || self.trace.as_ref().is_some_and(|t| t.end.is_some());
        let log = self.log.as_ref();
        let of_recording = |trace: &Trace| matches!(trace.header.origin, Origin::Recorded { .. });
        let cut = ended && self.trace.as_ref().is_some_and(of_recording);
        let mut drawn = draw(&self.lanes, window, ended, |rank, row, span| {
            texts::on_span(plan, log, rank, row, span)
        });
        drawn.cut = cut;
        if let Some(log) = log.filter(|log| log.recorded) {
            drawn.texts.extend(unrecorded(log, window));
        }
        drawn
    }

    /// The item under a point of the timeline, with its links to ranks in sight.
    pub(super) fn pick(
        &self,
        (rank, lane): (u32, u32),
        time_ps: u64,
        slack_ps: u64,
        in_sight: &[u32],
    ) -> Option<Picked> {
        let row: Row = *self.lanes.rows().get(lane as usize)?;
        let span = pick(self.lanes.spans(rank, row), time_ps, slack_ps)?;
        let plan = self.trace.as_ref().and_then(|trace| trace.header.plan.as_deref());
        let picked = texts::of_span(plan, self.log.as_ref(), rank, row, &span);
        Some(Picked { links: self.links(rank, lane, row, &span, in_sight), ..picked })
    }

    /// The trace as a file.
    pub(super) fn export(&self, form: Form) -> Result<Vec<u8>, String> {
        match (&self.simulation, &self.trace) {
            (Some(simulation), _) => written(&simulation.trace(), form),
            (None, Some(trace)) if !trace.events.is_empty() => written(trace, form),
            (None, Some(trace)) if self.log.as_ref().is_some_and(|log| log.recorded) => {
                let logs = self.log.iter().flat_map(CallLog::logs);
                let events = logs.flat_map(|(rank, log)| log.events(rank)).collect();
                written(&Trace { events, ..trace.clone() }, form)
            }
            _ => Err("there is nothing to write yet".to_owned()),
        }
    }

    /// The comparison of the values that this simulation or run ended with, with those of a run.
    pub(super) fn compare(&self, run: &Held) -> Result<Comparison, String> {
        let run = run.trace.as_ref().ok_or("the run said nothing")?;
        let plan = run.header.plan.as_deref().ok_or("the run does not say which plan it ran")?;
        let other = match (&self.simulation, &self.trace) {
            (Some(simulation), _) => return Ok(compare(plan, &simulation.trace(), run)),
            (None, Some(trace)) => trace,
            (None, None) => return Err("the other run said nothing".to_owned()),
        };
        let same_tensors = |other: &Plan| other.tensors == plan.tensors;
        if other.header.world_size != run.header.world_size
            || !other.header.plan.as_deref().is_some_and(same_tensors)
        {
            return Err("they ran different plans".to_owned());
        }
        Ok(compare(plan, other, run))
    }
}
