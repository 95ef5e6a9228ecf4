//! `Work` and `Future`: a program's questions about a call that is under way.

use crate::dist::future_callbacks;
use crate::dist::values::{FutureValue, WorkValue};
use crate::process::raised::refused;
use crate::process::state::process;
use crate::process::undecided::Unknown;
use crate::python::float::float_of;
use crate::python::type_error::{class_of, type_error};
use crate::tensor::value::TensorValue;
use lockstep_core::plan::WorkQuery;
use lockstep_torch::c10d::{self, Called, DistError, ErrorKind};
use starlark::environment::{Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::list::AllocList;
use starlark::values::none::{NoneOr, NoneType};
use starlark::values::{Heap, StarlarkValue, Value, ValueLike};
use starlark::{methods_static, starlark_module};
use starlark_derive::starlark_value;

#[starlark_value(type = "Future")]
impl<'v> StarlarkValue<'v> for FutureValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(crate::dist::work::future_methods())
    }
}

#[starlark_value(type = "Work")]
impl<'v> StarlarkValue<'v> for WorkValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(crate::dist::work::methods())
    }
}

methods_static!(WORK_METHODS = work_methods);

methods_static!(FUTURE_METHODS = of_future);

/// A work's.
pub(crate) fn methods() -> &'static Methods {
    WORK_METHODS.methods()
}

/// A future's.
pub(crate) fn future_methods() -> &'static Methods {
    FUTURE_METHODS.methods()
}

/// The work that a method is called on.
fn work(this: Value<'_>) -> anyhow::Result<c10d::Work> {
    let value = this.downcast_ref::<WorkValue>().map(|value| value.0);
    let value = value.or_else(|| this.downcast_ref::<FutureValue>().map(|value| value.0));
    value.ok_or_else(|| anyhow::anyhow!("{} is no work", class_of(this)))
}

/// `timeout=` of `wait`: a `timedelta`, or a float of seconds, which pybind11 takes for one.
fn within(timeout: Value<'_>) -> anyhow::Result<u64> {
    if let Some(seconds) = float_of(timeout) {
        return Ok((seconds.max(0.0) * 1e3) as u64);
    }
    match crate::dist::arguments::timeout(timeout) {
        Some(c10d::Arg::Is(timeout)) => Ok(timeout),
        _ => Err(type_error(format!(
            "wait(): incompatible function arguments. The following argument types are \
             supported:\n    1. (self: torch._C._distributed_c10d.Work, timeout: datetime.timedelta \
             = datetime.timedelta(0)) -> bool\n\nInvoked with: \
             <torch.distributed.distributed_c10d.Work object at 0xADDR>, {}",
            crate::dist::arguments::repr(timeout)
        ))),
    }
}

/// Asks a work; the answer is recorded in the trace.
fn ask(
    this: Value<'_>,
    what: WorkQuery,
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<NoneType> {
    process(eval)?.dist()?.query(work(this)?, what).map_err(refused)?;
    Ok(NoneType)
}

/// Asks a work whether it has completed, which is known here once it was waited for.
fn ask_whether<'v>(
    this: Value<'v>,
    what: WorkQuery,
    question: &'static str,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    ask(this, what, eval)?;
    let process = process(eval)?;
    Ok(match process.dist()?.has_completed(work(this)?) {
        true => Value::new_bool(true),
        false => heap.alloc(process.unknown(Unknown::Work { question })),
    })
}

/// The error that the conversion of `std::exception_ptr` ends in.
const NO_EXCEPTION: &str = "Unable to convert function return value to a Python type! The signature \
     was\n\t(self: torch._C._distributed_c10d.Work) -> std::__exception_ptr::exception_ptr\n\nDid you \
     forget to `#include <pybind11/stl.h>`? Or <pybind11/complex.h>,\n<pybind11/functional.h>, \
     <pybind11/chrono.h>, etc. Some automatic\nconversions are optional and require extra headers to be \
     included\nwhen compiling your pybind11 module.";

/// The tensors that a call has written, where it is known that it has completed.
fn result_of<'v>(
    this: Value<'v>,
    question: &'static str,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    let process = process(eval)?;
    Ok(match process.dist()?.result(work(this)?).map_err(refused)? {
        Some(tensors) => heap.alloc(AllocList(tensors.into_iter().map(TensorValue))),
        None => heap.alloc(process.unknown(Unknown::Work { question })),
    })
}

/// The value of a future, without a question to the work.
fn value_of<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    let process = process(eval)?;
    Ok(match process.dist()?.written(work(this)?).map_err(refused)? {
        Some(tensors) => heap.alloc(AllocList(tensors.into_iter().map(TensorValue))),
        None => heap.alloc(process.unknown(Unknown::Work { question: "value()" })),
    })
}

#[starlark_module]
fn work_methods(builder: &mut MethodsBuilder) {
    fn wait<'v>(
        this: Value<'v>,
        #[starlark(default = NoneOr::None)] timeout: NoneOr<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<bool> {
        let timeout = timeout.into_option().map(within).transpose()?;
        let work = work(this)?;
        let waited = process(eval)?.dist()?.wait(work, timeout).map_err(refused)?;
        future_callbacks::completed(work, eval)?;
        Ok(waited)
    }

    fn is_completed<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        ask_whether(this, WorkQuery::IsCompleted, "is_completed()", eval)
    }

    fn is_success<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        ask_whether(this, WorkQuery::IsSuccess, "is_success()", eval)
    }

    fn exception(this: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<NoneType> {
        ask(this, WorkQuery::Exception, eval)?;
        Err(refused(
            DistError::new(ErrorKind::TypeError, NO_EXCEPTION)
                .with_help("PyTorch 2.7 cannot hand the exception to Python. wait() raises it."),
        ))
    }

    fn result<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        result_of(this, "result()", eval)
    }

    /// The group rank that a receive got its tensor from.
    fn source_rank<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let work = work(this)?;
        let process = process(eval)?;
        let source = process.dist()?.source_rank(work).map_err(refused)?;
        if !process.dist()?.has_completed(work) {
            let question = "source_rank()";
            return Ok(heap.alloc(process.unknown(Unknown::Work { question })));
        }
        Ok(match source {
            Some(source) => heap.alloc(source.0),
            None => heap.alloc(process.unknown(Unknown::Sender)),
        })
    }

    fn get_future(
        this: Value<'_>,
        eval: &mut Evaluator<'_, '_, '_>,
    ) -> anyhow::Result<FutureValue> {
        process(eval)?.dist()?.get_future(work(this)?).map(FutureValue).map_err(refused)
    }

    /// Only NCCL's works have such a future, which says how they ended.
    fn get_future_result(this: Value<'_>) -> anyhow::Result<NoneType> {
        let _ = work(this)?;
        let text = "Work::getFutureResult not implemented.";
        Err(refused(DistError::new(ErrorKind::RuntimeError, text)))
    }

    fn synchronize(this: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<NoneType> {
        process(eval)?.dist()?.synchronize_work(work(this)?).map_err(refused)?;
        Ok(NoneType)
    }
}

#[starlark_module]
fn of_future(builder: &mut MethodsBuilder) {
    /// Waits, and returns the tensors that the call has written.
    fn wait<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        let work = work(this)?;
        process(eval)?.dist()?.wait(work, None).map_err(refused)?;
        future_callbacks::completed(work, eval)?;
        value_of(this, eval)
    }

    fn value<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        value_of(this, eval)
    }

    /// The future of the result of `callback(future)`, called once the call has completed.
    fn then<'v>(
        this: Value<'v>,
        callback: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<future_callbacks::ThenValue> {
        future_callbacks::then(this, work(this)?, callback, eval)
    }

    /// Has the callback called with the future once the call has completed.
    fn add_done_callback<'v>(
        this: Value<'v>,
        callback: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        future_callbacks::then(this, work(this)?, callback, eval).map(|_| NoneType)
    }

    fn done<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        ask_whether(this, WorkQuery::FutureDone, "done()", eval)
    }
}

/// The future of a call that is made as one of several, where Python has no work.
pub(crate) fn future<'v>(called: Called, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    let work = called.map_err(refused)?;
    Ok(work.map_or(Value::new_none(), |work| heap.alloc(FutureValue(work))))
}

/// A call's work as Python has it: `None` unless there is one.
pub(super) fn called<'v>(called: Called, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    Ok(match called.map_err(refused)? {
        Some(work) => heap.alloc(WorkValue(work)),
        None => Value::new_none(),
    })
}
