//! The proof that a schedule does what its collective promises.
//!
//! The schedule is executed symbolically: a chunk's value is *which part of the input, reduced
//! over which ranks*. Adding a rank's contribution twice, mixing different parts, reading what was
//! never written, a message nobody receives and two actions of a step that touch the same memory
//! are all errors, so what is left is right for every element count, dtype and operation.

use super::{Action, Buffer, Schedule, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;
use std::collections::{BTreeMap, VecDeque};

/// What a proved schedule costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Messages sent by all ranks together.
    pub messages: u64,
    /// Chunks in those messages.
    pub chunks_moved: u64,
    /// Chunks combined by all ranks together.
    pub chunks_reduced: u64,
}

/// The first place where a schedule breaks its word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// A slice past the end of its buffer.
    #[error("rank {rank}, step {step}: {slice:?} is outside the rank's buffer of {chunks} chunks")]
    OutOfBounds {
        /// Whose step.
        rank: GroupRank,
        /// Which step.
        step: u32,
        /// The slice.
        slice: Slice,
        /// The chunks that the buffer has.
        chunks: u32,
    },
    /// Two actions of one step touch the same memory and one writes it.
    #[error("rank {rank}, step {step}: two actions of the step touch {slice:?} and one writes it")]
    Hazard {
        /// Whose step.
        rank: GroupRank,
        /// Which step.
        step: u32,
        /// The memory.
        slice: Slice,
    },
    /// A chunk is read before anything was put there.
    #[error("rank {rank}, step {step}: reads {slice:?}, where nothing was written yet")]
    Unwritten {
        /// Whose step.
        rank: GroupRank,
        /// Which step.
        step: u32,
        /// What is read.
        slice: Slice,
    },
    /// A reduction would count a rank twice or mix different parts of the tensor.
    #[error("rank {rank}, step {step}: cannot reduce into chunk {chunk}: {why}")]
    BadReduction {
        /// Whose step.
        rank: GroupRank,
        /// Which step.
        step: u32,
        /// The chunk written.
        chunk: u32,
        /// What is wrong with the operands.
        why: &'static str,
    },
    /// A message to oneself, of the wrong length, in the wrong step, or that nobody receives.
    #[error("rank {from} to rank {to}, step {step}: {why}")]
    BadMessage {
        /// The sender.
        from: GroupRank,
        /// The receiver.
        to: GroupRank,
        /// The sender's step.
        step: u32,
        /// What is wrong.
        why: &'static str,
    },
    /// The schedule waits for ever.
    #[error("rank {rank} waits for ever in step {step} for a message from rank {peer}")]
    Stuck {
        /// Who waits.
        rank: GroupRank,
        /// In which step.
        step: u32,
        /// For whom.
        peer: GroupRank,
    },
    /// At the end a chunk is not what the collective promises.
    #[error("rank {rank} ends with the wrong content in chunk {chunk} of its {buffer:?}")]
    WrongResult {
        /// Whose result.
        rank: GroupRank,
        /// Which buffer.
        buffer: Buffer,
        /// Which chunk.
        chunk: u32,
    },
}

/// A chunk's symbolic value: part `part` of the input, reduced over `ranks` (a bit set).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    part: u32,
    ranks: Vec<u64>,
}

impl Content {
    fn of(part: u32, ranks: impl Iterator<Item = u32>, size: u32) -> Content {
        let mut bits = vec![0; size.div_ceil(64) as usize];
        for rank in ranks {
            bits[(rank / 64) as usize] |= 1 << (rank % 64);
        }
        Content { part, ranks: bits }
    }

    /// The union; a barrier's "these have come" may overlap, a reduction's operands may not.
    fn union(&self, other: &Content, may_overlap: bool) -> Result<Content, &'static str> {
        if self.part != other.part {
            return Err("the operands are different parts of the tensor");
        }
        if !may_overlap && self.ranks.iter().zip(&other.ranks).any(|(a, b)| a & b != 0) {
            return Err("a rank's contribution would be counted twice");
        }
        let ranks = self.ranks.iter().zip(&other.ranks).map(|(a, b)| a | b).collect();
        Ok(Content { part: self.part, ranks })
    }
}

/// One rank's memory and place in its program.
struct RankState {
    step: u32,
    /// The sends and copies of `step` are done; its receives are the ones in `waiting`.
    waiting: Vec<Action>,
    begun: bool,
    memory: [Vec<Option<Content>>; 3],
}

fn buffer_index(buffer: Buffer) -> usize {
    match buffer {
        Buffer::Input => 0,
        Buffer::Output => 1,
        Buffer::Scratch => 2,
    }
}

/// Executes the schedule symbolically for all of its ranks.
///
/// # Errors
/// The first rank, step and chunk at which the schedule breaks one of its laws or its promise.
pub fn prove(schedule: &Schedule) -> Result<Proof, ProofError> {
    prove_actions(schedule, &|rank, step, actions| schedule.actions(rank, step, actions))
}

/// What a rank does in a step: replaces the content of the list.
type Actions<'a> = dyn Fn(GroupRank, u32, &mut Vec<Action>) + 'a;

/// Proves that `actions` carries out what `schedule` promises, on its buffers and in its steps.
fn prove_actions(schedule: &Schedule, actions: &Actions<'_>) -> Result<Proof, ProofError> {
    Prover::new(schedule, actions).run()
}

type Message = (u32, Vec<Content>);

struct Prover<'a> {
    schedule: &'a Schedule,
    actions: &'a Actions<'a>,
    ranks: Vec<RankState>,
    in_flight: BTreeMap<(u32, u32), VecDeque<Message>>,
    proof: Proof,
}

impl<'a> Prover<'a> {
    fn new(schedule: &'a Schedule, actions: &'a Actions<'a>) -> Prover<'a> {
        let size = schedule.size();
        let ranks = (0..size)
            .map(|rank| {
                let memory = [Buffer::Input, Buffer::Output, Buffer::Scratch].map(|buffer| {
                    let chunks = schedule.chunks(GroupRank(rank), buffer);
                    let holds_input = match buffer {
                        Buffer::Input => true,
                        Buffer::Output => schedule.collective().in_place(),
                        Buffer::Scratch => false,
                    };
                    (0..chunks)
                        .map(|chunk| {
                            holds_input.then(|| Content::of(chunk, [rank].into_iter(), size))
                        })
                        .collect()
                });
                RankState { step: 0, waiting: Vec::new(), begun: false, memory }
            })
            .collect();
        Prover { actions, schedule, ranks, in_flight: BTreeMap::new(), proof: Proof::default() }
    }

    fn run(mut self) -> Result<Proof, ProofError> {
        loop {
            let mut progress = false;
            for rank in 0..self.schedule.size() {
                while self.advance(rank)? {
                    progress = true;
                }
            }
            if !progress {
                break;
            }
        }
        for (rank, state) in self.ranks.iter().enumerate() {
            let stuck = state.waiting.iter().find_map(|action| match action {
                Action::Receive { peer, .. } | Action::ReceiveReduce { peer, .. } => Some(*peer),
                _ => None,
            });
            if let Some(peer) = stuck {
                let rank = GroupRank(rank as u32);
                return Err(ProofError::Stuck { rank, step: state.step, peer });
            }
        }
        if let Some((&(from, to), queue)) = self.in_flight.iter().find(|(_, q)| !q.is_empty()) {
            return Err(ProofError::BadMessage {
                from: GroupRank(from),
                to: GroupRank(to),
                step: queue[0].0,
                why: "nobody receives the message",
            });
        }
        self.check_promise()?;
        Ok(self.proof)
    }

    /// Moves `rank` on by one receive or one step; false when it waits or is done.
    fn advance(&mut self, rank: u32) -> Result<bool, ProofError> {
        let step = self.ranks[rank as usize].step;
        if step >= self.schedule.steps() {
            return Ok(false);
        }
        if !self.ranks[rank as usize].begun {
            self.begin(rank, step)?;
            return Ok(true);
        }
        let waiting = std::mem::take(&mut self.ranks[rank as usize].waiting);
        let before = waiting.len();
        let mut left = Vec::new();
        for action in waiting {
            if !self.receive(rank, step, action)? {
                left.push(action);
            }
        }
        let state = &mut self.ranks[rank as usize];
        state.waiting = left;
        if state.waiting.is_empty() {
            state.step += 1;
            state.begun = false;
            return Ok(true);
        }
        Ok(state.waiting.len() < before)
    }

    fn begin(&mut self, rank: u32, step: u32) -> Result<(), ProofError> {
        let mut actions = Vec::new();
        (self.actions)(GroupRank(rank), step, &mut actions);
        check_hazards(GroupRank(rank), step, &actions)?;
        for action in &actions {
            match *action {
                Action::Copy { from, into } => {
                    let content = self.read(rank, step, from)?;
                    self.write(rank, step, into, content)?;
                }
                Action::Reduce { local, from, into } => {
                    let content = self.read(rank, step, from)?;
                    let content = self.reduce(rank, step, local, into, &content)?;
                    self.write(rank, step, into, content)?;
                }
                Action::Send { peer, from } => {
                    let content = self.read(rank, step, from)?;
                    self.proof.messages += 1;
                    self.proof.chunks_moved += u64::from(from.chunks);
                    let queue = self.in_flight.entry((rank, peer.0)).or_default();
                    if peer.0 == rank {
                        return Err(ProofError::BadMessage {
                            from: GroupRank(rank),
                            to: peer,
                            step,
                            why: "a rank sends no message to itself",
                        });
                    }
                    queue.push_back((step, content));
                }
                Action::Receive { .. } | Action::ReceiveReduce { .. } => {
                    self.ranks[rank as usize].waiting.push(*action);
                }
            }
        }
        self.ranks[rank as usize].begun = true;
        Ok(())
    }

    fn receive(&mut self, rank: u32, step: u32, action: Action) -> Result<bool, ProofError> {
        let (peer, local, into) = match action {
            Action::Receive { peer, into } => (peer, None, into),
            Action::ReceiveReduce { peer, local, into } => (peer, Some(local), into),
            _ => return Ok(true),
        };
        let Some((sent, content)) =
            self.in_flight.get_mut(&(peer.0, rank)).and_then(VecDeque::pop_front)
        else {
            return Ok(false);
        };
        let bad = |why| ProofError::BadMessage { from: peer, to: GroupRank(rank), step: sent, why };
        if sent != step {
            return Err(bad("it is received in another step than it was sent in"));
        }
        if content.len() != into.chunks as usize {
            return Err(bad("sender and receiver disagree on its length"));
        }
        let content = match local {
            None => content,
            Some(local) => self.reduce(rank, step, local, into, &content)?,
        };
        self.write(rank, step, into, content)?;
        Ok(true)
    }

    /// What `into` gets when `content` is combined with what `local` holds.
    fn reduce(
        &mut self,
        rank: u32,
        step: u32,
        local: Slice,
        into: Slice,
        content: &[Content],
    ) -> Result<Vec<Content>, ProofError> {
        let own = self.read(rank, step, local)?;
        self.proof.chunks_reduced += u64::from(into.chunks);
        let overlap = self.schedule.collective().is_barrier();
        let reduced = own.iter().zip(content).map(|(a, b)| a.union(b, overlap));
        reduced.collect::<Result<_, _>>().map_err(|why| ProofError::BadReduction {
            rank: GroupRank(rank),
            step,
            chunk: into.chunk,
            why,
        })
    }

    fn read(&self, rank: u32, step: u32, slice: Slice) -> Result<Vec<Content>, ProofError> {
        let chunks = &self.ranks[rank as usize].memory[buffer_index(slice.buffer)];
        let range = in_bounds(GroupRank(rank), step, slice, chunks.len())?;
        let content: Option<Vec<_>> = chunks[range].iter().cloned().collect();
        content.ok_or(ProofError::Unwritten { rank: GroupRank(rank), step, slice })
    }

    fn write(
        &mut self,
        rank: u32,
        step: u32,
        slice: Slice,
        content: Vec<Content>,
    ) -> Result<(), ProofError> {
        let chunks = &mut self.ranks[rank as usize].memory[buffer_index(slice.buffer)];
        let range = in_bounds(GroupRank(rank), step, slice, chunks.len())?;
        for (chunk, content) in chunks[range].iter_mut().zip(content) {
            *chunk = Some(content);
        }
        Ok(())
    }

    fn check_promise(&self) -> Result<(), ProofError> {
        for (rank, state) in self.ranks.iter().enumerate() {
            let rank = GroupRank(rank as u32);
            let buffer = match self.schedule.collective() {
                collective if collective.is_barrier() => Buffer::Scratch,
                collective if collective.promises(rank) => Buffer::Output,
                _ => continue,
            };
            for (chunk, content) in state.memory[buffer_index(buffer)].iter().enumerate() {
                let chunk = chunk as u32;
                let promised = self.promised(rank, chunk);
                if promised.is_some() && *content != promised {
                    return Err(ProofError::WrongResult { rank, buffer, chunk });
                }
            }
        }
        Ok(())
    }

    /// What the collective promises in `chunk` of the result of `rank`.
    fn promised(&self, rank: GroupRank, chunk: u32) -> Option<Content> {
        let size = self.schedule.size();
        let one = |part, from| Some(Content::of(part, [from].into_iter(), size));
        let all = |part| Some(Content::of(part, 0..size, size));
        match self.schedule.collective() {
            Collective::AllReduce { .. } | Collective::Reduce { .. } => all(chunk),
            Collective::Broadcast { root } => one(chunk, root.0),
            Collective::AllGather | Collective::Gather { .. } => one(0, chunk),
            Collective::Scatter { root } => one(rank.0, root.0),
            Collective::ReduceScatter { .. } => all(rank.0),
            Collective::AllToAll => one(rank.0, chunk),
            // Only the last signal says that everybody has come.
            Collective::Barrier | Collective::MonitoredBarrier { .. } => {
                let signals = self.schedule.chunks(rank, Buffer::Scratch);
                (chunk + 1 == signals).then(|| all(0)).flatten()
            }
        }
    }
}

fn in_bounds(
    rank: GroupRank,
    step: u32,
    slice: Slice,
    chunks: usize,
) -> Result<std::ops::Range<usize>, ProofError> {
    let start = slice.chunk as usize;
    let end = start.saturating_add(slice.chunks as usize);
    if slice.chunks == 0 || end > chunks {
        return Err(ProofError::OutOfBounds { rank, step, slice, chunks: chunks as u32 });
    }
    Ok(start..end)
}

fn check_hazards(rank: GroupRank, step: u32, actions: &[Action]) -> Result<(), ProofError> {
    let touched: Vec<_> = actions.iter().map(reads_and_writes).collect();
    // Sort-free and quadratic only in the writers: a step has many sends but few writes.
    for (index, (_, write)) in touched.iter().enumerate() {
        let Some(write) = write else { continue };
        for (other, (reads, other_write)) in touched.iter().enumerate() {
            let reads = reads.iter().flatten();
            let clash = reads.chain(other_write).any(|slice| slice.overlaps(*write));
            if other != index && clash {
                return Err(ProofError::Hazard { rank, step, slice: *write });
            }
        }
    }
    Ok(())
}

fn reads_and_writes(action: &Action) -> ([Option<Slice>; 2], Option<Slice>) {
    match *action {
        Action::Copy { from, into } => ([Some(from), None], Some(into)),
        Action::Reduce { local, from, into } => ([Some(local), Some(from)], Some(into)),
        Action::Send { from, .. } => ([Some(from), None], None),
        Action::Receive { into, .. } => ([None, None], Some(into)),
        Action::ReceiveReduce { local, into, .. } => ([Some(local), None], Some(into)),
    }
}

#[cfg(test)]
mod closed_forms;
#[cfg(test)]
mod tests;
