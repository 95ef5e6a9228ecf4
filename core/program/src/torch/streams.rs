//! `torch.cuda.Stream` and `torch.cuda.Event`.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::values::{Context, ContextValue};
use crate::process::raised::refused;
use crate::process::state::process;
use crate::python::type_error::{class_of, type_error};
use allocative::Allocative;
use lockstep_torch::c10d::{Stream, StreamEvent};
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::none::NoneType;
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;

/// A stream of this rank.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct StreamValue(#[allocative(skip)] Stream);
starlark_simple_value!(StreamValue);

/// An event, by its number in the process.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct EventValue(usize);
starlark_simple_value!(EventValue);

impl fmt::Display for StreamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<torch.cuda.Stream>")
    }
}

impl fmt::Display for EventValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<torch.cuda.Event>")
    }
}

methods_static!(STREAM_METHODS = stream_methods);

methods_static!(EVENT_METHODS = event_methods);

#[starlark_value(type = "Stream")]
impl<'v> StarlarkValue<'v> for StreamValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(STREAM_METHODS.methods())
    }
}

#[starlark_value(type = "Event")]
impl<'v> StarlarkValue<'v> for EventValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(EVENT_METHODS.methods())
    }
}

/// The stream of an argument; the current one for `None`.
fn stream_of(value: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<Stream> {
    if value.is_none() {
        return Ok(process(eval)?.dist()?.current_stream());
    }
    let stream = value.downcast_ref::<StreamValue>().map(|value| value.0);
    stream.ok_or_else(|| type_error(format!("{} is no Stream", class_of(value))))
}

fn event_of(value: Value<'_>) -> anyhow::Result<usize> {
    let event = value.downcast_ref::<EventValue>().map(|value| value.0);
    event.ok_or_else(|| type_error(format!("{} is no Event", class_of(value))))
}

/// A new event at this point of a stream.
fn event(now: StreamEvent, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<EventValue> {
    let process = process(eval)?;
    anyhow::ensure!(process.events.len() < 100_000, "a process has at most 100000 events");
    process.events.push(now);
    Ok(EventValue(process.events.len() - 1))
}

/// The moment of an event: no works, before it is recorded.
fn moment(at: usize, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<StreamEvent> {
    Ok(process(eval)?.events.get(at).cloned().unwrap_or_default())
}

/// Adds streams to `torch.cuda`.
#[starlark_module]
pub(crate) fn functions(builder: &mut GlobalsBuilder) {
    fn Stream<'v>(
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(default = 0)] priority: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<StreamValue> {
        let _ = (device, priority);
        let stream = process(eval)?.dist()?.new_stream();
        stream.map(StreamValue).ok_or_else(|| anyhow::anyhow!("a rank has at most 1000 streams"))
    }

    fn Event<'v>(
        #[starlark(default = false)] enable_timing: bool,
        #[starlark(default = false)] blocking: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<EventValue> {
        let _ = (enable_timing, blocking);
        event(StreamEvent::default(), eval)
    }

    fn current_stream<'v>(
        #[starlark(default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<StreamValue> {
        let _ = device;
        Ok(StreamValue(process(eval)?.dist()?.current_stream()))
    }

    fn default_stream<'v>(
        #[starlark(default = NoneType)] device: Value<'v>,
    ) -> anyhow::Result<StreamValue> {
        let _ = device;
        Ok(StreamValue(lockstep_torch::c10d::Stream::DEFAULT))
    }

    /// `with torch.cuda.stream(s):`
    fn stream<'v>(
        stream: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<ContextValue> {
        let before = lockstep_torch::c10d::Stream::DEFAULT;
        Ok(ContextValue(Context::Stream { stream: stream_of(stream, eval)?, before }))
    }
}

#[starlark_module]
fn stream_methods(builder: &mut MethodsBuilder) {
    fn wait_stream<'v>(
        this: Value<'v>,
        stream: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let (this, other) = (stream_of(this, eval)?, stream_of(stream, eval)?);
        let dist = process(eval)?.dist()?;
        let now = dist.record_event(other);
        dist.wait_event(this, &now).map_err(refused)?;
        Ok(NoneType)
    }

    fn wait_event<'v>(
        this: Value<'v>,
        event: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let (this, at) = (stream_of(this, eval)?, event_of(event)?);
        let moment = moment(at, eval)?;
        process(eval)?.dist()?.wait_event(this, &moment).map_err(refused)?;
        Ok(NoneType)
    }

    fn record_event<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<EventValue> {
        let stream = stream_of(this, eval)?;
        let now = process(eval)?.dist()?.record_event(stream);
        event(now, eval)
    }

    fn synchronize<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let stream = stream_of(this, eval)?;
        let dist = process(eval)?.dist()?;
        let now = dist.record_event(stream);
        dist.synchronize_event(&now).map_err(refused)?;
        Ok(NoneType)
    }
}

#[starlark_module]
fn event_methods(builder: &mut MethodsBuilder) {
    fn record<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] stream: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let (at, stream) = (event_of(this)?, stream_of(stream, eval)?);
        let process = process(eval)?;
        let now = process.dist()?.record_event(stream);
        if let Some(event) = process.events.get_mut(at) {
            *event = now;
        }
        Ok(NoneType)
    }

    fn wait<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] stream: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let (at, stream) = (event_of(this)?, stream_of(stream, eval)?);
        let moment = moment(at, eval)?;
        process(eval)?.dist()?.wait_event(stream, &moment).map_err(refused)?;
        Ok(NoneType)
    }

    fn synchronize<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let at = event_of(this)?;
        let moment = moment(at, eval)?;
        process(eval)?.dist()?.synchronize_event(&moment).map_err(refused)?;
        Ok(NoneType)
    }
}
