//! The worker's answers about every algorithm of a collective, as they come.

use super::choice::GalleryChoice;
use crate::app::use_shared;
use lockstep_core::collective::Collective;
use lockstep_core::schedule::Algorithm;
use lockstep_sim::Topology;
use lockstep_web_protocol::Asked;
use lockstep_web_protocol::{Account, CANCELLED, Request, Response};
use std::rc::Rc;
use yew::prelude::*;

/// Element counts of the chart: 4 B to 1 GiB a rank in steps of four.
pub(super) const COUNTS: [u64; 15] = {
    let mut counts = [0; 15];
    let mut power = 0;
    while power < counts.len() {
        counts[power] = 1 << (2 * power);
        power += 1;
    }
    counts
};

type Answer<T> = Option<Result<T, String>>;

/// An answer for each algorithm, in the order of the list.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answers<T> {
    pub(super) each: Vec<Answer<T>>,
    /// The question that is being answered; what is of an earlier one is shown until then.
    asking: u32,
    /// The number of them that belong to that question.
    fresh: usize,
}

impl<T> Answers<T> {
    /// True once all are there, and of the question that was asked last.
    pub(super) fn ready(&self) -> bool {
        self.fresh == self.each.len() && !self.each.is_empty()
    }

    /// The answer of one algorithm, as far as there is one.
    pub(super) fn of(&self, index: usize) -> Option<&Result<T, String>> {
        self.each.get(index)?.as_ref()
    }
}

/// An event of the answers.
pub(super) enum Come<T> {
    /// So many answers are asked for; earlier ones stay in sight if they are of the same list.
    Begin {
        question: u32,
        count: usize,
        keep: bool,
    },
    One {
        question: u32,
        index: usize,
        answer: Result<T, String>,
    },
}

impl<T: Clone> Reducible for Answers<T> {
    type Action = Come<T>;

    fn reduce(self: Rc<Self>, come: Come<T>) -> Rc<Self> {
        let mut now = (*self).clone();
        match come {
            Come::Begin { question, count, keep } => {
                if !keep || now.each.len() != count {
                    now.each = (0..count).map(|_| None).collect();
                }
                (now.asking, now.fresh) = (question, 0);
            }
            Come::One { question, index, answer } => {
                if question != now.asking {
                    return self;
                }
                if let Some(place) = now.each.get_mut(index) {
                    *place = Some(answer);
                    now.fresh += 1;
                }
            }
        }
        Rc::new(now)
    }
}

#[hook]
fn use_each<T: Clone + 'static>(
    choice: GalleryChoice,
    algorithms: Vec<Algorithm>,
    deps: (Collective, u32, u64, Topology),
    ask: fn(&GalleryChoice, Algorithm) -> Request,
    read: fn(Response) -> Option<T>,
) -> UseReducerHandle<Answers<T>> {
    let client = use_shared().client;
    let answers = use_reducer(|| Answers::<T> { each: Vec::new(), asking: 0, fresh: 0 });
    let question = use_mut_ref(|| (0u32, Vec::new()));
    let dispatch = answers.dispatcher();
    use_effect_with((algorithms, deps), move |(algorithms, _)| {
        let (question, keep) = {
            let mut last = question.borrow_mut();
            let keep = last.1 == *algorithms;
            *last = (last.0 + 1, algorithms.clone());
            (last.0, keep)
        };
        dispatch.dispatch(Come::Begin { question, count: algorithms.len(), keep });
        let mut held: Vec<Asked> = Vec::new();
        for (index, algorithm) in algorithms.iter().enumerate() {
            let (asked, answer) = client.ask_with(ask(&choice, *algorithm), &[], None);
            held.push(asked);
            let dispatch = dispatch.clone();
            wasm_bindgen_futures::spawn_local(async move {
                let answer = match answer.await.map(|answered| read(answered.response)) {
                    Ok(Some(answer)) => Ok(answer),
                    Ok(None) => return,
                    Err(why) if why == CANCELLED => return,
                    Err(why) => Err(why),
                };
                dispatch.dispatch(Come::One { question, index, answer });
            });
        }
        move || drop(held)
    });
    answers
}

/// The working and the cost of each of some algorithms.
#[hook]
pub(super) fn use_accounts(
    choice: GalleryChoice,
    algorithms: Vec<Algorithm>,
) -> UseReducerHandle<Answers<Rc<Account>>> {
    use_each(
        choice,
        algorithms,
        (choice.collective, choice.world_size, choice.count, choice.machine.links()),
        |choice, algorithm| Request::Account {
            lab: choice.lab(algorithm),
            topology: choice.machine.links(),
        },
        |response| match response {
            Response::Accounted(account) => Some(Rc::new(*account)),
            _ => None,
        },
    )
}

/// The time of each algorithm for each of [`COUNTS`], in picoseconds.
#[hook]
pub(super) fn use_sweeps(choice: GalleryChoice) -> UseReducerHandle<Answers<Rc<Vec<u64>>>> {
    use_each(
        choice,
        choice.algorithms().to_vec(),
        // The chart holds all sizes: the one that is chosen does not matter to it.
        (choice.collective, choice.world_size, 0, choice.machine.links()),
        |choice, algorithm| Request::Sweep {
            lab: choice.lab(algorithm),
            topology: choice.machine.links(),
            counts: COUNTS.to_vec(),
        },
        |response| match response {
            Response::Swept(times) => Some(Rc::new(times)),
            _ => None,
        },
    )
}
