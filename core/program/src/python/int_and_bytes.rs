//! `int(…)`, and texts as bytes.

use crate::process::raised::Raised;
use crate::process::undecided::{Number, UnknownValue};
use crate::python::numbers::number;
use crate::python::type_error::{class_of, type_error};
use crate::stores::bytes::{BytesValue, bytes_of};
use crate::stores::unknown_answer::LateValue;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::{Value, ValueLike};

/// Adds the functions that the rewritten Python calls: `b"…"` and `int(…)`.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn _bytes(text: &str) -> anyhow::Result<BytesValue> {
        let bytes: Option<Vec<u8>> =
            text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
        let wrong = || anyhow::anyhow!("bytes can only contain ASCII literal characters");
        bytes.map(BytesValue).ok_or_else(wrong)
    }

    /// `int(…)`, also of bytes.
    fn _int<'v>(
        value: Value<'v>,
        #[starlark(default = 10)] base: u32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let value = match value.get_type() {
            "Tensor" => crate::tensor::elementwise::item(value, eval)?,
            _ => value,
        };
        let wrong = "int() argument must be a string, a bytes-like object or a real number, not ";
        let methods = ["__int__", "__index__", "__trunc__"];
        if let Some(own) = crate::classes::special_methods::number(value, &methods, wrong, eval)? {
            return Ok(own);
        }
        if let Some(unknown) = value.downcast_ref::<UnknownValue>() {
            anyhow::ensure!(unknown.is_value(), "{}", unknown.what());
            return Ok(heap.alloc(unknown.as_number(Number::Whole)));
        }
        if value.get_type() == "int" || value.downcast_ref::<LateValue>().is_some() {
            return Ok(value);
        }
        if let Some(whole) = value.unpack_bool() {
            return Ok(heap.alloc(i32::from(whole)));
        }
        if value.get_type() == "float" {
            let float = number(value, "a number")?;
            anyhow::ensure!(float.abs() < 9e18, "int() of a number that is too large, or of none");
            return Ok(heap.alloc(float as i64));
        }
        let Some(bytes) = bytes_of(value) else {
            return Err(type_error(format!(
                "int() argument must be a string, a bytes-like object or a real number, not '{}'",
                class_of(value)
            )));
        };
        let text = String::from_utf8_lossy(&bytes).trim().replace('_', "");
        let digits = match base {
            16 => text.trim_start_matches("0x"),
            8 => text.trim_start_matches("0o"),
            2 => text.trim_start_matches("0b"),
            _ => &text,
        };
        let number = (2..=36).contains(&base).then(|| i64::from_str_radix(digits, base).ok());
        match number.flatten() {
            Some(number) => Ok(heap.alloc(number)),
            None => {
                let shown = match value.unpack_str() {
                    Some(text) => format!("'{text}'"),
                    None => value.to_repr(),
                };
                let text =
                    format!("ValueError: invalid literal for int() with base {base}: {shown}");
                Err(anyhow::Error::new(Raised { text, help: None }))
            }
        }
    }
}
