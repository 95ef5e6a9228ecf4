//! The search: a query, its hits, and the way from one to the next.

use crate::app::use_shared;
use crate::dom::{self, Listener};
use crate::explain;
use crate::turns::use_turns;
use crate::ui::keys;
use crate::ui::prose;
use lockstep_web_protocol::query::{self, Query};
use lockstep_web_protocol::{CallMark, FoundCalls, Response, SessionId, SessionQuestion};
use std::rc::Rc;
use web_sys::{HtmlElement, HtmlInputElement, InputEvent, KeyboardEvent};
use yew::prelude::*;

/// Properties of [`Find`].
#[derive(Properties, PartialEq)]
pub(super) struct FindProps {
    pub(super) session: SessionId,
    /// Changes when a live trace has more calls.
    pub(super) account: (u64, u64),
    pub(super) query: UseStateHandle<String>,
    /// A hit is gone to.
    pub(super) on_call: Callback<CallMark>,
    /// Hears of the hits, where all of them are known, and of their end.
    pub(super) on_found: Callback<Option<Rc<FoundCalls>>>,
}

/// The field gets the focus when `/` is pressed.
#[hook]
fn use_slash(input: &NodeRef) {
    let input = input.clone();
    use_effect_with((), move |()| {
        let heard = Listener::on(&dom::window(), "keydown", move |event: KeyboardEvent| {
            if event.key() == "/" && !keys::typing(&event) {
                event.prevent_default();
                if let Some(input) = input.cast::<HtmlInputElement>() {
                    let _ = input.focus();
                    input.select();
                }
            }
        });
        move || drop(heard)
    });
}

/// The hit after or before `at` of `count`; after the last comes the first.
fn next_hit(at: Option<usize>, count: usize, forward: bool) -> Option<usize> {
    let last = count.checked_sub(1)?;
    Some(match (at, forward) {
        (None, true) => 0,
        (None, false) => last,
        (Some(at), true) => (at + 1) % count,
        (Some(at), false) => (at + last) % count,
    })
}

/// Enter goes to the next hit, Shift+Enter to the one before; Escape ends the search.
fn keys_of(
    turn: &Callback<bool>,
    query: &UseStateHandle<String>,
    open: &UseStateHandle<bool>,
) -> Callback<KeyboardEvent> {
    let (turn, query, open) = (turn.clone(), query.clone(), open.setter());
    Callback::from(move |event: KeyboardEvent| match event.key().as_str() {
        "Enter" => {
            open.set(false);
            turn.emit(!event.shift_key());
        }
        "Escape" => {
            query.set(String::new());
            open.set(false);
            if let Some(input) = event.target_dyn_into::<HtmlElement>() {
                let _ = input.blur();
            }
            // The keys that go from call to call are heard there.
            dom::focus("main:not([hidden]) .lanes .timeline .stage");
        }
        _ => {}
    })
}

/// The search of a trace's calls.
#[component(Find)]
pub(super) fn find(props: &FindProps) -> Html {
    let input = use_node_ref();
    let open = use_state(|| false);
    let at = use_state(|| None::<usize>);
    let found = use_found((props.session, props.account), &props.query);
    {
        let at = at.setter();
        use_effect_with((props.session, (*props.query).clone()), move |_| at.set(None));
    }
    use_slash(&input);
    let shown = match &found {
        Some(Ok(found)) if found.session == props.session => Some(found.hits.clone()),
        _ => None,
    };
    // Until the answer comes, the timeline keeps the hits of the query before, and nothing leads to them.
    let answered = match &found {
        None => None,
        Some(Ok(found)) if found.session != props.session => None,
        Some(Ok(found)) => Some(&found.query),
        Some(Err(_)) => Some(&*props.query),
    };
    let searching = asks(&props.query) && answered != Some(&*props.query);
    let hits = shown.clone().filter(|_| !searching);
    {
        let on_found = props.on_found.clone();
        use_effect_with(shown, move |hits| {
            let all = |hits: &&Rc<FoundCalls>| hits.total == hits.calls.len() as u64;
            on_found.emit(hits.as_ref().filter(all).cloned());
        });
    }
    let to = {
        let (at, hits, on_call) = (at.clone(), hits.clone(), props.on_call.clone());
        Callback::from(move |index: usize| {
            if let Some(mark) = hits.as_ref().and_then(|hits| hits.calls.get(index)) {
                at.set(Some(index));
                on_call.emit(mark.clone());
            }
        })
    };
    let turn = {
        let (at, count) = (*at, hits.as_ref().map_or(0, |hits| hits.calls.len()));
        let to = to.clone();
        Callback::from(move |forward: bool| {
            next_hit(at, count, forward).iter().for_each(|next| to.emit(*next))
        })
    };
    // The list would hide the row that is gone to.
    let chosen = {
        let (to, open) = (to.clone(), open.setter());
        Callback::from(move |index: usize| {
            open.set(false);
            to.emit(index);
        })
    };
    let typed = {
        let (query, open) = (props.query.clone(), open.setter());
        Callback::from(move |event: InputEvent| {
            let input: HtmlInputElement = event.target_unchecked_into();
            open.set(true);
            query.set(input.value());
        })
    };
    let key = keys_of(&turn, &props.query, &open);
    let focus = |is: bool| {
        let open = open.setter();
        Callback::from(move |_: FocusEvent| open.set(is))
    };
    let press = |forward: bool| turn.reform(move |_: MouseEvent| forward);
    let state = match (&found, *at) {
        _ if searching => "searching…".to_owned(),
        (None | Some(Err(_)), _) => String::new(),
        (Some(Ok(found)), None) => found.hits.total.to_string(),
        (Some(Ok(found)), Some(at)) => format!("{} of {}", at + 1, found.hits.total),
    };
    html! {
        <div class="find" role="search" onfocusin={focus(true)} onfocusout={focus(false)}>
            <input ref={input} type="text" placeholder="Find calls: rank:10 op:all_reduce" aria-label="Find calls (/)" spellcheck="false"
                   autocomplete="off" value={(*props.query).clone()} oninput={typed} onkeydown={key} data-test="find" />
            <span class="count mono" role="status" data-test="find-count" data-total={hits.as_ref().map(|hits| hits.total.to_string())}>{ state }</span>
            <button class="quiet" onclick={press(false)} disabled={hits.as_ref().is_none_or(|hits| hits.calls.is_empty())} aria-label="Hit before" title="Hit before (Shift+Enter)">{ "↑" }</button>
            <button class="quiet" onclick={press(true)} disabled={hits.as_ref().is_none_or(|hits| hits.calls.is_empty())} aria-label="Next hit" title="Next hit (Enter)" data-test="find-next">{ "↓" }</button>
            { match &found {
                Some(Err(why)) => html! { <p class="hits bad" role="alert" data-test="find-error">{ prose(why) }</p> },
                Some(Ok(found)) if *open && !searching => hit_list(&found.hits, *at, &chosen),
                None if *open && !searching => html! {
                    <dl class="hits facts" data-test="find-words">
                        { for query::WORDS.iter().map(|(word, does)| html! { <><dt><code>{ *word }</code></dt><dd>{ *does }</dd></> }) }
                    </dl>
                },
                _ => html! {},
            } }
        </div>
    }
}

/// The hits, under the field while it has the focus.
fn hit_list(found: &FoundCalls, at: Option<usize>, to: &Callback<usize>) -> Html {
    let listed = found.calls.len() as u64;
    let hit = |(index, mark): (usize, &CallMark)| {
        let to = to.clone();
        // Before the field loses the focus, and the list with it.
        let go = Callback::from(move |event: MouseEvent| {
            event.prevent_default();
            to.emit(index);
        });
        let took = explain::took(mark.from_ps, mark.to_ps);
        html! {
            <li class={classes!((at == Some(index)).then_some("here"), mark.to_ps.is_none().then_some("open"))} onmousedown={go} data-test="hit">
                <b>{ format!("r{}", mark.id.rank) }</b><span>{ &mark.title }</span><span class="muted">{ &mark.group }</span>
                <span class="muted">{ format!("at {}", explain::time(mark.from_ps)) }</span><span class="took">{ took }</span>
            </li>
        }
    };
    html! {
        <div class="hits">
            if found.total == 0 { <p>{ "No call is like this." }</p> }
            <ol>{ for found.calls.iter().enumerate().map(hit) }</ol>
            if found.total > listed { <p class="muted">{ format!("The first {listed} of {}: narrow the query to see others.", found.total) }</p> }
        </div>
    }
}

/// The hits of a query.
#[derive(Clone, PartialEq)]
struct FoundBy {
    session: SessionId,
    query: String,
    hits: Rc<FoundCalls>,
}

/// True if a query asks for calls, and can be read.
fn asks(query: &str) -> bool {
    Query::parse(query).is_ok_and(|parsed| !parsed.is_empty())
}

/// The last answer to a query: its hits, an error if it could not be read, or `None` without a query. The answer may
/// be that of the query before.
#[hook]
fn use_found(of: (SessionId, (u64, u64)), query: &str) -> Option<Result<FoundBy, String>> {
    let client = use_shared().client;
    let found = use_state(|| None);
    let turns = use_turns();
    {
        let found = found.setter();
        use_effect_with((of, query.to_owned()), move |((session, _), query)| {
            let turn = turns.next();
            match Query::parse(query) {
                Ok(parsed) if parsed.is_empty() => found.set(None),
                Err(why) => found.set(Some(Err(why))),
                Ok(_) => {
                    let (session, query) = (*session, query.clone());
                    let request =
                        SessionQuestion::FindCalls { query: query.clone() }.about(session);
                    wasm_bindgen_futures::spawn_local(async move {
                        let answered = client.ask(request).await;
                        if !turn.counts() {
                            return;
                        }
                        found.set(match answered.map(|answered| answered.response) {
                            Ok(Response::CallsFound(calls)) => {
                                Some(Ok(FoundBy { session, query, hits: Rc::new(*calls) }))
                            }
                            Ok(_) => None,
                            Err(why) => Some(Err(why)),
                        });
                    });
                }
            }
        });
    }
    (*found).clone()
}
