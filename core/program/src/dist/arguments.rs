//! Arguments of a program's calls as torch.distributed takes them.

use crate::dist::values::{
    DeviceValue, DtypeValue, DurationValue, GroupValue, P2POpValue, ReduceOpValue, TensorValue,
    WorldValue,
};
use crate::execute::missing_imports::AbsentValue;
use crate::process::raised::refused;
use crate::process::undecided::{Unknown, UnknownValue};
use crate::python::float::float_of;
use crate::python::numbers::{number, whole};
use crate::python::type_error::{class_of, type_error};
use crate::python::types::whole_class;
use crate::python::value_text::quoted;
use crate::stores::BytesValue;
use crate::tensor::size::SizeValue;
use lockstep_core::dtype::Dtype;
use lockstep_core::reduce::ReduceOp;
use lockstep_torch::c10d::{
    ABSENT, Arg, Device, DistError, ErrorKind, Group, MeshDim, Object, P2POp, PyObject, TensorArg,
    TensorListArg,
};
use starlark::eval::Arguments;
use starlark::values::dict::DictRef;
use starlark::values::list::ListRef;
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, Value, ValueLike};

/// Entries of a list that is handed to a call.
const MAX_ITEMS: usize = 1 << 20;

/// A value of another type than was asked for.
fn other<T>(value: Value<'_>) -> Arg<T> {
    if let Some(absent) = value.downcast_ref::<AbsentValue>() {
        return Arg::not(ABSENT, &absent.why());
    }
    // Which tensor or group it is depends on the run: no error of the program's.
    if let Some(unknown) = value.downcast_ref::<UnknownValue>()
        && matches!(unknown.what(), Unknown::Assigned { .. })
    {
        return Arg::not(ABSENT, &unknown.what().to_string());
    }
    Arg::not(&whole_class(value), &repr(value))
}

/// `repr()`, cut where it grows long.
pub(crate) fn repr(value: Value<'_>) -> String {
    let text = match (DictRef::from_value(value).map(|dict| dict.len()), items(value)) {
        (Some(entries), _) => format!("{{… {entries} entries}}"),
        (None, Some(items)) if items.len() > 8 => "[…]".to_owned(),
        (None, Some(items)) => {
            let texts: Vec<String> = items.into_iter().map(within).collect();
            match TupleRef::from_value(value) {
                Some(one) if one.len() == 1 => format!("({},)", texts.join(", ")),
                Some(_) => format!("({})", texts.join(", ")),
                None => format!("[{}]", texts.join(", ")),
            }
        }
        (None, None) => within(value),
    };
    text.chars().take(200).collect()
}

/// `repr()` of a value inside a list: texts in Python's quotes.
fn within(value: Value<'_>) -> String {
    value.unpack_str().map_or_else(|| value.to_repr(), quoted)
}

/// The entries of a list or tuple, or the remaining ones of an iterator.
pub(crate) fn items<'v>(value: Value<'v>) -> Option<Vec<Value<'v>>> {
    let list = ListRef::from_value(value).map(|list| list.content().to_vec());
    list.or_else(|| TupleRef::from_value(value).map(|tuple| tuple.content().to_vec()))
        .or_else(|| crate::python::iterator_value::rest(value))
}

/// The one argument that a call goes by, which may be given by its name.
pub(crate) fn first<'v>(
    args: &Arguments<'v, '_>,
    name: &str,
    called: &str,
    heap: Heap<'v>,
) -> starlark::Result<Value<'v>> {
    let named = args.names_map()?;
    let given = || named.iter().find(|(own, _)| own.as_str() == name).map(|(_, value)| *value);
    args.positions(heap)?.next().or_else(given).ok_or_else(|| {
        let text = format!("{called}() missing 1 required positional argument: '{name}'");
        starlark::Error::new_native(type_error(text))
    })
}

/// The error for an operand that a tensor cannot be computed with: Python's, or that it is not
/// followed here.
pub(crate) fn no_operand(operator: &str, other: Value<'_>) -> anyhow::Error {
    match class_of(other) {
        class @ ("Output" | "unknown") => anyhow::anyhow!(
            "{operator} of a tensor and {} is not followed here",
            if class == "Output" {
                "what a model or a loss returns"
            } else {
                "a number that only a run tells"
            }
        ),
        class => type_error(format!(
            "unsupported operand type(s) for {operator}: 'Tensor' and '{class}'"
        )),
    }
}

/// A list of whole numbers; a `range` will do.
pub(crate) fn wholes<'v>(value: Value<'v>, what: &str, heap: Heap<'v>) -> anyhow::Result<Vec<i64>> {
    let wrong = || type_error(format!("{what} is a {}, not a list", class_of(value)));
    if let Some(size) = value.downcast_ref::<SizeValue>() {
        return Ok(size.0.iter().map(|size| *size as i64).collect());
    }
    let entries = match items(value) {
        Some(entries) => entries,
        None if value.get_type() == "range" => {
            let entries = value.iterate(heap).map_err(|_| wrong())?;
            entries.take(MAX_ITEMS).collect()
        }
        None => return Err(wrong()),
    };
    entries.into_iter().map(|entry| whole(entry, what)).collect()
}

/// A list of such lists.
pub(crate) fn lists_of_wholes<'v>(
    value: Value<'v>,
    what: &str,
    heap: Heap<'v>,
) -> anyhow::Result<Vec<Vec<i64>>> {
    let entries = items(value);
    let wrong = || type_error(format!("{what} is a {}, not a list", class_of(value)));
    entries.ok_or_else(wrong)?.into_iter().map(|entry| wholes(entry, what, heap)).collect()
}

/// Numbers of elements or ranks, which cannot be negative.
pub(crate) fn counts<'v>(
    value: Value<'v>,
    what: &str,
    heap: Heap<'v>,
) -> anyhow::Result<Option<Vec<u64>>> {
    if value.is_none() {
        return Ok(None);
    }
    let numbers = wholes(value, what, heap)?;
    let counts = numbers.into_iter().map(u64::try_from).collect::<Result<Vec<_>, _>>();
    counts.map(Some).map_err(|_| anyhow::anyhow!("{what} holds a negative number"))
}

/// One string, or several.
pub(crate) fn strings(value: Value<'_>) -> anyhow::Result<Vec<String>> {
    let text = |value: Value<'_>| {
        let wrong = || type_error(format!("{} is no str", class_of(value)));
        value.unpack_str().map(str::to_owned).ok_or_else(wrong)
    };
    match items(value) {
        Some(entries) => entries.into_iter().map(text).collect(),
        None => Ok(vec![text(value)?]),
    }
}

/// A shape of so many elements, in which one size may be -1.
pub(crate) fn shape(sizes: &[Value<'_>], numel: u64) -> anyhow::Result<Vec<u64>> {
    let entries = match sizes {
        [one] => match one.downcast_ref::<SizeValue>() {
            Some(size) => return fits(&size.0, numel),
            None => items(*one).unwrap_or_else(|| vec![*one]),
        },
        many => many.to_vec(),
    };
    let sizes: Vec<i64> =
        entries.into_iter().map(|size| whole(size, "a size")).collect::<anyhow::Result<_>>()?;
    let refusal = |text: String| Err(refused(DistError::new(ErrorKind::RuntimeError, text)));
    if let Some(size) = sizes.iter().find(|size| **size < -1) {
        return refusal(format!("invalid shape dimension {size}"));
    }
    if sizes.iter().filter(|size| **size == -1).count() > 1 {
        return refusal("only one dimension can be inferred".to_owned());
    }
    let known = sizes.iter().filter(|size| **size >= 0);
    let known = known.fold(1_u64, |product, size| product.saturating_mul(*size as u64));
    let inferred = match sizes.contains(&-1) {
        true => numel.checked_div(known).filter(|inferred| inferred * known == numel),
        false => Some(0).filter(|_| known == numel),
    };
    let Some(inferred) = inferred else {
        return refusal(format!("shape '{sizes:?}' is invalid for input of size {numel}"));
    };
    Ok(sizes.into_iter().map(|size| u64::try_from(size).unwrap_or(inferred)).collect())
}

/// A shape of so many elements.
pub(crate) fn fits(shape: &[u64], numel: u64) -> anyhow::Result<Vec<u64>> {
    let product = shape.iter().fold(1_u64, |product, size| product.saturating_mul(*size));
    if product == numel {
        return Ok(shape.to_vec());
    }
    let text = format!("shape '{shape:?}' is invalid for input of size {numel}");
    Err(refused(DistError::new(ErrorKind::RuntimeError, text)))
}

/// A duration in milliseconds: a `timedelta`, or seconds as a number.
pub(crate) fn milliseconds(value: Value<'_>) -> anyhow::Result<u64> {
    if let Some(duration) = value.downcast_ref::<DurationValue>() {
        return Ok(duration.0);
    }
    Ok((number(value, "a timeout")?.max(0.0) * 1e3) as u64)
}

/// `timeout=` of a call: `None`, a `timedelta`, or a value that PyTorch refuses.
pub(crate) fn timeout(value: Value<'_>) -> Option<Arg<u64>> {
    match value.downcast_ref::<DurationValue>() {
        Some(duration) => Some(Arg::Is(duration.0)),
        None if value.is_none() => None,
        None => Some(other(value)),
    }
}

/// The argument for which a tensor is asked.
pub(crate) fn tensor(value: Value<'_>) -> TensorArg {
    match value.downcast_ref::<TensorValue>() {
        Some(tensor) => Arg::Is(tensor.0.clone()),
        None => other(value),
    }
}

/// The entries of a list, where PyTorch looks for a list and a tuple will not do.
pub(crate) fn entries<'v>(value: Value<'v>) -> Option<Vec<Value<'v>>> {
    ListRef::from_value(value).map(|list| list.content().to_vec())
}

/// The argument of a call that takes a list of tensors: the result of `chunk` and `split` is not a list, but
/// a tuple.
pub(crate) fn tensors(value: Value<'_>) -> TensorListArg {
    match entries(value) {
        Some(entries) => Arg::Is(entries.into_iter().map(tensor).collect()),
        None => other(value),
    }
}

/// The argument for which a list or a tuple of tensors will do.
pub(crate) fn sequence_of_tensors(value: Value<'_>) -> TensorListArg {
    match items(value) {
        Some(entries) => Arg::Is(entries.into_iter().map(tensor).collect()),
        None => other(value),
    }
}

/// The list of tensors that may be missing; an empty tuple counts as missing.
///
/// # Errors
/// The value is a tensor with more than one element, which PyTorch refuses as a truth value.
pub(crate) fn tensors_or_none(value: Value<'_>) -> anyhow::Result<Option<TensorListArg>> {
    if value.downcast_ref::<TensorValue>().is_some_and(|tensor| tensor.0.numel() > 1) {
        let text = "Boolean value of Tensor with more than one value is ambiguous";
        return Err(refused(DistError::new(ErrorKind::RuntimeError, text)));
    }
    let missing = value.is_none() || items(value).is_some_and(|items| items.is_empty());
    Ok((!missing).then(|| tensors(value)))
}

/// `group=`.
pub(crate) fn group(value: Value<'_>) -> anyhow::Result<Option<Group>> {
    if value.is_none() {
        return Ok(None);
    }
    if value.downcast_ref::<WorldValue>().is_some() {
        return Ok(None);
    }
    let group = value.downcast_ref::<GroupValue>().map(|group| group.0.group);
    // PyTorch looks it up among its groups.
    let wrong = || {
        let class = class_of(value);
        let text = match class {
            "list" | "dict" | "set" => format!("unhashable type: '{class}'"),
            _ => "Invariant encountered: value was None when it should not be".to_owned(),
        };
        let help = format!("group is a {class}, not a ProcessGroup.");
        refused(DistError::new(ErrorKind::TypeError, text).with_help(help))
    };
    group.map(Some).ok_or_else(wrong)
}

/// `op=` of a reduction.
pub(crate) fn reduce_op(value: Value<'_>) -> Arg<ReduceOp> {
    match value.downcast_ref::<ReduceOpValue>() {
        Some(op) => Arg::Is(op.0),
        None => other(value),
    }
}

/// A `P2POp`.
pub(crate) fn p2p_op(value: Value<'_>) -> Arg<P2POp> {
    match value.downcast_ref::<P2POpValue>() {
        Some(op) => Arg::Is(op.0.0.clone()),
        None => other(value),
    }
}

/// `dtype=`: `torch.float32`, `"float32"`.
pub(crate) fn dtype(value: Value<'_>, default: Dtype) -> anyhow::Result<Dtype> {
    if value.is_none() {
        return Ok(default);
    }
    if let Some(dtype) = value.downcast_ref::<DtypeValue>() {
        return Ok(dtype.0);
    }
    let name = value.unpack_str().unwrap_or_default().trim_start_matches("torch.");
    let dtype = Dtype::COMPUTABLE.into_iter().find(|dtype| dtype.to_string() == name);
    dtype.ok_or_else(|| {
        let names: Vec<String> = Dtype::COMPUTABLE.iter().map(Dtype::to_string).collect();
        anyhow::anyhow!("{} is no dtype; there are {}", within(value), names.join(", "))
    })
}

/// `device=`: `"cuda"`, `"cuda:0"`, `torch.device("cpu")`, or a number.
pub(crate) fn device(value: Value<'_>) -> anyhow::Result<Option<Device>> {
    if value.is_none() {
        return Ok(None);
    }
    if let Some(device) = value.downcast_ref::<DeviceValue>() {
        return Ok(Some(device.0.0));
    }
    if value.get_type() == "int" {
        return Ok(Some(Device::Cuda));
    }
    let name = value.unpack_str().unwrap_or_default();
    match name.split(':').next() {
        Some("cpu") => Ok(Some(Device::Cpu)),
        Some("cuda") => Ok(Some(Device::Cuda)),
        _ => Err(anyhow::anyhow!("{} is no device; there are cpu and cuda", within(value))),
    }
}

/// The index in a `device=` argument: 1 for `"cuda:1"`.
pub(crate) fn device_index(value: Value<'_>) -> Option<u32> {
    if let Some(device) = value.downcast_ref::<DeviceValue>() {
        return device.0.1;
    }
    let named = value.unpack_str().and_then(|name| name.split_once(':'));
    match named {
        Some((_, index)) => index.parse().ok(),
        None => value.unpack_i32().and_then(|index| u32::try_from(index).ok()),
    }
}

/// A dimension of a mesh, by number or name.
pub(crate) enum OwnedDim {
    Index(usize),
    Name(String),
}

impl OwnedDim {
    /// As calls take it.
    pub(crate) fn borrow(&self) -> MeshDim<'_> {
        match self {
            OwnedDim::Index(index) => MeshDim::Index(*index),
            OwnedDim::Name(name) => MeshDim::Name(name),
        }
    }
}

/// A dimension of a mesh.
pub(crate) fn mesh_dim(value: Value<'_>) -> anyhow::Result<OwnedDim> {
    match value.unpack_str() {
        Some(name) => Ok(OwnedDim::Name(name.to_owned())),
        None => {
            let index = usize::try_from(whole(value, "mesh_dim")?);
            Ok(OwnedDim::Index(index.unwrap_or(usize::MAX)))
        }
    }
}

/// An object as it is pickled.
pub(crate) fn object<'v>(value: Value<'v>, heap: Heap<'v>) -> Object {
    Object::from(&plain(value, heap, 0))
}

/// An object as other ranks receive it.
pub(crate) fn heard<'v>(value: Value<'v>, heap: Heap<'v>) -> PyObject {
    plain(value, heap, 0)
}

/// The objects of a list as other ranks receive them; empty if the value is not a list.
pub(crate) fn all_heard<'v>(list: Value<'v>, heap: Heap<'v>) -> Vec<PyObject> {
    let entries = items(list).unwrap_or_default();
    entries.into_iter().map(|entry| heard(entry, heap)).collect()
}

/// Data in data that a pickle is looked into for.
const MAX_NESTED: usize = 32;

fn plain<'v>(value: Value<'v>, heap: Heap<'v>, depth: usize) -> PyObject {
    let nested = |value: Value<'v>| plain(value, heap, depth + 1);
    if depth > MAX_NESTED {
        return PyObject::Other { class: class_of(value), bytes: Vec::new() };
    }
    if let Some(entries) = ListRef::from_value(value) {
        return PyObject::List(entries.iter().map(nested).collect());
    }
    if let Some(entries) = TupleRef::from_value(value) {
        return PyObject::Tuple(entries.content().iter().copied().map(nested).collect());
    }
    if let Some(entries) = DictRef::from_value(value) {
        return PyObject::Dict(entries.iter().map(|(k, v)| (nested(k), nested(v))).collect());
    }
    if let Some(float) = float_of(value) {
        return PyObject::Float(float);
    }
    match value.get_type() {
        "NoneType" => PyObject::None,
        "bool" => PyObject::Bool(value.to_bool()),
        "int" => match whole(value, "an object") {
            Ok(number) => PyObject::Int(number),
            Err(_) => PyObject::BigInt(value.to_str()),
        },
        "string" => PyObject::Str(value.unpack_str().unwrap_or_default().to_owned()),
        "set" => match value.iterate(heap) {
            Ok(entries) => PyObject::Set(entries.map(nested).collect()),
            Err(_) => PyObject::Set(Vec::new()),
        },
        // As the tuple that it is.
        "Size" => match value.downcast_ref::<SizeValue>() {
            Some(size) => {
                PyObject::Tuple(size.0.iter().map(|size| PyObject::Int(*size as i64)).collect())
            }
            None => PyObject::None,
        },
        _ => match value.downcast_ref::<BytesValue>() {
            Some(bytes) => PyObject::Bytes(bytes.0.clone()),
            None => {
                let outside = value
                    .downcast_ref::<GroupValue>()
                    .is_some_and(|group| group.0.group == Group::NonMember);
                match outside {
                    // `GroupMember.NON_GROUP_MEMBER` is a number.
                    true => PyObject::Int(-100),
                    false => PyObject::Other {
                        class: class_of(value),
                        bytes: value.to_repr().into_bytes(),
                    },
                }
            }
        },
    }
}

/// Objects of a list.
pub(crate) fn objects<'v>(value: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Vec<Object>> {
    let entries = items(value);
    let wrong = || type_error(format!("'{}' object is not iterable", class_of(value)));
    Ok(entries.ok_or_else(wrong)?.into_iter().map(|entry| object(entry, heap)).collect())
}
