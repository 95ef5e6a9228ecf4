//! Tensors as PyTorch prints them (torch/_tensor_str.py), where every element is known and there are no
//! more than it shows whole.

use crate::dist::values::TensorValue;
use crate::process::state::process;
use crate::tensor::elementwise::known;
use lockstep_core::dtype::Dtype;
use lockstep_torch::c10d::{Device, Tensor};
use starlark::eval::Evaluator;
use starlark::values::{Value, ValueLike};

/// The number of elements above which PyTorch leaves out the middle ones.
const THRESHOLD: u64 = 1000;
/// Columns of a line.
const LINE_WIDTH: usize = 80;
/// The width of `tensor(`.
const INDENT: usize = 7;

/// The format of a tensor's elements, each as wide as the widest.
struct Formatter {
    dtype: Dtype,
    whole: bool,
    scientific: bool,
    width: usize,
}

/// As Python's `.4e`: an exponent has a sign and two digits at least.
fn scientific(value: f64) -> String {
    let shown = format!("{value:.4e}");
    let Some((number, exponent)) = shown.split_once('e') else { return shown };
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{number}e{sign}{digits:0>2}")
}

/// The text of a NaN or an infinity, as Python shows it.
fn special(value: f64) -> Option<&'static str> {
    match value {
        value if value.is_nan() => Some("nan"),
        value if value.is_infinite() => Some(if value > 0.0 { "inf" } else { "-inf" }),
        _ => None,
    }
}

impl Formatter {
    fn of(dtype: Dtype, values: &[f64]) -> Formatter {
        let mut own = Formatter { dtype, whole: true, scientific: false, width: 1 };
        if !dtype.is_float() {
            own.width = values.iter().map(|value| own.element(*value).len()).max().unwrap_or(1);
            return own;
        }
        let shown: Vec<f64> =
            values.iter().copied().filter(|value| value.is_finite() && *value != 0.0).collect();
        let least = shown.iter().fold(f64::INFINITY, |least, value| least.min(value.abs()));
        let most = shown.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        if shown.is_empty() {
            return own;
        }
        own.whole = shown.iter().all(|value| libm::ceil(*value) == *value);
        let far = most / least > 1000.0 || most > 1e8;
        own.scientific = far || (!own.whole && least < 1e-4);
        own.width = shown.iter().map(|value| own.element(*value).len()).max().unwrap_or(1);
        own
    }

    fn element(&self, value: f64) -> String {
        if self.dtype == Dtype::Bool {
            return if value == 0.0 { "False" } else { "True" }.to_owned();
        }
        if !self.dtype.is_float() {
            return format!("{value:.0}");
        }
        match special(value) {
            Some(special) => special.to_owned(),
            None if self.scientific => scientific(value),
            None if self.whole => format!("{value:.0}."),
            None => format!("{value:.4}"),
        }
    }

    fn padded(&self, value: f64) -> String {
        format!("{:>1$}", self.element(value), self.width)
    }

    /// Elements of that shape, behind so many columns.
    fn text(&self, shape: &[u64], values: &[f64], indent: usize) -> String {
        let Some((first, inner)) = shape.split_first() else {
            return values.first().map_or_else(String::new, |value| self.padded(*value));
        };
        if inner.is_empty() {
            let each = (LINE_WIDTH.saturating_sub(indent) / (self.width + 2)).max(1);
            let line = |line: &[f64]| {
                line.iter().map(|value| self.padded(*value)).collect::<Vec<_>>().join(", ")
            };
            let lines: Vec<String> = values.chunks(each).map(line).collect();
            return format!("[{}]", lines.join(&format!(",\n{:1$}", "", indent + 1)));
        }
        let size = (values.len() as u64 / (*first).max(1)).max(1) as usize;
        let parts: Vec<String> =
            values.chunks(size).map(|part| self.text(inner, part, indent + 1)).collect();
        let between = format!(",{}{:2$}", "\n".repeat(inner.len()), "", indent + 1);
        format!("[{}]", parts.join(&between))
    }
}

/// A tensor with those elements.
fn text(of: &Tensor, values: &[f64]) -> String {
    let dtype = of.dtype();
    let mut behind = Vec::new();
    if of.device() != Device::Cpu {
        behind.push(format!("device='cuda:{}'", of.device_index()));
    }
    let (elements, default) = match values.is_empty() {
        true => {
            if of.shape().len() != 1 {
                let sizes: Vec<String> = of.shape().iter().map(u64::to_string).collect();
                behind.push(format!("size=({})", sizes.join(", ")));
            }
            ("[]".to_owned(), dtype == Dtype::Float32)
        }
        false => (
            Formatter::of(dtype, values).text(of.shape(), values, INDENT),
            matches!(dtype, Dtype::Float32 | Dtype::Int64 | Dtype::Bool),
        ),
    };
    if !default {
        behind.push(format!("dtype=torch.{}", dtype.name()));
    }
    let mut made = format!("tensor({elements}");
    let mut last = made.len() - made.rfind('\n').unwrap_or(0) + 1;
    if !made.contains('\n') {
        last += 1;
    }
    for suffix in behind {
        if last + suffix.len() + 2 > LINE_WIDTH {
            made.push_str(&format!(",\n{:INDENT$}{suffix}", ""));
            last = INDENT + suffix.len();
        } else {
            made.push_str(&format!(", {suffix}"));
            last += suffix.len() + 2;
        }
    }
    made.push(')');
    made
}

/// A tensor as PyTorch prints it; `None` if its elements are not known, or are too many.
///
/// # Errors
/// No rank is running.
pub(crate) fn shown<'v>(
    value: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Option<String>> {
    let Some(TensorValue(of)) = value.downcast_ref::<TensorValue>() else { return Ok(None) };
    if of.numel() > THRESHOLD || of.dtype().is_complex() || of.grad_fn().is_some() {
        return Ok(None);
    }
    let process = process(eval)?;
    if !process.is_rank() || crate::nn::parameter::parameter_of(of).is_some() {
        return Ok(None);
    }
    Ok(known(process, of)?.map(|values| text(of, &values)))
}

/// The value that a format takes: the number of a tensor without dimensions, if it is known.
///
/// # Errors
/// No rank is running.
pub(crate) fn formatted<'v>(
    value: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    match value.downcast_ref::<TensorValue>() {
        Some(TensorValue(of)) if of.shape().is_empty() && shown(value, eval)?.is_some() => {
            crate::tensor::elementwise::item(value, eval)
        }
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(dtype: Dtype, shape: &[u64], values: &[f64]) -> String {
        text(&Tensor::nothing(Device::Cpu).to_be_made(0, dtype, shape), values)
    }

    /// The output of PyTorch 2.7.1 for the same tensors.
    #[test]
    fn tensors_are_shown_as_pytorch_shows_them() {
        use Dtype::{Bool, Float32, Float64, Int32, Int64};
        let counted: Vec<f64> = (0..30).map(f64::from).collect();
        for (dtype, shape, values, shown) in [
            (Float32, &[2, 2][..], &[0.0; 4][..], "tensor([[0., 0.],\n        [0., 0.]])"),
            (Int64, &[], &[3.0], "tensor(3)"),
            (Float32, &[], &[2.5], "tensor(2.5000)"),
            (Bool, &[2], &[1.0, 0.0], "tensor([ True, False])"),
            (Float64, &[2], &[1.0, 1.0], "tensor([1., 1.], dtype=torch.float64)"),
            (Int32, &[3], &[0.0; 3], "tensor([0, 0, 0], dtype=torch.int32)"),
            (
                Float32,
                &[2, 2],
                &[1.0, 2.5, 1000.0, 3.0],
                "tensor([[   1.0000,    2.5000],\n        [1000.0000,    3.0000]])",
            ),
            (Float32, &[2], &[1e-8, 1.0], "tensor([1.0000e-08, 1.0000e+00])"),
            (Float32, &[3], &[f64::NAN, f64::INFINITY, -1.0], "tensor([nan, inf, -1.])"),
            (Float32, &[2], &[1e8, 1.0], "tensor([1.0000e+08, 1.0000e+00])"),
            (Int64, &[3], &[-1.0, 20.0, 300.0], "tensor([ -1,  20, 300])"),
            (Float32, &[0], &[], "tensor([])"),
            (
                Int64,
                &[2, 2, 2],
                &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
                "tensor([[[0, 1],\n         [2, 3]],\n\n        [[4, 5],\n         [6, 7]]])",
            ),
            (
                Float32,
                &[30],
                &counted,
                "tensor([ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12., 13.,\n        \
                 14., 15., 16., 17., 18., 19., 20., 21., 22., 23., 24., 25., 26., 27.,\n        28., \
                 29.])",
            ),
        ] {
            assert_eq!(text_of(dtype, shape, values), shown);
        }
    }
}
