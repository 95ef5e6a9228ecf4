//! The closed form held against the simulator, at the reader's word.

use super::answers::use_simulated;
use crate::explain;
use lockstep_core::words::counted;
use lockstep_web_protocol::{DdpAccount, DdpQuestion, ModelRef, PlacedSetting};
use std::rc::Rc;
use yew::prelude::*;

/// So far apart they are by what latencies make of a small job.
const MUCH_PERMILLE: u128 = 10;
const WHY_OFF: &str = " In closed form all ranks begin a collective together; in the simulator each \
                       begins when the one before has let it go, up to some latencies apart.";

/// Properties of [`Check`].
#[derive(Properties, PartialEq)]
pub(super) struct CheckProps {
    pub(super) model: ModelRef,
    pub(super) account: Rc<DdpAccount>,
}

/// A button that has every rank simulated, and what the simulator says.
#[component(Check)]
pub(super) fn check(props: &CheckProps) -> Html {
    let (setting, machine) = (props.account.setting.clone(), props.account.machine);
    let question = DdpQuestion::Simulate { placed: PlacedSetting { setting, machine } };
    let asked = use_state(|| None::<(DdpQuestion, f64)>);
    let wanted = asked.as_ref().filter(|(of, _)| *of == question);
    let known = use_simulated(&props.model, wanted.map(|(of, _)| of.clone()));
    let ask = {
        let (asked, question) = (asked.setter(), question.clone());
        Callback::from(move |_: MouseEvent| {
            asked.set(Some((question.clone(), crate::dom::now_ms())));
        })
    };
    let took = use_mut_ref(|| None::<f64>);
    if let Some((_, since)) = wanted {
        let mut took = took.borrow_mut();
        match known.fresh {
            true if took.is_none() => *took = Some(crate::dom::now_ms() - since),
            false => *took = None,
            true => {}
        }
    }
    let ranks = counted(props.account.setting.training.ranks(), "rank");
    let said = match (wanted, &known.found) {
        (None, _) => {
            format!("The times here are worked out in closed form, for {ranks} at once.")
        }
        (Some(_), Some(Ok(found))) if known.fresh => {
            let permille = u128::from(found.step_ps.abs_diff(found.closed_ps)) * 1000
                / u128::from(found.step_ps.max(1));
            format!(
                "Simulated on {ranks} ({} messages, in {:.1} s): a step takes {}; the closed form says {}, {}.{} % off.{}",
                super::words::commas(found.messages),
                took.borrow().unwrap_or(0.0) / 1000.0,
                explain::time(found.step_ps),
                explain::time(found.closed_ps),
                permille / 10,
                permille % 10,
                if permille < MUCH_PERMILLE { "" } else { WHY_OFF }
            )
        }
        (Some(_), Some(Err(why))) if known.fresh => why.clone(),
        (Some(_), _) => format!("Simulating {ranks}…"),
    };
    let ms = took.borrow().filter(|_| known.fresh && wanted.is_some());
    html! {
        <div class="row check-row" data-test="check" data-ms={ms.map_or(String::new(), |ms| format!("{ms:.0}"))}>
            <p class="small-print muted">{ said }</p>
            <button class="quiet" onclick={ask} data-test="check-run">{ "Check with the simulator" }</button>
        </div>
    }
}
