//! The search of a rank without shared memory for its peers.

use super::failure::{RankFailure, cannot};
use super::held::Held;
use crate::host::bridge::Bridge;
use crate::host::control::{self, Report, Setup, TcpSetup};
use crate::shm::Segment;
use lockstep_core::plan::Plan;
use rustix::fd::OwnedFd;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// The search of a rank without shared memory for its peers.
pub(super) struct Peers<'a> {
    pub(super) socket: &'a UnixStream,
    pub(super) held: &'a Held,
    pub(super) timeout: Duration,
}

impl Peers<'_> {
    /// Connects every channel; returns the rank's own memory.
    pub(super) fn connect(
        &self,
        tcp: &TcpSetup,
        plan: &Plan,
        setup: &Setup,
    ) -> Result<Arc<Segment>, RankFailure> {
        let failed = cannot::<std::io::Error>("cannot listen for the other ranks");
        // Rank 0's own process is where its child is; the others are connected to it.
        let rank_zero = match setup.launched {
            false => Ipv4Addr::LOCALHOST.into(),
            true => {
                let line = self.socket.try_clone().map_err(&failed)?;
                TcpStream::from(OwnedFd::from(line)).peer_addr().map_err(&failed)?.ip()
            }
        };
        let bridge = Bridge::listen(tcp.clone(), rank_zero).map_err(&failed)?;
        let port = bridge.port().map_err(&failed)?;
        let mut socket = self.socket;
        std::io::Write::write_all(&mut socket, &control::frame(&Report::Listening { port }))
            .map_err(&failed)?;
        let peers = self.held.wait(self.timeout, |told| told.peers.clone());
        let peers = peers.ok_or(RankFailure::Late { what: "listen", within: self.timeout })?;
        bridge.connect(plan, setup.rank, &setup.wiring, &peers, self.timeout)
    }
}
