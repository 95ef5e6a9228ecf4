//! Going to the next moment at which a stop is met.

use crate::app::use_shared;
use crate::playback::{Act, Playback};
use lockstep_core::group::ProcessGroup;
use lockstep_core::stop::{Direction, Stop};
use lockstep_web_protocol::Client;
use lockstep_web_protocol::{Response, SessionId, SessionQuestion};
use std::rc::Rc;
use yew::prelude::*;

/// Looks for stops from the moment that is shown.
#[derive(Clone)]
pub(super) struct Search {
    client: Client,
    session: Option<SessionId>,
    playback: UseReducerHandle<Playback>,
    groups: Rc<[ProcessGroup]>,
    /// True while a question asks for a rank.
    asking: bool,
    /// Of which moment it is said, and what.
    said: UseStateHandle<(usize, String)>,
}

impl PartialEq for Search {
    fn eq(&self, other: &Search) -> bool {
        self.session == other.session && self.playback == other.playback && self.said == other.said
    }
}

/// A search in a simulation.
#[hook]
pub(super) fn use_search(
    session: Option<SessionId>,
    playback: &UseReducerHandle<Playback>,
    groups: Rc<[ProcessGroup]>,
    asking: bool,
) -> Search {
    let client = use_shared().client;
    let said = use_state(|| (usize::MAX, String::new()));
    Search { client, session, playback: playback.clone(), groups, asking, said }
}

impl Search {
    /// The result of the last search, as long as its moment is shown.
    pub(super) fn said(&self) -> &str {
        let (of, said) = &*self.said;
        if *of == self.playback.moment { said } else { "" }
    }

    /// Goes to the nearest moment at which one of `stops` is met; to the start or the end if there
    /// is none. Without stops, the way on leads to where the ranks first disagree.
    pub(super) fn go(&self, mut stops: Vec<Stop>, direction: Direction) {
        let Some(session) = self.session else { return };
        if stops.is_empty() && direction == Direction::Forward {
            stops.push(Stop::Differ);
        }
        let search = self.clone();
        let moment = self.playback.moment;
        wasm_bindgen_futures::spawn_local(async move {
            let request = SessionQuestion::FindStop { moment, stops: stops.clone(), direction }
                .about(session);
            let Ok(answered) = search.client.ask(request).await else { return };
            let Response::StopFound(found) = answered.response else { return };
            let (to, words) = match (found, direction) {
                (Some(found), _) => {
                    let words = match (stops.get(found.stop), direction) {
                        (Some(Stop::Rank(rank)), Direction::Back) => {
                            format!("Stopped at rank {rank}'s call before.")
                        }
                        (Some(stop), _) => {
                            let stop = words(stop, &search.groups);
                            match search.asking {
                                // The rank would answer the question.
                                true => format!("Stopped at {stop}."),
                                false => format!("Stopped at {stop}: rank {}.", found.rank),
                            }
                        }
                        (None, _) => String::new(),
                    };
                    (found.moment, words)
                }
                (None, Direction::Forward) => {
                    (search.playback.last, "No stop is left: this is the end.".to_owned())
                }
                (None, Direction::Back) => (0, "No stop is before: this is the start.".to_owned()),
            };
            search.playback.dispatch(Act::To(to));
            search.said.set((to, words));
        });
    }
}

/// A stop in words.
pub(super) fn words(stop: &Stop, groups: &[ProcessGroup]) -> String {
    match stop {
        Stop::Start => "the start".to_owned(),
        Stop::End => "the end".to_owned(),
        Stop::Line { line, rank: None } => format!("line {line}"),
        Stop::Line { line, rank: Some(rank) } => format!("line {line} on rank {rank}"),
        Stop::Rank(rank) => format!("rank {rank}'s next call"),
        Stop::Call { group, seq } => {
            let label = groups.get(group.index()).map_or("?", ProcessGroup::label);
            format!("call #{seq} of group {label}")
        }
        Stop::Differ => "first disagreement".to_owned(),
    }
}
