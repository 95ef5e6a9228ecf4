//! Analyses a trace, and simulates its job with a change.

use super::machine::config;
use super::open::index;
use super::session::Held;
use super::slices::Slices;
use lockstep_analysis::{Activity, Analysis, knows_ends};
use lockstep_core::plan::Plan;
use lockstep_core::watch::Unwatched;
use lockstep_diagnosis::{Report, diagnose};
use lockstep_replay::{
    Compared, Elsewhere, RecordingEnd, Variation, fit_links, recorded_steps, recover, what_if,
    with_measured_computations,
};
use lockstep_sim::{SimConfig, Topology};
use lockstep_web_protocol::{Changed, JobChange, Response, SessionId};
use std::cell::RefCell;

/// Recordings with more calls are analysed on the command line.
const MOST_CALLS: usize = 3_000_000;

/// Jobs with more calls are changed on the command line: each is simulated twice as a whole.
const MOST_CHANGED: usize = 200_000;

fn calls(held: &Held) -> usize {
    held.log.iter().flat_map(|log| log.logs()).map(|(_, own)| own.calls.len()).sum()
}

fn activity(held: &Held) -> Result<Activity, String> {
    if let Some(simulation) = &held.simulation {
        return Ok(Activity::of_trace(&simulation.trace()));
    }
    match (&held.trace, &held.log) {
        // A recording's trace has no events.
        (Some(trace), _) if !trace.events.is_empty() => Ok(Activity::of_trace(trace)),
        (_, Some(log)) => Ok(Activity::of_calls(log)),
        _ => Err("the trace is not complete yet".to_owned()),
    }
}

/// Analyses a trace. The single steps are left out: there may be thousands.
pub(super) fn analysed(held: &Held) -> Result<Analysis, String> {
    let calls = calls(held);
    if calls > MOST_CALLS {
        return Err(format!(
            "This recording has {calls} calls; the page analyses up to {MOST_CALLS}. `lockstep analyze` on the \
             command line takes any."
        ));
    }
    Ok(without_steps(Analysis::of(&activity(held)?)))
}

fn without_steps(analysis: Analysis) -> Analysis {
    Analysis { steps: Vec::new(), ..analysis }
}

/// A job before and after a change, not yet cut into lanes.
pub(super) struct Asked {
    words: String,
    before: Compared,
    after: Compared,
    recorded_ps: Option<u64>,
    links: String,
    fit_error: Option<f64>,
    assumed: Vec<String>,
}

/// The job of a trace, simulated on links that were fitted from it, as it is and with a change.
pub(super) fn asked(held: &Held, change: &JobChange) -> Result<Asked, String> {
    let calls = calls(held);
    if calls > MOST_CHANGED {
        return Err(format!(
            "This job has {calls} calls; the page simulates changes of up to {MOST_CHANGED}. `lockstep whatif` on the \
             command line takes any."
        ));
    }
    let log = held.log.as_ref().ok_or("the trace is not complete yet")?;
    let activity = activity(held)?;
    if !knows_ends(&activity) {
        return Err("The recorder of this job tells when calls were issued and not when they ended, as gloo's does: \
                    profile the job with torch.profiler instead."
            .to_owned());
    }
    let report: Report = held.report.clone().unwrap_or_else(|| diagnose(log));
    let recovered =
        recover("replay", log, RecordingEnd::of(&report)).map_err(|why| why.to_string())?;
    let fitted = fit_links(&recovered, &activity);
    let usual = Topology::of_ranks_per_node(recovered.plan.ranks_per_node);
    let near = fitted.filter(|fitted| !fitted.is_far_off());
    if fitted.is_some() && near.is_none() && is_of_links(change) {
        return Err("The recorded calls fit no links, so nothing is known of other links or another algorithm. \
                    `lockstep whatif` takes measured links: `--measured-topology`."
            .to_owned());
    }
    let topology = near.map_or(usual, |fitted| fitted.topology);
    let plan = match &log.plan {
        Some(plan) => with_measured_computations(plan, &activity),
        None => recovered.plan.clone(),
    };
    // The machine in words, as its times say what they rest on.
    let words = RefCell::new(String::new());
    let (variations, machine) = match change {
        JobChange::Variation(variation) => (std::slice::from_ref(variation), None),
        JobChange::Machine(machine) => (&[][..], Some(*machine)),
    };
    let elsewhere = machine.map(|machine| {
        let words = &words;
        move |plan: &Plan| -> Result<SimConfig, String> {
            let config = config(plan, machine)?;
            let on = config.call_times.as_ref().map(|times| times.machine.clone());
            words.replace(format!("it ran on {}", on.unwrap_or_else(|| machine.to_string())));
            Ok(config)
        }
    });
    let elsewhere = elsewhere.as_ref().map(|on| on as &Elsewhere<'_>);
    // The steps of the recording hold before and after the change, if the plan is of the recorded calls.
    let steps = log.plan.is_none().then(|| recorded_steps(&recovered, &activity));
    let of = (&plan, steps.as_ref());
    let (before, after, more) = what_if(of, topology, variations, elsewhere, &mut Unwatched)
        .map_err(|why| why.to_string())?;
    words.replace_with(|words| match change {
        JobChange::Variation(variation) => variation.words(),
        JobChange::Machine(_) => std::mem::take(words),
    });
    let recorded = Analysis::of(&activity);
    let far_off = fitted.filter(|_| near.is_none()).map(|_| {
        "links are the simulator's usual ones, since the recorded calls fit no links".to_owned()
    });
    let assumed = recovered.assumed.iter().map(ToString::to_string).chain(more).chain(far_off);
    Ok(Asked {
        words: words.take(),
        recorded_ps: (!log.simulated).then(|| recorded.step_ps.unwrap_or(recorded.time_ps)),
        links: topology.to_string(),
        fit_error: near.map(|fitted| fitted.error),
        assumed: assumed.collect(),
        before,
        after,
    })
}

/// True for a change of links, or of what runs over them.
fn is_of_links(change: &JobChange) -> bool {
    matches!(
        change,
        JobChange::Variation(
            Variation::Links { .. } | Variation::Topology(_) | Variation::Algorithm(_)
        )
    )
}

/// The changed job, held to be shown.
pub(super) async fn shown(
    session: SessionId,
    asked: Asked,
    slices: Slices,
) -> Result<(Held, Response), String> {
    let Asked { words, before, after, recorded_ps, links, fit_error, assumed } = asked;
    let (lanes, log) = index(&after.trace, &slices).await?;
    let held = Held::whole(after.trace, lanes, log);
    let opened = held.opened(session)?;
    let (before, after) = (without_steps(before.analysis), without_steps(after.analysis));
    let changed = Changed { words, before, after, recorded_ps, links, fit_error, assumed, opened };
    Ok((held, Response::Changed(Box::new(changed))))
}
