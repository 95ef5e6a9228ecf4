//! The methods and operators of `bytes`.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::process::raised::Raised;
use crate::python::type_error::{class_of, type_error};
use crate::stores::bytes::BytesValue;
use crate::stores::unknown_answer::LateValue;
use starlark::collections::StarlarkHasher;
use starlark::environment::{Methods, MethodsBuilder};
use starlark::values::list::AllocList;
use starlark::values::none::NoneType;
use starlark::values::{Heap, StarlarkValue, Value, ValueLike};
use starlark::{methods_static, starlark_module};
use starlark_derive::starlark_value;
use std::cmp::Ordering;
use std::hash::Hash;

/// Bytes of one value.
const MAX_BYTES: usize = 1 << 20;

methods_static!(BYTES_METHODS = bytes_methods);

#[starlark_value(type = "bytes")]
impl<'v> StarlarkValue<'v> for BytesValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(BYTES_METHODS.methods())
    }

    fn to_bool(&self) -> bool {
        !self.0.is_empty()
    }

    fn length(&self) -> starlark::Result<i32> {
        Ok(i32::try_from(self.0.len()).unwrap_or(i32::MAX))
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        match other.downcast_ref::<LateValue>() {
            Some(late) => late.equal_to(&self.0),
            None => Ok(other.downcast_ref::<BytesValue>().is_some_and(|other| other.0 == self.0)),
        }
    }

    fn write_hash(&self, hasher: &mut StarlarkHasher) -> starlark::Result<()> {
        self.0.hash(hasher);
        Ok(())
    }

    fn compare(&self, other: Value<'v>) -> starlark::Result<Ordering> {
        match other.downcast_ref::<BytesValue>() {
            Some(other) => Ok(self.0.cmp(&other.0)),
            None => Err(starlark::Error::new_native(type_error(format!(
                "'<' not supported between instances of 'bytes' and '{}'",
                class_of(other)
            )))),
        }
    }

    fn add(&self, rhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        let Some(rhs) = rhs.downcast_ref::<BytesValue>() else {
            let text = format!("can't concat {} to bytes", class_of(rhs));
            return Some(Err(starlark::Error::new_native(type_error(text))));
        };
        Some(within_limits(self.0.len() + rhs.0.len()).map(|()| {
            let joined: Vec<u8> = self.0.iter().chain(&rhs.0).copied().collect();
            heap.alloc(BytesValue(joined))
        }))
    }

    fn mul(&self, rhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        let times = usize::try_from(rhs.unpack_i32()?.max(0)).unwrap_or(0);
        Some(
            within_limits(self.0.len().saturating_mul(times))
                .map(|()| heap.alloc(BytesValue(self.0.repeat(times)))),
        )
    }

    fn at(&self, index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let wrong = |text: &str| starlark::Error::new_native(anyhow::anyhow!("{text}"));
        let index = index.unpack_i32().ok_or_else(|| wrong("byte indices must be integers"))?;
        let at = if index < 0 { self.0.len() as i64 + i64::from(index) } else { index.into() };
        let byte = usize::try_from(at).ok().and_then(|at| self.0.get(at));
        byte.map(|byte| heap.alloc(i32::from(*byte))).ok_or_else(|| wrong("index out of range"))
    }

    fn slice(
        &self,
        start: Option<Value<'v>>,
        stop: Option<Value<'v>>,
        stride: Option<Value<'v>>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let length = self.0.len() as i64;
        let end = |value: Option<Value<'v>>, otherwise: i64| {
            let at = value.and_then(|value| value.unpack_i32()).map_or(otherwise, i64::from);
            let at = if at < 0 { at + length } else { at };
            usize::try_from(at.clamp(0, length)).unwrap_or(0)
        };
        if stride.is_some_and(|stride| !stride.is_none() && stride.unpack_i32() != Some(1)) {
            let error = anyhow::anyhow!("every n-th byte of bytes is not to be had here");
            return Err(starlark::Error::new_native(error));
        }
        let part = self.0.get(end(start, 0)..end(stop, length)).unwrap_or_default();
        Ok(heap.alloc(BytesValue(part.to_vec())))
    }

    fn is_in(&self, other: Value<'v>) -> starlark::Result<bool> {
        if let Some(byte) = other.unpack_i32() {
            return Ok(self.0.iter().any(|own| i32::from(*own) == byte));
        }
        match other.downcast_ref::<BytesValue>() {
            Some(part) => Ok(part.0.is_empty() || find(&self.0, &part.0).is_some()),
            None => Err(starlark::Error::new_native(type_error(format!(
                "a bytes-like object is required, not '{}'",
                class_of(other)
            )))),
        }
    }

    fn iterate_collect(&self, heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        Ok(self.0.iter().map(|byte| heap.alloc(i32::from(*byte))).collect())
    }
}

/// A value has so many bytes at most.
fn within_limits(length: usize) -> starlark::Result<()> {
    match length <= MAX_BYTES {
        true => Ok(()),
        false => {
            Err(starlark::Error::new_native(anyhow::anyhow!("bytes have at most {MAX_BYTES} here")))
        }
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len().max(1)).position(|window| window == part)
}

#[starlark_module]
fn bytes_methods(builder: &mut MethodsBuilder) {
    fn decode<'v>(
        this: Value<'v>,
        #[starlark(default = "utf-8")] encoding: &str,
    ) -> anyhow::Result<String> {
        let _ = encoding;
        let bytes = this.downcast_ref::<BytesValue>().map(|bytes| bytes.0.clone());
        String::from_utf8(bytes.unwrap_or_default()).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let byte = error.as_bytes().get(at).copied().unwrap_or_default();
            let text = format!(
                "UnicodeDecodeError: 'utf-8' codec can't decode byte 0x{byte:02x} in position {at}"
            );
            anyhow::Error::new(Raised { text, help: None })
        })
    }

    fn startswith<'v>(this: Value<'v>, prefix: Value<'v>) -> anyhow::Result<bool> {
        Ok(plain(this)?.starts_with(plain(prefix)?))
    }

    fn endswith<'v>(this: Value<'v>, suffix: Value<'v>) -> anyhow::Result<bool> {
        Ok(plain(this)?.ends_with(plain(suffix)?))
    }

    fn strip<'v>(this: Value<'v>) -> anyhow::Result<BytesValue> {
        Ok(BytesValue(plain(this)?.trim_ascii().to_vec()))
    }

    fn hex<'v>(this: Value<'v>) -> anyhow::Result<String> {
        Ok(plain(this)?.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn split<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] separator: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let mut rest = plain(this)?;
        let mut parts = Vec::new();
        if separator.is_none() {
            let words = rest.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            parts.extend(words.map(|word| BytesValue(word.to_vec())));
        } else {
            let separator = plain(separator)?;
            if separator.is_empty() {
                let text = "ValueError: empty separator".to_owned();
                return Err(anyhow::Error::new(Raised { text, help: None }));
            }
            while let Some(at) = find(rest, separator) {
                let (part, after) = rest.split_at(at);
                parts.push(BytesValue(part.to_vec()));
                rest = after.get(separator.len()..).unwrap_or_default();
            }
            parts.push(BytesValue(rest.to_vec()));
        }
        Ok(heap.alloc(AllocList(parts)))
    }
}

/// Bytes, where nothing else will do.
fn plain<'v>(value: Value<'v>) -> anyhow::Result<&'v [u8]> {
    let bytes = value.downcast_ref::<BytesValue>().map(|bytes| bytes.0.as_slice());
    let class = class_of(value);
    bytes.ok_or_else(|| type_error(format!("a bytes-like object is required, not '{class}'")))
}
