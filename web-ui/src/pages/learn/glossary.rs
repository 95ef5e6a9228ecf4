//! The words of the field, each with where it can be seen.

use super::fetched::{Fetched, use_fetched, waiting};
use super::text::blocks;
use crate::app::use_shared;
use crate::dom;
use crate::route::{Route, View};
use lockstep_lessons::Word;
use web_sys::HtmlInputElement;
use yew::prelude::*;

/// The glossary; `word` in the address is a word that is looked up.
#[component(Glossary)]
pub(super) fn glossary() -> Html {
    let nav = use_shared().nav;
    let fetched = use_fetched::<Vec<Word>>("glossary.json");
    let sought = use_state(String::new);
    let asked = nav.route.get("word").map(str::to_owned);
    let here = matches!(fetched, Fetched::Here(_));
    use_effect_with((asked.clone(), here), |(asked, _)| {
        let word = asked.as_ref().and_then(|word| dom::document().get_element_by_id(&dom_id(word)));
        if let Some(word) = word {
            word.scroll_into_view();
        }
    });
    let Fetched::Here(words) = &fetched else { return waiting(&fetched) };
    let search = {
        let sought = sought.setter();
        Callback::from(move |event: InputEvent| {
            let input: HtmlInputElement = event.target_unchecked_into();
            sought.set(input.value());
        })
    };
    let wanted = sought.trim().to_lowercase();
    let found = words.iter().filter(|word| word.word.to_lowercase().contains(&wanted));
    let found: Vec<&Word> = found.collect();
    html! {
        <div class="learn-list glossary" data-test="glossary">
            <header>
                <p class="crumbs"><a href={Route::to(View::Learn).to_hash()}>{ "← All lessons" }</a></p>
                <h1>{ "Glossary" }</h1>
                <p class="lead">{ "The words of distributed training, as torch.distributed and NCCL use them. Each leads to where you can see it." }</p>
                <input type="text" placeholder="Find a word" aria-label="Find a word" value={(*sought).clone()} oninput={search} data-test="find-word" />
            </header>
            <dl>
                { for found.iter().map(|word| html! {
                    <div id={dom_id(&word.id)} class={classes!((asked.as_ref() == Some(&word.id)).then_some("asked"))} data-test={format!("word-{}", word.id)}>
                        <dt>{ &word.word }</dt>
                        <dd>{ blocks(&word.blocks) }</dd>
                    </div>
                }) }
            </dl>
            if found.is_empty() { <p class="muted">{ "No word of the glossary has these letters." }</p> }
        </div>
    }
}

fn dom_id(word: &str) -> String {
    format!("word-{word}")
}
