//! Functions that Python has and Starlark has not, or answers otherwise.

use super::float::{float_of, read};
use super::format::{conversions, format as formatted, percent};
use super::types::TypeValue;
use crate::classes::operators;
use crate::dist::values::WorkValue;
use crate::process::raised::raised;
use crate::process::state::process;
use crate::process::undecided::{Number, UnknownValue};
use crate::python::builtin_classes::set;
use crate::python::iterators::each;
use crate::python::numbers::{counted, is_value, real};
use crate::python::subclasses::{self, names};
use crate::python::type_error::class_of;
use crate::python::value_methods;
use crate::python::value_text::{self, function_name};
use crate::tensor::deferred;
use crate::tensor::indexing::SLICE;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::dict::UnpackDictEntries;
use starlark::values::list::AllocList;
use starlark::values::none::NoneType;
use starlark::values::tuple::{AllocTuple, TupleRef, UnpackTuple};
use starlark::values::{Heap, Value, ValueLike};

/// Halves to the even neighbour, as Python rounds.
fn to_even(number: f64) -> f64 {
    libm::rint(number)
}

/// Texts of values.
#[starlark_module]
fn texts(builder: &mut GlobalsBuilder) {
    fn str<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<String> {
        let Some(value) = args.items.first() else { return Ok(String::new()) };
        let value = crate::classes::object_text::shown(*value, eval)?;
        Ok(value_text::text(value, eval.heap()))
    }

    fn repr<'v>(value: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<String> {
        let value = crate::classes::object_text::as_repr(value, eval)?;
        Ok(value_text::repr(value, eval.heap()))
    }

    fn format<'v>(
        value: Value<'v>,
        #[starlark(default = "")] spec: &str,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        formatted(value, spec, heap)
    }
}

/// Numbers.
#[starlark_module]
fn numbers(builder: &mut GlobalsBuilder) {
    fn float<'v>(
        #[starlark(default = NoneType)] value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        if value.is_none() {
            return Ok(heap.alloc(0.0));
        }
        let value = match value.get_type() {
            "Tensor" => crate::tensor::elementwise::item(value, eval)?,
            _ => value,
        };
        let wrong = "float() argument must be a string or a real number, not ";
        if let Some(own) = crate::classes::special_methods::number(
            value,
            &["__float__", "__index__"],
            wrong,
            eval,
        )? {
            return Ok(own);
        }
        if let Some(unknown) = value.downcast_ref::<UnknownValue>().filter(|own| own.is_value()) {
            return Ok(heap.alloc(unknown.as_number(Number::Real)));
        }
        let text = match super::super::stores::bytes_of(value) {
            Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            None => return Ok(heap.alloc(real(value)?)),
        };
        let read = read(&text).map(|number| heap.alloc(number));
        read.ok_or_else(|| {
            let shown = match value.unpack_str() {
                Some(text) => value_text::quoted(text),
                None => value.to_repr(),
            };
            raised(format!("ValueError: could not convert string to float: {shown}"))
        })
    }

    fn round<'v>(
        number: Value<'v>,
        #[starlark(default = NoneType)] ndigits: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        if is_value(number) {
            return Ok(number);
        }
        let Some(float) = float_of(number) else {
            real(number)?;
            return Ok(number);
        };
        if ndigits.is_none() {
            anyhow::ensure!(
                float.abs() < 9e18,
                "round() of a number that is too large, or of none"
            );
            return Ok(heap.alloc(to_even(float) as i64));
        }
        let digits = ndigits.unpack_i32().unwrap_or(0).clamp(-300, 300);
        if !float.is_finite() {
            return Ok(number);
        }
        // By its decimal text, as CPython does.
        Ok(heap.alloc(match usize::try_from(digits) {
            Ok(digits) => format!("{float:.digits$}").parse()?,
            Err(_) => {
                let scale = libm::pow(10.0, f64::from(-digits));
                to_even(float / scale) * scale
            }
        }))
    }

    fn divmod<'v>(
        of: Value<'v>,
        by: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<(Value<'v>, Value<'v>)> {
        Ok((of.floor_div(by, heap)?, of.percent(by, heap)?))
    }

    fn sum<'v>(
        items: Value<'v>,
        #[starlark(default = NoneType)] start: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let start = if start.is_none() { heap.alloc(0) } else { start };
        let mut sum = start;
        for item in each(items, eval)? {
            sum = match operators::made(("+", false), sum, item, eval)? {
                Some(own) => own,
                None => sum.add(counted(item, heap), heap)?,
            };
        }
        Ok(sum)
    }
}

/// Classes of values.
#[starlark_module]
fn classes(builder: &mut GlobalsBuilder) {
    fn isinstance<'v>(value: Value<'v>, class: Value<'v>) -> anyhow::Result<bool> {
        if let Some(is) = crate::classes::objects::is_instance(value, class) {
            return Ok(is);
        }
        if crate::python::exceptions::is_one(value) {
            return Ok(crate::python::exceptions::catches(class, value));
        }
        if let Some(is) = crate::nn::modules::is_instance(value, &names(class)) {
            return Ok(is);
        }
        let parameter = crate::nn::parameters::is_parameter(value);
        if parameter && names(class).iter().any(|name| name == "Parameter") {
            return Ok(true);
        }
        let of = match value.downcast_ref::<UnknownValue>() {
            Some(unknown) => unknown.class()?,
            None => class_of(value),
        };
        Ok(names(class).iter().any(|name| match name.as_str() {
            "int" => matches!(of, "int" | "bool"),
            "object" => true,
            name => name == of,
        }))
    }

    fn issubclass<'v>(class: Value<'v>, of: Value<'v>) -> anyhow::Result<bool> {
        subclasses::is_below(class, of)
    }

    /// The number 1 or 0 for a truth value, and any other value as it is.
    fn _counted<'v>(
        #[starlark(require = pos)] value: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        Ok(counted(value, heap))
    }

    /// The type itself, where it has a name of its own: it is compared by its place.
    fn r#type<'v>(value: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        if matches!(value.get_type(), "object" | "exception")
            && let Ok(Some(class)) = value.get_attr("__class__", heap)
        {
            return Ok(class);
        }
        let name = match value.downcast_ref::<UnknownValue>() {
            Some(unknown) => unknown.class()?,
            None => class_of(value),
        };
        let of_nn = match crate::nn::parameters::is_parameter(value) {
            true => Some("Parameter"),
            false => crate::nn::modules::Module::of(value).map(|module| module.class()),
        };
        if let Some(name) = of_nn {
            let torch = process(eval)?.native("torch")?.to_value();
            let nn = torch.get_attr("nn", heap).map_err(starlark::Error::into_anyhow)?;
            let class = nn.map(|nn| nn.get_attr(name, heap)).transpose();
            if let Some(class) = class.map_err(starlark::Error::into_anyhow)?.flatten() {
                return Ok(class);
            }
        }
        let known = process(eval)?.classes.iter().find(|(known, _)| *known == name);
        Ok(match known {
            Some((_, class)) => class.to_value(),
            None => heap.alloc(TypeValue(name.to_owned())),
        })
    }

    /// `class.__name__`.
    fn _name<'v>(class: Value<'v>, heap: Heap<'v>) -> anyhow::Result<String> {
        if let Ok(Some(own)) = class.get_attr("__name__", heap) {
            return Ok(own.unpack_str().unwrap_or_default().to_owned());
        }
        if class.get_type() == "function" {
            return function_name(class).ok_or_else(|| {
                anyhow::anyhow!("what this function is called is not known here: write its name")
            });
        }
        Ok(names(class).into_iter().next().unwrap_or_default())
    }

    fn callable<'v>(value: Value<'v>) -> anyhow::Result<bool> {
        Ok(value.get_type() == "function")
    }
}

/// The functions that the rewritten Python calls.
#[starlark_module]
fn rewritten(builder: &mut GlobalsBuilder) {
    /// `"…" % values`.
    fn _percent<'v>(
        template: Value<'v>,
        values: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        match template.unpack_str() {
            Some(template) => {
                let kinds = conversions(template);
                let mut shown = |(nth, value): (usize, &Value<'v>)| match kinds.get(nth) {
                    Some('r' | 'a') => crate::classes::object_text::as_repr(*value, eval),
                    Some('s') => crate::classes::object_text::shown(*value, eval),
                    _ => crate::classes::object_text::formatted(*value, eval),
                };
                let values = match TupleRef::from_value(values) {
                    Some(several) => {
                        let several = several.content().iter().enumerate();
                        let shown: anyhow::Result<Vec<Value<'v>>> = several.map(shown).collect();
                        shown.map(|shown| heap.alloc(AllocTuple(shown)))
                    }
                    None => shown((0, &values)),
                };
                let values = values.map_err(starlark::Error::new_native)?;
                let text = percent(template, values, heap).map_err(starlark::Error::new_native)?;
                Ok(heap.alloc(text))
            }
            None => template.percent(values, heap),
        }
    }

    /// `{a, b}`, `set(items)`.
    fn _set<'v>(
        #[starlark(default = NoneType)] items: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let items = if items.is_none() { Vec::new() } else { each(items, eval)? };
        set(items, eval)
    }

    /// `first, *rest = values`: the values before and after `rest`, and `rest` as a list.
    fn _starred<'v>(
        values: Value<'v>,
        before: u32,
        behind: u32,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let values: Vec<Value<'v>> = values.iterate(heap)?.collect();
        let (before, behind) = (before as usize, behind as usize);
        if values.len() < before + behind {
            return Err(starlark::Error::new_native(raised(format!(
                "ValueError: not enough values to unpack (expected at least {}, got {})",
                before + behind,
                values.len()
            ))));
        }
        let rest = heap.alloc(AllocList(values[before..values.len() - behind].iter().copied()));
        let mut taken = values[..before].to_vec();
        taken.push(rest);
        taken.extend_from_slice(&values[values.len() - behind..]);
        Ok(heap.alloc(AllocTuple(taken)))
    }

    /// A part of an index: `x[1:3, 0]`.
    fn _slice<'v>(
        #[starlark(require = pos)] start: Value<'v>,
        #[starlark(require = pos)] stop: Value<'v>,
        #[starlark(require = pos)] step: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        Ok(heap.alloc(AllocTuple([heap.alloc(SLICE), start, stop, step])))
    }

    /// `[*a, b]`: each entry with whether its own entries are taken instead.
    fn _spread<'v>(entries: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let mut made = Vec::new();
        for entry in entries.iterate(heap)? {
            let pair = TupleRef::from_value(entry).map(|pair| pair.content().to_vec());
            match pair.as_deref() {
                Some([spread, value]) if spread.to_bool() => made.extend(value.iterate(heap)?),
                Some([_, value]) => made.push(*value),
                _ => {}
            }
        }
        Ok(heap.alloc(AllocList(made)))
    }

    /// `1 - x` and `2 / x`.
    fn _reflected<'v>(
        #[starlark(require = pos)] operator: &str,
        #[starlark(require = pos)] left: Value<'v>,
        #[starlark(require = pos)] right: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        crate::tensor::operators::reflected(operator, left, right, heap)
    }

    /// `x[1:3] = y`.
    fn _assign<'v>(
        #[starlark(require = pos)] part: Value<'v>,
        #[starlark(require = pos)] value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let Ok(into) = crate::tensor::value::tensor(part) else {
            anyhow::bail!(
                "a part of a {} is not assigned to: make it anew from its parts",
                class_of(part)
            );
        };
        deferred::assign(into, value)?;
        process(eval)?;
        Ok(NoneType)
    }

    /// A statement that makes a call and drops its result.
    fn _let_go<'v>(value: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<NoneType> {
        let all = crate::dist::arguments::items(value).unwrap_or_else(|| vec![value]);
        for work in all.iter().filter_map(|work| work.downcast_ref::<WorkValue>()) {
            process(eval)?.dist()?.let_go(work.0);
        }
        Ok(NoneType)
    }

    /// A method that Starlark's values have not: `list.sort()`.
    fn _method<'v>(
        #[starlark(require = pos)] name: &str,
        #[starlark(require = pos)] this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        value_methods::call(name, this, &args.items, &named.entries, eval)
    }
}

/// Adds them.
pub(super) fn add(builder: &mut GlobalsBuilder) {
    texts(builder);
    numbers(builder);
    classes(builder);
    rewritten(builder);
}
