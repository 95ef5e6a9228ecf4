//! A store in a program's hands: its methods, with torch's signatures.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::arguments as take;
use crate::dist::values::DurationValue;
use crate::process::raised::refused;
use crate::process::state::{Process, process};
use crate::python::numbers;
use crate::python::type_error::class_of;
use crate::stores::bytes::{BytesValue, bytes_of};
use crate::stores::call::{Asks, Call, Told, call};
use crate::stores::handle::{Handle, Of, StoreValue};
use crate::stores::log::{Answer, Place, What};
use crate::stores::signatures::{
    ADD, APPEND, CHECK, COMPARE_SET, DELETE_KEY, GET, MULTI_GET, MULTI_SET, Named, SET,
    SET_TIMEOUT, WAIT, only, positions, refusal,
};
use crate::stores::unknown_answer::LateValue;
use lockstep_torch::c10d::{DistError, ErrorKind};
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::list::AllocList;
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{Heap, StarlarkValue, Value, ValueLike};
use starlark::{methods_static, starlark_module};
use starlark_derive::starlark_value;
use std::sync::Arc;
use std::sync::atomic::Ordering;

methods_static!(STORE_METHODS = store_methods);

#[starlark_value(type = "Store")]
impl<'v> StarlarkValue<'v> for StoreValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(STORE_METHODS.methods())
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        let place = match &*self.0 {
            Handle::Store { base, .. } => match &base.of {
                Of::Job(place) => Some(&**place),
                Of::Process(_) => None,
            },
            Handle::Prefix { .. } => None,
        };
        match (attribute, &*self.0, place) {
            ("timeout", _, _) => Some(heap.alloc(DurationValue(self.0.timeout_ms()))),
            ("underlying_store", Handle::Prefix { under, .. }, _) => {
                Some(heap.alloc(StoreValue(under.clone())))
            }
            ("host", _, Some(Place::Tcp { host, .. })) => {
                let written = self.0.base().host.as_ref().unwrap_or(host);
                Some(heap.alloc(written.as_str()))
            }
            ("port", _, Some(Place::Tcp { port, .. })) => Some(heap.alloc(i32::from(*port))),
            ("path", _, Some(Place::File { path })) => Some(heap.alloc(path.as_str())),
            _ => None,
        }
    }

    fn has_attr(&self, attribute: &str, heap: Heap<'v>) -> bool {
        self.get_attr(attribute, heap).is_some()
    }
}

fn text_of(value: Value<'_>) -> Option<String> {
    bytes_of(value).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn texts_of(value: Value<'_>) -> Option<Vec<String>> {
    take::items(value)?.into_iter().map(text_of).collect()
}

fn handle<'v>(this: Value<'v>) -> anyhow::Result<Arc<Handle>> {
    let handle = this.downcast_ref::<StoreValue>().map(|store| store.0.clone());
    handle.ok_or_else(|| anyhow::anyhow!("{} is no store", class_of(this)))
}

/// The column at which a call begins in its line as it was written, counted from 1.
pub(super) fn column(eval: &mut Evaluator<'_, '_, '_>) -> u32 {
    let Some(span) = eval.call_stack_top_location() else { return 0 };
    let place = span.resolve_span().begin;
    let own = process(eval).ok().map(|process| {
        process.column_of(place.line, span.file.source_line(place.line), place.column)
    });
    own.unwrap_or(place.column) as u32 + 1
}

/// The time at which the program looks at a method's answer: never if the call is a statement of its own, or
/// assigns the answer to a name that the program uses nowhere else.
fn asks(process: &Process<'_>, method: &str) -> Asks {
    let line = process.line_text().trim_start();
    let Some((before, _)) = line.split_once(&format!(".{method}(")) else { return Asks::Now };
    let block = ["if ", "for ", "while ", "else", "elif ", "with "];
    let statement = match block.iter().any(|word| before.starts_with(word)) {
        true => before.rsplit(": ").next().unwrap_or(before).trim_start(),
        false => before,
    };
    let plain = |text: &str| text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
    match statement.split_once('=') {
        None if plain(statement) => Asks::No,
        Some((name, store)) if plain(store.trim()) && process.names_once(name.trim()) => {
            Asks::Later
        }
        _ => Asks::Now,
    }
}

/// Makes a call, and returns its result in Python's form.
fn ask<'v>(
    this: Value<'v>,
    what: What,
    via: &'static str,
    keys: Vec<String>,
    timeout_ms: Option<u64>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    let column = column(eval);
    let handle = handle(this)?;
    let process = process(eval)?;
    let method = via.trim_start_matches("store.");
    let changes = matches!(what, What::Add(_) | What::CompareSet { .. } | What::Delete);
    let sets = matches!(what, What::Set(_) | What::Append(_));
    let asks = match (sets, changes) {
        (true, _) => Asks::No,
        (false, true) => asks(process, method),
        (false, false) => Asks::Now,
    };
    let polls = process.stores.polling;
    let made = call(process, &handle, Call { what, via, keys, timeout_ms, column, asks })?;
    Ok(match made {
        Told::Later(op) => {
            let need = process.stores.need.clone();
            heap.alloc(LateValue { op, polls, need })
        }
        Told::Now(Answer::Bytes(bytes)) => heap.alloc(BytesValue(bytes)),
        Told::Now(Answer::Many(values)) => {
            heap.alloc(AllocList(values.into_iter().map(BytesValue)))
        }
        Told::Now(Answer::Number(number)) => heap.alloc(number),
        Told::Now(Answer::Yes(yes)) => Value::new_bool(yes),
        Told::Now(Answer::Done | Answer::Raises(_) | Answer::TimesOut(_)) => Value::new_none(),
    })
}

#[starlark_module]
fn store_methods(builder: &mut MethodsBuilder) {
    fn set<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: Named<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let wrong = || refusal(&SET, this, &args, &named);
        let [key, value] = positions(&args, &named)[..] else { return Err(wrong()) };
        let (Some(key), Some(value)) = (text_of(key), bytes_of(value)) else { return Err(wrong()) };
        ask(this, What::Set(value), "store.set", vec![key], None, eval)
    }

    fn append<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: Named<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let wrong = || refusal(&APPEND, this, &args, &named);
        let [key, value] = positions(&args, &named)[..] else { return Err(wrong()) };
        let (Some(key), Some(value)) = (text_of(key), bytes_of(value)) else { return Err(wrong()) };
        ask(this, What::Append(value), "store.append", vec![key], None, eval)
    }

    fn get<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: Named<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let key = only(&args, &named).and_then(text_of);
        let key = key.ok_or_else(|| refusal(&GET, this, &args, &named))?;
        ask(this, What::Get, "store.get", vec![key], None, eval)
    }

    fn add<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: Named<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let wrong = || refusal(&ADD, this, &args, &named);
        let [key, amount] = positions(&args, &named)[..] else { return Err(wrong()) };
        let key = text_of(key).ok_or_else(wrong)?;
        let amount = numbers::whole(amount, "amount").map_err(|_| wrong())?;
        ask(this, What::Add(amount), "store.add", vec![key], None, eval)
    }

    fn compare_set<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: Named<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let wrong = || refusal(&COMPARE_SET, this, &args, &named);
        let [key, expected, desired] = positions(&args, &named)[..] else { return Err(wrong()) };
        let (Some(key), Some(expected), Some(desired)) =
            (text_of(key), bytes_of(expected), bytes_of(desired))
        else {
            return Err(wrong());
        };
        let what = What::CompareSet { expected, desired };
        ask(this, what, "store.compare_set", vec![key], None, eval)
    }

    fn delete_key<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: Named<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let key = only(&args, &named).and_then(text_of);
        let key = key.ok_or_else(|| refusal(&DELETE_KEY, this, &args, &named))?;
        ask(this, What::Delete, "store.delete_key", vec![key], None, eval)
    }

    fn check<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: Named<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let keys = only(&args, &named).and_then(texts_of);
        let keys = keys.ok_or_else(|| refusal(&CHECK, this, &args, &named))?;
        ask(this, What::Check, "store.check", keys, None, eval)
    }

    fn wait<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: Named<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let wrong = || refusal(&WAIT, this, &args, &named);
        let (keys, timeout) = match positions(&args, &named)[..] {
            [keys] => (keys, None),
            [keys, timeout] => (keys, Some(timeout)),
            _ => return Err(wrong()),
        };
        let timeout_ms = match timeout.map(|timeout| timeout.downcast_ref::<DurationValue>()) {
            Some(Some(timeout)) => Some(timeout.0),
            Some(None) => return Err(wrong()),
            None => None,
        };
        let keys = texts_of(keys).ok_or_else(wrong)?;
        ask(this, What::Wait, "store.wait", keys, timeout_ms, eval)
    }

    fn multi_get<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: Named<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let keys = only(&args, &named).and_then(texts_of);
        let keys = keys.ok_or_else(|| refusal(&MULTI_GET, this, &args, &named))?;
        ask(this, What::MultiGet, "store.multi_get", keys, None, eval)
    }

    fn multi_set<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: Named<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let wrong = || refusal(&MULTI_SET, this, &args, &named);
        let [keys, values] = positions(&args, &named)[..] else { return Err(wrong()) };
        let values: Option<Vec<Vec<u8>>> =
            take::items(values).and_then(|values| values.into_iter().map(bytes_of).collect());
        let (Some(keys), Some(values)) = (texts_of(keys), values) else { return Err(wrong()) };
        if keys.len() != values.len() && handle(this)?.base_class() == "TCPStore" {
            let text = "multiSet keys and values vectors must be of same size";
            return Err(refused(DistError::new(ErrorKind::DistStoreError, text)));
        }
        // Other stores leave values over, and read past the end of too few.
        anyhow::ensure!(
            keys.len() <= values.len(),
            "multi_set of {} keys and {} values: PyTorch reads past the end of the values here",
            keys.len(),
            values.len()
        );
        for (key, value) in keys.into_iter().zip(values) {
            ask(this, What::Set(value), "store.multi_set", vec![key], None, eval)?;
        }
        Ok(Value::new_none())
    }

    fn num_keys<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        anyhow::ensure!(
            !handle(this)?.base().of_pytorch.load(Ordering::Relaxed),
            "how many keys the default group's store has is not known here: PyTorch keeps its own \
             in it. Ask for the keys that you mean with store.check(keys)"
        );
        ask(this, What::NumKeys, "store.num_keys", Vec::new(), None, eval)
    }

    fn set_timeout<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: Named<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let _ = process(eval)?;
        let timeout = only(&args, &named);
        let timeout = timeout.and_then(|timeout| timeout.downcast_ref::<DurationValue>());
        let wrong = || refusal(&SET_TIMEOUT, this, &args, &named);
        handle(this)?.set_timeout(timeout.ok_or_else(wrong)?.0);
        Ok(NoneType)
    }

    fn has_extended_api<'v>(this: Value<'v>) -> anyhow::Result<bool> {
        Ok(handle(this)?.base_class() != "FileStore")
    }
}

#[starlark_module]
fn loops(builder: &mut GlobalsBuilder) {
    /// The condition of a `while` begins.
    fn _polling<'v>(exact: bool, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<NoneType> {
        let stores = &mut process(eval)?.stores;
        stores.polling = true;
        stores.exact = exact;
        stores.waited = false;
        Ok(NoneType)
    }

    /// It ends, with this; the loop is left where it is as `leaves` says.
    fn _polled<'v>(
        condition: Value<'v>,
        #[starlark(default = false)] leaves: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let again = condition.to_bool() != leaves;
        let stores = &mut process(eval)?.stores;
        stores.polling = false;
        anyhow::ensure!(
            !(again && stores.waited),
            "a loop that asks a store waits here until what it asks for is there: write it as \
             `while store.add(key, 0) < number:`, or `while not store.check(keys):`"
        );
        Ok(condition)
    }
}

/// Adds the functions that the rewritten Python calls.
pub(crate) fn python(builder: &mut GlobalsBuilder) {
    loops(builder);
}
