//! `AttributeError` of objects of a program's own classes: the interpreter says which attribute it misses
//! and not whose, and asks no evaluator, so that the object is put down when it is asked.

use std::cell::RefCell;

thread_local! {
    /// The class of the object whose missing attribute was asked for last.
    static ASKED: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Notes that an object of this class lacks the attribute that was asked for.
pub(crate) fn told(class: &str) {
    ASKED.with_borrow_mut(|asked| class.clone_into(asked));
}

/// The exception that Python raises if an attribute of an object of the program's is missing; `None` for
/// other messages.
pub(crate) fn exception(message: &str) -> Option<String> {
    let name =
        message.strip_prefix("Object of type `object` has no attribute `")?.split('`').next()?;
    let class = ASKED.with_borrow(|asked| (!asked.is_empty()).then(|| asked.clone()))?;
    Some(format!("AttributeError: '{class}' object has no attribute '{name}'"))
}
