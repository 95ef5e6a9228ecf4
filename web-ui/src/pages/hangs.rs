//! Hangs: a gallery of jobs that do not end, and each of them to be stepped through.

use super::asked::{Asked, Unmet, unmet_list};
use super::debugger::{Debugger, code};
use super::machine_choice;
use super::machine_fields::{Links, MachineFields};
use crate::app::use_shared;
use crate::dom;
use crate::route::{ASKS, Route, View};
use crate::ui::{Choice, NumberField, SelectField, prose};
use lockstep_core::words::{counted, nearest};
use lockstep_scenarios::ScenarioOptions;
use lockstep_scenarios::program::Options;
use lockstep_web_protocol::{Hang, Machine, Request, Response};
use std::cell::RefCell;
use std::rc::Rc;
use web_sys::HtmlInputElement;
use yew::prelude::*;

/// The largest world that a scenario is shown with.
const MAX_WORLD: u64 = 32;

thread_local! {
    /// Asked for once: the engine's hangs do not change.
    static KNOWN: RefCell<Option<Rc<[Rc<Hang>]>>> = const { RefCell::new(None) };
}

/// The hangs that ship, or the reason that the engine did not tell them; absent while it is asked.
#[hook]
fn use_hangs() -> Option<Result<Rc<[Rc<Hang>]>, String>> {
    let client = use_shared().client;
    let told = use_state(|| KNOWN.with_borrow(|known| known.clone().map(Ok)));
    {
        let told = told.setter();
        use_effect_with((), move |()| {
            if KNOWN.with_borrow(Option::is_some) {
                return;
            }
            wasm_bindgen_futures::spawn_local(async move {
                let answered = client.ask(Request::Hangs).await;
                match answered.map(|answered| answered.response) {
                    Ok(Response::Hangs(hangs)) => {
                        let hangs: Rc<[Rc<Hang>]> = hangs.into_iter().map(Rc::new).collect();
                        KNOWN.set(Some(hangs.clone()));
                        told.set(Some(Ok(hangs)));
                    }
                    Ok(_) => {}
                    Err(why) => told.set(Some(Err(why))),
                }
            });
        });
    }
    (*told).clone()
}

/// The gallery, or the hang that the address names.
#[component(Hangs)]
pub(crate) fn hangs() -> Html {
    let nav = use_shared().nav;
    let hangs = match use_hangs() {
        None => return html! { <p class="muted" role="status">{ "Loading the hangs…" }</p> },
        Some(Err(why)) => return html! { <p class="banner bad" role="alert">{ why }</p> },
        Some(Ok(hangs)) => hangs,
    };
    let Some(name) = nav.route.name() else { return html! { <Gallery {hangs} /> } };
    let Some(hang) = hangs.iter().find(|hang| hang.id == name) else {
        let unknown = unknown(name, hangs.iter().map(|hang| hang.id.as_str()));
        return html! {
            <><p class="banner bad" role="alert">{ unknown }</p><Gallery {hangs} /></>
        };
    };
    // A lesson asks its own questions.
    match HangChoice::read(&nav.route, hang, !nav.is_inside()) {
        (choice, unmet) if unmet.is_empty() => {
            html! { <OneHang key={hang.id.clone()} {choice} /> }
        }
        (_, unmet) => unmet_list(&unmet),
    }
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let shown: String = name.chars().take(60).collect();
    match nearest(name, known, 1).first() {
        Some(near) => format!("There is no scenario {shown:?}; {near} is like it. These are all:"),
        None => format!("There is no scenario {shown:?}. These are all:"),
    }
}

/// Properties of [`Gallery`].
#[derive(Properties, PartialEq)]
struct GalleryProps {
    hangs: Rc<[Rc<Hang>]>,
}

/// The address parameters of the gallery: the words that are looked for, and whether titles are hidden.
const FIND: &str = "find";
const QUIZ: &str = "quiz";

/// Every hang as a card.
#[component(Gallery)]
fn gallery(props: &GalleryProps) -> Html {
    let nav = use_shared().nav;
    let wanted = nav.route.get(FIND).unwrap_or_default().to_owned();
    let quiz = nav.route.get(QUIZ) == Some("true");
    let filter = {
        let nav = nav.clone();
        Callback::from(move |event: InputEvent| {
            let typed = event.target_unchecked_into::<HtmlInputElement>().value();
            nav.change(|route| match typed.is_empty() {
                true => route.without(FIND),
                false => route.with(FIND, typed),
            });
        })
    };
    let toggle = Callback::from(move |_: Event| {
        nav.change(|route| if quiz { route.without(QUIZ) } else { route.with(QUIZ, true) });
    });
    let words = wanted.to_lowercase();
    let found = (1..).zip(props.hangs.iter()).filter(|(_, hang)| is_about(hang, &words));
    let cards: Vec<Html> = found.map(|(number, hang)| card(number, hang, quiz)).collect();
    let none = cards.is_empty();
    html! {
        <div class="gallery">
            <h1>{ "Jobs that hang" }</h1>
            <p class="lead">{ "Each is a program whose ranks wait for each other, most of them for ever. Step through it, find the rank that is to blame, and compare with what the diagnosis says." }</p>
            <div class="row">
                <input type="text" class="filter" value={wanted} oninput={filter} placeholder="Find: barrier, DDP, timeout…" aria-label="Find a hang by its title, code or log" data-test="find-hang" />
                <label class="check"><input type="checkbox" checked={quiz} onchange={toggle} data-test="hang-quiz" />{ "As a quiz: titles hidden" }</label>
            </div>
            if none { <p class="muted" role="status" data-test="no-hang">{ "No hang has this in its title, code or log." }</p> }
            <ul class="cards">{ for cards }</ul>
        </div>
    }
}

/// True if the title, the program or the log of a hang holds every word that is looked for, in lower case.
fn is_about(hang: &Hang, wanted: &str) -> bool {
    let texts = [&hang.title, &hang.program, &hang.log].map(|text| text.to_lowercase());
    wanted.split_whitespace().all(|word| texts.iter().any(|text| text.contains(word)))
}

/// A hang as a card. The title tells what is wrong, so that a quiz has a number in its place.
fn card(number: usize, hang: &Hang, quiz: bool) -> Html {
    let title = if quiz { format!("Hang {number}") } else { hang.title.clone() };
    let lines: Vec<&str> = excerpt(&hang.program).collect();
    let left_out = lines.len().saturating_sub(MAX_CARD_LINES);
    html! {
        <li key={hang.id.clone()}>
            <a class="card" href={Route::below(View::Hangs, &hang.id).to_hash()} data-test={format!("scenario-{}", hang.id)}>
                <h2>{ title }</h2>
                <pre class="mono">
                    { for lines.iter().take(MAX_CARD_LINES).map(|line| html! { <span>{ line }</span> }) }
                    if left_out > 0 { <span class="muted">{ format!("… {}", counted(left_out, "more line")) }</span> }
                </pre>
            </a>
        </li>
    }
}

/// Lines of a program that a card shows.
const MAX_CARD_LINES: usize = 8;

/// The lines of a program that hold code, without its imports. Its comments tell the story.
fn excerpt(program: &str) -> impl Iterator<Item = &str> {
    let code = program.lines().map(|line| line.split("  #").next().unwrap_or(line).trim_end());
    code.filter(|line| {
        !line.is_empty() && !["import", "from", "#"].iter().any(|word| line.starts_with(word))
    })
}

/// A hang, as it is chosen.
#[derive(Clone, Debug)]
struct HangChoice {
    hang: Rc<Hang>,
    world_size: u32,
    repaired: bool,
    /// True if the page asks which rank is to blame before it shows the story and the findings.
    asks: bool,
    machine: Machine,
}

impl PartialEq for HangChoice {
    fn eq(&self, other: &HangChoice) -> bool {
        (&self.hang.id, self.world_size, self.repaired, self.asks, self.machine)
            == (&other.hang.id, other.world_size, other.repaired, other.asks, other.machine)
    }
}

impl HangChoice {
    /// The choice in an address, and what it asks for that cannot be. `asks` holds where the address does not say whether
    /// the question comes first.
    fn read(route: &Route, hang: &Rc<Hang>, asks: bool) -> (HangChoice, Vec<Unmet>) {
        let mut asked = Asked::new(route);
        let least = smallest(hang);
        let why = format!("This one is shown with {least} to {MAX_WORLD} ranks.");
        let world_size = asked.number("world", (least, MAX_WORLD), least.max(4), &why) as u32;
        let machine = machine_choice::asked(&mut asked);
        let yes_or_no = |yes: bool| yes.to_string();
        let what = "choice: it is true or false";
        let repaired = asked.one_of("repaired", &[true, false], yes_or_no, what).unwrap_or(false);
        let asks = asked.one_of(ASKS, &[true, false], yes_or_no, what).unwrap_or(asks);
        let asks = asks && !repaired;
        (HangChoice { hang: hang.clone(), world_size, repaired, asks, machine }, asked.unmet)
    }

    /// The address of the choice.
    fn route(&self) -> Route {
        machine_choice::write(Route::below(View::Hangs, &self.hang.id), self.machine)
            .with("world", self.world_size)
            .with("repaired", self.repaired)
            .with(ASKS, self.asks)
    }
}

/// The plan of the scenario at an address, or what of the address cannot be.
#[cfg(test)]
pub(super) fn plan_at(route: &Route) -> Result<(lockstep_core::plan::Plan, Machine), String> {
    let name = route.name().ok_or("the gallery has no plan")?;
    let all = lockstep_scenarios::all();
    let scenario = lockstep_scenarios::find(name)
        .ok_or_else(|| unknown(name, all.iter().map(|scenario| scenario.id)))?;
    let (choice, unmet) = HangChoice::read(route, &Rc::new(Hang::from(scenario)), false);
    if let Some(unmet) = unmet.first() {
        return Err(format!("{}: {}", unmet.asked, unmet.why));
    }
    let HangChoice { world_size, repaired, machine, .. } = choice;
    let options = ScenarioOptions { world_size, repaired, ..ScenarioOptions::default() };
    let plan = lockstep_program::scenario_plan(scenario, &options);
    Ok((plan.map_err(|error| error.to_string())?, machine))
}

/// The smallest world in which somebody can wait for somebody.
fn smallest(hang: &Hang) -> u64 {
    u64::from(hang.min_world_size).max(2)
}

#[derive(Properties, PartialEq)]
struct OneHangProps {
    choice: HangChoice,
}

/// One scenario in the debugger.
#[component(OneHang)]
fn one_hang(props: &OneHangProps) -> Html {
    let nav = use_shared().nav;
    let HangChoice { ref hang, world_size, repaired, asks, machine } = props.choice;
    let base = props.choice.route();
    let text = use_memo((hang.id.clone(), repaired), |(_, repaired)| {
        Rc::<str>::from(hang.text(*repaired))
    });
    let chapters =
        use_memo((hang.id.clone(), repaired, asks), |(_, repaired, asks)| {
            match *repaired || *asks {
                true => Vec::new(),
                false => hang.chapters.clone(),
            }
        });
    let on_answer = asks.then(|| {
        let (nav, base) = (nav.clone(), base.clone().with(ASKS, false));
        Callback::from(move |()| nav.push(base.clone()))
    });
    let options = Options {
        world_size: Some(world_size),
        timeout_ms: Some(ScenarioOptions::default().timeout_ms),
        ..Options::default()
    };
    let choose_world = {
        let (nav, base) = (nav.clone(), base.clone());
        Callback::from(move |world: u64| nav.replace(base.clone().with("world", world)))
    };
    let choose_text = {
        let (nav, base) = (nav.clone(), base.clone());
        Callback::from(move |which: String| {
            nav.replace(base.clone().with(ASKS, false).with("repaired", which == "repaired"))
        })
    };
    let go = {
        let nav = nav.clone();
        Callback::from(move |route: Route| nav.replace(route))
    };
    // A changed scenario becomes a program of the user's own; in a lesson it runs there.
    let own = {
        let nav = nav.clone();
        Callback::from(move |text: String| {
            let route = Route::to(View::Program).with("code", code::write(&text));
            if nav.is_inside() {
                nav.replace(route);
            } else {
                let _ = dom::window().location().set_hash(&route.to_hash());
            }
        })
    };
    let texts = vec![Choice::new("faulty", "as it hangs"), Choice::new("repaired", "repaired")];
    html! {
        <Debugger text={(*text).clone()} {options} {machine} base={base.clone()} name={hang.id.clone()} {chapters} from_end={!repaired && !asks} {on_answer} on_text={own}>
            <p class="crumbs"><a href={Route::to(View::Hangs).to_hash()} data-test="back-to-gallery">{ "← All hangs" }</a></p>
            <h1>{ if asks { "A job that hangs".to_owned() } else { hang.title.clone() } }</h1>
            <p>{ match (repaired, asks) {
                (true, _) => prose(&hang.repair),
                (false, true) => prose("Its ranks wait for each other. Find out who is to blame: step through the program, and look at its log."),
                (false, false) => prose(&hang.story),
            } }</p>
            if !repaired {
                <details class="log" data-test="log"><summary>{ "In its log" }</summary>
                    <pre class="mono">{ hang.log.clone() }</pre><p class="muted">{ hang.log_from.clone() }</p></details>
            }
            <div class="row">
                <NumberField name="world" label="World size" value={u64::from(world_size)} min={smallest(hang)} max={MAX_WORLD} on_choose={choose_world} />
                <SelectField name="text" label="Program" value={if repaired { "repaired" } else { "faulty" }} choices={texts} on_choose={choose_text} />
                <MachineFields {machine} route={base.clone()} {world_size} links={Links::Absent} on_route={go} />
            </div>
        </Debugger>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_is_not_read_as_another() {
        let read = |query: &str| {
            let hang = Rc::new(Hang::from(&lockstep_scenarios::all()[0]));
            let route = Route::parse(&format!("#/hangs/{}?{query}", hang.id));
            let (choice, unmet) = HangChoice::read(&route, &hang, true);
            (choice.repaired, unmet.into_iter().map(|unmet| unmet.asked).collect::<Vec<_>>())
        };
        assert_eq!(read("repaired=true"), (true, vec![]));
        assert_eq!(read("repaired=false"), (false, vec![]));
        assert_eq!(read("repaired=yes").1, ["repaired=yes"]);
        assert_eq!(read("world=many").1, ["world=many"]);
    }
}
