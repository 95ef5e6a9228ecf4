//! The DDP lab: a model's gradients fill buckets, buckets are reduced while the backward pass goes
//! on, and what it cannot hide is exposed. Two settings side by side, and sweeps.

mod answers;
mod blocks;
mod buckets;
mod changes;
mod check;
mod choice;
mod form;
mod hooks;
mod knobs;
mod links;
mod shelf;
mod shown;
mod simulate;
mod spans;
mod stream_paint;
mod streams;
mod stretch;
mod sweep;
mod sweep_chart;
mod words;

use super::asked::cannot;
use super::recording::files::{dropped, picked};
use super::simulation::{Addressed, use_addressed_moment};
use crate::app::use_shared;
use crate::dom;
use crate::nav::Nav;
use crate::playback::{Playback, seeking, use_playback};
use crate::route::Route;
use crate::ui::{Fold, NumberField, Transport};
use answers::{use_model_file, use_pass};
use blocks::Blocks;
use buckets::bucket_table;
use changes::Changes;
use check::Check;
use choice::{FILE, LabChoice, Tab};
use form::{LabForm, lab_form};
use lockstep_torch::ddp::StepKind;
use lockstep_torch::ddp::lab::notes;
use lockstep_web_protocol::{DdpAccount, ModelRef};
use shown::Shown;
use simulate::Simulate;
use std::rc::Rc;
use streams::Streams;
use sweep::Sweep;
use web_sys::{DragEvent, Event, File, HtmlInputElement};
use yew::prelude::*;

/// DistributedDataParallel, bucket for bucket.
#[component(Ddp)]
pub(crate) fn ddp() -> Html {
    match use_shared().nav.route.name() {
        Some("simulate") => html! { <Simulate /> },
        _ => html! { <Lab /> },
    }
}

/// The worker's reference to the chosen model.
fn model_ref(choice: &LabChoice, file: Option<&answers::ModelFile>) -> Result<ModelRef, String> {
    match (choice.model.as_str(), file) {
        (FILE, Some(file)) => Ok(ModelRef::Read(file.session.id())),
        (FILE, None) => {
            Err("The model of this address came from a file, which does not leave the \
                             browser it was read in: drop it here again."
                .to_owned())
        }
        (name, _) => Ok(ModelRef::Named(name.to_owned())),
    }
}

/// The callback that goes from one state of the lab to another.
fn going(nav: &Nav, before: &LabChoice) -> Callback<LabChoice> {
    let (nav, before) = (nav.clone(), before.clone());
    Callback::from(move |next: LabChoice| {
        let mut route = next.route();
        // The same pass stays at its moment.
        let same = (&next.model, &next.a, next.pass, next.rank)
            == (&before.model, &before.a, before.pass, before.rank);
        if let Some(moment) = nav.route.get("moment").filter(|_| same) {
            route = route.with("moment", moment);
        }
        nav.replace(route);
    })
}

/// Opens the first of the files that are dropped.
fn dropping(open: &Callback<File>) -> Callback<DragEvent> {
    let open = open.clone();
    Callback::from(move |event: DragEvent| {
        event.prevent_default();
        let (open, files) = (open.clone(), dropped(&event));
        wasm_bindgen_futures::spawn_local(async move {
            if let Some(file) = files.await.into_iter().next() {
                open.emit(file);
            }
        });
    })
}

/// Opens the file that is picked.
fn picking(open: Callback<File>) -> Callback<Event> {
    Callback::from(move |event: Event| {
        let input: HtmlInputElement = event.target_unchecked_into();
        if let Some(file) = picked(&input).into_iter().next() {
            open.emit(file);
        }
        input.set_value("");
    })
}

/// The playing of a pass: another pass is another film, which begins where some buckets are
/// reduced, one is filling, and others wait.
#[hook]
fn use_film(account: Option<&Rc<DdpAccount>>, base: Route) -> UseReducerHandle<Playback> {
    let playback = use_playback();
    let film = use_mut_ref(|| (None::<Rc<DdpAccount>>, 0u64));
    let moments = account.map(|account| {
        let mut film = film.borrow_mut();
        if film.0.as_ref().is_none_or(|last| last.pass.moments != account.pass.moments) {
            *film = (Some(account.clone()), film.1 + 1);
        }
        Addressed { of: film.1, last: account.pass.moments.len().saturating_sub(1) }
    });
    use_addressed_moment(&playback, moments, base.into(), |last| last * 2 / 5);
    playback
}

#[component(Lab)]
fn lab() -> Html {
    let nav = use_shared().nav;
    let (choice, unmet) = LabChoice::asked(&nav.route);
    let go = going(&nav, &choice);
    let on_read = {
        let (go, choice) = (go.clone(), choice.clone());
        Callback::from(move |()| {
            let (param, pass) = (None, None);
            go.emit(LabChoice { model: FILE.to_owned(), param, pass, ..choice.clone() });
        })
    };
    let (file, file_wrong, open) = use_model_file(on_read);
    let (drop_file, pick) = (dropping(&open), picking(open));
    let over = Callback::from(|event: DragEvent| event.prevent_default());
    let model = model_ref(&choice, file.as_ref());
    let of = model.clone().unwrap_or_else(|_| ModelRef::Named(String::new()));
    let refused = |placed| model.clone().and(placed);
    let (setting_a, setting_b) =
        (refused(choice.a.placed()), choice.b.as_ref().map(|b| refused(b.placed())));
    let a = use_pass(&of, Some(setting_a), choice.pass, choice.rank);
    let b = use_pass(&of, setting_b, choice.pass, choice.rank);
    let account = a.answer().cloned();
    let other = b.answer().filter(|_| choice.b.is_some()).cloned();
    let wrong = a.wrong().or(b.wrong()).or(file_wrong.as_ref()).cloned();
    // An address that asks for what cannot be is answered, not written over.
    let playback = use_film(account.as_ref().filter(|_| unmet.is_empty()), choice.route());
    let ready = a.fresh && (choice.b.is_none() || b.fresh) && wrong.is_none();
    let form = lab_form(&LabForm {
        choice: choice.clone(),
        file: file.map(|file| file.name),
        on_choose: go.clone(),
        on_pick: pick,
    });
    if !unmet.is_empty() {
        return cannot("DistributedDataParallel", unmet, choice.words(), form);
    }
    html! {
        <div class={classes!("lab", other.is_some().then_some("two"))} data-test="ddp" data-ready={ready.to_string()}
             ondrop={drop_file} ondragover={over.clone()} ondragenter={over}>
        <div class="ddp-grid">
            <aside class="panel side">
                <h1>{ "DistributedDataParallel" }</h1>
                <p class="muted hint">{ "Choose a model and DDP's arguments; see which gradients share a bucket, when each is reduced, and what backward cannot hide." }</p>
                <Fold words={choice.words()}>
                    { form }
                    <div class="against">
                        <a class="button" href={choice.below("simulate").to_hash()} data-test="simulate">{ "Simulate this plan, or run it for real" }</a>
                    </div>
                </Fold>
            </aside>
            <div class="sentence">
                if let Some(wrong) = &wrong {
                    <p class="bad" role="alert" data-test="ddp-wrong">{ wrong }</p>
                } else {
                    { told(&choice, account.as_ref(), a.fresh, playback.moment) }
                }
            </div>
            if let Some(account) = &account {
                { shelves_and_streams(&choice, account, other.as_ref(), &playback, &go) }
            }
        </div>
        if let Some(account) = &account {
            <section class="panel ddp-more">
                { tabs(&choice, &go) }
                { match choice.tab {
                    Tab::Buckets => html! {
                        <>
                        <Check model={of} account={account.clone()} />
                        { bucket_table(account, other.as_deref()) }
                        </>
                    },
                    Tab::Changes => html! {
                        <Changes model={of} a={account.clone()} b={other} choice={choice.clone()} on_choose={go} />
                    },
                    Tab::Sweep => html! {
                        <Sweep model={of} placed={account.placed()} choice={choice.clone()} on_choose={go} />
                    },
                    Tab::Log => log(&choice, account, other.as_ref(), &go),
                } }
            </section>
        }
        </div>
    }
}

/// The moment of the pass in a sentence, and what of the setting is worth a note.
fn told(choice: &LabChoice, account: Option<&Rc<DdpAccount>>, fresh: bool, moment: usize) -> Html {
    let Some(account) = account else {
        return html! { <p aria-live="polite" data-test="sentence">{ "Filling the buckets…" }</p> };
    };
    let sentence = account.pass.sentence(&account.model, &account.setting, moment);
    let no_such_pass = no_such_pass(choice, account).filter(|_| fresh);
    html! {
        <>
        <p aria-live="polite" data-test="sentence">{ sentence }</p>
        if let Some(words) = no_such_pass {
            <p class="bad small-print" data-test="no-such-pass">{ words }</p>
        }
        { for notes(&account.setting, account.pass.buckets.len()).into_iter().map(|note| html! {
            <p class="muted small-print" data-test="hook-note">{ note }</p>
        }) }
        if let Some(words) = on_cluster(account) {
            <p class="muted small-print" data-test="on-cluster">{ words }</p>
        }
        if let Some(raised) = &account.raised {
            <details class="raised" data-test="raised">
                <summary class="bad">{ format!("In the end DDP raises: {}", start(raised)) }</summary>
                <pre>{ raised }</pre>
            </details>
        }
        </>
    }
}

/// The gradients in their buckets, a rank's streams, and the bar that plays the pass.
fn shelves_and_streams(
    choice: &LabChoice,
    account: &Rc<DdpAccount>,
    other: Option<&Rc<DdpAccount>>,
    playback: &UseReducerHandle<Playback>,
    go: &Callback<LabChoice>,
) -> Html {
    let times: Vec<u64> = account.pass.moments.iter().map(|moment| moment.time_ps).collect();
    let time_ps = playback.time_ps(&times);
    let seek = seeking(playback, times);
    let select = {
        let choice = choice.clone();
        go.reform(move |param: Option<u32>| LabChoice { param, ..choice.clone() })
    };
    html! {
        <>
        <section class="panel shelves" aria-label="Gradients in their buckets">
            <Blocks account={account.clone()} moment={playback.moment} label={other.is_some().then_some("A")}
                    selected={choice.param} on_select={select.clone()}>
                { passes(choice, account, go) }
            </Blocks>
            if let Some(other) = other {
                <Blocks account={other.clone()} moment={other.pass.moment_at(time_ps)} label={Some("B")}
                        selected={choice.param} on_select={select} />
            }
        </section>
        <section class="panel lanes" aria-label="Streams of a rank">
            <Streams sides={sides(choice, account, other)} {time_ps} on_seek={seek} rank={choice.rank} />
        </section>
        <Transport playback={playback.clone()} {time_ps} />
        </>
    }
}

/// The buttons that choose the part below the streams.
fn tabs(choice: &LabChoice, go: &Callback<LabChoice>) -> Html {
    let button = |tab: Tab| {
        let next = LabChoice { tab, ..choice.clone() };
        let onclick = go.reform(move |event: MouseEvent| {
            into_sight(&event);
            next.clone()
        });
        html! {
            <button aria-pressed={(tab == choice.tab).to_string()} {onclick}
                    data-test={format!("tab-{}", tab.word())}>{ tab.title() }</button>
        }
    };
    html! {
        <div class="tabs" role="group" aria-label="What is shown">{ for Tab::ALL.into_iter().map(button) }</div>
    }
}

/// Brings a button of the lower half of the window to its top: what it shows lies below it.
fn into_sight(event: &MouseEvent) {
    let Some(button) = event.target_dyn_into::<web_sys::Element>() else { return };
    let height = dom::window().inner_height().ok().and_then(|height| height.as_f64());
    if height.is_some_and(|height| button.get_bounding_client_rect().top() > height / 2.0) {
        button.scroll_into_view();
    }
}

/// The pass that the lab shows at an address, or what of the address cannot be.
#[cfg(test)]
pub(super) fn account_at(route: &crate::route::Route) -> Result<DdpAccount, String> {
    let (choice, unmet) = LabChoice::asked(route);
    if let Some(unmet) = unmet.first() {
        return Err(format!("{}: {}", unmet.asked, unmet.why));
    }
    lockstep_web_engine::ddp_account(&choice.model, choice.a.placed()?, choice.pass, choice.rank)
}

/// The note that names the source of an account's times on a cluster.
fn on_cluster(account: &DdpAccount) -> Option<String> {
    let name = account.machine.cluster()?;
    let backed = match account.extrapolated.as_slice() {
        [] => ".".to_owned(),
        calls => {
            format!("; extrapolated, since no measured table backs them: {}.", calls.join(", "))
        }
    };
    Some(format!("On {name} each collective takes what NCCL takes there, alone{backed}"))
}

/// The names of the streams where there are two settings.
fn sides(choice: &LabChoice, a: &Rc<DdpAccount>, b: Option<&Rc<DdpAccount>>) -> Rc<Vec<Shown>> {
    let label = |word: &'static str| if b.is_some() { word } else { "" };
    let mut sides = vec![Shown { label: label("A"), account: a.clone() }];
    if let Some(b) = b.filter(|_| choice.b.is_some()) {
        sides.push(Shown { label: "B", account: b.clone() });
    }
    Rc::new(sides)
}

/// More passes than this are chosen by their number.
const MAX_BUTTONS: usize = 16;

/// The sentence for an address that asks for a pass that this setting does not have.
fn no_such_pass(choice: &LabChoice, account: &DdpAccount) -> Option<String> {
    let (asked, passes) = (choice.pass? as usize + 1, account.passes.len());
    (asked > passes).then(|| {
        let there = match passes {
            1 => "one pass, which is".to_owned(),
            _ => format!("{passes} passes; the last is"),
        };
        format!("The address asks for pass {asked}, but this setting has {there} shown.")
    })
}

/// The kind of a pass, in a few words.
fn pass_words(account: &DdpAccount, index: usize) -> &'static str {
    let first = index < account.setting.passes_a_step() as usize;
    match account.passes.get(index) {
        Some(pass) if pass.kind == StepKind::Shadow => "shadows the others",
        Some(pass) if pass.kind == StepKind::JoinEnds => "join ends",
        Some(pass) if !pass.sync => "in no_sync",
        Some(pass) if pass.rebuilds => "rebuilds the buckets",
        Some(pass) if pass.averages => "averages the parameters",
        _ if account.raised.is_some() && index + 1 == account.passes.len() => "the last",
        _ if index as u32 >= account.steady.0 && account.setting.training.uneven.is_none() => {
            match account.setting.hook_begins() >= Some(account.passes.len() as u64) {
                true => "like all until the hook begins",
                false => "like all that follow",
            }
        }
        _ if account.pass.buckets.is_empty() => "",
        _ if first => "the constructor's buckets",
        _ if account.setting.training.uneven.is_some() => "",
        _ if account.rebuilt.is_none() => "the constructor's buckets",
        _ => "before the rebuild",
    }
}

/// The buttons of the passes; whose they are, where ranks differ.
fn passes(choice: &LabChoice, account: &DdpAccount, go: &Callback<LabChoice>) -> Html {
    let shown = account.pass.number as usize;
    let buttons = (0..account.passes.len()).map(|index| {
        let next = LabChoice { pass: Some(index as u32), ..choice.clone() };
        let onclick = go.reform(move |_: MouseEvent| next.clone());
        let name = pass_words(account, index);
        html! {
            <button aria-pressed={(index == shown).to_string()} {onclick} title={name}
                    data-test={format!("pass-{}", index + 1)}>
                { index + 1 }
                if account.passes.len() <= 4 { <span class="what">{ format!(" {name}") }</span> }
            </button>
        }
    });
    let set = |which: fn(&mut LabChoice, u64)| {
        let choice = choice.clone();
        go.reform(move |value: u64| {
            let mut next = choice.clone();
            which(&mut next, value);
            next
        })
    };
    let by_number = set(|choice, number| choice.pass = Some(number.saturating_sub(1) as u32));
    let rank = set(|choice, rank| choice.rank = rank as u32);
    let role = account.roles.get(account.role as usize);
    let role = role.map(|role| role.words.clone()).unwrap_or_default();
    html! {
        <div class="passes" role="group" aria-label="Pass"><span class="muted">{ "Pass" }</span>
            if account.passes.len() <= MAX_BUTTONS {
                { for buttons }
            } else {
                <NumberField name="pass" label="Pass" bare={true} value={shown as u64 + 1} min={1} max={account.passes.len() as u64} on_choose={by_number} />
            }
            if account.passes.len() > 4 { <span class="muted what" data-test="pass-words">{ pass_words(account, shown) }</span> }
            if account.roles.len() > 1 {
                <span class="of-rank" data-test="of-rank"><span class="muted">{ "of rank" }</span>
                    <NumberField name="role" label="Rank" bare={true} value={u64::from(choice.rank)} min={0} max={u64::from(account.setting.training.ranks() - 1)} on_choose={rank} />
                    <span class="muted" data-test="role" data-role={account.role.to_string()}>{ role }</span></span>
            }
        </div>
    }
}

/// The beginning of an error: Python's are long.
fn start(text: &str) -> String {
    let sentence = text.split_inclusive(". ").next().unwrap_or(text);
    sentence.trim_end().to_owned()
}

/// DDP's own log, as Python prints it.
fn log(
    choice: &LabChoice,
    a: &DdpAccount,
    b: Option<&Rc<DdpAccount>>,
    go: &Callback<LabChoice>,
) -> Html {
    let rank = {
        let choice = choice.clone();
        go.reform(move |rank: u64| LabChoice { rank: rank as u32, ..choice.clone() })
    };
    html! {
        <div class="ddp-log">
            <div class="row">
                <crate::ui::NumberField name="rank" label="Rank" value={u64::from(choice.rank)} min={0} max={u64::from(a.setting.training.ranks() - 1)} on_choose={rank} />
                <p class="muted small-print">{ format!("ddp._get_ddp_logging_data() after pass {}, as PyTorch prints it; it is written when the next pass begins, so it tells of the pass before. Times are nanoseconds of the estimate; what depends on the machine's environment is N/A.", a.pass.number + 1) }</p>
            </div>
            <div class="logs">
                <pre data-test="ddp-log">{ a.log.to_string() }</pre>
                if let Some(b) = b { <pre data-test="ddp-log-b">{ b.log.to_string() }</pre> }
            </div>
        </div>
    }
}
