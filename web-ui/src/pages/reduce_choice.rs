//! The fields of a form that choose a reduction, PREMUL_SUM with its factor.

use crate::ui::{Choice, SelectField, TextField};
use lockstep_core::dtype::Dtype;
use lockstep_core::reduce::ReduceOp;
use yew::prelude::*;

/// PREMUL_SUM as it is first chosen.
const PREMUL: &str = "PREMUL_SUM:0.5";

/// Properties of [`ReduceOpFields`].
#[derive(Properties, PartialEq)]
pub(super) struct ReduceOpFieldsProps {
    pub(super) op: ReduceOp,
    /// Only what can be done with this type is offered; everything without it, because a
    /// backend's refusal is worth seeing.
    #[prop_or_default]
    pub(super) dtype: Option<Dtype>,
    /// Hears the reduction as [`ReduceOp::text`] writes it.
    pub(super) on_choose: Callback<String>,
}

/// A reduction, and the factor of one that has one.
#[component(ReduceOpFields)]
pub(super) fn reduce_op_fields(props: &ReduceOpFieldsProps) -> Html {
    let wrong = use_state(|| None::<String>);
    let premul: Option<ReduceOp> = PREMUL.parse().ok();
    let choices: Vec<Choice> = ReduceOp::ALL
        .into_iter()
        .chain(premul)
        .filter(|op| *op == props.op || props.dtype.is_none_or(|dtype| op.supports(dtype)))
        .map(|op| Choice::word(op.name()))
        .collect();
    let choose = props.on_choose.reform(move |name: String| match premul {
        Some(premul) if name == premul.name() => premul.text(),
        _ => name,
    });
    let factor = match props.op {
        ReduceOp::PremulSum(factor) => Some(factor.value()),
        _ => None,
    };
    let multiply = {
        let (set, on_choose) = (wrong.setter(), props.on_choose.clone());
        Callback::from(move |factor: String| {
            match format!("PREMUL_SUM:{}", factor.trim()).parse::<ReduceOp>() {
                Ok(op) => {
                    set.set(None);
                    on_choose.emit(op.text());
                }
                Err(_) => set.set(Some("A number, such as 0.5.".to_owned())),
            }
        })
    };
    html! {
        <>
        <SelectField name="op" label="Reduce op" value={props.op.name()} {choices} on_choose={choose} />
        if let Some(factor) = factor {
            <TextField name="factor" label="Factor" value={factor.to_string()} wrong={(*wrong).clone()} on_choose={multiply} />
        }
        </>
    }
}
