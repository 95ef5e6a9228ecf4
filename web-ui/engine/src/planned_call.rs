//! A call of torch.distributed, made as its program makes it.

use lockstep_scenarios::{TorchCallOptions, torch_call};
use lockstep_web_protocol::{PlannedCall, Response};

/// The plan of a call, or its refusal and which other options are not refused.
///
/// # Errors
/// When there is no call of that name.
pub(crate) fn planned(
    call: &str,
    options: &TorchCallOptions,
    instead: &[TorchCallOptions],
) -> Result<Response, String> {
    let call = torch_call(call).ok_or_else(|| format!("there is no call {call:?}"))?;
    let plan = call.plan(options).map(Box::new).map_err(|error| error.to_string());
    let instead = match plan {
        Ok(_) => Vec::new(),
        Err(_) => instead.iter().map(|other| call.plan(other).is_ok()).collect(),
    };
    Ok(Response::CallPlanned(PlannedCall { plan, instead }))
}
