//! Classes of a program: objects with attributes, methods and what they inherit.
//!
//! The dialect hands each method over as an attribute of its class. What Python asks of a value behind
//! a program's back stands in [`special`](crate::classes::special_methods), as far as it is asked (`__getitem__` is not).

#![allow(clippy::panic, reason = "a class is never written out")]

use crate::classes::members::{FieldValue, OfClassValue, StaticValue, bound};
use crate::dist::arguments as take;
use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::collections::{SmallMap, StarlarkHasher};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::dict::AllocDict;
use starlark::values::tuple::AllocTuple;
use starlark::values::{Heap, NoSerialize, StarlarkValue, Trace, Value, ValueLike};
use starlark_derive::starlark_value;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::hash::Hasher;

pub(crate) type Attributes<'v> = RefCell<SmallMap<String, Value<'v>>>;

pub(crate) fn found<'v>(of: &Attributes<'v>, name: &str) -> Option<Value<'v>> {
    of.try_borrow().ok()?.get(name).copied()
}

pub(crate) fn put<'v>(of: &Attributes<'v>, name: &str, value: Value<'v>) -> starlark::Result<()> {
    if let Ok(mut own) = of.try_borrow_mut() {
        own.insert(name.to_owned(), value);
    }
    Ok(())
}

/// A class.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct ClassValue<'v> {
    pub(crate) name: String,
    /// The classes above it, the nearest first.
    pub(crate) above: Vec<Value<'v>>,
    /// The fields of a dataclass, in their order.
    pub(crate) fields: Option<Vec<String>>,
    pub(crate) members: Attributes<'v>,
}

/// An object of one, or another hold on it: an attribute is asked for without the value that has it.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct InstanceValue<'v>(Value<'v>);

/// The state of an object.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct StateValue<'v> {
    pub(crate) class: Value<'v>,
    /// The how manieth object of its process it is: what it is hashed by.
    #[trace(unsafe_ignore)]
    #[allocative(skip)]
    number: u64,
    /// The object's number as a key, once it is made; nothing where it has changed since, or is none.
    #[trace(unsafe_ignore)]
    #[allocative(skip)]
    key: Cell<Option<u64>>,
    pub(crate) attributes: Attributes<'v>,
}

impl StateValue<'_> {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn key(&self) -> Option<u64> {
        self.key.get()
    }

    pub(crate) fn keep_key(&self, key: Option<u64>) {
        self.key.set(key);
    }
}

/// The name under which a class holds itself: an attribute is asked for without the value that has it.
pub(crate) const ITSELF: &str = "<class>";

pub(crate) fn class<'v>(value: Value<'v>) -> Option<&'v ClassValue<'v>> {
    value.downcast_ref::<ClassValue<'v>>()
}

impl<'v> InstanceValue<'v> {
    pub(crate) fn state(&self) -> Option<&'v StateValue<'v>> {
        self.0.downcast_ref::<StateValue<'v>>()
    }

    pub(crate) fn class(&self) -> Option<&'v ClassValue<'v>> {
        class(self.state()?.class)
    }

    /// Whether both are one object.
    pub(crate) fn is(&self, other: &InstanceValue<'v>) -> bool {
        other.0.ptr_eq(self.0)
    }

    fn name(&self) -> &str {
        self.class().map_or("object", |class| class.name.as_str())
    }
}

impl<'v> ClassValue<'v> {
    /// The member of that name in the class or one above it.
    pub(crate) fn find(&self, name: &str) -> Option<Value<'v>> {
        found(&self.members, name).or_else(|| self.inherited(name))
    }

    pub(crate) fn inherited(&self, name: &str) -> Option<Value<'v>> {
        self.above.iter().find_map(|above| found(&class(*above)?.members, name))
    }

    /// The member of the class behind this one in the order of an object's or a class's classes:
    /// another one's class above may come between it and its own.
    pub(crate) fn behind(&self, this: Value<'v>, name: &str) -> Option<Value<'v>> {
        let own = match this.downcast_ref::<InstanceValue<'v>>() {
            Some(object) => object.class(),
            None => class(this),
        };
        let Some(own) = own else { return self.inherited(name) };
        let order = std::iter::once(own).chain(own.above.iter().filter_map(|above| class(*above)));
        let mut behind = order.skip_while(|own| !std::ptr::eq(*own, self)).skip(1);
        behind.find_map(|above| found(&above.members, name))
    }

    /// Whether it is that class, or below it.
    pub(crate) fn is(&self, other: &ClassValue<'v>) -> bool {
        let other_is =
            |above: &Value<'v>| class(*above).is_some_and(|own| std::ptr::eq(own, other));
        std::ptr::eq(self, other) || self.above.iter().any(other_is)
    }

    /// Its fields and those above, which come first.
    pub(crate) fn fields(&self) -> Vec<String> {
        let above = self.above.iter().rev().filter_map(|above| class(*above)?.fields.as_ref());
        let mut all: Vec<String> = Vec::new();
        for own in above.chain(&self.fields).flatten() {
            if !all.contains(own) {
                all.push(own.clone());
            }
        }
        all
    }

    /// The attributes of a new object of a dataclass.
    fn filled(
        &self,
        given: &[Value<'v>],
        named: &[(&str, Value<'v>)],
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<SmallMap<String, Value<'v>>> {
        let fields = self.fields();
        let wrong = |text: String| Err(starlark::Error::new_native(take::type_error(text)));
        if let Some((name, _)) = named.iter().find(|(name, _)| !fields.iter().any(|f| f == name)) {
            return wrong(format!(
                "{}.__init__() got an unexpected keyword argument '{name}'",
                self.name
            ));
        }
        if given.len() > fields.len() {
            return wrong(format!(
                "{}.__init__() takes {} positional arguments but {} were given",
                self.name,
                fields.len() + 1,
                given.len() + 1
            ));
        }
        let mut all = SmallMap::new();
        for (at, field) in fields.into_iter().enumerate() {
            let by_name = named.iter().find(|(name, _)| *name == field).map(|(_, value)| *value);
            let stands = given.get(at).copied().or(by_name).or_else(|| self.find(&field));
            let made = stands.and_then(|value| value.downcast_ref::<FieldValue<'v>>());
            let value = match made {
                Some(FieldValue(Some(factory))) => Some(eval.eval_function(*factory, &[], &[])?),
                Some(FieldValue(None)) => None,
                None => stands,
            };
            let Some(value) = value else {
                return wrong(format!(
                    "{}.__init__() missing 1 required positional argument: '{field}'",
                    self.name
                ));
            };
            all.insert(field, value);
        }
        Ok(all)
    }
}

/// A call with another value in front.
pub(crate) fn called<'v>(
    function: Value<'v>,
    this: Option<Value<'v>>,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let heap = eval.heap();
    let given: Vec<Value<'v>> = this.into_iter().chain(args.positions(heap)?).collect();
    let named = args.names_map()?;
    let named: Vec<(&str, Value<'v>)> =
        named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    eval.eval_function(function, &given, &named)
}

impl fmt::Display for ClassValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<class '__main__.{}'>", self.name)
    }
}

impl fmt::Display for InstanceValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<__main__.{} object at 0xADDR>", self.name())
    }
}

impl fmt::Display for StateValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<object>")
    }
}

#[starlark_value(type = "type")]
impl<'v> StarlarkValue<'v> for ClassValue<'v> {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        if attribute == "__name__" {
            return Some(heap.alloc(self.name.as_str()));
        }
        let member = self.find(attribute)?;
        match member.downcast_ref::<OfClassValue<'v>>() {
            Some(_) => Some(bound(member, found(&self.members, ITSELF)?, heap)),
            None => Some(member.downcast_ref::<StaticValue<'v>>().map_or(member, |own| own.0)),
        }
    }

    fn set_attr(&self, attribute: &str, value: Value<'v>) -> starlark::Result<()> {
        put(&self.members, attribute, value)
    }

    /// A new object.
    fn invoke(
        &self,
        me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let init = self.find("__init__");
        let raised = crate::python::exceptions::native_of(self).is_some();
        let attributes = if raised {
            // An exception holds what it was made with, whatever its `__init__` does.
            let given = heap.alloc(AllocTuple(args.positions(heap)?.collect::<Vec<_>>()));
            SmallMap::from_iter([("args".to_owned(), given)])
        } else if init.is_none() {
            let given: Vec<Value<'v>> = args.positions(heap)?.collect();
            let named = args.names_map()?;
            let named: Vec<(&str, Value<'v>)> =
                named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            self.filled(&given, &named, eval)?
        } else {
            SmallMap::new()
        };
        let attributes = RefCell::new(attributes);
        let process =
            crate::execute::process::process(eval).map_err(starlark::Error::new_native)?;
        process.objects += 1;
        let number = process.objects;
        let state = heap.alloc_complex_no_freeze(StateValue {
            class: me,
            number,
            key: Cell::new(None),
            attributes,
        });
        let made = heap.alloc_complex_no_freeze(InstanceValue(state));
        match (init, self.find("__post_init__")) {
            (Some(init), _) => {
                called(init, Some(made), args, eval)?;
            }
            (None, Some(post)) if !self.fields().is_empty() => {
                eval.eval_function(post, &[made], &[])?;
            }
            _ => {}
        }
        crate::classes::hashed_keys::made(made, eval)?;
        Ok(made)
    }
}

#[starlark_value(type = "object")]
impl<'v> StarlarkValue<'v> for InstanceValue<'v> {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        let state = self.state()?;
        if let Some(own) = found(&state.attributes, attribute) {
            return Some(own);
        }
        match attribute {
            "__class__" => return Some(state.class),
            "__dict__" => {
                let own = state.attributes.try_borrow().ok()?;
                let pairs: Vec<(&str, Value<'v>)> =
                    own.iter().map(|(name, value)| (name.as_str(), *value)).collect();
                return Some(heap.alloc(AllocDict(pairs)));
            }
            _ => {}
        }
        let Some(member) = self.class()?.find(attribute) else {
            crate::classes::missing_attribute::told(self.name());
            return None;
        };
        let this = heap.alloc_complex_no_freeze(InstanceValue(self.0));
        Some(bound(member, this, heap))
    }

    fn set_attr(&self, attribute: &str, value: Value<'v>) -> starlark::Result<()> {
        let Some(state) = self.state() else { return Ok(()) };
        state.keep_key(None);
        put(&state.attributes, attribute, value)
    }

    fn length(&self) -> starlark::Result<i32> {
        let fields = crate::python::collections::fields_of(self);
        fields.map(|fields| fields.len() as i32).ok_or_else(|| {
            let text = format!("object of type '{}' has no len()", self.name());
            starlark::Error::new_native(take::type_error(text))
        })
    }

    /// A named tuple is gone through by its fields.
    fn iterate_collect(&self, _heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        crate::python::collections::fields_of(self).ok_or_else(|| {
            let text = format!("'{}' object is not iterable", self.name());
            starlark::Error::new_native(take::type_error(text))
        })
    }

    // It cannot fail and calls nothing: where a class says it, the process is told.
    fn to_bool(&self) -> bool {
        let says = |class: &ClassValue<'v>| {
            ["__bool__", "__len__"].iter().any(|name| class.find(name).is_some())
        };
        if self.class().is_some_and(says) {
            crate::execute::undecided::by_object();
        }
        true
    }

    /// `object(…)`: `__call__`.
    fn invoke(
        &self,
        me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let call = self.class().and_then(|class| class.find("__call__"));
        match call {
            Some(call) => called(call, Some(me), args, eval),
            None => {
                let text = format!("'{}' object is not callable", self.name());
                Err(starlark::Error::new_native(take::type_error(text)))
            }
        }
    }

    /// As keys of a dict objects are told apart by what they are, those of a dataclass by their fields.
    fn write_hash(&self, hasher: &mut StarlarkHasher) -> starlark::Result<()> {
        let (Some(state), Some(class)) = (self.state(), self.class()) else { return Ok(()) };
        if crate::classes::hashed_keys::has(class) {
            let key = state.key().ok_or_else(|| {
                starlark::Error::new_native(anyhow::anyhow!(
                    "an object of {} that was changed after it was made, or that was made behind some \
                     hundred others, is no key here: what equals what is found out when they are made. \
                     Take a tuple of what tells them apart as the key",
                    class.name
                ))
            })?;
            hasher.write_u64(key);
            return Ok(());
        }
        if class.find("__eq__").is_some() {
            let text = format!("unhashable type: '{}'", class.name);
            return Err(starlark::Error::new_native(take::type_error(text)));
        }
        if class.fields.is_none() {
            hasher.write_u64(state.number);
            return Ok(());
        }
        for field in class.fields() {
            if let Some(value) = found(&state.attributes, &field) {
                value.write_hash(hasher)?;
            }
        }
        Ok(())
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        let Some(other) = other.downcast_ref::<InstanceValue<'v>>() else { return Ok(false) };
        if self.is(other) {
            return Ok(true);
        }
        // Objects of a dataclass are equal by their fields.
        let (Some(own), Some(its)) = (self.state(), other.state()) else { return Ok(false) };
        if let (Some(own), Some(its)) = (own.key(), its.key()) {
            return Ok(own == its);
        }
        let data = self.class().filter(|class| class.fields.is_some());
        let Some(class) = data.filter(|_| own.class.ptr_eq(its.class)) else { return Ok(false) };
        for field in class.fields() {
            let both = found(&own.attributes, &field).zip(found(&its.attributes, &field));
            let Some((a, b)) = both else { return Ok(false) };
            if !a.equals(b)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[starlark_value(type = "state")]
impl<'v> StarlarkValue<'v> for StateValue<'v> {}

/// An object of a class without methods.
pub(crate) fn object<'v>(
    name: &str,
    attributes: SmallMap<String, Value<'v>>,
    heap: Heap<'v>,
) -> Value<'v> {
    let (name, members) = (name.to_owned(), RefCell::default());
    let class = ClassValue { name, above: Vec::new(), fields: None, members };
    let class = heap.alloc_complex_no_freeze(class);
    let attributes = RefCell::new(attributes);
    let state = heap.alloc_complex_no_freeze(StateValue {
        class,
        number: 0,
        key: Cell::new(None),
        attributes,
    });
    heap.alloc_complex_no_freeze(InstanceValue(state))
}

/// `isinstance(value, of)` of the program's own classes; `None` of all others.
pub(crate) fn is_instance<'v>(value: Value<'v>, of: Value<'v>) -> Option<bool> {
    let of = class(of)?;
    let own = value.downcast_ref::<InstanceValue<'v>>().and_then(InstanceValue::class);
    Some(own.is_some_and(|own| own.is(of)))
}

/// Whether it is an object of one of them.
pub(crate) fn is_object(value: Value<'_>) -> bool {
    value.downcast_ref::<InstanceValue<'_>>().is_some()
}
