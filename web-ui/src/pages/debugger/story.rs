//! A program explained step by step: a sentence for each of its turning points.

use crate::app::use_shared;
use crate::playback::{Act, Playback};
use crate::protocol::{Request, Response, SessionId};
use crate::ui::prose;
use lockstep_core::scenario::Chapter;
use lockstep_core::stop::Stop;
use yew::prelude::*;

/// Properties of [`Story`].
#[derive(Properties, PartialEq)]
pub(super) struct StoryProps {
    pub(super) chapters: &'static [Chapter],
    pub(super) session: SessionId,
    pub(super) playback: UseReducerHandle<Playback>,
}

/// The turning points, each a button that goes there; the one that the moment belongs to is open.
#[component(Story)]
pub(super) fn story(props: &StoryProps) -> Html {
    let client = use_shared().client;
    let moments = use_state(Vec::<Option<usize>>::new);
    {
        let moments = moments.setter();
        // What is no stop is met at the end; a test holds that there is none such.
        let stop = |chapter: &Chapter| chapter.stop.parse().unwrap_or(Stop::End);
        let stops: Vec<Stop> = props.chapters.iter().map(stop).collect();
        use_effect_with((props.session, stops), move |(session, stops)| {
            let request = Request::FollowStops { session: *session, stops: stops.clone() };
            let (asked, answer) = client.ask_with(request, &[], None);
            wasm_bindgen_futures::spawn_local(async move {
                if let Ok(answered) = answer.await
                    && let Response::StopsFollowed(found) = answered.response
                {
                    moments.set(found);
                }
            });
            move || drop(asked)
        });
    }
    let at = props.playback.moment;
    let current = moments.iter().rposition(|moment| moment.is_some_and(|moment| moment <= at));
    let go = |to: usize| {
        let (dispatch, moment) = (props.playback.dispatcher(), moments.get(to).copied().flatten());
        Callback::from(move |_: MouseEvent| {
            if let Some(moment) = moment {
                dispatch.dispatch(Act::To(moment));
            }
        })
    };
    let next = current.map_or(0, |current| current + 1);
    html! {
        <section class="chapters" aria-label="Step by step" data-test="told" data-chapter={current.map(|current| current.to_string())}>
            <header><h2>{ "Step by step" }</h2><span class="grow" />
                <button class="quiet" onclick={go(current.unwrap_or(0).saturating_sub(1))} disabled={current.unwrap_or(0) == 0} data-test="told-back">{ "‹ Before" }</button>
                <button onclick={go(next)} disabled={next >= props.chapters.len()} data-test="told-next">{ "Next ›" }</button>
            </header>
            <ol>
                { for props.chapters.iter().enumerate().map(|(index, chapter)| html! {
                    <li class={classes!((current == Some(index)).then_some("here"))}>
                        <button class="quiet" onclick={go(index)} aria-current={(current == Some(index)).then_some("step")}
                                data-test={format!("told-{index}")}>{ index + 1 }</button>
                        <span>{ prose(chapter.says) }</span>
                    </li>
                }) }
            </ol>
        </section>
    }
}
