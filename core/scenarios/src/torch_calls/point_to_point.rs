//! Sends and receives: to one rank, from anyone, and several together.

use super::backends::{ANY, NO_NCCL};
use super::entry::{Done, Entry};
use crate::torch_call::Script;
use lockstep_torch::c10d::{P2pKind, RecvFrom, SendTo};

pub(super) const CALLS: [Entry; 6] = [
    call!("send", "A tensor to one rank; waits until it is received.", ANY, 2, PAIRS, pairs),
    call!("recv", "A tensor from one rank.", ANY, 2, PAIRS, pairs),
    call!(
        "isend",
        "A send that returns a work at once. On NCCL one of the two receives first: calls between two ranks that are \
         not batched run in their order.",
        ANY,
        2,
        EXCHANGE,
        exchange
    ),
    call!("irecv", "A receive that returns a work at once.", ANY, 2, EXCHANGE, exchange),
    call!(
        "recv_any_source",
        "A receive from whoever sends first (src left out); NCCL has no such call.",
        NO_NCCL,
        2,
        "tensor = torch.arange({count}, dtype={dtype}{device}) + rank * {count}\n\
         if rank == 0:\n    for _ in range(world_size - 1):\n        dist.recv(tensor)\n\
         else:\n    dist.send(tensor, dst=0)\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            if s.rank() != 0 {
                return s.on("dist.send(").send(&tensor, SendTo::dst(0));
            }
            for _ in 1..s.options.world_size {
                s.on("dist.recv(").recv(&tensor, RecvFrom::default())?;
            }
            Ok(())
        }
    ),
    call!(
        "batch_isend_irecv",
        "Sends and receives made together: every rank to the next, from the previous.",
        ANY,
        2,
        "mine = torch.arange({count}, dtype={dtype}{device}) + rank * {count}\n\
         theirs = torch.empty_like(mine)\n\
         send = dist.P2POp(dist.isend, mine, (rank + 1) % world_size)\n\
         recv = dist.P2POp(dist.irecv, theirs, (rank - 1) % world_size)\n\
         works = dist.batch_isend_irecv([send, recv])\n\
         for work in works:\n    work.wait()\n",
        |s| {
            let (mine, theirs) =
                (s.filled("mine", s.options.count), s.empty("theirs", s.options.count));
            let (rank, size) = (i64::from(s.rank()), i64::from(s.options.world_size));
            let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
            let send =
                s.on("dist.isend").p2p_op(P2pKind::Isend, &mine, Some(next), None, 0, None)?;
            let recv = s.on("dist.irecv").p2p_op(
                P2pKind::Irecv,
                &theirs,
                Some(previous),
                None,
                0,
                None,
            )?;
            for work in s.on("batch_isend_irecv(").batch_isend_irecv([send, recv])? {
                s.on("work.wait(").wait(work, None)?;
            }
            Ok(())
        }
    ),
];

const PAIRS: &str = "\
tensor = torch.arange({count}, dtype={dtype}{device}) + rank * {count}
peer = rank ^ 1
if peer < world_size:
    if rank % 2 == 0:
        dist.send(tensor, dst=peer)
    else:
        dist.recv(tensor, src=peer)
";

fn pairs(s: &mut Script<'_, '_>) -> Done {
    let tensor = s.filled("tensor", s.options.count);
    let peer = s.rank() ^ 1;
    match (peer < s.options.world_size, s.rank() % 2) {
        (false, _) => Ok(()),
        (true, 0) => s.on("dist.send(").send(&tensor, SendTo::dst(i64::from(peer))),
        (true, _) => s.on("dist.recv(").recv(&tensor, RecvFrom::src(i64::from(peer))).map(drop),
    }
}

const EXCHANGE: &str = "\
mine = torch.arange({count}, dtype={dtype}{device}) + rank * {count}
theirs = torch.empty_like(mine)
peer = rank ^ 1
if peer < world_size:
    if rank < peer:
        send = dist.isend(mine, dst=peer)
    recv = dist.irecv(theirs, src=peer)
    if rank > peer:
        send = dist.isend(tensor=mine, dst=peer)
    send.wait()
    recv.wait()
";

fn exchange(s: &mut Script<'_, '_>) -> Done {
    let (mine, theirs) = (s.filled("mine", s.options.count), s.empty("theirs", s.options.count));
    let peer = s.rank() ^ 1;
    if peer >= s.options.world_size {
        return Ok(());
    }
    let sends_first = s.rank() < peer;
    let peer = i64::from(peer);
    let mut send = None;
    if sends_first {
        send = s.on("dist.isend(mine").isend(&mine, SendTo::dst(peer))?;
    }
    let recv = s.on("dist.irecv(").irecv(&theirs, RecvFrom::src(peer))?;
    if !sends_first {
        send = s.on("dist.isend(tensor=").isend(&mine, SendTo::dst(peer))?;
    }
    for (line, work) in [("send.wait(", send), ("recv.wait(", recv)] {
        if let Some(work) = work {
            s.on(line).wait(work, None)?;
        }
    }
    Ok(())
}
