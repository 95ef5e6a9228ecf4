//! The leftovers of earlier programs in the interpreter's memory.
//!
//! Starlark keeps the unused ends of its last arenas for each thread, up to four, and gives them to the
//! arenas that come next. An arena's next piece is twice as large for each piece that it has, so one that
//! begins with a few small ends asks for hundreds of megabytes long before it needs them, and an end of such
//! a piece counts as a whole against the next program's limit. A program's memory limit must not depend on
//! which programs ran before it: while one is executed, the ends are kept here.

use starlark::values::FrozenHeap;

/// As many ends as a thread keeps (`PerThreadChunkCache` of starlark 0.14).
const ENDS: usize = 4;

/// Longer than what starlark has static strings for, and as small as an arena's values are.
const SMALLEST: &str = "ends";

/// The ends that a thread has, out of every program's reach until this is dropped.
pub(crate) struct Leftovers {
    _held: [FrozenHeap; ENDS],
}

impl Leftovers {
    /// Takes them. Each heap takes one end, or a new piece of 512 bytes when there are no more.
    pub(crate) fn hold() -> Leftovers {
        let held = std::array::from_fn(|_| {
            let heap = FrozenHeap::new();
            heap.alloc_str(SMALLEST);
            heap
        });
        Leftovers { _held: held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlark::values::FrozenHeapRef;

    /// The size of the first piece of a new arena, in bytes.
    fn first_piece() -> usize {
        let heap = FrozenHeap::new();
        heap.alloc_str(SMALLEST);
        heap.allocated_bytes()
    }

    #[test]
    fn while_they_are_held_arenas_begin_as_on_a_new_thread() {
        let fresh = std::thread::spawn(first_piece).join().unwrap();
        let _left: Vec<FrozenHeapRef> = [100, 200, 250, 300]
            .into_iter()
            .map(|length| {
                let heap = FrozenHeap::new();
                heap.alloc_str(&"x".repeat(length));
                heap.into_ref()
            })
            .collect();
        // Were it otherwise, this module would have nothing to do.
        assert_ne!(first_piece(), fresh);
        {
            let _held = Leftovers::hold();
            assert_eq!([first_piece(), first_piece()], [fresh; 2]);
        }
        assert_ne!(first_piece(), fresh);
    }
}
