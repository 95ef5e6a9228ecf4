//! Labelled inputs.

use crate::dom::when;
use wasm_bindgen::JsCast;
use web_sys::{Event, HtmlInputElement, HtmlSelectElement};
use yew::prelude::*;

/// One of the values of a [`SelectField`]: what is stored, what is read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) value: String,
    pub(crate) label: String,
}

impl Choice {
    /// A choice that is stored as it is read.
    pub(crate) fn word(word: &str) -> Choice {
        Choice { value: word.to_owned(), label: word.to_owned() }
    }
}

/// Properties of [`SelectField`].
#[derive(Properties, PartialEq)]
pub(crate) struct SelectFieldProps {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) value: String,
    pub(crate) choices: Vec<Choice>,
    pub(crate) on_choose: Callback<String>,
    #[prop_or_default]
    pub(crate) disabled: bool,
}

/// One of several.
#[component(SelectField)]
pub(crate) fn select_field(props: &SelectFieldProps) -> Html {
    let onchange = props
        .on_choose
        .reform(|event: Event| event.target_unchecked_into::<HtmlSelectElement>().value());
    html! {
        <label class="field">
            <span>{ props.label }</span>
            <select {onchange} disabled={props.disabled} data-test={format!("choose-{}", props.name)}>
                { for props.choices.iter().map(|choice| html! {
                    <option value={choice.value.clone()} selected={choice.value == props.value}>
                        { &choice.label }
                    </option>
                }) }
            </select>
        </label>
    }
}

/// Properties of [`NumberField`].
#[derive(Properties, PartialEq)]
pub(crate) struct NumberFieldProps {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) value: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) on_choose: Callback<u64>,
    #[prop_or_default]
    pub(crate) disabled: bool,
    /// Whether a slider stands beside it.
    #[prop_or_default]
    pub(crate) slider: bool,
}

/// A whole number within bounds; what lies outside is brought to the nearest bound.
#[component(NumberField)]
pub(crate) fn number_field(props: &NumberFieldProps) -> Html {
    let (min, max, current) = (props.min, props.max, props.value);
    let read = move |event: Event| {
        let input: Option<HtmlInputElement> = event.target().and_then(|t| t.dyn_into().ok());
        let input = input?;
        // `1e6` is a number too.
        let typed = input.value().trim().parse::<f64>().ok().filter(|typed| typed.is_finite());
        let Some(typed) = typed else {
            // What is no number leaves the value in use, and shows it.
            input.set_value(&current.to_string());
            return None;
        };
        let value = (typed.max(0.0) as u64).clamp(min, max);
        input.set_value(&value.to_string());
        Some(value)
    };
    let onchange = when(&props.on_choose, read);
    let oninput = when(&props.on_choose, move |event: InputEvent| read(event.into()));
    let test = format!("choose-{}", props.name);
    html! {
        <label class="field">
            <span>{ props.label }</span>
            <span class="number">
                if props.slider {
                    <input type="range" {oninput} min={min.to_string()} max={max.to_string()}
                           value={props.value.to_string()} disabled={props.disabled}
                           aria-label={format!("{}, slider", props.label)} />
                }
                <input type="number" inputmode="numeric" {onchange} min={min.to_string()} max={max.to_string()}
                       value={props.value.to_string()} disabled={props.disabled} aria-label={props.label} data-test={test} />
            </span>
        </label>
    }
}
