//! Python's `math`, and the parts of `random` and `sys` that a program can have.

use crate::process::raised::raised;
use crate::process::undecided::{Number, UnknownValue};
use crate::python::numbers::real;
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::dict::AllocDict;
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{AllocValue, Heap, Value, ValueLike};

/// Adds them.
pub(super) fn add(builder: &mut GlobalsBuilder) {
    builder.namespace("math", |builder| {
        math(builder);
        builder.set("pi", std::f64::consts::PI);
        builder.set("e", std::f64::consts::E);
        builder.set("tau", std::f64::consts::TAU);
        builder.set("inf", f64::INFINITY);
        builder.set("nan", f64::NAN);
    });
    builder.namespace("random", random);
    builder.namespace("sys", |builder| {
        crate::python::process_exit::of_sys(builder);
        // The imported modules; programs only ask if it has a name.
        builder.set("modules", AllocDict::<[(&str, i32); 0]>([]));
        builder.namespace("stdout", stream);
        builder.namespace("stderr", stream);
    });
}

/// A whole number of a float that has been rounded.
fn whole<'v>(number: f64, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    anyhow::ensure!(number.abs() < 9e18, "a number that is too large here, or none");
    Ok(heap.alloc(number as i64))
}

/// The result of a function on a number; for a number that only a run knows, another such number.
fn made<'v, T: AllocValue<'v>>(
    x: Value<'v>,
    number: Number,
    heap: Heap<'v>,
    with: impl FnOnce(f64) -> anyhow::Result<T>,
) -> anyhow::Result<Value<'v>> {
    if let Some(unknown) = x.downcast_ref::<UnknownValue>().filter(|own| own.is_value()) {
        return Ok(heap.alloc(unknown.as_number(number)));
    }
    Ok(heap.alloc(with(real(x)?)?))
}

fn domain() -> anyhow::Error {
    raised("ValueError: math domain error")
}

#[starlark_module]
fn math(builder: &mut GlobalsBuilder) {
    fn sqrt<'v>(x: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        made(x, Number::Real, heap, |x| if x < 0.0 { Err(domain()) } else { Ok(x.sqrt()) })
    }

    fn ceil<'v>(x: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        if x.get_type() == "int" { Ok(x) } else { whole(real(x)?.ceil(), heap) }
    }

    fn floor<'v>(x: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        if x.get_type() == "int" { Ok(x) } else { whole(real(x)?.floor(), heap) }
    }

    fn trunc<'v>(x: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        if x.get_type() == "int" { Ok(x) } else { whole(real(x)?.trunc(), heap) }
    }

    fn fabs<'v>(x: Value<'v>) -> anyhow::Result<f64> {
        Ok(real(x)?.abs())
    }

    fn exp<'v>(x: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        made(x, Number::Real, heap, |x| Ok(libm::exp(x)))
    }

    fn log<'v>(
        x: Value<'v>,
        #[starlark(default = NoneType)] base: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        made(x, Number::Real, heap, |x| {
            if x <= 0.0 {
                return Err(domain());
            }
            Ok(if base.is_none() { libm::log(x) } else { libm::log(x) / libm::log(real(base)?) })
        })
    }

    fn log2<'v>(x: Value<'v>) -> anyhow::Result<f64> {
        let x = real(x)?;
        if x <= 0.0 { Err(domain()) } else { Ok(libm::log2(x)) }
    }

    fn log10<'v>(x: Value<'v>) -> anyhow::Result<f64> {
        let x = real(x)?;
        if x <= 0.0 { Err(domain()) } else { Ok(libm::log10(x)) }
    }

    fn pow<'v>(x: Value<'v>, y: Value<'v>) -> anyhow::Result<f64> {
        Ok(libm::pow(real(x)?, real(y)?))
    }

    fn sin<'v>(x: Value<'v>) -> anyhow::Result<f64> {
        Ok(libm::sin(real(x)?))
    }

    fn cos<'v>(x: Value<'v>) -> anyhow::Result<f64> {
        Ok(libm::cos(real(x)?))
    }

    fn tanh<'v>(x: Value<'v>) -> anyhow::Result<f64> {
        Ok(libm::tanh(real(x)?))
    }

    fn isnan<'v>(x: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        made(x, Number::Bool, heap, |x| Ok(x.is_nan()))
    }

    fn isinf<'v>(x: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        made(x, Number::Bool, heap, |x| Ok(x.is_infinite()))
    }

    fn isfinite<'v>(x: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        made(x, Number::Bool, heap, |x| Ok(x.is_finite()))
    }

    fn gcd(x: i64, y: i64) -> anyhow::Result<i64> {
        let (mut x, mut y) = (x.saturating_abs(), y.saturating_abs());
        while y != 0 {
            (x, y) = (y, x % y);
        }
        Ok(x)
    }

    fn prod<'v>(items: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        items.iterate(heap)?.try_fold(heap.alloc(1), |product, item| product.mul(item, heap))
    }
}

/// Random numbers are not Python's, so there are none.
fn none_random() -> anyhow::Error {
    anyhow::anyhow!(
        "there are no random numbers here: what ranks do must be the same each time. Write the \
         numbers that you mean, or follow them from dist.get_rank() and the step"
    )
}

#[starlark_module]
fn random(builder: &mut GlobalsBuilder) {
    fn seed<'v>(#[starlark(args)] args: UnpackTuple<Value<'v>>) -> anyhow::Result<NoneType> {
        let _ = args;
        Ok(NoneType)
    }

    fn random() -> anyhow::Result<NoneType> {
        Err(none_random())
    }

    fn randint<'v>(#[starlark(args)] args: UnpackTuple<Value<'v>>) -> anyhow::Result<NoneType> {
        let _ = args;
        Err(none_random())
    }

    fn uniform<'v>(#[starlark(args)] args: UnpackTuple<Value<'v>>) -> anyhow::Result<NoneType> {
        let _ = args;
        Err(none_random())
    }

    fn choice<'v>(#[starlark(args)] args: UnpackTuple<Value<'v>>) -> anyhow::Result<NoneType> {
        let _ = args;
        Err(none_random())
    }

    fn shuffle<'v>(#[starlark(args)] args: UnpackTuple<Value<'v>>) -> anyhow::Result<NoneType> {
        let _ = args;
        Err(none_random())
    }
}

#[starlark_module]
fn stream(builder: &mut GlobalsBuilder) {
    fn flush() -> anyhow::Result<NoneType> {
        Ok(NoneType)
    }
}
