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
    /// Under which heading it stands; empty for none.
    pub(crate) group: &'static str,
}

impl Choice {
    /// A choice that is stored as it is read.
    pub(crate) fn word(word: &str) -> Choice {
        Choice::new(word, word)
    }

    /// A choice that is stored and read differently.
    pub(crate) fn new(value: &str, label: &str) -> Choice {
        Choice { value: value.to_owned(), label: label.to_owned(), group: "" }
    }

    /// The same under a heading.
    pub(crate) fn under(self, group: &'static str) -> Choice {
        Choice { group, ..self }
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
                { for props.choices.chunk_by(|a, b| a.group == b.group).map(|choices| {
                    let options = choices.iter().map(|choice| html! {
                        <option value={choice.value.clone()} selected={choice.value == props.value}>
                            { &choice.label }
                        </option>
                    });
                    match choices.first().map_or("", |first| first.group) {
                        "" => html! { <>{ for options }</> },
                        group => html! { <optgroup label={group}>{ for options }</optgroup> },
                    }
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
    /// True if a slider stands beside it.
    #[prop_or_default]
    pub(crate) slider: bool,
    /// True if the label is for screen readers only.
    #[prop_or_default]
    pub(crate) bare: bool,
}

/// A whole number within bounds; what lies outside is brought to the nearest bound, and the field
/// says so.
#[component(NumberField)]
pub(crate) fn number_field(props: &NumberFieldProps) -> Html {
    let (min, max, current) = (props.min, props.max, props.value);
    let brought = use_state(|| None::<String>);
    let set_brought = brought.setter();
    let read = move |event: Event| {
        let input: Option<HtmlInputElement> = event.target().and_then(|t| t.dyn_into().ok());
        let input = input?;
        // `1e6` is a number too.
        let typed = input.value().trim().parse::<f64>().ok().filter(|typed| typed.is_finite());
        let Some(typed) = typed else {
            // A text that is no number is replaced by the value in use.
            input.set_value(&current.to_string());
            set_brought.set(Some("That is no number.".to_owned()));
            return None;
        };
        let value = (typed.max(0.0) as u64).clamp(min, max);
        set_brought.set(match typed {
            _ if typed > max as f64 => Some(format!("At most {max} here.")),
            _ if typed < min as f64 => Some(format!("At least {min} here.")),
            _ => None,
        });
        input.set_value(&value.to_string());
        Some(value)
    };
    let onchange = when(&props.on_choose, read.clone());
    let oninput = when(&props.on_choose, move |event: InputEvent| read(event.into()));
    let test = format!("choose-{}", props.name);
    html! {
        <label class="field">
            <span class={classes!(props.bare.then_some("hidden"))}>{ props.label }</span>
            <span class="number">
                if props.slider {
                    <input type="range" {oninput} min={min.to_string()} max={max.to_string()}
                           value={props.value.to_string()} disabled={props.disabled}
                           aria-label={format!("{}, slider", props.label)} />
                }
                <input type="number" inputmode="numeric" {onchange} min={min.to_string()} max={max.to_string()}
                       value={props.value.to_string()} disabled={props.disabled} aria-label={props.label} data-test={test} />
            </span>
            if let Some(brought) = &*brought {
                <small class="brought" role="status" data-test={format!("brought-{}", props.name)}>{ brought }</small>
            }
        </label>
    }
}

/// Properties of [`SizeField`].
#[derive(Properties, PartialEq)]
pub(crate) struct SizeFieldProps {
    pub(crate) name: &'static str,
    pub(crate) label: String,
    pub(crate) value: u64,
    /// The largest value, as a power of two; the smallest is 1.
    pub(crate) max_log2: u32,
    pub(crate) on_choose: Callback<u64>,
}

/// A whole number over many powers of two, with a slider that doubles.
#[component(SizeField)]
pub(crate) fn size_field(props: &SizeFieldProps) -> Html {
    let doubled = when(&props.on_choose, |event: InputEvent| {
        let input: Option<HtmlInputElement> = event.target().and_then(|t| t.dyn_into().ok());
        Some(1u64 << (input?.value_as_number().clamp(0.0, 62.0) as u32))
    });
    html! {
        <div class="field">
            <span>{ &props.label }</span>
            <span class="number size">
                <input type="range" oninput={doubled} min="0" max={props.max_log2.to_string()}
                       value={props.value.max(1).ilog2().to_string()} data-test={format!("slide-{}", props.name)}
                       aria-label={format!("{}, slider", props.label)} aria-valuetext={props.value.to_string()} />
                <NumberField name={props.name} label="Elements a rank" bare={true} value={props.value} min={1} max={1 << props.max_log2}
                             on_choose={props.on_choose.clone()} />
            </span>
        </div>
    }
}

/// Properties of [`TextField`].
#[derive(Properties, PartialEq)]
pub(crate) struct TextFieldProps {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) value: String,
    /// The problem with the value.
    #[prop_or_default]
    pub(crate) wrong: Option<String>,
    pub(crate) on_choose: Callback<String>,
}

/// A line of text.
#[component(TextField)]
pub(crate) fn text_field(props: &TextFieldProps) -> Html {
    let onchange = props
        .on_choose
        .reform(|event: Event| event.target_unchecked_into::<HtmlInputElement>().value());
    html! {
        <label class="field">
            <span>{ props.label }</span>
            <input type="text" {onchange} value={props.value.clone()} spellcheck="false" autocomplete="off"
                   aria-invalid={props.wrong.is_some().to_string()} data-test={format!("choose-{}", props.name)} />
            if let Some(wrong) = &props.wrong { <small class="brought" role="alert">{ wrong }</small> }
        </label>
    }
}
