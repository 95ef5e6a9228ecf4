//! The errors that PyTorch's own check of the ranks' calls would have raised.

use lockstep_core::plan::Plan;
use lockstep_torch::c10d::detail_of;
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`Detail`].
#[derive(Properties)]
pub(super) struct DetailProps {
    pub(super) plan: Rc<Plan>,
}

impl PartialEq for DetailProps {
    /// The same plan, not an equal one: this is asked on every frame of what is played.
    fn eq(&self, other: &DetailProps) -> bool {
        Rc::ptr_eq(&self.plan, &other.plan)
    }
}

/// The errors that the ranks raise under `TORCH_DISTRIBUTED_DEBUG=DETAIL`: drawn once a plan,
/// because it looks at all of it.
#[component(Detail)]
pub(super) fn detail(props: &DetailProps) -> Html {
    let raised = detail_of(&props.plan);
    let words = match &raised {
        None => {
            "It compares collectives, and says nothing of sends and receives: this hangs with it, too."
        }
        Some(raised) if raised.is_empty() => "No rank raises.",
        Some(_) => {
            "PyTorch compares the ranks' calls before it makes them, and they raise here instead of hanging:"
        }
    };
    html! {
        <details class="detail" data-test="debug-detail" data-raised={raised.as_ref().map(|raised| raised.len().to_string())}>
            <summary>{ "With TORCH_DISTRIBUTED_DEBUG=DETAIL" }</summary>
            <p class="muted">{ words }</p>
            <ul>{ for raised.into_iter().flatten().map(|one| {
                let line = one.at.map(|at| format!(" (train.py:{})", at.line)).unwrap_or_default();
                html! { <li><b>{ format!("rank {}{line}", one.rank) }</b><code>{ one.error.to_string() }</code>{ for one.error.help.iter().map(|help| html! { <small class="muted">{ help }</small> }) }</li> }
            }) }</ul>
        </details>
    }
}
