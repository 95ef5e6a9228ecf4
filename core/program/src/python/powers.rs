//! `pow`, `**` and `<<`: of whole numbers exact, and bounded.

use crate::classes::operators;
use crate::process::raised::raised;
use crate::python::numbers::{counted, is_value, real};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::{Heap, Value};

/// A text or a power that is refused: longer than a program needs.
const MAX_BITS: u64 = 1 << 16;

/// `base ** exponent` of whole numbers, by squaring.
fn whole_power<'v>(base: Value<'v>, exponent: u32, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
    let mut power = heap.alloc(1);
    for bit in (0..32 - exponent.leading_zeros()).rev() {
        power = power.mul(power, heap)?;
        if exponent >> bit & 1 == 1 {
            power = power.mul(base, heap)?;
        }
    }
    Ok(power)
}

/// `base ** exponent`.
pub(crate) fn power<'v>(
    base: Value<'v>,
    exponent: Value<'v>,
    heap: Heap<'v>,
) -> starlark::Result<Value<'v>> {
    let native = |error: anyhow::Error| starlark::Error::new_native(error);
    if [base, exponent].iter().any(|of| of.get_type() == "Tensor") {
        return crate::tensor::operators::power(base, exponent, heap);
    }
    if matches!(base.get_type(), "Output") || is_value(base) {
        return Ok(base);
    }
    if is_value(exponent) {
        return Ok(exponent);
    }
    let whole = exponent.unpack_i32().filter(|_| base.get_type() == "int");
    if let Some(exponent) = whole.and_then(|exponent| u32::try_from(exponent).ok()) {
        let bits = base.to_str().trim_start_matches('-').len() as u64 * 4;
        let one = matches!(base.unpack_i32(), Some(-1..=1));
        if !one && bits.saturating_mul(u64::from(exponent)) > MAX_BITS {
            return Err(native(anyhow::anyhow!("a number of more than {MAX_BITS} bits")));
        }
        return whole_power(base, exponent, heap);
    }
    let (of, to) = (real(base).map_err(native)?, real(exponent).map_err(native)?);
    if of == 0.0 && to < 0.0 {
        let text = "ZeroDivisionError: 0.0 cannot be raised to a negative power";
        return Err(native(raised(text)));
    }
    Ok(heap.alloc(libm::pow(of, to)))
}

/// `number << bits`. The interpreter's own wraps around at 32 bits: its `1 << 31` is negative.
pub(crate) fn shifted<'v>(
    number: Value<'v>,
    bits: Value<'v>,
    heap: Heap<'v>,
) -> starlark::Result<Value<'v>> {
    let whole = counted(number, heap);
    match whole.get_type() == "int" && bits.unpack_i32() >= Some(0) {
        true => whole.mul(power(heap.alloc(2), bits, heap)?, heap),
        false => number.left_shift(bits, heap),
    }
}

#[starlark_module]
pub(super) fn add(builder: &mut GlobalsBuilder) {
    fn pow<'v>(
        base: Value<'v>,
        exponent: Value<'v>,
        #[starlark(default = NoneType)] modulus: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        if let Some(own) = operators::made(("**", false), base, exponent, eval)? {
            return Ok(own);
        }
        let heap = eval.heap();
        let power = power(base, exponent, heap)?;
        if modulus.is_none() { Ok(power) } else { power.percent(modulus, heap) }
    }

    /// `number << bits`.
    fn _shifted<'v>(
        #[starlark(require = pos)] number: Value<'v>,
        #[starlark(require = pos)] bits: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        shifted(number, bits, heap)
    }
}
