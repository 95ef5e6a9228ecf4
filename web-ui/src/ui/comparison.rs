//! The simulator's values against those of a real run; its calls where there are no values.

use crate::explain;
use lockstep_core::words::counted;
use lockstep_sim::Comparison;
use yew::prelude::*;

/// The simulator's values against those of a real run.
pub(crate) fn comparison_card(comparison: &Comparison) -> Html {
    let (class, verdict) = match comparison {
        all if all.all_equal() => (
            "good",
            match all.left_open {
                0 => format!(
                    "All equal: {} in {}, the same bits in the simulation and in the run.",
                    counted(all.elements, "element"),
                    counted(all.tensors, "tensor")
                ),
                open => format!(
                    "Equal in {} of {}, the same bits in the simulation and in the run; in {open} the plan \
                     leaves open what a receive from any source takes first.",
                    all.equal,
                    counted(all.tensors, "tensor")
                ),
            },
        ),
        calls if calls.tensors == 0 && calls.calls.equal > 0 => (
            if calls.calls.equal == calls.calls.calls { "good" } else { "bad" },
            format!(
                "{} of {}, {} of input: the same in the simulation and in the run, in the same order \
                 on every rank. Values cannot be compared: {}.",
                calls.calls.equal,
                counted(calls.calls.calls, "call"),
                explain::bytes(calls.calls.bytes),
                calls.not_compared.as_deref().unwrap_or("no rank ended with a tensor")
            ),
        ),
        none if none.tensors == 0 => (
            "plain",
            "There are no values to compare: no rank ended with a tensor in both.".to_owned(),
        ),
        some => {
            let differ = some.tensors - some.equal - some.left_open;
            ("bad", format!("{differ} of {} tensors differ.", some.tensors))
        }
    };
    html! {
        <section class="comparison" data-test="comparison" data-equal={comparison.all_equal().to_string()}
                 data-calls={format!("{}/{}", comparison.calls.equal, comparison.calls.calls)} data-tensors={comparison.tensors.to_string()} data-elements={comparison.elements.to_string()}>
            <p class={classes!("verdict", class)}>{ verdict }</p>
            if let Some(difference) = &comparison.calls.first_difference {
                <p class="bad" data-test="call-difference">{ format!("The first call that differs: {}.", difference.words(["simulated", "run"])) }</p>
            }
            if comparison.only_in_one > 0 && comparison.tensors > 0 {
                <p class="muted">{ format!("{} tensors are in one of the two only.", comparison.only_in_one) }</p>
            }
            if !comparison.differences.is_empty() {
                <table class="plain">
                    <thead><tr><th>{ "rank" }</th><th>{ "tensor" }</th><th>{ "element" }</th><th>{ "simulated" }</th><th>{ "run" }</th></tr></thead>
                    <tbody>
                        { for comparison.differences.iter().map(|differs| html! {
                            <tr data-test="difference">
                                <td>{ differs.rank.0 }</td><td>{ &differs.name }</td>
                                <td>{ differs.element.map_or("–".to_owned(), |element| element.to_string()) }</td>
                                <td class="mono">{ &differs.left }</td><td class="mono">{ &differs.right }</td>
                            </tr>
                        }) }
                    </tbody>
                </table>
            }
        </section>
    }
}
