//! The values of a rank's tensor at a moment, every one of them.

use super::field::{Choice, NumberField, SelectField};
use crate::app::use_shared;
use crate::sets::set;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::value::display_element;
use lockstep_core::plan::{Call, Plan, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_web_protocol::{Response, SessionId, SessionQuestion};
use std::rc::Rc;
use yew::prelude::*;

/// Elements shown at once.
const PAGE: u64 = 256;

/// Properties of [`Elements`].
#[derive(Properties, PartialEq)]
pub(crate) struct ElementsProps {
    pub(crate) session: SessionId,
    pub(crate) plan: Rc<Plan>,
    pub(crate) moment: usize,
    pub(crate) rank: u32,
    pub(crate) on_rank: Callback<u32>,
}

struct Shown {
    total: u64,
    values: Vec<String>,
    moment: usize,
    rank: u32,
}

/// The tensors that a rank's program names, in the plan's order.
fn used(plan: &Plan, rank: u32) -> Vec<u32> {
    let ops = plan.program(GlobalRank(rank)).into_iter().flat_map(|program| &program.ops);
    let calls = ops.flat_map(|op| op.action.calls());
    set(calls.flat_map(Call::tensors).flatten().map(|tensor| tensor.0)).into_iter().collect()
}

/// The first element of the page that is shown: another rank's tensor may have fewer pages.
fn page_within(first: u64, numel: u64) -> u64 {
    first.min(numel.saturating_sub(1) / PAGE * PAGE)
}

/// The values of a rank's tensor at a moment.
#[component(Elements)]
pub(crate) fn elements(props: &ElementsProps) -> Html {
    let client = use_shared().client;
    // The tensor with the result comes last in a plan of one collective.
    let chosen = use_state(|| None::<u32>);
    let page_at = use_state(|| 0u64);
    let shown = use_state(|| None::<Rc<Shown>>);
    let tensors = &props.plan.tensors;
    let used = use_memo((props.plan.clone(), props.rank), |(plan, rank)| used(plan, *rank));
    let tensor = chosen
        .filter(|id| used.contains(id))
        .or(used.last().copied())
        .unwrap_or((tensors.len() as u32).saturating_sub(1));
    let dtype = tensors.get(tensor as usize).map_or(Dtype::Unknown, |tensor| tensor.dtype);
    let numel = tensors.get(tensor as usize).map_or(0, |tensor| tensor.numel);
    let first = page_within(*page_at, numel);
    {
        let (shown, client) = (shown.clone(), client.clone());
        let deps = (props.session, props.moment, props.rank, tensor, first);
        use_effect_with(deps, move |&(session, moment, rank, tensor, first)| {
            let question = SessionQuestion::Elements {
                moment,
                rank: GlobalRank(rank),
                tensor: TensorId(tensor),
                first,
                count: PAGE,
            };
            let (asked, answer) = client.ask_with(question.about(session), &[], None);
            wasm_bindgen_futures::spawn_local(async move {
                let Ok(answered) = answer.await else { return };
                let Response::Elements { total } = answered.response else { return };
                let size = dtype.size_bytes().max(1) as usize;
                let bytes = answered.bytes();
                let values =
                    bytes.chunks_exact(size).map(|bytes| display_element(dtype, bytes)).collect();
                shown.set(Some(Rc::new(Shown { total, values, moment, rank })));
            });
            move || drop(asked)
        });
    }
    if tensors.is_empty() {
        return html! { <p class="muted">{ "A barrier moves no data: there are no tensors." }</p> };
    }
    let choose_tensor = {
        let (chosen, page_at) = (chosen.clone(), page_at.clone());
        Callback::from(move |id: String| {
            chosen.set(id.parse().ok());
            page_at.set(0);
        })
    };
    let choices =
        tensors.iter().enumerate().map(|(id, tensor)| Choice::new(&id.to_string(), &tensor.name));
    let world = u64::from(props.plan.world_size);
    let page = |to: u64| {
        let page_at = page_at.clone();
        Callback::from(move |_: MouseEvent| page_at.set(to))
    };
    html! {
        <div class="elements">
            <div class="row">
                <NumberField name="inspect-rank" label="Rank" value={u64::from(props.rank)} min={0} max={world - 1}
                             on_choose={props.on_rank.reform(|rank: u64| rank as u32)} />
                <SelectField name="inspect-tensor" label="Tensor" value={tensor.to_string()}
                             choices={choices.collect::<Vec<_>>()} on_choose={choose_tensor} />
            </div>
            if let Some(tensor) = tensors.get(tensor as usize) {
                <p class="muted mono">{ format!("{} × {}", tensor.numel, tensor.dtype) }</p>
            }
            { match &*shown {
                None => html! {},
                Some(shown) if shown.total == 0 => html! {
                    <p class="muted" data-test="no-values">{ "No values here: this rank does not have the tensor, the plan does not say what it holds (what a model \
                        returns, and what it comes into), or the tensors are \
                        too large to carry values (64 MiB over all ranks); times are still right." }</p>
                },
                Some(shown) => html! {
                    <>
                    <ol class="values mono" tabindex="0" aria-label="Elements of the tensor" data-test="elements" data-moment={shown.moment.to_string()}
                        data-rank={shown.rank.to_string()} data-total={shown.total.to_string()}>
                        { for shown.values.iter().enumerate().map(|(index, value)| html! {
                            <li><i>{ first + index as u64 }</i><span>{ value }</span></li>
                        }) }
                    </ol>
                    if shown.total > PAGE {
                        <div class="row pages">
                            <button onclick={page(first.saturating_sub(PAGE))} disabled={first == 0}>{ "←" }</button>
                            <span class="mono">{ format!("{}–{} of {}", first, (first + PAGE).min(shown.total) - 1, shown.total) }</span>
                            <button onclick={page(first + PAGE)} disabled={first + PAGE >= shown.total}>{ "→" }</button>
                        </div>
                    }
                    </>
                },
            } }
        </div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_tensor_shows_its_last_page() {
        assert_eq!(page_within(512, 1000), 512);
        assert_eq!(page_within(512, 300), 256);
        assert_eq!(page_within(512, 256), 0);
        assert_eq!(page_within(512, 0), 0);
    }
}
