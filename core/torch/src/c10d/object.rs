//! Object calls: an object is pickled into bytes, and its size travels before it. Each makes
//! exactly the calls that PyTorch makes, in its order.

use super::args::{FromRank, RecvFrom, SendTo, ToRank};
use super::backend::Device;
use super::dist::Dist;
use super::error::{DistError, assertion_error, index_error, value_error};
use super::issue::collective_call;
use super::lists::gather_list_for_rank;
use super::p2p::Source;
use super::pickle::Object;
use super::process_group::{Group, GroupHandle};
use super::recorded::Recorded;
use super::sizes::{SizeId, SizeKey};
use super::tensors::Numel;
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::GroupId;
use lockstep_core::plan::{Action, Call, Fill, TensorId};
use lockstep_core::rank::GroupRank;

/// An object call under way: the group, and how its parts are written down.
struct Exchange {
    via: &'static str,
    id: GroupId,
    device: Device,
    size: u64,
}

impl Dist<'_> {
    /// `dist.all_gather_object(object_list, obj)`: an `all_gather` of sizes, then one of the
    /// pickles, each as long as the longest. `object_list_len` is `len(object_list)`.
    ///
    /// # Errors
    /// PyTorch's refusals, as of every call here.
    pub fn all_gather_object(
        &mut self,
        object_list_len: usize,
        object: &Object,
        group: Option<Group>,
    ) -> Result<(), DistError> {
        let Some(pg) = self.member(group, "all_gather_object")? else { return Ok(()) };
        let exchange = self.exchange(pg, "all_gather_object")?;
        object.pickles()?;
        self.gather_sizes(&exchange, object);
        self.read_back(&exchange);
        let longest = self.longest(&exchange, object);
        let input = self.sized(&exchange, "input", longest, 1, object.pickle());
        let output = self.sized(&exchange, "output", longest, exchange.size, &[]);
        self.write_sized(&exchange, Collective::AllGather, Some(input), Some(output), longest);
        self.read_back(&exchange);
        if (object_list_len as u64) < exchange.size {
            return Err(index_error("list assignment index out of range").with_help(format!(
                "object_list has {object_list_len} entries for a group of {} ranks; everything \
                 was sent all the same.",
                exchange.size
            )));
        }
        Ok(())
    }

    /// `dist.gather_object(obj, object_gather_list, dst)`: an `all_gather` of sizes, then a
    /// `gather` of the pickles. `object_gather_list_len` is `None` where no list is passed.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn gather_object(
        &mut self,
        object: &Object,
        object_gather_list_len: Option<usize>,
        to: ToRank,
    ) -> Result<(), DistError> {
        let ToRank { dst, group_dst, group, .. } = to;
        let (group, root) = self.rooted(group, dst, group_dst)?;
        let Some(pg) = self.member(Some(group), "gather_object")? else { return Ok(()) };
        let on_root = i64::from(self.pg(pg).me.0) == root;
        gather_list_for_rank(on_root, object_gather_list_len.unwrap_or(0) == 0)?;
        let exchange = self.exchange(pg, "gather_object")?;
        object.pickles()?;
        self.gather_sizes(&exchange, object);
        self.read_back(&exchange);
        let (asked, _) = self.ask(pg, exchange.device, "gather")?;
        let root = GroupRank(asked.root(root)?);
        let longest = self.longest(&exchange, object);
        let input = self.sized(&exchange, "input", longest, 1, object.pickle());
        let output = on_root.then(|| self.sized(&exchange, "output", longest, exchange.size, &[]));
        self.write_sized(&exchange, Collective::Gather { root }, Some(input), output, longest);
        if on_root {
            self.read_back(&exchange);
        }
        match object_gather_list_len {
            Some(length) if on_root && (length as u64) < exchange.size => {
                Err(index_error("list assignment index out of range"))
            }
            _ => Ok(()),
        }
    }

    /// `dist.broadcast_object_list(object_list, src)`: a `broadcast` of all sizes, then one of all
    /// pickles in a row. Every rank passes a list of the same length; only the source's objects
    /// count.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn broadcast_object_list(
        &mut self,
        object_list: &[Object],
        from: FromRank,
    ) -> Result<(), DistError> {
        let FromRank { src, group_src, group, .. } = from;
        let (group, root) = self.rooted(group, src, group_src)?;
        let Some(pg) = self.member(Some(group), "broadcast_object_list")? else { return Ok(()) };
        let exchange = self.exchange(pg, "broadcast_object_list")?;
        let (asked, _) = self.ask(pg, exchange.device, "broadcast")?;
        let own = i64::from(self.pg(pg).me.0) == root;
        if own {
            pickle_all(object_list)?;
        }
        let root = GroupRank(asked.root(root)?);
        let sizes =
            self.sizes_tensor(&exchange, if own { object_list } else { &[] }, object_list.len());
        let broadcast = Collective::Broadcast { root };
        self.write_collective(&exchange, broadcast, object_list.len() as u64, None, Some(sizes));
        if !own {
            self.read_back(&exchange);
        }
        let total = self.size_of_call(&exchange);
        let pickles = concatenated(if own { object_list } else { &[] });
        self.shared.sizes.at_least(total, pickles.len() as u64);
        let tensor = self.sized(&exchange, "objects", total, 1, &pickles);
        self.write_sized(&exchange, broadcast, None, Some(tensor), total);
        if !own {
            self.read_back(&exchange);
        }
        Ok(())
    }

    /// `dist.scatter_object_list(scatter_object_output_list, scatter_object_input_list, src)`: a
    /// `broadcast` of the largest size, a `scatter` of the pickles, and a `scatter` of the sizes.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn scatter_object_list(
        &mut self,
        output_list_len: usize,
        input_list: Option<&[Object]>,
        from: FromRank,
    ) -> Result<(), DistError> {
        let FromRank { src, group_src, group, .. } = from;
        let (group, root) = self.rooted(group, src, group_src)?;
        let Some(pg) = self.member(Some(group), "scatter_object_list")? else { return Ok(()) };
        if output_list_len < 1 {
            return Err(value_error(
                "Expected argument scatter_object_output_list to be a list of size at least 1.",
            ));
        }
        let exchange = self.exchange(pg, "scatter_object_list")?;
        let own = i64::from(self.pg(pg).me.0) == root;
        let objects = match (own, input_list) {
            (true, None) => {
                return Err(value_error(
                    "source rank must provide non-None scatter_object_input_list",
                ));
            }
            (true, Some(objects)) => objects,
            (false, _) => &[],
        };
        objects.iter().try_for_each(Object::pickles)?;
        let (asked, _) = self.ask(pg, exchange.device, "scatter")?;
        let root = GroupRank(asked.root(root)?);
        let most = objects.iter().map(|object| object.pickle().len()).max().unwrap_or(0) as u64;
        let longest = self.size_of_call(&exchange);
        self.shared.sizes.at_least(longest, most);
        let max = self.long(&exchange, "max_tensor_size", &[most]);
        self.write_collective(&exchange, Collective::Broadcast { root }, 1, None, Some(max));
        self.read_back(&exchange);
        if own && objects.len() as u64 != exchange.size {
            return Err(super::error::runtime_error(format!(
                "ProcessGroupGloo::scatter: Incorrect input list size {}. Input list size should \
                 be {}, same as size of the process group.",
                objects.len(),
                exchange.size
            )));
        }
        let scatter = Collective::Scatter { root };
        let input = own.then(|| {
            let mut padded = Vec::new();
            for object in objects {
                padded.extend_from_slice(object.pickle());
                padded.resize(padded.len() + most as usize - object.pickle().len(), 0);
            }
            self.sized(&exchange, "objects", longest, exchange.size, &padded)
        });
        let output = self.sized(&exchange, "output", longest, 1, &[]);
        self.write_sized(&exchange, scatter, input, Some(output), longest);
        let sizes = own.then(|| self.sizes_tensor(&exchange, objects, objects.len()));
        let size = self.long(&exchange, "obj_tensor_size", &[0]);
        self.write_collective(&exchange, scatter, 1, sizes, Some(size));
        self.read_back(&exchange);
        Ok(())
    }

    /// `dist.send_object_list(object_list, dst)`: a `send` of all sizes, then one of all pickles.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn send_object_list(
        &mut self,
        object_list: &[Object],
        to: SendTo,
    ) -> Result<(), DistError> {
        let SendTo { dst, group_dst, group, .. } = to;
        let group = self.or_default(group)?;
        let peer = self.logged_rank_of(group, dst, group_dst)?;
        self.not_self(group, peer, "destination")?;
        let Some(pg) = self.member(Some(group), "send_object_list")? else { return Ok(()) };
        let exchange = self.exchange(pg, "send_object_list")?;
        pickle_all(object_list)?;
        let (asked, _) = self.ask(pg, exchange.device, "send")?;
        let peer = GroupRank(asked.peer(peer, self.pg(pg).me.0)?);
        let sizes = self.sizes_tensor(&exchange, object_list, object_list.len());
        self.write_call(&exchange, Call::Send { group: exchange.id, peer, tensor: sizes, tag: 0 });
        let pickles = concatenated(object_list);
        let me = self.pg(pg).me;
        for from in [me.0, ANY] {
            let total = self.size_between(&exchange, from, peer.0);
            self.shared.sizes.at_least(total, pickles.len() as u64);
        }
        let total = Numel::Known(pickles.len() as u64);
        let tensor = self.bytes(&exchange, "objects", total, &pickles);
        self.write_call(&exchange, Call::Send { group: exchange.id, peer, tensor, tag: 0 });
        Ok(())
    }

    /// `dist.recv_object_list(object_list, src)`: a `recv` of `object_list_len` sizes, then one of
    /// all pickles. Whom they came from.
    ///
    /// From any source, the pickles are taken to be as long as the longest list that anybody sends
    /// this rank in that turn.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn recv_object_list(
        &mut self,
        object_list_len: usize,
        from: RecvFrom,
    ) -> Result<Source, DistError> {
        let RecvFrom { src, group_src, group, .. } = from;
        let Some(pg) = self.member(group, "recv_object_list")? else {
            return Ok(Source::NotInGroup);
        };
        let exchange = self.exchange(pg, "recv_object_list")?;
        let (asked, _) = self.ask(pg, exchange.device, "recv")?;
        let me = self.pg(pg).me;
        let any = src.is_none() && group_src.is_none();
        let peer = match any {
            true if asked.backend == lockstep_core::group::BackendName::Nccl => {
                return Err(super::error::not_implemented(
                    "ProcessGroupNCCL does not support recvAnysource",
                ));
            }
            true => None,
            false => {
                let peer = self.group_rank_of(Group::Member(pg), src, group_src)?;
                Some(GroupRank(asked.peer(peer, me.0)?))
            }
        };
        let group = exchange.id;
        let sizes = self.long(&exchange, "object_sizes", &vec![0; object_list_len]);
        self.write_call(&exchange, Call::Recv { group, peer, tensor: sizes, tag: 0 });
        self.read_back(&exchange);
        let total = self.size_between(&exchange, peer.map_or(ANY, |peer| peer.0), me.0);
        let tensor = self.sized(&exchange, "objects", total, 1, &[]);
        self.write_call(&exchange, Call::Recv { group, peer, tensor, tag: 0 });
        self.read_back(&exchange);
        match (src, peer) {
            (Some(src), _) => Ok(Source::Rank(src)),
            (None, Some(peer)) => {
                let global = self.get_global_rank(Group::Member(pg), i64::from(peer.0))?;
                Ok(Source::Rank(global))
            }
            (None, None) => Ok(self.whoever_sends(pg)),
        }
    }

    fn exchange(&mut self, pg: GroupHandle, via: &'static str) -> Result<Exchange, DistError> {
        if self.pg(pg).coalescing.is_some() {
            return Err(assertion_error("").with_help(
                "An object call waits for sizes, so it cannot be held back by a coalescing manager.",
            ));
        }
        let device = self.pg(pg).config.object_device();
        let (asked, id) = self.ask(pg, device, "allgather")?;
        Ok(Exchange { via, id, device, size: u64::from(asked.size) })
    }

    /// `.item()` of a size, `.cpu()` of a pickle: from a GPU the process waits for the call's result. It
    /// waits for all of its streams here, while `.item()` waits for one.
    fn read_back(&mut self, exchange: &Exchange) {
        if exchange.device == Device::Cuda {
            self.record(Action::Synchronize, Some(exchange.via));
        }
    }

    /// `all_gather(object_size_list, local_size)`.
    fn gather_sizes(&mut self, exchange: &Exchange, object: &Object) {
        let own = self.long(exchange, "local_size", &[object.pickle().len() as u64]);
        let all = self.long(exchange, "object_sizes", &vec![0; exchange.size as usize]);
        self.write_collective(exchange, Collective::AllGather, 1, Some(own), Some(all));
    }

    /// `max(object_size_list)`.
    fn longest(&mut self, exchange: &Exchange, object: &Object) -> SizeId {
        let longest = self.size_of_call(exchange);
        self.shared.sizes.at_least(longest, object.pickle().len() as u64);
        longest
    }

    /// The size that this rank's next call of that kind in the group settles with the others'.
    fn size_of_call(&mut self, exchange: &Exchange) -> SizeId {
        self.next_size(exchange, exchange.via, 0, 0)
    }

    /// The size of the pickles that one rank sends another, or anybody sends it, in its turn.
    fn size_between(&mut self, exchange: &Exchange, from: u32, to: u32) -> SizeId {
        self.next_size(exchange, "object_list", from, to)
    }

    fn next_size(&mut self, exchange: &Exchange, call: &'static str, from: u32, to: u32) -> SizeId {
        let mut key = SizeKey { group: exchange.id, call, from, to, nth: 0 };
        let nth = self.state.sized_calls.entry(key.clone()).or_insert(0);
        *nth += 1;
        key.nth = *nth;
        self.shared.sizes.of(key)
    }

    /// A tensor of longs that holds `values`.
    fn long(&mut self, exchange: &Exchange, name: &str, values: &[u64]) -> TensorId {
        let name = format!("{}.{name}", exchange.via);
        let own = &mut self.state.tensors;
        let numel = Numel::Known(values.len() as u64);
        let (fill, data) = match values.iter().all(|value| *value == 0) {
            true => (Fill::Zeros, Vec::new()),
            false => (Fill::Data, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
        };
        self.shared.tensors.make(own, &name, Dtype::Int64, numel, fill, &data).id
    }

    /// `object_sizes_tensor`: the lengths of the objects, or room for `len` of them.
    fn sizes_tensor(&mut self, exchange: &Exchange, objects: &[Object], len: usize) -> TensorId {
        let mut sizes: Vec<u64> =
            objects.iter().map(|object| object.pickle().len() as u64).collect();
        sizes.resize(len, 0);
        self.long(exchange, "object_sizes", &sizes)
    }

    /// A tensor of bytes that begins with `data`.
    fn bytes(&mut self, exchange: &Exchange, name: &str, numel: Numel, data: &[u8]) -> TensorId {
        let name = format!("{}.{name}", exchange.via);
        let own = &mut self.state.tensors;
        self.shared.tensors.make(own, &name, Dtype::Uint8, numel, Fill::Data, data).id
    }

    fn sized(
        &mut self,
        exchange: &Exchange,
        name: &str,
        size: SizeId,
        parts: u64,
        data: &[u8],
    ) -> TensorId {
        self.bytes(exchange, name, Numel::Sized { size, parts }, data)
    }

    fn write_collective(
        &mut self,
        exchange: &Exchange,
        collective: Collective,
        count: u64,
        input: Option<TensorId>,
        output: Option<TensorId>,
    ) {
        self.note_call(exchange.id, collective);
        self.write_call(
            exchange,
            collective_call(exchange.id, collective, count, input, output, None),
        );
    }

    fn write_call(&mut self, exchange: &Exchange, call: Call) {
        self.record(Action::call(call, false), Some(exchange.via));
    }

    fn write_sized(
        &mut self,
        exchange: &Exchange,
        collective: Collective,
        input: Option<TensorId>,
        output: Option<TensorId>,
        size: SizeId,
    ) {
        self.note_call(exchange.id, collective);
        let call = collective_call(exchange.id, collective, 0, input, output, None);
        let op = self.op(Action::call(call, false), Some(exchange.via));
        self.write(Recorded::Sized(op, size));
    }
}

/// Any sender.
const ANY: u32 = u32::MAX;

/// The result of pickling a list before it is sent.
fn pickle_all(objects: &[Object]) -> Result<(), DistError> {
    if objects.is_empty() {
        return Err(value_error("not enough values to unpack (expected 2, got 0)")
            .with_help("The list is empty; PyTorch pickles its entries first."));
    }
    objects.iter().try_for_each(Object::pickles)
}

fn concatenated(objects: &[Object]) -> Vec<u8> {
    objects.iter().flat_map(|object| object.pickle().iter().copied()).collect()
}
