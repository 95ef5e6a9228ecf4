//! The blocks that are open around a statement, and the statements that follow it.

use super::generators;
use super::rewritten::Rewritten;
use crate::dialect::held_works::Here;

/// A block whose end needs a statement.
pub(super) struct Open {
    pub(super) indent: usize,
    pub(super) kind: Block,
}

impl Open {
    /// True if this is a loop without a condition, and a statement with this indentation is directly in it.
    pub(super) fn is_endless(&self, indent: usize) -> bool {
        self.kind == Block::Endless { inner: indent }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    Loop,
    /// `while True`, whose statements have this indentation.
    Endless {
        inner: usize,
    },
    Def,
    /// A function whose end needs a statement, and whose statements have this indentation.
    Ending {
        inner: usize,
        /// True if names hold works alone in it.
        holds: bool,
        /// True if it is a generator.
        generates: bool,
    },
    /// `with`, of so many contexts, begun in this line.
    With {
        contexts: usize,
        line: usize,
    },
}

impl Rewritten {
    /// The lines that end a block, behind the line `last`.
    pub(super) fn ends(&mut self, open: &Open, last: usize) {
        match open.kind {
            Block::With { contexts, line } => {
                for _ in 0..contexts {
                    self.line(&format!("{:1$}_exit()", "", open.indent), line);
                }
            }
            Block::Ending { inner, holds, generates } => {
                for end in [(holds, "_ended()"), (generates, generators::ENDS)] {
                    let (true, text) = end else { continue };
                    self.line(&format!("{:inner$}{text}", ""), last);
                }
            }
            Block::Loop | Block::Endless { .. } | Block::Def => {}
        }
    }
}

/// The number of contexts of `with` blocks that a statement leaves.
pub(super) fn contexts_left(blocks: &[Open], word: &str) -> usize {
    let mut left = 0;
    for open in blocks.iter().rev() {
        match open.kind {
            Block::With { contexts, .. } => left += contexts,
            Block::Loop | Block::Endless { .. } if word != "return" => return left,
            Block::Def | Block::Ending { .. } => return left,
            Block::Loop | Block::Endless { .. } => {}
        }
    }
    left
}

/// The statements that follow a statement.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'b> {
    /// The names that hold works alone.
    pub(super) names: Here<'b>,
    /// The indentation of the block inside.
    pub(super) inner: usize,
    /// True if the block only leaves a loop.
    pub(super) leaves: bool,
    /// True if the block only waits.
    pub(super) idle: bool,
}

/// The text between the keyword and the colon that ends the line, as a range.
pub(super) fn block_head(mask: &str, word: &str) -> Option<(usize, usize)> {
    let from = mask.find(word)? + word.len();
    let end = mask.trim_end();
    end.ends_with(':').then(|| (from, end.len() - 1))
}
