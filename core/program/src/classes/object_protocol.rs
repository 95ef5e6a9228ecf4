//! Classes and their objects as the interpreter asks them: attributes, calls, keys and equality.

#![allow(clippy::panic, reason = "these values are never written out")]

use crate::classes::members::{
    FieldValue, MethodValue, OfClassValue, StaticValue, SuperValue, bound,
};
use crate::classes::objects::{
    ClassValue, ITSELF, InstanceValue, MEMBERS, StateValue, called, class, found, put,
};
use crate::python::type_error::type_error;
use crate::torch::callable::Callable;
use starlark::collections::{SmallMap, StarlarkHasher};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::dict::AllocDict;
use starlark::values::tuple::AllocTuple;
use starlark::values::{Heap, StarlarkValue, Value, ValueLike};
use starlark_derive::starlark_value;
use std::cell::{Cell, RefCell};
use std::hash::Hasher;

impl<'v> ClassValue<'v> {
    /// The members of a class that is made of `Enum`; `None` of every other class.
    fn members_of_enum(&self) -> Option<Vec<Value<'v>>> {
        crate::dist::arguments::items(found(&self.members, MEMBERS)?)
    }

    /// The attributes of a new object of a dataclass.
    fn filled(
        &self,
        given: &[Value<'v>],
        named: &[(&str, Value<'v>)],
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<SmallMap<String, Value<'v>>> {
        let fields = self.fields();
        let wrong = |text: String| Err(starlark::Error::new_native(type_error(text)));
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

    /// The members of an `Enum`, in their order.
    fn iterate_collect(&self, _heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        self.members_of_enum()
            .ok_or_else(|| starlark::Error::new_native(type_error("'type' object is not iterable")))
    }

    fn length(&self) -> starlark::Result<i32> {
        self.members_of_enum().map(|all| all.len() as i32).ok_or_else(|| {
            starlark::Error::new_native(type_error("object of type 'type' has no len()"))
        })
    }

    /// A new object.
    fn invoke(
        &self,
        me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        if let Some(members) = self.members_of_enum() {
            let [value] = args.positional(heap)?;
            let is_of = |member: &Value<'v>| {
                let own = member.get_attr("value", heap).ok().flatten();
                own.is_some_and(|own| own.equals(value).unwrap_or(false))
            };
            return members.into_iter().find(is_of).ok_or_else(|| {
                let text = format!("ValueError: {} is not a valid {}", value.to_repr(), self.name);
                starlark::Error::new_native(crate::process::raised::raised(text))
            });
        }
        let init = self.find("__init__");
        let raised = crate::python::exception_value::native_of(self).is_some();
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
        let process = crate::process::state::process(eval).map_err(starlark::Error::new_native)?;
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
        let class = self.class()?;
        let Some(member) = class.find(attribute) else {
            let own = crate::nn::modules::is_module_class(class)
                .then(|| crate::nn::module_values::of_own(self.0, attribute, heap))
                .flatten();
            if own.is_none() {
                crate::classes::missing_attribute::told(self.name());
            }
            return own;
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
        let fields = crate::classes::objects::fields_of(self);
        fields.map(|fields| fields.len() as i32).ok_or_else(|| {
            let text = format!("object of type '{}' has no len()", self.name());
            starlark::Error::new_native(type_error(text))
        })
    }

    /// A named tuple is gone through by its fields.
    fn iterate_collect(&self, _heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        crate::classes::objects::fields_of(self).ok_or_else(|| {
            let text = format!("'{}' object is not iterable", self.name());
            starlark::Error::new_native(type_error(text))
        })
    }

    // It cannot fail and calls nothing: where a class says it, the process is told.
    fn to_bool(&self) -> bool {
        let says = |class: &ClassValue<'v>| {
            ["__bool__", "__len__"].iter().any(|name| class.find(name).is_some())
        };
        if self.class().is_some_and(says) {
            crate::process::undecided::by_object();
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
            None if self.class().is_some_and(crate::nn::modules::is_module_class) => {
                crate::nn::calls::with(me, args, eval)
            }
            None => {
                let text = format!("'{}' object is not callable", self.name());
                Err(starlark::Error::new_native(type_error(text)))
            }
        }
    }

    /// As keys of a dict, objects are told apart by identity, those of a dataclass by their fields.
    fn write_hash(&self, hasher: &mut StarlarkHasher) -> starlark::Result<()> {
        let (Some(state), Some(class)) = (self.state(), self.class()) else { return Ok(()) };
        if crate::classes::objects::has(class) {
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
            return Err(starlark::Error::new_native(type_error(text)));
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

#[starlark_value(type = "function")]
impl<'v> StarlarkValue<'v> for MethodValue<'v> {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        let name = (attribute == "__name__")
            .then(|| crate::python::value_text::function_name(self.function));
        name.flatten().map(|name| heap.alloc(name))
    }

    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        called(self.function, Some(self.this), args, eval)
    }
}

#[starlark_value(type = "super")]
impl<'v> StarlarkValue<'v> for SuperValue<'v> {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        let above = class(self.class)?;
        let next = above.behind(self.this, attribute);
        let module = crate::nn::modules::is_module_class(above);
        if let (None, true, Some(object)) =
            (next, module, self.this.downcast_ref::<InstanceValue<'v>>())
        {
            return match attribute {
                // `nn.Module.__init__` does nothing that is seen.
                "__init__" => {
                    Some(heap.alloc(Callable::new("__init__", |_, _, _| Ok(Value::new_none()))))
                }
                name => crate::nn::module_values::of_own(object.0, name, heap),
            };
        }
        let member = next.or_else(|| {
            let begins = attribute == "__init__"
                && crate::python::exception_value::native_of(above).is_some();
            let begun = Callable::new("__init__", crate::python::exceptions::begun);
            begins.then(|| heap.alloc(begun))
        });
        Some(bound(member?, self.this, heap))
    }
}
