//! Classes of a program: objects with attributes, methods and inheritance.
//!
//! The dialect hands each method over as an attribute of its class. The methods that Python calls implicitly
//! are in [`special`](crate::classes::special_methods).

#![allow(clippy::panic, reason = "a class is never written out")]

use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::collections::SmallMap;
use starlark::eval::{Arguments, Evaluator};
use starlark::values::{Heap, NoSerialize, Trace, Value, ValueLike};
use std::cell::{Cell, RefCell};
use std::fmt;

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
pub(crate) struct InstanceValue<'v>(pub(crate) Value<'v>);

/// The state of an object.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct StateValue<'v> {
    pub(crate) class: Value<'v>,
    /// The object's number in its process, by which it is hashed.
    #[trace(unsafe_ignore)]
    #[allocative(skip)]
    pub(crate) number: u64,
    /// The object's number as a key, once it is made; `None` if it is not a key, or has changed since.
    #[trace(unsafe_ignore)]
    #[allocative(skip)]
    pub(crate) key: Cell<Option<u64>>,
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

/// The name under which a class made of `Enum` holds its members.
pub(crate) const MEMBERS: &str = "<members>";

/// The name under which a member of an `Enum` holds its text.
const SHOWN: &str = "<shown>";

/// The attributes of a member: its name, its value, and the text that `print` shows.
pub(crate) fn of_member<'v>(
    class: &str,
    name: &str,
    value: Value<'v>,
    heap: Heap<'v>,
) -> SmallMap<String, Value<'v>> {
    let mut own = SmallMap::new();
    own.insert("name".to_owned(), heap.alloc(name));
    own.insert("value".to_owned(), value);
    own.insert(SHOWN.to_owned(), heap.alloc(format!("{class}.{name}")));
    own
}

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

    /// True if both are the same object.
    pub(crate) fn is(&self, other: &InstanceValue<'v>) -> bool {
        other.0.ptr_eq(self.0)
    }

    pub(crate) fn name(&self) -> &str {
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

    /// True if this is that class or a subclass of it.
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
        let shown = self.state().and_then(|state| found(&state.attributes, SHOWN));
        if let Some(shown) = shown.and_then(Value::unpack_str) {
            return f.write_str(shown);
        }
        write!(f, "<__main__.{} object at 0xADDR>", self.name())
    }
}

impl fmt::Display for StateValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<object>")
    }
}

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

/// True if a value is an object of one of the program's classes.
pub(crate) fn is_object(value: Value<'_>) -> bool {
    value.downcast_ref::<InstanceValue<'_>>().is_some()
}

/// True if dicts and sets compare objects of this class by `__eq__` and `__hash__`.
pub(crate) fn has(class: &ClassValue<'_>) -> bool {
    class.find("__eq__").is_some() && class.find("__hash__").is_some()
}

/// The name of an attribute that only classes of named tuples have.
pub(crate) const FIELDS: &str = "_fields";

/// The fields of a named tuple, in their order; `None` for other objects.
pub(crate) fn fields_of<'v>(of: &InstanceValue<'v>) -> Option<Vec<Value<'v>>> {
    let class = of.class()?;
    class.find(FIELDS)?;
    let state = of.state()?;
    let values = class.fields().into_iter().map(|name| found(&state.attributes, &name));
    values.collect()
}
