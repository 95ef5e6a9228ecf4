//! Meshes: which ranks form groups along each dimension, and whether they talk inside a node.

mod cells;
mod choice;
mod fabric;
mod table;
mod wide;

use crate::app::use_shared;
use crate::explain;
use crate::pages::asked::cannot;
use crate::route::Route;
use crate::ui::{Fold, PairsMatrix};
use cells::Cells;
use choice::{MeshChoice, mesh_form};
use fabric::FabricView;
use lockstep_core::words::counted;
use lockstep_web_protocol::{CANCELLED, MeshAccount, MeshQuestion, Request, Response};
use std::rc::Rc;
use table::dim_table;
use yew::prelude::*;

/// Groups and meshes.
#[component(Mesh)]
pub(crate) fn mesh() -> Html {
    let nav = use_shared().nav;
    let (choice, unmet) = MeshChoice::read(&nav.route);
    if unmet.is_empty() {
        return html! { <Meshed {choice} /> };
    }
    let words = choice.typed.clone();
    let go = Callback::from(move |route: Route| nav.replace(route));
    cannot("Groups and meshes", unmet, words, mesh_form(&choice, &go))
}

#[derive(Properties, PartialEq)]
struct MeshedProps {
    choice: MeshChoice,
}

/// A mesh that can be.
#[component(Meshed)]
fn meshed(props: &MeshedProps) -> Html {
    let nav = use_shared().nav;
    let choice = props.choice.clone();
    let account = use_mesh(&choice.question());
    let go = {
        let nav = nav.clone();
        Callback::from(move |route: Route| nav.replace(route))
    };
    let select = {
        let (go, choice) = (go.clone(), choice.clone());
        Callback::from(move |rank: u32| {
            let rank = (choice.rank != Some(rank)).then_some(rank);
            go.emit(MeshChoice { rank, ..choice.clone() }.route());
        })
    };
    let choose_dim = {
        let (go, choice) = (go.clone(), choice.clone());
        Callback::from(move |dim: usize| go.emit(MeshChoice { dim, ..choice.clone() }.route()))
    };
    let world = choice.world_size();
    let ready = matches!(&account, Some(Ok((_, true)))) || !choice.is_drawn();
    html! {
        <div class={classes!("mesh-grid", choice.machine.cluster().is_some().then_some("with-fabric"))} data-test="mesh" data-ready={ready.to_string()} data-world={world.to_string()}>
            <aside class="panel side">
                <h1>{ "Groups and meshes" }</h1>
                <p class="muted hint">{ "init_device_mesh lays the ranks out row by row and makes a process group of every line along every dimension." }</p>
                <Fold words={choice.typed.clone()}>{ mesh_form(&choice, &go) }</Fold>
            </aside>
            { match &account {
                _ if !choice.is_drawn() => wide::told(&choice),
                None => html! { <p class="sentence">{ "Making the groups…" }</p> },
                Some(Err(why)) => html! { <p class="sentence bad" data-test="mesh-wrong">{ why }</p> },
                Some(Ok((account, _))) => {
                    let node = choice.machine.ranks_per_node();
                    let dim = choice.dim.min(account.dims.len().saturating_sub(1));
                    html! {
                        <>
                        <div class="sentence"><p data-test="sentence">{ sentence(account, dim, node, &choice) }</p>
                            <p class="muted small-print">{ account.dims.get(dim).map_or("", |dim| explain::parallelism(&dim.name)) }</p></div>
                        <section class="panel ranks" aria-label="Ranks by node">
                            <Cells account={account.clone()} {dim} ranks_per_node={node} selected={choice.rank} on_select={select} />
                        </section>
                        <section class="panel talks" aria-label="Who talks to whom">
                            <header><h2>{ format!("Who talks to whom along {}", account.dims.get(dim).map_or("", |dim| dim.name.as_str())) }</h2></header>
                            <PairsMatrix account={account.clone()} {dim} ranks_per_node={node} selected={choice.rank} />
                        </section>
                        <section class="panel dims" aria-label="Each dimension">
                            { dim_table(account, dim, &choose_dim) }
                        </section>
                        <FabricView account={account.clone()} {dim} collective={choice.collective.name()} />
                        </>
                    }
                }
            } }
        </div>
    }
}

/// The mesh that is shown at an address and its chosen dimension, or what of the address cannot be.
#[cfg(test)]
pub(super) fn account_at(route: &Route) -> Result<(MeshAccount, usize), String> {
    let (choice, unmet) = MeshChoice::read(route);
    match unmet.first() {
        Some(unmet) => Err(format!("{}: {}", unmet.asked, unmet.why)),
        None => Ok((lockstep_web_engine::mesh_account(&choice.question()?)?, choice.dim)),
    }
}

/// The mesh, once it is there, and whether it is of what is asked now.
type Known = Option<Result<(Rc<MeshAccount>, bool), String>>;

#[hook]
fn use_mesh(question: &Result<MeshQuestion, String>) -> Known {
    let client = use_shared().client;
    let known = use_state(|| None::<(MeshQuestion, Result<Rc<MeshAccount>, String>)>);
    {
        let known = known.setter();
        use_effect_with(question.clone(), move |question| {
            let asked = question.as_ref().ok().map(|question| {
                let request = Request::Mesh(Box::new(question.clone()));
                let (asked, answer) = client.ask_with(request, &[], None);
                let question = question.clone();
                wasm_bindgen_futures::spawn_local(async move {
                    let found = match answer.await.map(|answered| answered.response) {
                        Ok(Response::Meshed(found)) => Ok(Rc::new(*found)),
                        Ok(_) => return,
                        Err(why) if why == CANCELLED => return,
                        Err(why) => Err(why),
                    };
                    known.set(Some((question, found)));
                });
                asked
            });
            move || drop(asked)
        });
    }
    let question = match question {
        Ok(question) => question,
        Err(why) => return Some(Err(why.clone())),
    };
    let (of, found) = (*known).clone()?;
    let fresh = of == *question;
    match found {
        Ok(account) if fresh || of.dims == question.dims => Some(Ok((account, fresh))),
        Err(why) if fresh => Some(Err(why)),
        Ok(_) | Err(_) => None,
    }
}

/// The meaning of the chosen dimension, or of the chosen rank in it.
fn sentence(account: &MeshAccount, dim: usize, node: u32, choice: &MeshChoice) -> String {
    let Some(along) = account.dims.get(dim) else { return String::new() };
    let name = &along.name;
    let size = along.groups.first().map_or(0, Vec::len);
    let node_of = |rank: u32| rank.checked_div(node).unwrap_or(0);
    let within = along.groups.iter().all(|group| {
        group.iter().all(|rank| node_of(*rank) == group.first().map_or(0, |first| node_of(*first)))
    });
    if let Some(rank) = choice.rank {
        let place = account.coordinates.get(rank as usize).map(|at| {
            let places = account.dims.iter().zip(at).map(|(dim, at)| format!("{} {at}", dim.name));
            places.collect::<Vec<_>>().join(", ")
        });
        let peers = account.dims.iter().enumerate().map(|(index, each)| {
            let others = account.group_of(index, rank).map_or(&[][..], |(_, group)| group);
            let others = others.iter().copied().filter(|other| *other != rank);
            match explain::ranks(others) {
                nobody if nobody.is_empty() => format!("{}: nobody else", each.name),
                others => format!("{}: {others}", each.name),
            }
        });
        return format!(
            "Rank {rank} is {} on node {}. Its peers: {}.",
            place.unwrap_or_default(),
            node_of(rank),
            peers.collect::<Vec<_>>().join("; ")
        );
    }
    let groups = counted(along.groups.len(), "group");
    let time = explain::time(along.time_ps);
    let call = choice.collective.name();
    match (size, within) {
        (1, _) => format!("{name} has one rank a group: nothing is said along it."),
        (_, true) => format!(
            "{name}: {groups} of {size}, each inside one node. {call} along it never leaves the node and takes {time}."
        ),
        (_, false) => format!(
            "{name}: {groups} of {size}, across nodes. {call} along it sends {} between nodes and takes {time}.",
            explain::bytes(along.across.bytes)
        ),
    }
}
