//! The shell: header, views, what every view shares.

use crate::dom::{self, Listener};
use crate::handed::{Handed, use_handed};
use crate::nav::{Nav, use_nav};
use crate::pages::{
    Cluster, Ddp, Gallery, Hangs, Home, Learn, Mesh, Program, Recording, Runs, Step,
};
use crate::route::{Route, View};
use crate::server;
use crate::ui::{KeysHelp, keys};
use lockstep_web_protocol::Client;
use lockstep_web_protocol::Request;
use std::collections::BTreeMap;
use wasm_bindgen::prelude::Closure;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{Event, KeyboardEvent};
use yew::prelude::*;

/// The server, as far as it has answered.
#[derive(Clone, PartialEq)]
pub(crate) enum Server {
    Asking,
    Here { version: String },
    None { why: String },
}

impl Server {
    /// The reason that real runs are not to be had; `None` when they are.
    pub(crate) fn missing(&self) -> Option<String> {
        match self {
            Server::Here { .. } => None,
            Server::Asking => Some("Asking for the server…".to_owned()),
            Server::None { .. } => Some(
                "Real runs need the Lockstep server on your machine: start `lockstep serve` and \
                 open the page from there. Everything else on this page works without it."
                    .to_owned(),
            ),
        }
    }
}

/// Addresses of the scripts of the page's workers.
#[derive(Clone, PartialEq, Properties)]
pub(crate) struct Workers {
    pub(crate) engine: AttrValue,
    /// Executes programs; started when the first one is opened.
    pub(crate) program: AttrValue,
}

/// The things that every view may use.
#[derive(Clone, PartialEq)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) workers: Workers,
    pub(crate) nav: Nav,
    pub(crate) server: Server,
    pub(crate) dark: bool,
    /// Files that were dropped on another view.
    pub(crate) handed: Handed,
}

/// The things that every view may use.
#[hook]
#[allow(clippy::expect_used, reason = "the app provides it around every view")]
pub(crate) fn use_shared() -> Shared {
    use_context::<Shared>().expect("views live inside the app")
}

/// The page.
#[component(App)]
pub(crate) fn app(workers: &Workers) -> Html {
    let broken = use_state(|| None::<String>);
    let client = {
        let (broken, engine) = (broken.clone(), workers.engine.clone());
        use_memo((), move |()| Client::start(&engine, Box::new(move |why| broken.set(Some(why)))))
    };
    let nav = use_nav();
    let server = use_server();
    let dark = use_dark();
    let handed = use_handed();
    let help = use_help();
    let client = match &*client {
        Ok(client) => client.clone(),
        Err(why) => return html! { <main class="alone">{ cannot_start(why) }</main> },
    };
    use_trace_of(&client);
    let view = nav.route.view();
    let name = match view {
        // The name of a hang tells what its question asks for.
        View::Hangs if nav.route.asks_first() => None,
        View::Learn => nav.route.name().map(|name| name.replace('-', " ")),
        _ => nav.route.name().map(str::to_owned),
    };
    use_effect_with((view, name), |(view, name)| {
        show_current_link();
        dom::document().set_title(&match (view, name) {
            (View::Home, _) => "Lockstep: see why a distributed job hangs".to_owned(),
            (view, Some(name)) => format!("{name} · {} · Lockstep", view.title()),
            (view, None) => format!("{} · Lockstep", view.title()),
        });
    });
    // The last address of each view: its link leads back there. Recording keeps its own.
    let left = use_mut_ref(BTreeMap::<&str, Route>::new);
    if view != View::Recording && nav.route.unknown_view().is_none() {
        left.borrow_mut().insert(view.word(), nav.route.clone());
    }
    let recording_visited = use_mut_ref(|| false);
    if view == View::Recording {
        *recording_visited.borrow_mut() = true;
    }
    let workers = workers.clone();
    let shared = Shared { client, workers, nav: nav.clone(), server: server.clone(), dark, handed };
    let open_help = {
        let help = help.clone();
        Callback::from(move |_: MouseEvent| help.set(true))
    };
    let skip = Callback::from(|_: MouseEvent| focus_content());
    let help_open = *help;
    let close_help = Callback::from(move |()| help.set(false));
    html! {
        <ContextProvider<Shared> context={shared}>
            <button class="skip" onclick={skip} data-test="skip">{ "Skip to the content" }</button>
            { header(view, &left.borrow(), &server, open_help) }
            if let Some(why) = &*broken {
                <p class="banner bad" role="alert" data-test="worker-broken">{ cannot_start(why) }</p>
            }
            if let Some(unknown) = nav.route.unknown_view() {
                <p class="banner bad" role="alert" data-test="unknown-address">
                    { format!("This page has no view {unknown:?}. This is {}.", view.title()) }
                </p>
            }
            if view != View::Recording {
                <main class={classes!("view", view.word())} data-test={format!("view-{}", view.word())}>{ page(view) }</main>
            }
            // Kept when another view is shown: what was dropped, found and marked is there on the way back.
            if *recording_visited.borrow() {
                <main class="view recording" hidden={view != View::Recording} data-test={(view == View::Recording).then_some("view-recording")}>
                    <Recording />
                </main>
            }
            if help_open {
                <KeysHelp on_close={close_help} />
            }
        </ContextProvider<Shared>>
    }
}

/// The keys' help: open or not; `?` changes it.
#[hook]
fn use_help() -> UseStateHandle<bool> {
    let help = use_state(|| false);
    let set = help.setter();
    use_effect_with(*help, move |&open| {
        let heard = Listener::on(&dom::window(), "keydown", move |event: KeyboardEvent| {
            if !keys::typing(&event) && event.key() == "?" {
                set.set(!open);
            }
        });
        move || drop(heard)
    });
    help
}

/// The row at the top of the page: the views, and whether a server is there.
fn header(
    view: View,
    left: &BTreeMap<&str, Route>,
    server: &Server,
    open_help: Callback<MouseEvent>,
) -> Html {
    html! {
        <header class="top">
            <a class="brand" href="#/" aria-label="Lockstep, home" aria-current={(view == View::Home).then_some("page")} data-test="home">
                <img src={dom::icon()} alt="" width="22" height="22" />{ "Lockstep" }
            </a>
            <nav aria-label="Views">
                { for View::GROUPS.into_iter().map(|(name, views)| html! {
                    <div class="group" role="group" aria-label={name}>
                        <span class="label" aria-hidden="true">{ name }</span>
                        { for views.iter().map(|each| view_link(*each, view, left)) }
                    </div>
                }) }
            </nav>
            <span class="grow" />
            <span class={classes!("server", server_class(server))} data-test="server-state"
                  title={server.missing().unwrap_or_default().replace('`', "")}>
                { server_words(server) }
            </span>
            <button class="quiet" onclick={open_help} aria-label="Keyboard keys" title="Keys (?)"
                    data-test="keys">{ "?" }</button>
        </header>
    }
}

/// The content of a view; that of Recording is kept beside it.
fn page(view: View) -> Html {
    match view {
        View::Home => html! { <Home /> },
        View::Step => html! { <Step /> },
        View::Gallery => html! { <Gallery /> },
        View::Mesh => html! { <Mesh /> },
        View::Cluster => html! { <Cluster /> },
        View::Ddp => html! { <Ddp /> },
        View::Hangs => html! { <Hangs /> },
        View::Program => html! { <Program /> },
        View::Recording => html! {},
        View::Runs => html! { <Runs /> },
        View::Learn => html! { <Learn /> },
    }
}

/// Gives the view the focus, so that the next Tab goes to its first control. No link: the address says
/// which view is shown.
fn focus_content() {
    let found = dom::document().query_selector("main:not([hidden])").ok().flatten();
    if let Some(main) = found.and_then(|main| main.dyn_into::<web_sys::HtmlElement>().ok()) {
        main.set_tab_index(-1);
        let _ = main.focus();
    }
}

/// Brings the link of the current view into sight where the links have no room for all.
fn show_current_link() {
    let found = dom::document().query_selector("nav [aria-current]").ok().flatten();
    let Some(link) = found.and_then(|link| link.dyn_into::<web_sys::HtmlElement>().ok()) else {
        return;
    };
    if let Ok(Some(links)) = link.closest("nav") {
        links.set_scroll_left((link.offset_left() - links.client_width() / 2).max(0));
    }
}

/// The link to a view, as it was left; that of the current view leads to its beginning.
fn view_link(view: View, current: View, left: &BTreeMap<&str, Route>) -> Html {
    let here = (view == current).then_some("page");
    let as_left = left.get(view.word()).filter(|_| view != current).cloned();
    let to = as_left.unwrap_or_else(|| Route::to(view));
    html! {
        <a href={to.to_hash()} aria-current={here} aria-label={view.title()} data-test={format!("nav-{}", view.word())}>
            <span class="long">{ view.title() }</span><span class="short">{ view.short_title() }</span>
        </a>
    }
}

fn cannot_start(why: &str) -> String {
    format!(
        "The worker that simulates and reads files is not running ({why}), so nothing can be \
         computed. Reload the page; if that does not help, the browser may block module workers."
    )
}

fn server_words(server: &Server) -> String {
    match server {
        Server::Asking => "…".to_owned(),
        Server::Here { version } => format!("server {version}"),
        Server::None { .. } => "no server".to_owned(),
    }
}

fn server_class(server: &Server) -> &'static str {
    match server {
        Server::Here { .. } => "here",
        Server::Asking | Server::None { .. } => "away",
    }
}

#[hook]
fn use_server() -> Server {
    let state = use_state(|| Server::Asking);
    let found = state.clone();
    use_effect_with((), move |()| {
        wasm_bindgen_futures::spawn_local(async move {
            found.set(match server::version().await {
                Ok(version) => Server::Here { version },
                Err(why) => Server::None { why },
            });
        });
    });
    (*state).clone()
}

/// True while the system asks for dark pages.
#[hook]
fn use_dark() -> bool {
    const DARK: &str = "(prefers-color-scheme: dark)";
    let dark = use_state(|| dom::media(DARK));
    let set = dark.clone();
    use_effect_with((), move |()| {
        let list = dom::window().match_media(DARK).ok().flatten();
        let heard = list
            .map(|list| Listener::on(&list, "change", move |_: Event| set.set(dom::media(DARK))));
        move || drop(heard)
    });
    *dark
}

/// `window.lockstep_trace_of(planJson, machine)`: a promise of the binary trace of a simulated plan,
/// for tests and for the console. The machine is written as an address has it,
/// `"node=8&latency=2000&bandwidth=50"` or `"cluster=h100x8"`; without one it is the network that
/// `lockstep sim` takes.
type TraceOf = dyn FnMut(String, Option<String>) -> js_sys::Promise;

#[hook]
fn use_trace_of(client: &Client) {
    use_effect_with(client.clone(), |client| {
        let client = client.clone();
        let trace_of = Closure::<TraceOf>::new(move |plan_json, machine: Option<String>| {
            let client = client.clone();
            wasm_bindgen_futures::future_to_promise(async move {
                let machine = machine.as_deref().map(crate::pages::machine).transpose();
                let machine = machine.map_err(|why| JsValue::from_str(&why))?;
                let answered = client.ask(Request::TraceOf { plan_json, machine }).await;
                let bytes = answered.map_err(|why| JsValue::from_str(&why))?.bytes();
                Ok(js_sys::Uint8Array::from(bytes.as_slice()).into())
            })
        });
        let name = "lockstep_trace_of".into();
        let _ = js_sys::Reflect::set(&dom::window(), &name, trace_of.as_ref());
        move || drop(trace_of)
    });
}
