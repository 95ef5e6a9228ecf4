//! The constructors of stores, and the default group's store.

#![allow(clippy::too_many_arguments, reason = "PyTorch's arguments")]

use super::log::{Answer, Missing, Place, What};
use super::settle::CLIENTS;
use super::signatures::{Named, invoked_with};
use crate::dist::values::DurationValue;
use crate::process::raised::{Raised, refused};
use crate::process::state::{Process, process};
use crate::python::numbers;
use crate::python::type_error::type_error;
use crate::stores::call::{Asks, CONSTRUCTOR, Call, Told, call, meet};
use crate::stores::handle::{Handle, Of, StoreValue};
use crate::stores::store_methods::column;
use lockstep_torch::c10d::{Dist, DistError, ErrorKind};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::{Value, ValueLike};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A timeout of a constructor, in milliseconds.
fn duration(value: Value<'_>) -> anyhow::Result<Option<u64>> {
    match value.downcast_ref::<DurationValue>() {
        Some(duration) => Ok(Some(duration.0)),
        None if value.is_none() => Ok(None),
        None => Err(type_error(
            "__init__(): incompatible constructor arguments. The following argument types are \
             supported:",
        )),
    }
}

/// A port as the system picks it for port 0: free, and otherwise nothing to rely on.
fn picked_port(dist: &Dist<'_>, nth: usize) -> u16 {
    // The ephemeral ports of Linux.
    let (first, count) = (32_768, 28_232);
    let taken = nth as u64 * u64::from(dist.world_size_of_job()) + u64::from(dist.process().0);
    u16::try_from(first + taken % count).unwrap_or(u16::MAX)
}

/// A `TCPStore` that its constructor makes, and the server that it is on.
struct Opening<'a, 'p> {
    process: &'a mut Process<'p>,
    store: Handle,
    server: Handle,
    column: u32,
}

/// The server's own entry, which its clients wait for.
const SERVER: &str = "its server";

impl Opening<'_, '_> {
    fn answer(
        &mut self,
        of_server: bool,
        what: What,
        key: &str,
        asks: Asks,
    ) -> anyhow::Result<Answer> {
        let on = if of_server { &self.server } else { &self.store };
        let keys = vec![key.to_owned()];
        let made =
            Call { what, via: CONSTRUCTOR, keys, timeout_ms: None, column: self.column, asks };
        Ok(match call(self.process, on, made)? {
            Told::Now(answer) => answer,
            Told::Later(_) => Answer::Done,
        })
    }

    /// Serves the store; raises if its port is taken.
    fn listen(&mut self, port: u16) -> anyhow::Result<()> {
        if self.answer(true, What::Add(1), "servers", Asks::Now)? != Answer::Number(1) {
            let text = format!(
                "The server socket has failed to listen on any local network address. port: {port}, \
                 useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
            );
            let help = "Two stores are served on one port: pass is_master = True on one rank only.";
            let error = DistError::new(ErrorKind::DistNetworkError, text);
            return Err(refused(error.with_help(help)));
        }
        self.answer(true, What::Set(b"1".to_vec()), SERVER, Asks::No)?;
        Ok(())
    }

    /// Waits for the server.
    fn reach(&mut self, host_name: &str, port: u16) -> anyhow::Result<()> {
        let waits_ms = self.store.timeout_ms();
        if matches!(self.answer(true, What::Wait, SERVER, Asks::Now)?, Answer::TimesOut(_)) {
            let text = format!(
                "The client socket has timed out after {waits_ms}ms while trying to connect to \
                 ({host_name}, {port})."
            );
            let help = "Nobody serves the store there, or not any more: one rank has to pass is_master = \
                        True, and to be there until all are done.";
            let error = DistError::new(ErrorKind::DistNetworkError, text);
            return Err(refused(error.with_help(help)));
        }
        Ok(())
    }

    /// Says that this client is there.
    fn join(&mut self) -> anyhow::Result<()> {
        self.answer(false, What::Add(1), CLIENTS, Asks::No).map(drop)
    }

    fn wait_for_clients(&mut self, world_size: i64) -> anyhow::Result<()> {
        let what = What::AtLeast { number: world_size, exact: false };
        let answer = self.answer(false, what, CLIENTS, Asks::Now)?;
        let Answer::TimesOut(Missing { key: joined, .. }) = answer else { return Ok(()) };
        // The server ends with its constructor.
        self.answer(true, What::Delete, SERVER, Asks::No)?;
        let seconds = self.store.timeout_ms() / 1000 + 1;
        let text = format!(
            "Timed out after {seconds} seconds waiting for clients. {joined}/{world_size} clients joined."
        );
        let help = "Every rank has to make its TCPStore, of the same port.";
        Err(refused(DistError::new(ErrorKind::DistStoreError, text).with_help(help)))
    }
}

/// Adds the stores to `torch.distributed`.
#[starlark_module]
pub(crate) fn functions(builder: &mut GlobalsBuilder) {
    fn HashStore<'v>(eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<StoreValue> {
        let own = process(eval)?.stores.hash()?;
        Ok(StoreValue(Arc::new(Handle::new("HashStore", own, None))))
    }

    fn FileStore<'v>(
        file_name: &str,
        #[starlark(default = -1)] world_size: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<StoreValue> {
        let _ = world_size;
        process(eval)?.stores.counted()?;
        let place = Arc::new(Place::File { path: file_name.to_owned() });
        Ok(StoreValue(Arc::new(Handle::new("FileStore", Of::Job(place), None))))
    }

    fn TCPStore<'v>(
        host_name: &str,
        port: i32,
        #[starlark(default = NoneType)] world_size: Value<'v>,
        #[starlark(default = false)] is_master: bool,
        #[starlark(default = NoneType)] timeout: Value<'v>,
        #[starlark(default = true)] wait_for_workers: bool,
        #[starlark(default = false)] multi_tenant: bool,
        #[starlark(default = NoneType)] master_listen_fd: Value<'v>,
        #[starlark(default = true)] use_libuv: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<StoreValue> {
        let _ = (master_listen_fd, use_libuv);
        let world_size = numbers::whole_or_none(world_size, "world_size")?;
        let timeout_ms = duration(timeout)?;
        let column = column(eval);
        let process = process(eval)?;
        let nth = process.stores.counted()?;
        let port = u16::try_from(port).map_err(|_| {
            let text = format!("port must have value from 0 to 65535 but was {port}.");
            refused(DistError::new(ErrorKind::ValueError, text))
        })?;
        let host = if host_name == "localhost" { "127.0.0.1" } else { host_name }.to_owned();
        let port = match port {
            0 if is_master => picked_port(process.dist()?, nth),
            port => port,
        };
        let place = Place::Tcp { host: host.clone(), port };
        let listens = Place::Server { host, port };
        let store = Handle::tcp(host_name, place, timeout_ms);
        let server = Handle::tcp(host_name, listens.clone(), timeout_ms);
        let is_tenant = multi_tenant && process.stores.serves.contains(&listens);
        let mut opening = Opening { process, store, server, column };
        if is_master && !is_tenant {
            opening.listen(port)?;
        } else if !is_master {
            opening.reach(host_name, port)?;
        }
        if let Some(world_size) = world_size {
            opening.join()?;
            if is_master && wait_for_workers {
                opening.wait_for_clients(world_size)?;
            }
        }
        let Opening { process, store, .. } = opening;
        if is_master {
            process.stores.serves.insert(listens);
        }
        Ok(StoreValue(Arc::new(store)))
    }

    fn PrefixStore<'v>(prefix: Value<'v>, store: Value<'v>) -> anyhow::Result<StoreValue> {
        if store.is_none() {
            let text = "store argument cannot be None";
            return Err(refused(DistError::new(ErrorKind::ValueError, text)));
        }
        let given = prefix.unpack_str().zip(store.downcast_ref::<StoreValue>());
        let Some((prefix, store)) = given else {
            return Err(type_error(format!(
                "__init__(): incompatible constructor arguments. The following argument types are \
                 supported:\n    1. torch._C._distributed_c10d.PrefixStore(prefix: str, store: \
                 torch._C._distributed_c10d.Store)\n\n{}",
                invoked_with([prefix, store].into_iter(), &Named::default())
            )));
        };
        anyhow::ensure!(store.0.depth() < 64, "a prefix of more than 64 prefixes");
        let prefix = prefix.to_owned();
        Ok(StoreValue(Arc::new(Handle::Prefix { prefix, under: store.0.clone() })))
    }
}

/// Adds the stores of `torch.distributed.distributed_c10d`.
#[starlark_module]
pub(crate) fn of_c10d(builder: &mut GlobalsBuilder) {
    /// The store of the default group, with the prefixes that PyTorch gives it.
    fn _get_default_store<'v>(eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<StoreValue> {
        let process = process(eval)?;
        if !process.dist()?.is_initialized() {
            let text = "Default process group has not been initialized, please make sure to call \
                        init_process_group.";
            return Err(refused(DistError::new(ErrorKind::ValueError, text)));
        }
        let prefixed =
            |prefix: &str, under| Arc::new(Handle::Prefix { prefix: prefix.into(), under });
        let under = match &process.stores.given {
            Some(given) => given.clone(),
            None => {
                let dist = process.dist()?;
                let host = dist.environ("MASTER_ADDR").unwrap_or_default();
                let port = dist.environ("MASTER_PORT").and_then(|port| port.parse().ok());
                let host = if host == "localhost" { "127.0.0.1".to_owned() } else { host };
                let place = Place::Tcp { host, port: port.unwrap_or_default() };
                // A store that the program passes gets no such prefix.
                // It waits for as long as the group does.
                let timeout_ms = dist.default_timeout_ms();
                let store = Handle::new("TCPStore", Of::Job(Arc::new(place)), timeout_ms);
                prefixed("default_pg", Arc::new(store))
            }
        };
        under.base().of_pytorch.store(true, Ordering::Relaxed);
        process.stores.given = Some(under.clone());
        Ok(StoreValue(prefixed("0/", under)))
    }
}

/// Passes a store to `init_process_group`, in which the ranks meet.
///
/// # Errors
/// The error that PyTorch raises if the ranks do not meet.
pub(crate) fn given(
    store: Value<'_>,
    init_method: Value<'_>,
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<()> {
    let column = column(eval);
    let process = process(eval)?;
    let store = match store.downcast_ref::<StoreValue>() {
        Some(store) => store.0.clone(),
        None => {
            let url = init_method.unpack_str().and_then(|url| url.strip_prefix("file://"));
            let Some(path) = url.map(|url| url.split('?').next().unwrap_or(url)) else {
                return Ok(());
            };
            let place = Arc::new(Place::File { path: path.to_owned() });
            let timeout_ms = process.dist()?.default_timeout_ms();
            let under = Arc::new(Handle::new("FileStore", Of::Job(place), timeout_ms));
            Arc::new(Handle::Prefix { prefix: "default_pg".into(), under })
        }
    };
    store.base().of_pytorch.store(true, Ordering::Relaxed);
    process.stores.given = Some(store.clone());
    if process.dist()?.world_size_of_job() < 2 {
        return Ok(());
    }
    let nccl_only = process.dist()?.get_backend(None).is_ok_and(|backend| backend == "nccl");
    meet(process, &store, column).map_err(|error| match error.downcast_ref::<Raised>() {
        Some(Raised { help: Some(help), .. }) if nccl_only => anyhow::anyhow!(
            "the ranks give init_process_group stores that do not meet, and NCCL, which connects \
             at its first call, raises there what is not known here. {help}"
        ),
        _ => error,
    })
}
