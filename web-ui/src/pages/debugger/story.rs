//! A program explained step by step: a sentence for each of its turning points.

use crate::app::use_shared;
use crate::playback::{Act, Playback};
use crate::ui::prose;
use lockstep_core::stop::Stop;
use lockstep_web_protocol::{Chapter, Response, SessionId, SessionQuestion};
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`Story`].
#[derive(Properties, PartialEq)]
pub(super) struct StoryProps {
    pub(super) chapters: Rc<Vec<Chapter>>,
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
        let stops: Vec<Stop> = props.chapters.iter().map(|chapter| chapter.stop).collect();
        use_effect_with((props.session, stops), move |(session, stops)| {
            let request = SessionQuestion::FollowStops { stops: stops.clone() }.about(*session);
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
    let chosen = use_state(|| None::<usize>);
    let current = chapter_at(&moments, at, *chosen);
    let go = |to: usize| {
        let (dispatch, moment) = (props.playback.dispatcher(), moments.get(to).copied().flatten());
        let chosen = chosen.setter();
        Callback::from(move |_: MouseEvent| {
            if let Some(moment) = moment {
                chosen.set(Some(to));
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
                        <span>{ prose(&chapter.says) }</span>
                    </li>
                }) }
            </ol>
        </section>
    }
}

/// The chapter that a moment belongs to: the last one that has begun. Several may begin at one moment:
/// there it is the one that was gone to.
fn chapter_at(moments: &[Option<usize>], at: usize, chosen: Option<usize>) -> Option<usize> {
    let begins_here = |chapter: &usize| moments.get(*chapter).copied().flatten() == Some(at);
    chosen
        .filter(begins_here)
        .or_else(|| moments.iter().rposition(|moment| moment.is_some_and(|moment| moment <= at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chapters_of_one_moment_are_told_apart() {
        let moments = [Some(0), Some(7), Some(7), None, Some(9)];
        assert_eq!(chapter_at(&moments, 7, None), Some(2));
        assert_eq!(chapter_at(&moments, 7, Some(1)), Some(1));
        assert_eq!(chapter_at(&moments, 7, Some(2)), Some(2));
        // Gone on from there by other means.
        assert_eq!(chapter_at(&moments, 8, Some(1)), Some(2));
        assert_eq!(chapter_at(&moments, 9, Some(1)), Some(4));
        assert_eq!(chapter_at(&[None], 9, Some(0)), None);
    }
}
