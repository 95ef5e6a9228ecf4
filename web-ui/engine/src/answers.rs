//! Answers about a session that is held.

use crate::questions::Attached;
use crate::session::Held;
use crate::{analysis, replayed};
use js_sys::Uint8Array;
use lockstep_web_protocol::query::Query;
use lockstep_web_protocol::{Response, SessionId, SessionQuestion};
use wasm_bindgen::{JsCast, JsValue};

/// The answer to a question about `held`, which is `session`.
///
/// # Errors
///
/// A sentence for the reader, where the session is not of a kind that has an answer.
pub(crate) fn answer(
    held: &mut Held,
    session: SessionId,
    question: SessionQuestion,
    attachments: Vec<JsValue>,
) -> Result<Attached, String> {
    let response = match question {
        SessionQuestion::StepTimes => Response::StepTimes(held.step_times()?),
        SessionQuestion::Live => Response::Live(held.take(&bytes_of(attachments))?),
        SessionQuestion::Settle => Response::Opened(Box::new(held.settle(session)?)),
        SessionQuestion::See { moment } => Response::Seen(Box::new(held.see(moment)?)),
        SessionQuestion::FindStop { moment, stops, direction } => {
            Response::StopFound(held.find_stop(moment, &stops, direction)?)
        }
        SessionQuestion::FollowStops { stops } => {
            Response::StopsFollowed(held.follow_stops(&stops)?)
        }
        SessionQuestion::WaitsAt { moment } => {
            let (waits, causes) = held.waits_at(moment)?;
            Response::Waits(waits, causes)
        }
        SessionQuestion::Elements { moment, rank, tensor, first, count } => {
            let (total, bytes) = held.elements(moment, rank, tensor, first, count)?;
            return Ok((Response::Elements { total }, Some(bytes)));
        }
        SessionQuestion::Draw { window } => {
            let mut drawn = held.draw(&window);
            return Ok((drawn.response(), Some(drawn.pixels)));
        }
        SessionQuestion::Pick { rank, lane, time_ps, slack_ps, in_sight } => {
            Response::Picked(held.pick((rank, lane), time_ps, slack_ps, &in_sight))
        }
        SessionQuestion::FindCalls { query } => {
            Response::CallsFound(Box::new(held.find_calls(&Query::parse(&query)?)))
        }
        SessionQuestion::Locate { rank, which } => Response::Located(held.locate(rank, &which)),
        SessionQuestion::Measure { area } => Response::Measured(Box::new(held.measure(&area))),
        SessionQuestion::AboutCall { id } => Response::CallTold(held.about_call(id).map(Box::new)),
        SessionQuestion::Export { form } => {
            return Ok((Response::Exported, Some(held.export(form)?)));
        }
        SessionQuestion::AsProgram => Response::ProgramWritten(replayed::as_program(held)?),
        SessionQuestion::Analyse => Response::Analysed(Box::new(analysis::analysed(held)?)),
    };
    Ok((response, None))
}

/// The bytes of the first attachment.
pub(crate) fn bytes_of(attachments: Vec<JsValue>) -> Vec<u8> {
    let first = attachments.into_iter().next();
    let buffer = first.and_then(|value| value.dyn_into::<js_sys::ArrayBuffer>().ok());
    buffer.map(|buffer| Uint8Array::new(&buffer).to_vec()).unwrap_or_default()
}
