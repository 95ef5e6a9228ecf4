//! The look of a pixel of the timeline, as one byte.

/// The look of a pixel: an index into the page's palette (`palette.rs`), with flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class(pub(super) u8);

impl Class {
    pub(super) const COMPUTE: Class = Class(1);
    pub(super) const SLEEP: Class = Class(2);
    /// The process waits.
    pub(super) const WAITING: Class = Class(3);
    /// The compute stream waits, and the process goes on.
    pub(super) const STREAM_WAITING: Class = Class(4);
    /// The process has enqueued what it had and goes on.
    pub(super) const FREE: Class = Class(5);
    /// Calls begin here, two a kind.
    pub(super) const FIRST_CALL: u8 = 8;
    /// Messages begin here, by their chunk.
    const FIRST_MESSAGE: u8 = 40;
    /// A call that waits for its stream, or a message that nobody has taken.
    pub(super) const QUEUED: u8 = 64;
    /// A call, or what its program does, that never ended.
    pub(super) const STUCK: u8 = 128;

    /// The class of a message of a chunk.
    pub(super) fn message(chunk: u32) -> Class {
        Class(Class::FIRST_MESSAGE + (chunk % 8) as u8)
    }

    pub(super) fn is_message(self) -> bool {
        self.0 >= Class::FIRST_MESSAGE
    }

    /// The kind of a call (`call_kinds::op_kind`); `None` for what is no call.
    pub(super) fn kind(self) -> Option<u8> {
        let kind = self.0.checked_sub(Class::FIRST_CALL)? / 2;
        (kind < lockstep_web_protocol::call_kinds::OP_KINDS).then_some(kind)
    }

    /// The class of a call by its name in PyTorch.
    pub(super) fn of_op(op: &str, odd: bool) -> Class {
        let kind = lockstep_web_protocol::call_kinds::op_kind(op);
        Class(Class::FIRST_CALL + 2 * kind + u8::from(odd))
    }
}
