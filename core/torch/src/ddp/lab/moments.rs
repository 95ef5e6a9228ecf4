//! The events of a pass, in order: the steps of a slider.

use super::pass::Pass;
use super::{Event, Moment};
use crate::ddp::notes::{Half, StepKind};

/// Writes the moments of a pass, and into its gradients and buckets which are theirs. A static graph
/// `counts` how often a gradient comes: the last time is when it is ready. A pass that breaks off
/// does not come to where it `waits`.
pub(super) fn write(pass: &mut Pass, order: &[(u32, u64)], counts: bool, waits: bool) {
    // At one time what ends comes before what it makes way for.
    let mut events: Vec<(u64, u8, Event)> = vec![(0, 0, Event::Begins)];
    // A call that nobody waits for may go on past the end.
    let within = (0u32..).zip(&pass.calls).filter(|(_, call)| call.end_ps <= pass.end_ps);
    for (index, call) in within {
        if call.start_ps > call.ready_ps && call.of_bucket().is_some() {
            events.push((call.start_ps, 3, Event::Starts(index)));
        }
        let at_once = if call.end_ps == call.start_ps { 5 } else { 1 };
        events.push((call.end_ps, at_once, Event::Done(index)));
    }
    let trains = pass.kind == StepKind::Training;
    let raises = pass.raised.as_ref().and_then(|raised| raised.here);
    if trains && raises != Some(Half::Forward) {
        events.push((pass.forward_end_ps, 1, Event::ForwardEnds));
    }
    if let Some((_, ps)) = order.first()
        && pass.params.iter().any(|fate| fate.marked)
    {
        events.push((*ps, 2, Event::MarkedUnused));
    }
    events.extend(order.iter().map(|(param, ps)| (*ps, 2, Event::Gradient(*param))));
    // A hook that raises as it is called breaks the backward pass off; one whose callback does, and the
    // reducer itself, raise at its end.
    let broken_off = raises == Some(Half::Backward)
        && !pass.delayed
        && (!waits || pass.buckets.iter().any(|bucket| bucket.full_ps.is_none()));
    if trains && raises != Some(Half::Forward) && !broken_off {
        events.push((pass.backward_end_ps, 4, Event::BackwardEnds));
    }
    if let Some((_, end)) = pass.optimizer {
        events.push((end, 6, Event::Optimized));
    }
    events.push((pass.end_ps, 7, Event::Ends));
    events.sort_by_key(|(time_ps, order, _)| (*time_ps, *order));
    pass.moments =
        events.into_iter().map(|(time_ps, _, event)| Moment { time_ps, event }).collect();
    for (at, moment) in (0u32..).zip(&pass.moments) {
        match moment.event {
            Event::Gradient(param) => {
                if let Some(fate) = pass.params.get_mut(param as usize)
                    && (counts || fate.ready_moment == u32::MAX)
                {
                    fate.ready_moment = at;
                }
            }
            Event::MarkedUnused => {
                for fate in pass.params.iter_mut().filter(|fate| fate.marked) {
                    fate.ready_moment = at;
                }
            }
            Event::Starts(call) => {
                let call = pass.calls.get(call as usize);
                let bucket = call.and_then(|call| call.of_bucket());
                if let Some(fate) = bucket.and_then(|b| pass.buckets.get_mut(b as usize)) {
                    // The first of its calls counts.
                    fate.moments[1] = fate.moments[1].min(at);
                }
            }
            Event::Done(call) => {
                let call = pass.calls.get(call as usize);
                let bucket = call.and_then(|call| call.of_bucket());
                if let Some(fate) = bucket.and_then(|b| pass.buckets.get_mut(b as usize)) {
                    // The last of its calls counts.
                    fate.moments[2] = at;
                }
            }
            _ => {}
        }
    }
    let backward_ends = pass.moments.iter().position(|m| m.event == Event::BackwardEnds);
    for fate in &mut pass.buckets {
        let (Some(launch), Some((start, _))) = (fate.launch_ps, fate.span_ps) else { continue };
        let by = fate.launched_by.and_then(|param| pass.params.get(param as usize));
        fate.moments[0] = match by {
            Some(by) => by.ready_moment,
            None => backward_ends.unwrap_or(0) as u32,
        };
        if start <= launch {
            fate.moments[1] = fate.moments[0];
        }
    }
}
