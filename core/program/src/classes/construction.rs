//! The functions that the dialect writes for classes: their construction, the decorators of
//! methods, and the questions to objects.

use crate::classes::members::{FieldValue, OfClassValue, PropertyValue, StaticValue, SuperValue};
use crate::classes::method_resolution;
use crate::classes::objects::{
    ClassValue, ITSELF, InstanceValue, MEMBERS, StateValue, class, found, of_member, put,
};
use crate::dist::arguments as take;
use crate::python::type_error::type_error;
use starlark::collections::SmallMap;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::dict::AllocDict;
use starlark::values::list::AllocList;
use starlark::values::none::NoneType;
use starlark::values::{Heap, Value, ValueLike};
use std::cell::{Cell, RefCell};

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// `class Name(bases):`, a dataclass with its fields.
    fn _class<'v>(
        #[starlark(require = pos)] name: &str,
        #[starlark(require = pos)] bases: Value<'v>,
        #[starlark(require = pos, default = NoneType)] fields: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let above = method_resolution::above(&take::items(bases).unwrap_or_default())?;
        let text = |name: Value<'v>| name.unpack_str().unwrap_or_default().to_owned();
        let fields = take::items(fields).map(|all| all.into_iter().map(text).collect());
        let (name, members) = (name.to_owned(), RefCell::new(SmallMap::new()));
        let made = heap.alloc_complex_no_freeze(ClassValue { name, above, fields, members });
        if let Some(own) = class(made) {
            put(&own.members, ITSELF, made).map_err(starlark::Error::into_anyhow)?;
        }
        Ok(made)
    }

    /// `SUM = "sum"` in a class made of `Enum`: an object of the class with this name and value.
    fn _member<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        #[starlark(require = pos)] name: &str,
        #[starlark(require = pos)] value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let Some(own) = class(of) else { return Ok(value) };
        let all = found(&own.members, MEMBERS).and_then(take::items).unwrap_or_default();
        let process = crate::process::state::process(eval).map_err(starlark::Error::new_native)?;
        process.objects += 1;
        let number = process.objects;
        let attributes = RefCell::new(of_member(&own.name, name, value, heap));
        let state = StateValue { class: of, number, key: Cell::new(None), attributes };
        let member =
            heap.alloc_complex_no_freeze(InstanceValue(heap.alloc_complex_no_freeze(state)));
        let all = heap.alloc(AllocList(all.into_iter().chain([member])));
        put(&own.members, MEMBERS, all)?;
        Ok(member)
    }

    /// `super()` in a method of a class.
    fn _super<'v>(
        #[starlark(require = pos)] class: Value<'v>,
        #[starlark(require = pos)] this: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        Ok(heap.alloc_complex_no_freeze(SuperValue { class, this }))
    }

    /// `super().__init__()`, which does nothing where no class above has one.
    fn _begins<'v>(
        #[starlark(require = pos)] class: Value<'v>,
        #[starlark(require = pos)] this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let own = class.downcast_ref::<ClassValue<'v>>();
        if let Some(init) = own.and_then(|own| own.behind(this, "__init__")) {
            eval.eval_function(init, &[this], &[])?;
        }
        Ok(NoneType)
    }

    /// `@staticmethod`.
    fn _static<'v>(
        #[starlark(require = pos)] function: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        Ok(heap.alloc_complex_no_freeze(StaticValue(function)))
    }

    /// `@property`.
    fn _a_property<'v>(
        #[starlark(require = pos)] function: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        Ok(heap.alloc_complex_no_freeze(PropertyValue(function)))
    }

    /// `@classmethod`.
    fn _of_class<'v>(
        #[starlark(require = pos)] function: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        Ok(heap.alloc_complex_no_freeze(OfClassValue(function)))
    }

    /// `object.name`, where a class of the program has a property of that name.
    fn _property<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        #[starlark(require = pos)] name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let own = of.downcast_ref::<InstanceValue<'v>>().and_then(InstanceValue::class);
        let own = own.and_then(|class| class.find(name));
        match own.and_then(|own| own.downcast_ref::<PropertyValue<'v>>()) {
            Some(property) => eval.eval_function(property.0, &[of], &[]),
            None => of.get_attr_error(name, eval.heap()),
        }
    }

    fn setattr<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        #[starlark(require = pos)] name: &str,
        #[starlark(require = pos)] value: Value<'v>,
    ) -> starlark::Result<NoneType> {
        of.set_attr(name, value)?;
        Ok(NoneType)
    }

    /// `field(…)` of a dataclass.
    fn _field<'v>(
        #[starlark(require = named)] default: Option<Value<'v>>,
        #[starlark(require = named)] default_factory: Option<Value<'v>>,
        #[starlark(kwargs)] told: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = told;
        Ok(default.unwrap_or_else(|| heap.alloc_complex_no_freeze(FieldValue(default_factory))))
    }

    /// `asdict(object)` of a dataclass: its fields, as deep as its values are plain.
    fn _asdict<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let own = of.downcast_ref::<InstanceValue<'v>>();
        let fields = own.and_then(InstanceValue::class).map(|class| class.fields());
        let state = own.and_then(InstanceValue::state);
        let (Some(fields), Some(state)) = (fields.filter(|all| !all.is_empty()), state) else {
            let text = "asdict() should be called on dataclass instances";
            return Err(type_error(text));
        };
        let pairs = fields.iter().filter_map(|name| {
            let value = found(&state.attributes, name)?;
            Some((name.as_str(), value))
        });
        Ok(heap.alloc(AllocDict(pairs.collect::<Vec<_>>())))
    }
}

/// Adds the functions that the dialect writes for classes.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
}
