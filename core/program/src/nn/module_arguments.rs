//! The shape of a module's output by the arguments that it is made with.

use crate::dist::arguments as take;
use crate::nn::output_shape::{Returned, Shape, Weights, Window};
use crate::python::numbers;
use crate::tensor::value::tensor_in;
use starlark::eval::Arguments;
use starlark::values::dict::UnpackDictEntries;
use starlark::values::{Heap, Value};

/// A number for each dimension, of one for all or one each.
fn each(value: Option<Value<'_>>, dims: usize, none: u64) -> Option<Vec<u64>> {
    let Some(value) = value.filter(|value| !value.is_none()) else { return Some(vec![none; dims]) };
    let one = |value: Value<'_>| numbers::whole(value, "a size").ok()?.try_into().ok();
    match take::items(value) {
        Some(items) => {
            let all: Option<Vec<u64>> = items.into_iter().map(one).collect();
            all.filter(|all| all.len() == dims)
        }
        None => Some(vec![one(value)?; dims]),
    }
}

/// The arguments of a call, by place and by name.
pub(crate) struct Given<'v> {
    pub(crate) more: Vec<Value<'v>>,
    pub(crate) named: Vec<(&'v str, Value<'v>)>,
}

impl<'v> Given<'v> {
    /// # Errors
    /// The arguments cannot be unpacked.
    pub(crate) fn of(args: &Arguments<'v, '_>, heap: Heap<'v>) -> starlark::Result<Given<'v>> {
        let more = args.positions(heap)?.collect();
        let named = args.names_map()?;
        let named = named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        Ok(Given { more, named })
    }

    /// All of them.
    pub(crate) fn rest(&self) -> Rest<'_, 'v> {
        Rest { more: &self.more, named: &self.named }
    }
}

/// The arguments of a module behind its first ones, by place or name.
pub(crate) struct Rest<'a, 'v> {
    pub(crate) more: &'a [Value<'v>],
    pub(crate) named: &'a [(&'a str, Value<'v>)],
}

impl<'a, 'v> Rest<'a, 'v> {
    pub(crate) fn of(
        more: &'a [Value<'v>],
        named: &'a UnpackDictEntries<&'v str, Value<'v>>,
    ) -> Rest<'a, 'v> {
        Rest { more, named: &named.entries }
    }

    /// The argument of that name, or at that place.
    pub(crate) fn get(&self, name: &str, nth: usize) -> Option<Value<'v>> {
        let named = self.named.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
        named.or_else(|| self.more.get(nth).copied())
    }
}

/// The outputs of a module of that shape for the arguments of its call, of which the first tensor has the shape
/// `input`.
pub(crate) fn returned(shape: &Shape, input: Option<&[u64]>, call: &Rest<'_, '_>) -> Returned {
    let of = |name: &str, nth: usize| {
        let tensor = call.get(name, nth).and_then(tensor_in);
        tensor.map(|tensor| tensor.shape().to_vec())
    };
    let set = |name: &str, nth: usize| call.get(name, nth).is_none_or(Value::to_bool);
    match shape {
        Shape::Sequence(sequence) => sequence.returned(input),
        Shape::Attention(heads) => {
            let weights = match (set("need_weights", 4), set("average_attn_weights", 6)) {
                (false, _) => Weights::Nothing,
                (true, true) => Weights::Averaged,
                (true, false) => Weights::OfEachHead,
            };
            heads.returned(input, of("key", 1).as_deref(), weights)
        }
        Shape::Target => Returned::Tensor(of("tgt", 1)),
        shape => Returned::Tensor(input.and_then(|input| shape.of(input))),
    }
}

/// A pooling module, or function of that name.
pub(crate) fn pooling(name: &str, rest: &Rest<'_, '_>) -> Option<Shape> {
    match name {
        "MaxPool1d" | "AvgPool1d" | "max_pool1d" | "avg_pool1d" => Shape::pool(1, rest),
        "MaxPool2d" | "AvgPool2d" | "max_pool2d" | "avg_pool2d" => Shape::pool(2, rest),
        name if name.ends_with("1d") => each(rest.get("output_size", 0), 1, 1).map(Shape::Last),
        _ => each(rest.get("output_size", 0), 2, 1).map(Shape::Last),
    }
}

impl Shape {
    /// `nn.Conv1d` and `nn.Conv2d`.
    pub(crate) fn convolution(channels: [u64; 2], kernel: &[u64], rest: &Rest<'_, '_>) -> Shape {
        let dims = kernel.len();
        let stride = each(rest.get("stride", 0), dims, 1);
        let padding = each(rest.get("padding", 1), dims, 0);
        let dilation = each(rest.get("dilation", 2), dims, 1);
        let (Some(stride), Some(padding), Some(dilation)) = (stride, padding, dilation) else {
            return Shape::Unknown;
        };
        let windows = (0..dims).map(|at| Window {
            kernel: kernel[at],
            stride: stride[at],
            padding: padding[at],
            dilation: dilation[at],
        });
        Shape::Window(Some(channels), windows.collect())
    }

    fn pool(dims: usize, rest: &Rest<'_, '_>) -> Option<Shape> {
        let kernel = each(Some(rest.get("kernel_size", 0)?), dims, 1)?;
        let own = rest.get("stride", 1).filter(|stride| !stride.is_none());
        let stride = if own.is_some() { each(own, dims, 1)? } else { kernel.clone() };
        let padding = each(rest.get("padding", 2), dims, 0)?;
        let ceils = rest.get("ceil_mode", 5).is_some_and(Value::to_bool);
        let spread = rest.get("dilation", 3).is_some();
        let window = |at: usize| {
            let (kernel, stride, padding) = (kernel[at], stride[at], padding[at]);
            Window { kernel, stride, padding, dilation: 1 }
        };
        (!ceils && !spread).then(|| Shape::Window(None, (0..dims).map(window).collect()))
    }

    /// A module of `torch.nn` without parameters.
    pub(crate) fn bare(name: &str, rest: &Rest<'_, '_>) -> Shape {
        let of = match name {
            name if name.contains("Pool") => pooling(name, rest),
            "Flatten" if rest.more.is_empty() && rest.named.is_empty() => Some(Shape::Flatten),
            "Flatten" | "Upsample" | "Unflatten" => None,
            _ => Some(Shape::Same),
        };
        of.unwrap_or(Shape::Unknown)
    }
}
