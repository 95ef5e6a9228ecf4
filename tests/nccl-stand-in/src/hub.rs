//! The meeting point of a communicator's ranks: a socket of the process that made the id, and a
//! thread that carries their calls out once all have made them.
//!
//! Calls match by their number. Ranks that call different things at one number are never answered:
//! they hang, as NCCL's do.

use crate::lock;
use lockstep_core::dtype::Dtype;
use lockstep_core::reduce::{self, ReduceOp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A collective, with all that its ranks must agree on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Kind {
    AllReduce(ReduceOp),
    Reduce(ReduceOp, u32),
    ReduceScatter(ReduceOp),
    Broadcast(u32),
    AllGather,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToHub {
    Hello { rank: u32, size: u32, bus_id: String, host: String, may_share: bool },
    Collective { seq: u64, kind: Kind, dtype: Dtype, count: u64, data: Vec<u8> },
    Send { to: u32, number: u64, data: Vec<u8> },
    Receive { from: u32, number: u64 },
    Split { seq: u64, colour: i32, key: i32 },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromHub {
    /// All have come, or why they cannot work together.
    Welcome(Result<(), String>),
    Collective {
        seq: u64,
        data: Vec<u8>,
    },
    Sent {
        to: u32,
        number: u64,
    },
    Received {
        from: u32,
        number: u64,
        data: Vec<u8>,
    },
    /// The meeting point of the ranks of the same colour, with their places and number.
    Split {
        seq: u64,
        place: Option<(String, u32, u32)>,
    },
}

pub(crate) fn write(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    stream.write_all(&(body.len() as u64).to_le_bytes())?;
    stream.write_all(&body)
}

pub(crate) fn read<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let mut body = vec![0; u64::from_le_bytes(length) as usize];
    stream.read_exact(&mut body)?;
    postcard::from_bytes(&body).map_err(io::Error::other)
}

pub(crate) fn connect(name: &str) -> io::Result<UnixStream> {
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)
}

/// A collective as one rank made it: its kind, element type, element count, and the rank's own elements.
type Made = (Kind, Dtype, u64, Vec<u8>);

/// The messages on their way between two ranks, with the sender's number.
type OnTheWay = VecDeque<(u64, Vec<u8>)>;

#[derive(Default)]
struct Hub {
    ranks: BTreeMap<u32, Member>,
    collectives: BTreeMap<u64, BTreeMap<u32, Made>>,
    sends: BTreeMap<(u32, u32), OnTheWay>,
    receives: BTreeMap<(u32, u32), VecDeque<u64>>,
    splits: BTreeMap<u64, BTreeMap<u32, (i32, i32)>>,
}

struct Member {
    stream: UnixStream,
    bus_id: String,
    host: String,
    may_share: bool,
}

/// A new hub's name; it lives as long as the process.
pub(crate) fn start() -> io::Result<String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("lockstep-stand-in-{}-{number}", std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    let hub = Arc::new(Mutex::new(Hub::default()));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let hub = hub.clone();
            std::thread::spawn(move || {
                // A rank that is gone is missed by the others, which hang.
                let _ = serve(&hub, stream);
            });
        }
    });
    Ok(name)
}

fn serve(hub: &Mutex<Hub>, mut stream: UnixStream) -> io::Result<()> {
    let ToHub::Hello { rank, size, bus_id, host, may_share } = read(&mut stream)? else {
        return Ok(());
    };
    let member = Member { stream: stream.try_clone()?, bus_id, host, may_share };
    let mut all = lock(hub);
    all.ranks.insert(rank, member);
    if all.ranks.len() == size as usize {
        let welcome = all.may_begin();
        for member in all.ranks.values_mut() {
            write(&mut member.stream, &FromHub::Welcome(welcome.clone()))?;
        }
    }
    drop(all);
    loop {
        let message: ToHub = read(&mut stream)?;
        let mut all = lock(hub);
        match message {
            ToHub::Hello { .. } => {}
            ToHub::Collective { seq, kind, dtype, count, data } => {
                let calls = all.collectives.entry(seq).or_default();
                calls.insert(rank, (kind, dtype, count, data));
                if calls.len() == size as usize {
                    let calls = all.collectives.remove(&seq).unwrap_or_default();
                    for (rank, data) in carry_out(&calls) {
                        all.tell(rank, &FromHub::Collective { seq, data })?;
                    }
                }
            }
            ToHub::Send { to, number, data } => {
                all.sends.entry((rank, to)).or_default().push_back((number, data));
                all.deliver(rank, to)?;
            }
            ToHub::Receive { from, number } => {
                all.receives.entry((from, rank)).or_default().push_back(number);
                all.deliver(from, rank)?;
            }
            ToHub::Split { seq, colour, key } => {
                let calls = all.splits.entry(seq).or_default();
                calls.insert(rank, (colour, key));
                if calls.len() == size as usize {
                    let calls = all.splits.remove(&seq).unwrap_or_default();
                    all.split(seq, &calls)?;
                }
            }
        }
    }
}

impl Hub {
    fn may_begin(&self) -> Result<(), String> {
        let members: Vec<_> = self.ranks.iter().collect();
        for (index, (rank, member)) in members.iter().enumerate() {
            for (other, second) in &members[index + 1..] {
                let same = (&member.bus_id, &member.host) == (&second.bus_id, &second.host);
                if same && !(member.may_share && second.may_share) {
                    return Err(format!(
                        "Duplicate GPU detected : rank {rank} and rank {other} both on CUDA device \
                         {}",
                        member.bus_id
                    ));
                }
            }
        }
        Ok(())
    }

    fn tell(&mut self, rank: u32, message: &FromHub) -> io::Result<()> {
        match self.ranks.get_mut(&rank) {
            // One that is gone cannot be told; the others are.
            Some(member) => write(&mut member.stream, message).or(Ok(())),
            None => Ok(()),
        }
    }

    fn deliver(&mut self, from: u32, to: u32) -> io::Result<()> {
        let both = (from, to);
        let sends = self.sends.entry(both).or_default();
        let receives = self.receives.entry(both).or_default();
        if sends.is_empty() || receives.is_empty() {
            return Ok(());
        }
        let (Some((sent, data)), Some(received)) = (sends.pop_front(), receives.pop_front()) else {
            return Ok(());
        };
        self.tell(from, &FromHub::Sent { to, number: sent })?;
        self.tell(to, &FromHub::Received { from, number: received, data })
    }

    fn split(&mut self, seq: u64, calls: &BTreeMap<u32, (i32, i32)>) -> io::Result<()> {
        let mut groups: BTreeMap<i32, Vec<(i32, u32)>> = BTreeMap::new();
        for (rank, (colour, key)) in calls {
            groups.entry(*colour).or_default().push((*key, *rank));
        }
        for (colour, mut members) in groups {
            members.sort_unstable();
            // NCCL_SPLIT_NOCOLOR is -1.
            let name = if colour < 0 { None } else { Some(start()?) };
            let size = members.len() as u32;
            for (place, (_, rank)) in (0..).zip(members) {
                let place = name.clone().map(|name| (name, place, size));
                self.tell(rank, &FromHub::Split { seq, place })?;
            }
        }
        Ok(())
    }
}

/// The bytes that every rank gets, rank by rank; empty where the ranks do not agree.
fn carry_out(calls: &BTreeMap<u32, Made>) -> Vec<(u32, Vec<u8>)> {
    let Some((kind, dtype, count, _)) = calls.values().next().cloned() else { return Vec::new() };
    if calls.values().any(|call| (&call.0, call.1, call.2) != (&kind, dtype, count)) {
        return Vec::new();
    }
    let size = calls.len() as u32;
    let reduced = |op: ReduceOp| {
        let mut parts = calls.values().map(|call| {
            let mut data = call.3.clone();
            if let Some(factor) = reduce::premultiplier(op, dtype, size) {
                reduce::premultiply(dtype, factor, &mut data);
            }
            data
        });
        let mut all = parts.next().unwrap_or_default();
        parts.for_each(|part| reduce::combine(dtype, op, &mut all, &part));
        if let Some(divisor) = reduce::divisor(op, dtype, size) {
            reduce::divide(dtype, &mut all, divisor);
        }
        all
    };
    let of_root = |root: u32| calls.get(&root).map(|call| call.3.clone()).unwrap_or_default();
    let everyone = |data: Vec<u8>| calls.keys().map(|rank| (*rank, data.clone())).collect();
    match kind {
        Kind::AllReduce(op) => everyone(reduced(op)),
        Kind::Reduce(op, root) => {
            let all = reduced(op);
            let got = |rank: u32| if rank == root { all.clone() } else { Vec::new() };
            calls.keys().map(|rank| (*rank, got(*rank))).collect()
        }
        Kind::ReduceScatter(op) => {
            let all = reduced(op);
            let part = all.len() / size as usize;
            let parts = all.chunks(part.max(1)).map(<[u8]>::to_vec);
            calls.keys().copied().zip(parts.chain(std::iter::repeat(Vec::new()))).collect()
        }
        Kind::Broadcast(root) => everyone(of_root(root)),
        Kind::AllGather => everyone(calls.values().flat_map(|call| call.3.clone()).collect()),
    }
}
