//! The reasons that a text is no MSCCL program that could run.

use lockstep_core::collective::Collective;
use lockstep_core::schedule::TableError;
use std::fmt;

/// A step of an MSCCL program, as its file numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The `gpu`: our rank.
    pub gpu: u32,
    /// The thread block, `tb`.
    pub tb: u32,
    /// The step `s` of the block.
    pub step: u32,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gpu {}, tb {}, step {}", self.gpu, self.tb, self.step)
    }
}

/// The reason that a line does not belong to an MSCCL program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Something else than XML, in its reader's words.
    #[error("this is not XML: {0}")]
    NotXml(String),
    /// The text ends too early.
    #[error("the file ends inside <{0}>")]
    OpenElement(&'static str),
    /// A document type, which could bring entities.
    #[error("a document type is not read: remove it")]
    DocumentType,
    /// Text where only elements are.
    #[error("there is text between the elements")]
    Text,
    /// An element in the place of another.
    #[error("<{found}> where <{expected}> should be")]
    Element {
        /// Its name, or the beginning of it.
        found: String,
        /// The element that belongs here.
        expected: &'static str,
    },
    /// An element below the last level.
    #[error("<{0}> inside a <step>")]
    BelowStep(String),
    /// No element at all.
    #[error("there is no <algo>: this is no MSCCL program")]
    NoProgram,
    /// A second program.
    #[error("a second <algo>: a file holds one program")]
    SecondProgram,
    /// A program for no call.
    #[error("inplace and outofplace are both 0: the program is for no call")]
    NoPlace,
    /// Something numbered that was there before.
    #[error("{0} is there twice")]
    Twice(String),
    /// A thread block that exchanges messages with its own GPU.
    #[error("{attribute}=\"{peer}\" is the thread block's own gpu")]
    OwnGpu {
        /// `send` or `recv`.
        attribute: &'static str,
        /// The GPU.
        peer: i64,
    },
    /// An element without the one that it belongs to.
    #[error("{0} outside {1}")]
    Outside(&'static str, &'static str),
    /// More than is read.
    #[error("more than {limit} {what}")]
    TooMany {
        /// The limit.
        limit: usize,
        /// The things that are counted.
        what: &'static str,
    },
    /// Steps do not count up.
    #[error("step s=\"{found}\" where s=\"{expected}\" should be")]
    StepNumber {
        /// The step's number.
        found: usize,
        /// The next number.
        expected: usize,
    },
    /// A type of no step.
    #[error("type=\"{found}\" is no step; it is one of {}", known.join(", "))]
    StepType {
        /// The type, or the beginning of it.
        found: String,
        /// The types there are.
        known: Vec<&'static str>,
    },
    /// A dependency on a thread block as a whole.
    #[error("depid=\"{0}\" without a step in deps")]
    NoDependency(u32),
    /// A step that moves nothing.
    #[error("cnt=\"0\": a step of type {0} moves at least one chunk")]
    NoChunks(&'static str),
    /// A collective that is not known.
    #[error(
        "coll=\"{found}\" promises nothing that could be proved; it is one of {}",
        known.join(", ")
    )]
    Collective {
        /// Its name, or the beginning of it.
        found: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// Chunks that cannot be shared out.
    #[error(
        "nchunksperloop=\"{chunks}\" is no multiple of ngpus=\"{gpus}\", but {collective} has a part for every gpu"
    )]
    Chunks {
        /// `nchunksperloop`.
        chunks: u32,
        /// `ngpus`.
        gpus: u32,
        /// The collective.
        collective: String,
    },
    /// A GPU without an element.
    #[error("gpu {gpu} of ngpus=\"{gpus}\" is missing")]
    NoGpu {
        /// Its number.
        gpu: usize,
        /// `ngpus`.
        gpus: u32,
    },
    /// A gap in the numbers of thread blocks.
    #[error("tb {tb} of gpu {gpu} is missing: blocks count from 0")]
    NoBlock {
        /// The number that no block has.
        tb: usize,
        /// The GPU.
        gpu: usize,
    },
    /// An attribute that XML does not allow, in its reader's words.
    #[error("{name}: {why}")]
    Attribute {
        /// Its name, or the beginning of it.
        name: String,
        /// The problem.
        why: String,
    },
    /// An attribute that an element needs.
    #[error("the attribute {0} is missing")]
    Lacks(&'static str),
    /// Not a number, or one that is too small or large.
    #[error("{name}=\"{found}\" is no whole number from {from} to {to}")]
    Number {
        /// The attribute.
        name: &'static str,
        /// Its value, or the beginning of it.
        found: String,
        /// The least.
        from: i64,
        /// The most.
        to: i64,
    },
    /// A memory that there is not.
    #[error("{name}=\"{found}\" is none of i, o and s")]
    Memory {
        /// The attribute.
        name: &'static str,
        /// Its value, or the beginning of it.
        found: String,
    },
}

/// The reason that a text is no MSCCL program that could run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MscclError {
    /// More text than is read.
    #[error("the file has {bytes} bytes; MSCCL programs of up to 32 MiB are read")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Not XML, or not an MSCCL program's elements and attributes.
    #[error("line {line}: {why}")]
    Line {
        /// The line, counted from 1.
        line: usize,
        /// The problem there.
        why: LineError,
    },
    /// Another kind of file.
    #[error(
        "this is GOAL, not MSCCL's XML: it says what every rank sends, receives and computes, and promises nothing \
         that could be proved. `lockstep sim FILE` simulates it"
    )]
    Goal,
    /// A rooted collective in place, of which MSCCL's files do not say where the root's part lies.
    #[error("an in-place {0} is not read: make it outofplace=\"1\"")]
    InPlace(Collective),
    /// More waits than are checked for races.
    #[error("{waits} waits of {blocks} thread blocks are too many to check")]
    TooManyWaits {
        /// Steps that wait for others.
        waits: usize,
        /// Thread blocks of all GPUs.
        blocks: usize,
    },
    /// Steps without an order; a program that got so far has one.
    #[error("the steps cannot be put into an order")]
    NoOrder,
    /// A GPU as a whole.
    #[error("gpu {gpu}: {why}")]
    Gpu {
        /// The GPU with the problem.
        gpu: u32,
        /// The problem with it.
        why: String,
    },
    /// A step that could not run.
    #[error("{at}: {why}")]
    Step {
        /// The place.
        at: At,
        /// The problem with it.
        why: String,
    },
    /// Two steps of a GPU use the same memory, one writes it, and nothing orders them.
    #[error(
        "{at} and tb {}, step {} both touch {what} and one writes it, but nothing says which comes \
         first: add a dependency (depid, deps)", .other.tb, .other.step
    )]
    Race {
        /// The one step.
        at: At,
        /// The other, of the same GPU.
        other: At,
        /// The memory, in the file's words: `i[3]`.
        what: String,
    },
    /// Steps that wait for each other.
    #[error("{at} waits for itself: {circle}")]
    Cycle {
        /// The first step of the circle.
        at: At,
        /// The circle of waits, in words.
        circle: String,
    },
    /// More than a schedule from a file may hold.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl MscclError {
    /// An error of one step.
    pub(super) fn step(at: At, why: impl Into<String>) -> MscclError {
        MscclError::Step { at, why: why.into() }
    }
}
