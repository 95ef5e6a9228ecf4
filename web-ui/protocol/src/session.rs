//! A session that the worker holds for the page: a trace or a model, for as long as the page has use for it.

use crate::SessionId;
use std::fmt;
use std::rc::Rc;

/// A session in the worker. The worker forgets it when the last clone is dropped: whoever waits for
/// it to be opened keeps one, so that it is not opened after it was given up.
#[derive(Clone, Debug)]
pub struct Session(Rc<Handle>);

struct Handle {
    id: SessionId,
    close: Rc<dyn Fn(SessionId)>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl Session {
    /// A session, and the function that closes it.
    pub fn new(id: SessionId, close: Rc<dyn Fn(SessionId)>) -> Session {
        Session(Rc::new(Handle { id, close }))
    }

    /// The number by which the worker knows it; good for as long as the session is.
    pub fn id(&self) -> SessionId {
        self.0.id
    }
}

impl PartialEq for Session {
    fn eq(&self, other: &Session) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        (self.close)(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn a_session_is_closed_once_when_nobody_holds_it_any_more() {
        let closed = Rc::new(RefCell::new(Vec::new()));
        let close: Rc<dyn Fn(SessionId)> = {
            let closed = closed.clone();
            Rc::new(move |id| closed.borrow_mut().push(id))
        };
        let session = Session::new(SessionId(7), close.clone());
        let other = Session::new(SessionId(8), close);
        assert_ne!(session, other);
        let shown = session.clone();
        drop(session);
        assert_eq!((shown.id(), closed.borrow().len()), (SessionId(7), 0));
        drop(shown);
        assert_eq!(*closed.borrow(), [SessionId(7)]);
        drop(other);
        assert_eq!(*closed.borrow(), [SessionId(7), SessionId(8)]);
    }
}
