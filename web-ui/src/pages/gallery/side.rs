//! Two algorithms side by side: at the same moment of virtual time, or at the same step.

use super::ChosenProps;
use super::answers::use_accounts;
use super::choice::{GalleryChoice, GalleryForm};
use super::difference::{difference, difference_card};
use crate::app::use_shared;
use crate::explain;
use crate::pages::simulation::{
    Addressed, Simulated, use_addressed_moment, use_simulation, use_step_times, use_view,
};
use crate::playback::{seeking, use_playback};
use crate::route::Route;
use crate::sets::set;
use crate::ui::{
    BufferMap, Choice, Counter, Fold, Matrix, Ring, SelectField, Timeline, Transport, trees_of,
};
use lockstep_core::schedule::{Algorithm, Rounds};
use lockstep_sim::View;
use lockstep_web_protocol::{Account, Opened, SessionId};
use std::rc::Rc;
use yew::prelude::*;

/// Worlds above this are drawn as a matrix.
const MAX_NODES: usize = 16;

/// The quantity at which both stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Together {
    Time,
    Step,
}

impl Together {
    fn read(route: &Route) -> Together {
        match route.get("by") {
            Some("step") => Together::Step,
            _ => Together::Time,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Together::Time => "time",
            Together::Step => "step",
        }
    }
}

/// The positions of the scrub bar: the virtual time of either side at each of them.
fn positions(together: Together, moments: [&[u64]; 2], steps: [&[u64]; 2]) -> Vec<[u64; 2]> {
    match together {
        Together::Time => {
            let times = set(moments.into_iter().flatten().copied());
            times.into_iter().map(|time| [time; 2]).collect()
        }
        Together::Step => {
            let count = steps[0].len().max(steps[1].len());
            let at = |side: usize, step: usize| {
                let times = steps[side];
                times.get(step).or(times.last()).copied().unwrap_or(0)
            };
            (0..count).map(|step| [at(0, step), at(1, step)]).collect()
        }
    }
}

/// The positions shown between two others.
fn between(positions: &[[u64; 2]], at: usize, fraction: f64) -> [u64; 2] {
    let from = positions.get(at).copied().unwrap_or_default();
    let to = positions.get(at + 1).copied().unwrap_or(from);
    [0, 1].map(|side| from[side] + (to[side].saturating_sub(from[side]) as f64 * fraction) as u64)
}

/// The simulations of both algorithms, and the positions at which they stand together.
struct Pair {
    simulated: [Simulated; 2],
    table: Rc<Vec<[u64; 2]>>,
}

impl Pair {
    fn opened(&self, side: usize) -> Option<&Rc<Opened>> {
        self.simulated[side].ready()
    }

    fn session(&self, side: usize) -> Option<SessionId> {
        self.opened(side).map(|opened| opened.session)
    }

    /// The reason that one of them cannot be simulated.
    fn failed(&self, side: usize) -> Option<&String> {
        match &self.simulated[side] {
            Simulated::Failed { why } => Some(why),
            _ => None,
        }
    }

    /// The moment of one side at a virtual time.
    fn moment(&self, side: usize, time_ps: u64) -> usize {
        let moments = self.opened(side).map_or(&[][..], |opened| &opened.moments);
        moments.partition_point(|at| *at <= time_ps).saturating_sub(1)
    }

    /// The moments that an address counts, once both are there.
    fn addressed(&self, together: Together) -> Option<Addressed> {
        let (a, b) = (self.session(0)?, self.session(1)?);
        let last = self.table.len().checked_sub(1)?;
        // The newer of the two is new whenever either is.
        Some(Addressed {
            of: (u64::from(a.0.max(b.0)) << 1) | u64::from(together == Together::Step),
            last,
        })
    }
}

/// Simulates both algorithms of the choice.
#[hook]
fn use_pair(choice: GalleryChoice, together: Together) -> Pair {
    let [a, b] = choice.pair;
    let plan_a = use_memo((choice, a), |(choice, by)| choice.plan(*by).map(Rc::new));
    let plan_b = use_memo((choice, b), |(choice, by)| choice.plan(*by).map(Rc::new));
    let simulated = [
        use_simulation(&plan_a, choice.machine.links().into()),
        use_simulation(&plan_b, choice.machine.links().into()),
    ];
    let session = |side: usize| simulated[side].ready().map(|opened| opened.session);
    let steps = [use_step_times(session(0)), use_step_times(session(1))];
    let moments = [0, 1].map(|side: usize| simulated[side].ready().map(|of| of.moments.clone()));
    let table =
        use_memo((together, moments, steps), |(together, moments, steps)| match (moments, steps) {
            ([Some(ma), Some(mb)], [Some(sa), Some(sb)]) => {
                positions(*together, [ma, mb], [sa, sb])
            }
            _ => Vec::new(),
        });
    Pair { simulated, table }
}

/// Two algorithms side by side.
#[component(SideBySide)]
pub(super) fn side_by_side(props: &ChosenProps) -> Html {
    let nav = use_shared().nav;
    let choice = props.choice;
    let together = Together::read(&nav.route);
    let pair = use_pair(choice, together);
    let playback = use_playback();
    let base = choice.side_route().with("by", together.word());
    let addressed = pair.addressed(together);
    use_addressed_moment(&playback, addressed, base.clone().into(), |last| last.min(1));
    let times = between(&pair.table, playback.moment, playback.shown_fraction());
    let views = [
        use_view(pair.session(0), pair.moment(0, times[0])),
        use_view(pair.session(1), pair.moment(1, times[1])),
    ];
    let selected = use_state(|| 0u32);
    let select = {
        let selected = selected.setter();
        Callback::from(move |rank| selected.set(rank))
    };
    let rank = (*selected).min(choice.world_size - 1);
    let accounts = use_accounts(choice, choice.pair.to_vec());
    let accounts = [0, 1].map(|side| match accounts.of(side) {
        Some(Ok(account)) if accounts.ready() => Some(account.clone()),
        _ => None,
    });
    let longest = [0, 1].into_iter().filter_map(|side| pair.opened(side));
    let longest = longest.map(|opened| opened.end_ps).max().unwrap_or(1);
    let seek = |side: usize| {
        seeking(&playback, pair.table.iter().map(|times| times[side]).collect::<Vec<_>>())
    };
    let go = Callback::from(move |route: Route| nav.replace(route.without("moment")));
    let round = (together == Together::Step).then_some(playback.moment as u32);
    let counter = round.map(|_| {
        let steps = pair.table.len().saturating_sub(1);
        let (at, words) = match playback.moment >= steps {
            true => (steps, "all done".to_owned()),
            false => (playback.moment + 1, String::new()),
        };
        Counter { at, of: steps, words }
    });
    html! {
        <div class="side-grid" data-ready={addressed.is_some().to_string()} data-test="side" data-by={together.word()}>
            { form(choice, together, &base, &go) }
            <section class="panel verdict-card" aria-live="polite">
                if let Some(why) = pair.failed(0).or(pair.failed(1)) {
                    <p class="bad">{ why }</p>
                } else if let [Some(left), Some(right)] = &accounts {
                    { difference_card(&difference(&choice, [left, right])) }
                } else {
                    <p class="muted">{ "Simulating…" }</p>
                }
            </section>
            { for [0usize, 1].map(|side| html! {
                <Half key={side} {side} algorithm={choice.pair[side]} {choice} view={views[side].clone()} opened={pair.opened(side).cloned()} failed={pair.failed(side).is_some()}
                      account={accounts[side].clone()} {round} time_ps={times[side]} {longest} selected={rank} on_select={select.clone()}
                      on_seek={seek(side)} />
            }) }
            <Transport {playback} time_ps={times[0]} {counter} />
        </div>
    }
}

/// The panel that chooses the two algorithms, and the quantity at which both stand.
fn form(choice: GalleryChoice, together: Together, base: &Route, go: &Callback<Route>) -> Html {
    let [a, b] = choice.pair;
    let choose = |name: &'static str| {
        let base = base.clone();
        go.reform(move |value: String| base.clone().with(name, value))
    };
    let algorithms: Vec<Choice> =
        choice.algorithms().iter().map(|each| Choice::word(each.name())).collect();
    let ways = [("time", "the same moment"), ("step", "the same step")];
    let ways = ways.map(|(value, label)| Choice::new(value, label)).to_vec();
    html! {
        <aside class="panel side">
            <p class="crumbs"><a href={choice.route().to_hash()} data-test="back-to-cards">{ "← All algorithms" }</a></p>
            <h1>{ "Side by side" }</h1>
            <Fold words={choice.words()}>
            <div class="choice">
                <SelectField name="a" label="Left" value={a.name()} choices={algorithms.clone()} on_choose={choose("a")} />
                <SelectField name="b" label="Right" value={b.name()} choices={algorithms} on_choose={choose("b")} />
                <SelectField name="by" label="Both stand at" value={together.word()} choices={ways} on_choose={choose("by")} />
            </div>
            <GalleryForm {choice} route={base.clone()} on_route={go.clone()} />
            </Fold>
            if choice.machine.cluster().is_some() {
                <p class="muted small-print" data-test="by-messages">{ "Side by side, messages go over usual links: on a cluster a call takes NCCL's time as a whole." }</p>
            }
        </aside>
    }
}

#[derive(Properties, PartialEq)]
struct HalfProps {
    side: usize,
    algorithm: Algorithm,
    choice: GalleryChoice,
    view: Option<Rc<View>>,
    opened: Option<Rc<Opened>>,
    /// True if it cannot be simulated.
    failed: bool,
    account: Option<Rc<Account>>,
    /// The step that both stand at, if they stand at the same one: a round, from 0.
    round: Option<u32>,
    time_ps: u64,
    /// When the slower of the two ends: both timelines are as long.
    longest: u64,
    selected: u32,
    on_select: Callback<u32>,
    on_seek: Callback<u64>,
}

/// One of the two.
#[component(Half)]
fn half(props: &HalfProps) -> Html {
    let HalfProps { side, algorithm, choice, time_ps, longest, selected, .. } = *props;
    let counted = use_memo((choice, algorithm), |(choice, algorithm)| {
        let schedule = choice.lab(*algorithm).schedule(choice.machine.ranks_per_node()).ok()?;
        let rounds = Rounds::of(&schedule);
        Some((schedule, rounds))
    });
    let trees = use_memo((choice, algorithm), |_| {
        let schedule = counted.as_ref().as_ref().map(|(schedule, _)| schedule);
        schedule.and_then(trees_of).map(Rc::new)
    });
    let trees = (*trees).clone();
    let schedule = counted.as_ref().as_ref().map(|(schedule, _)| schedule);
    let switches = schedule.map_or(0, |schedule| schedule.participants() - schedule.size());
    let name = ["a", "b"][side.min(1)];
    let end = props.opened.as_ref().map(|opened| opened.end_ps);
    let done = end.is_some_and(|end| time_ps >= end);
    let sentence = match (&props.view, &*counted) {
        (Some(view), Some((schedule, rounds))) => {
            let round = props.round.and_then(|round| explain::round(schedule, rounds, round));
            round.unwrap_or_else(|| explain::moment(schedule, rounds, view))
        }
        _ if props.failed => "It cannot be carried out here: above is why.".to_owned(),
        _ => "Simulating…".to_owned(),
    };
    let select = props.on_select.clone();
    let ranks_per_node = choice.machine.ranks_per_node();
    html! {
        <section class={classes!("half", name, done.then_some("done"))} data-test={format!("half-{name}")} data-done={done.to_string()}
                 data-algorithm={algorithm.name()} data-end-ps={end.map(|end| end.to_string())} data-time-ps={time_ps.to_string()}
                 data-steps={props.account.as_ref().map(|account| account.steps.to_string())}>
            <header>
                <h2>{ algorithm.name() }</h2>
                <span class={classes!("badge", (!done).then_some("going"))}>
                    { match (done, end) { (true, Some(end)) => format!("done at {}", explain::time(end)), _ => explain::time(time_ps) } }</span>
            </header>
            <p class="told">{ sentence }</p>
            if let (Some(view), Some(opened)) = (&props.view, &props.opened) {
                <div class="panel graph">
                    if view.ranks.len() <= MAX_NODES {
                        <Ring view={view.clone()} {time_ps} {selected} on_select={select.clone()} {switches} {ranks_per_node} {trees} />
                    } else {
                        <Matrix view={view.clone()} {time_ps} {selected} on_select={select.clone()} {switches} {ranks_per_node} />
                    }
                </div>
                <div class="panel memory"><BufferMap view={view.clone()} {selected} on_select={select} /></div>
                <div class="panel lanes">
                    <Timeline session={opened.session} world_size={opened.header.world_size} lanes={opened.lanes} end_ps={longest}
                              fit={(0, longest + longest / 50)} playhead_ps={time_ps} on_seek={props.on_seek.clone()} />
                </div>
            }
        </section>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_stand_at_the_same_time_or_the_same_step() {
        let (a, b) = ([0, 10, 20, 30], [0, 15, 20]);
        let by_time = positions(Together::Time, [&a, &b], [&[], &[]]);
        assert_eq!(by_time, [[0, 0], [10, 10], [15, 15], [20, 20], [30, 30]]);
        // The one with fewer steps waits at its end.
        let by_step = positions(Together::Step, [&a, &b], [&[0, 10, 20, 30], &[0, 20]]);
        assert_eq!(by_step, [[0, 0], [10, 20], [20, 20], [30, 20]]);
        assert_eq!(between(&by_step, 0, 0.5), [5, 10]);
        assert_eq!(between(&by_step, 3, 0.5), [30, 20]);
    }
}
