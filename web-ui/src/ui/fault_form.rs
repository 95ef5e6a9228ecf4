//! The form for faults of a real run: a row a fault.

use super::field::{Choice, NumberField, SelectField};
use lockstep_core::plan::{Fault, FaultKind, MAX_FAULTS, Moment};
use lockstep_core::rank::GlobalRank;
use yew::prelude::*;

/// The kinds of faults, by the words of the command line.
const KINDS: [(&str, &str); 5] = [
    ("drop", "leaves out"),
    ("delay", "comes late to"),
    ("resize", "gives another size to"),
    ("kill", "is killed before"),
    ("stop", "is stopped before"),
];

/// The longest delay that the form takes, in milliseconds.
const MAX_MS: u64 = 600_000;

/// The most elements that it takes.
const MAX_COUNT: u64 = 1 << 32;

/// Properties of [`FaultForm`].
#[derive(Properties, PartialEq)]
pub(super) struct FaultFormProps {
    pub(super) faults: Vec<Fault>,
    pub(super) world_size: u32,
    /// The first mistake in them, in a sentence.
    pub(super) wrong: Option<String>,
    pub(super) on_change: Callback<Vec<Fault>>,
}

/// The faults of a run.
#[component(FaultForm)]
pub(super) fn fault_form(props: &FaultFormProps) -> Html {
    let last = props.world_size.saturating_sub(1);
    let add = {
        let (faults, on_change) = (props.faults.clone(), props.on_change.clone());
        Callback::from(move |_: MouseEvent| {
            let fault =
                Fault { rank: GlobalRank(last), when: Moment::Call(1), what: FaultKind::Drop };
            on_change.emit([faults.clone(), vec![fault]].concat());
        })
    };
    let row = |(at, fault): (usize, &Fault)| {
        let change = |changed: fn(Fault, u64) -> Fault| {
            let (faults, on_change, fault) =
                (props.faults.clone(), props.on_change.clone(), *fault);
            Callback::from(move |value: u64| {
                let mut faults = faults.clone();
                faults[at] = changed(fault, value);
                on_change.emit(faults);
            })
        };
        let kind = {
            let (faults, on_change, fault) =
                (props.faults.clone(), props.on_change.clone(), *fault);
            Callback::from(move |name: String| {
                let mut faults = faults.clone();
                faults[at] = Fault { what: kind_named(&name), ..fault };
                on_change.emit(faults);
            })
        };
        let remove = {
            let (faults, on_change) = (props.faults.clone(), props.on_change.clone());
            Callback::from(move |_: MouseEvent| {
                let mut faults = faults.clone();
                faults.remove(at);
                on_change.emit(faults);
            })
        };
        let kinds = KINDS.map(|(name, words)| Choice::new(name, words)).to_vec();
        let call = match fault.when {
            Moment::Call(call) => u64::from(call),
            Moment::AfterMs(_) => 1,
        };
        let at_call = |fault: Fault, call: u64| Fault { when: Moment::Call(call as u32), ..fault };
        let of_rank = |fault: Fault, rank: u64| Fault { rank: GlobalRank(rank as u32), ..fault };
        html! {
            <li data-test="fault">
                <NumberField name="fault-rank" label="Rank" value={u64::from(fault.rank.0)} min={0} max={u64::from(last)} on_choose={change(of_rank)} />
                <SelectField name="fault-kind" label="Does" value={fault.what.name()} choices={kinds} on_choose={kind} />
                <NumberField name="fault-call" label="Call" value={call} min={1} max={u64::from(u32::MAX)} on_choose={change(at_call)} />
                { match fault.what {
                    FaultKind::Delay { by_ms } => html! {
                        <NumberField name="fault-ms" label="Late by, ms" value={by_ms} min={1} max={MAX_MS}
                                     on_choose={change(|fault, by_ms| Fault { what: FaultKind::Delay { by_ms }, ..fault })} />
                    },
                    FaultKind::Resize { count } => html! {
                        <NumberField name="fault-count" label="Elements" value={count} min={0} max={MAX_COUNT}
                                     on_choose={change(|fault, count| Fault { what: FaultKind::Resize { count }, ..fault })} />
                    },
                    FaultKind::Stop { for_ms } => html! {
                        <NumberField name="fault-ms" label="For, ms (0: for ever)" value={for_ms.unwrap_or(0)} min={0} max={MAX_MS}
                                     on_choose={change(|fault, ms| Fault { what: FaultKind::Stop { for_ms: Some(ms).filter(|ms| *ms > 0) }, ..fault })} />
                    },
                    FaultKind::Kill | FaultKind::Drop => html! {},
                } }
                <button class="quiet" onclick={remove} aria-label="Remove this fault" data-test="fault-remove">{ "×" }</button>
            </li>
        }
    };
    html! {
        <div class="fault-form">
            <ol>{ for props.faults.iter().enumerate().map(row) }</ol>
            <button onclick={add} disabled={props.faults.len() >= MAX_FAULTS} data-test="fault-add">{ "Add a fault" }</button>
            if let Some(wrong) = &props.wrong {
                <p class="bad" role="alert" data-test="run-faults-wrong">{ wrong }</p>
            }
        </div>
    }
}

/// A kind by its word, with numbers to begin with.
fn kind_named(name: &str) -> FaultKind {
    match name {
        "delay" => FaultKind::Delay { by_ms: 200 },
        "resize" => FaultKind::Resize { count: 1 },
        "kill" => FaultKind::Kill,
        "stop" => FaultKind::Stop { for_ms: None },
        _ => FaultKind::Drop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_known_by_its_word() {
        for (name, _) in KINDS {
            let fault =
                Fault { rank: GlobalRank(1), when: Moment::Call(3), what: kind_named(name) };
            assert_eq!(fault.what.name(), name);
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
    }
}
