//! The analysis of a trace: the ranks' shares of time, collectives, late ranks, and the critical path in the timeline.

use super::what_if::WhatIf;
use crate::app::use_shared;
use crate::explain;
use crate::turns::use_turns;
use crate::ui::prose;
use crate::ui::{Go, PathMark, use_in_sight};
use lockstep_analysis::{Analysis, CallKind, Cause, LateRank, PathKind, RankTime};
use lockstep_core::words::counted;
use lockstep_web_protocol::{Response, SessionId, SessionQuestion, Which};
use std::rc::Rc;
use yew::prelude::*;

/// Of more ranks, those that wait least and most are shown.
const RANKS: usize = 16;

/// So many kinds of calls and parts of the path are listed.
const LISTED: usize = 8;

/// Properties of [`WhereTimeWent`].
#[derive(Properties, PartialEq)]
pub(super) struct WhereTimeWentProps {
    pub(super) session: SessionId,
    pub(super) world_size: u32,
    /// A call never ended: the job has no time that could be compared.
    pub(super) unfinished: bool,
    pub(super) on_go: Callback<Go>,
    /// The critical path, while it is to be drawn.
    pub(super) on_path: Callback<Rc<Vec<PathMark>>>,
}

/// The state of the question.
#[derive(Clone, PartialEq)]
enum Stage {
    Unasked,
    Asked,
    Told(Rc<Analysis>),
    Refused(String),
}

/// A button that asks where the time went, and the answer.
#[component(WhereTimeWent)]
pub(super) fn where_time_went(props: &WhereTimeWentProps) -> Html {
    let client = use_shared().client;
    let stage = use_state(|| Stage::Unasked);
    let drawn = use_state(|| false);
    let turns = use_turns();
    {
        let (stage, drawn, turns, on_path) =
            (stage.setter(), drawn.setter(), turns.clone(), props.on_path.clone());
        use_effect_with(props.session, move |_| {
            turns.next();
            stage.set(Stage::Unasked);
            drawn.set(false);
            on_path.emit(Rc::default());
        });
    }
    let ask = {
        let (stage, session) = (stage.setter(), props.session);
        Callback::from(move |_: MouseEvent| {
            stage.set(Stage::Asked);
            let (stage, client, turn) = (stage.clone(), client.clone(), turns.next());
            wasm_bindgen_futures::spawn_local(async move {
                let answered = client.ask(SessionQuestion::Analyse.about(session)).await;
                if turn.counts() {
                    stage.set(match answered.map(|answered| answered.response) {
                        Ok(Response::Analysed(analysis)) => Stage::Told(Rc::new(*analysis)),
                        Ok(_) => Stage::Unasked,
                        Err(why) => Stage::Refused(why),
                    });
                }
            });
        })
    };
    let told = use_in_sight(matches!(*stage, Stage::Told(_)).then_some(()));
    let analysis = match &*stage {
        Stage::Unasked => {
            return html! {
                <p class="repair"><button onclick={ask} data-test="analyse">{ "Where the time went" }</button>
                    <span class="muted">{ " Computing, communication, waiting, and the critical path across ranks." }</span></p>
            };
        }
        Stage::Asked => {
            return html! { <p class="repair muted" aria-live="polite">{ "Adding up…" }</p> };
        }
        Stage::Refused(why) => return html! { <p class="repair muted">{ prose(why) }</p> },
        Stage::Told(analysis) => analysis.clone(),
    };
    let draw = {
        let (drawn, analysis, on_path) = (drawn.clone(), analysis.clone(), props.on_path.clone());
        Callback::from(move |_: Event| {
            let now = !*drawn;
            drawn.set(now);
            on_path.emit(Rc::new(if now { marks(&analysis) } else { Vec::new() }));
        })
    };
    html! {
        <section ref={told} class="analysis" data-test="analysis" data-steps={analysis.step_ps.is_some().to_string()}>
            <h3>{ "Where the time went" }</h3>
            <p>{ opening(&analysis) }</p>
            // Without ends all of these would be zeros that nobody has seen.
            if analysis.knows_ends {
                { shares(&analysis) }
                { late(&analysis, &props.on_go) }
                { kinds(&analysis.calls) }
                { path(&analysis, &props.on_go) }
                <label class="check"><input type="checkbox" checked={*drawn} onchange={draw} data-test="draw-path" />
                    <span>{ "Draw the critical path in the timeline" }</span></label>
            }
            if !props.unfinished { <WhatIf session={props.session} world_size={props.world_size} straggler={analysis.late.first().map(|late| late.rank.0)} /> }
        </section>
    }
}

fn marks(analysis: &Analysis) -> Vec<PathMark> {
    let parts = analysis.critical_path.parts.iter();
    parts
        .map(|part| PathMark { rank: part.rank.0, from_ps: part.from_ps, to_ps: part.to_ps })
        .collect()
}

fn opening(analysis: &Analysis) -> String {
    if !analysis.knows_ends {
        return "The recorder tells when calls were issued and not when they ended, as gloo's does: nothing is known of \
                communication. Profile the job with torch.profiler."
            .to_owned();
    }
    let steps = match analysis.step_ps {
        Some(step_ps) => format!("A step takes {} (median).", explain::time(step_ps)),
        None => format!(
            "{} in all. The calls do not tell where a step begins.",
            explain::time(analysis.time_ps)
        ),
    };
    match analysis.knows_computations {
        true => steps,
        false => format!("{steps} Computations were not recorded: they are outside of calls."),
    }
}

/// The four shares with their CSS classes and names.
fn parts(analysis: &Analysis, rank: &RankTime) -> [(&'static str, &'static str, u64); 4] {
    let share = rank.step.unwrap_or(rank.total);
    let idle = if analysis.knows_computations { "idle" } else { "outside of calls" };
    [
        ("computing", "computing", share.computing_ps),
        ("exposed", "exposed communication", share.communicating_ps),
        ("waits", "waiting for a peer", share.waiting_ps),
        ("idle", idle, share.idle_ps),
    ]
}

fn shares(analysis: &Analysis) -> Html {
    // In a table of steps a rank without steps has no place.
    let has_step = analysis.step_ps.is_some();
    let ranks = analysis.ranks.iter().filter(|rank| !has_step || rank.step.is_some());
    let mut ranks: Vec<&RankTime> = ranks.collect();
    let all = ranks.len();
    if all > RANKS {
        ranks.sort_unstable_by_key(|rank| (rank.step.unwrap_or(rank.total).waiting_ps, rank.rank));
        let most = ranks.split_off(all - RANKS / 2);
        ranks.truncate(RANKS / 2);
        ranks.extend(most);
    }
    let row = |rank: &&RankTime| {
        let parts = parts(analysis, rank);
        let sum = parts.iter().map(|part| part.2).sum::<u64>().max(1);
        let told: Vec<String> =
            parts.iter().map(|(_, name, ps)| format!("{name} {}", explain::time(*ps))).collect();
        html! {
            <li title={told.join(", ")}>
                <span class="who">{ format!("rank {}", rank.rank) }</span>
                <span class="bar" role="img" aria-label={told.join(", ")}>
                    { for parts.iter().map(|(class, _, ps)| {
                        let width = format!("width:{:.2}%", *ps as f64 * 100.0 / sum as f64);
                        html! { <i class={*class} style={width} /> }
                    }) }
                </span>
            </li>
        }
    };
    let legend = analysis.ranks.first().map(|rank| parts(analysis, rank));
    html! {
        <>
            <ul class="shares" data-test="shares">{ for ranks.iter().map(row) }</ul>
            if all > ranks.len() { <p class="muted">{ format!("The {} that wait least and most of {all}.", ranks.len()) }</p> }
            <p class="shares-legend">{ for legend.into_iter().flatten().map(|(class, name, _)| html! { <span><i class={class} />{ name }</span> }) }</p>
        </>
    }
}

fn late(analysis: &Analysis, on_go: &Callback<Go>) -> Html {
    // Somebody always comes last; a hundredth of the time is worth a sentence.
    let worth = |late: &&LateRank| late.behind_ps >= analysis.time_ps / 100;
    let sentence = |late: &LateRank| {
        let rank = late.rank.0;
        let go = on_go.reform(move |_: MouseEvent| Go { rank, which: Which::Last });
        html! {
            <p data-test="late"><button class="goes" onclick={go}>{ format!("Rank {rank}") }</button>
                { format!(" came last in {} of {} collectives, {} behind the next in all; the others waited {} for it.",
                    late.came_last, late.of, explain::time(late.behind_ps), explain::time(late.waited_ps)) }</p>
        }
    };
    html! { <>{ for analysis.late.iter().filter(worth).take(4).map(sentence) }</> }
}

fn kinds(calls: &[CallKind]) -> Html {
    if calls.is_empty() {
        return html! {};
    }
    let row = |kind: &CallKind| {
        let line = kind.line.as_deref().map(|line| format!(" ({line})")).unwrap_or_default();
        html! {
            <tr>
                <th scope="row">{ format!("{} of {}{line}", kind.op, kind.group) }</th>
                <td class="n">{ kind.count }</td><td class="n">{ explain::bytes(kind.bytes) }</td>
                <td class="n">{ explain::time(kind.median_ps) }</td>
                <td class="n">{ kind.busbw.map(super::measured::bandwidth).unwrap_or_default() }</td>
                <td class="n">{ explain::time(kind.exposed_ps) }</td><td class="n">{ explain::time(kind.waiting_ps) }</td>
            </tr>
        }
    };
    html! {
        <div class="scroll" tabindex="0"><table class="figures-table">
            <thead><tr><th>{ "collective" }</th>{ for ["count", "bytes", "median", "bus bandwidth", "exposed", "waiting"].map(|name| html! { <th class="n">{ name }</th> }) }</tr></thead>
            <tbody>{ for calls.iter().take(LISTED).map(row) }</tbody>
        </table></div>
    }
}

fn path(analysis: &Analysis, on_go: &Callback<Go>) -> Html {
    let path = &analysis.critical_path;
    let kinds = path.kinds();
    let idle = if analysis.knows_computations { "idle" } else { "outside of calls" };
    let row = |PathKind { longest, time_ps, count, .. }: &PathKind<'_>| {
        let (rank, middle_ps) = (longest.rank.0, longest.from_ps / 2 + longest.to_ps / 2);
        let go = on_go.reform(move |_: MouseEvent| Go { rank, which: Which::At(middle_ps) });
        let name = if longest.cause == Cause::Idle { idle } else { &longest.name };
        let line = longest.line.as_deref().map(|line| format!(" ({line})")).unwrap_or_default();
        html! {
            <li><span class="n">{ explain::time(*time_ps) }</span>{ format!(" {name}{line}, {}, longest on ", counted(*count, "time")) }
                <button class="goes" onclick={go}>{ format!("rank {rank}") }</button></li>
        }
    };
    html! {
        <>
            <h4>{ "Critical path" }</h4>
            <p>{ format!("{} of {} that nothing else could hide: {} computing, {} communicating, {} {idle} or pausing.",
                counted(path.parts.len() as u64, "part"), explain::time(path.time_ps()),
                explain::time(path.time_of(Cause::Computing)), explain::time(path.time_of(Cause::Communicating)),
                explain::time(path.time_of(Cause::Idle) + path.time_of(Cause::Pause))) }</p>
            <ul class="path" data-test="path">{ for kinds.iter().take(LISTED).map(row) }</ul>
        </>
    }
}
