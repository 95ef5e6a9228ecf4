//! One rank at a moment: where it stands, its groups' sequence numbers, its pending work, its
//! tensors.

use crate::explain;
use crate::ui::Elements;
use lockstep_core::group::ProcessGroup;
use lockstep_core::plan::Plan;
use lockstep_core::words::counted;
use lockstep_sim::View;
use lockstep_sim::view::{Doing, RankView};
use lockstep_web_protocol::SessionId;
use std::collections::BTreeMap;
use std::rc::Rc;
use yew::prelude::*;

/// Works listed before the rest is counted.
const MAX_PENDING: usize = 12;

/// The moment, the rank that is shown, and where to go to another one.
pub(super) struct OneRank {
    pub(super) view: Rc<View>,
    pub(super) plan: Rc<Plan>,
    pub(super) session: SessionId,
    pub(super) rank: u32,
    pub(super) on_rank: Callback<u32>,
}

/// One rank at a moment.
pub(super) fn one_rank(props: &OneRank) -> Html {
    let rank = props.rank;
    let Some(state) = props.view.ranks.get(rank as usize) else { return html! {} };
    let plan = &props.plan;
    let step = |by: i64| {
        let to = (i64::from(rank) + by).rem_euclid(i64::from(plan.world_size.max(1))) as u32;
        props.on_rank.reform(move |_: MouseEvent| to)
    };
    let numbers = numbers(&props.view, &plan.groups, rank);
    html! {
        <section class="one-rank" aria-label={format!("Rank {rank}")} data-test="one-rank" data-rank={rank.to_string()}>
            <header>
                <span class="chip">{ rank }</span>
                <h2>{ format!("Rank {rank}") }</h2>
                <span class="grow" />
                <button class="quiet" onclick={step(-1)} aria-label="The rank before">{ "‹" }</button>
                <button class="quiet" onclick={step(1)} aria-label="The next rank">{ "›" }</button>
            </header>
            <p data-test="rank-does">{ does(state, plan) }</p>
            if !numbers.is_empty() {
                <table class="numbers" data-test="numbers">
                    <thead><tr><th>{ "group" }</th><th>{ "at call" }</th><th>{ "others at" }</th><th>{ "its call" }</th></tr></thead>
                    <tbody>{ for numbers.iter().map(|line| html! {
                        <tr class={classes!(line.apart.then_some("apart"))} data-seq={line.seq.map(|seq| seq.to_string())}>
                            <td>{ &line.group }</td>
                            <td class="mono">{ line.seq.map_or("none".to_owned(), |seq| format!("#{seq}")) }</td>
                            <td class="mono">{ &line.others }</td>
                            <td>{ &line.call }</td>
                        </tr>
                    }) }</tbody>
                </table>
            }
            { pending(state, plan, rank) }
            if !plan.tensors.is_empty() {
                <details class="tensors"><summary>{ "Its tensors" }</summary>
                    <Elements session={props.session} plan={plan.clone()} moment={props.view.moment} {rank} on_rank={props.on_rank.clone()} />
                </details>
            }
        </section>
    }
}

/// The rank's present act, with its line.
fn does(state: &RankView, plan: &Plan) -> String {
    let line = state.line.and_then(|at| {
        let source = plan.sources.get(at.source as usize)?;
        Some(format!(" at {}:{}", source.path, at.line))
    });
    let line = line.unwrap_or_default();
    let does = match state.doing {
        Doing::Running => format!("Goes on{line}."),
        Doing::Busy => format!("Busy or idle in its own code{line}."),
        Doing::Stopped => format!("Its process stands stopped by a signal{line}."),
        Doing::Waiting { work } => match state.calls.iter().find(|call| call.work == work) {
            Some(call) => {
                let whom = explain::ranks(call.waits_for.iter().map(|rank| rank.0));
                let next = match whom.is_empty() {
                    true => String::new(),
                    false => format!("; its next message comes from rank {whom}"),
                };
                format!(
                    "Waits in {}{line}, step {} of {}{next}.",
                    call.op,
                    (call.step + 1).min(call.steps),
                    call.steps
                )
            }
            None => match state.pending.iter().find(|pending| pending.work == work) {
                Some(pending) => format!("Waits in {}{line}.", pending.name),
                None => format!("Waits in a call{line}."),
            },
        },
        Doing::Synchronizing => format!("Waits until its streams are empty{line}."),
        Doing::Draining => "Past its program; its streams are not empty.".to_owned(),
        Doing::Finished => "Finished its program.".to_owned(),
        Doing::Died => format!("Its process has died{line}."),
    };
    match state.stream {
        Some(stream) if stream.queued > 0 => {
            let held = if stream.waits { "waits for a call" } else { "computes" };
            format!(
                "{does} Its compute stream {held}, {} in its queue.",
                counted(stream.queued, "item")
            )
        }
        _ => does,
    }
}

/// The progress of a rank and of the others of its group.
struct Numbers {
    group: String,
    seq: Option<u64>,
    others: String,
    call: String,
    apart: bool,
}

fn numbers(view: &View, groups: &[ProcessGroup], rank: u32) -> Vec<Numbers> {
    let at = |rank: u32, group: usize| {
        let calls = &view.ranks.get(rank as usize)?.calls;
        calls.iter().find(|call| call.group.index() == group)
    };
    let mine = groups
        .iter()
        .enumerate()
        .filter(|(_, group)| group.ranks().iter().any(|member| member.0 == rank));
    mine.map(|(id, group)| {
        let call = at(rank, id);
        // A call that the device has not begun has been made all the same.
        let queued = |rank: u32| {
            let pending = &view.ranks.get(rank as usize)?.pending;
            pending.iter().find(|work| work.group.index() == id)
        };
        let seq_of = |rank: u32| {
            let call = at(rank, id).map(|call| call.seq);
            call.or_else(|| queued(rank).map(|work| work.seq))
        };
        let seq = seq_of(rank);
        let mut others: BTreeMap<Option<u64>, Vec<u32>> = BTreeMap::new();
        for member in group.ranks().iter().filter(|member| member.0 != rank) {
            others.entry(seq_of(member.0)).or_default().push(member.0);
        }
        let apart = others.keys().any(|other| *other != seq);
        let told = |seq: &Option<u64>| seq.map_or("none".to_owned(), |seq| format!("#{seq}"));
        let others = match others.len() {
            0 => "no others".to_owned(),
            1 => others.keys().map(told).collect(),
            _ => {
                let each = others.iter().map(|(seq, ranks)| {
                    format!("{} ({})", told(seq), explain::ranks(ranks.iter().copied()))
                });
                each.collect::<Vec<_>>().join(", ")
            }
        };
        let call = match (call, queued(rank)) {
            (Some(call), _) if call.step >= call.steps => format!("{}, done", call.op),
            (Some(call), _) => format!("{}, step {} of {}", call.op, call.step + 1, call.steps),
            (None, Some(work)) => format!("{}, not begun yet", work.name),
            (None, None) => "not called yet".to_owned(),
        };
        Numbers { group: group.label().to_owned(), seq, others, call, apart }
    })
    .collect()
}

/// Its calls that have not completed.
fn pending(state: &RankView, plan: &Plan, rank: u32) -> Html {
    if state.pending.is_empty() {
        return html! { <p class="muted">{ "No work is pending." }</p> };
    }
    let program = plan.program(lockstep_core::rank::GlobalRank(rank));
    let line = |op: u32| {
        let at = program?.ops.get(op as usize)?.at?;
        Some(format!(", line {}", at.line))
    };
    html! {
        <div data-test="pending" data-count={state.pending.len().to_string()}>
            <h3>{ format!("Pending work: {}", state.pending.len()) }</h3>
            <ul class="pending mono">
                { for state.pending.iter().take(MAX_PENDING).map(|work| html! {
                    <li>{ format!("{} #{} of {}{}", work.name, work.seq,
                        plan.groups.get(work.group.index()).map_or("", ProcessGroup::label), line(work.op).unwrap_or_default()) }</li>
                }) }
                if state.pending.len() > MAX_PENDING {
                    <li>{ format!("and {} more", state.pending.len() - MAX_PENDING) }</li>
                }
            </ul>
        </div>
    }
}
