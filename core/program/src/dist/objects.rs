//! Calls on objects: the pickled size travels first.

#![allow(clippy::too_many_arguments, reason = "PyTorch's arguments")]

use super::collectives::{from_rank, to_rank};
use super::given::{Truth, root};
use crate::dist::sent_objects::Heard;
use crate::dist::{arguments as take, pickled, received_objects};
use crate::process::raised::refused;
use crate::process::state::process;
use crate::python::type_error::{class_of, type_error};
use lockstep_torch::c10d::{DistError, ErrorKind, RecvFrom, SendTo};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::{Heap, Value};

/// True if the objects are sent even though the call raises: the list of results is too short.
fn sent(called: &Result<(), DistError>) -> bool {
    called.as_ref().err().is_none_or(|error| error.kind == ErrorKind::IndexError)
}

/// The objects that a list brings to its receivers.
fn heard<'v>(list: Value<'v>, heap: Heap<'v>) -> Vec<Heard> {
    take::all_heard(list, heap).into_iter().map(Heard::of).collect()
}

#[starlark_module]
pub(super) fn functions(builder: &mut GlobalsBuilder) {
    fn all_gather_object<'v>(
        object_list: Value<'v>,
        obj: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        // A value that is not a list is refused when it is written into.
        let list = take::entries(object_list);
        let length = list.as_ref().map_or(usize::MAX, Vec::len);
        let object = pickled::object(obj, eval)?;
        let group = take::group(group)?;
        let heap = eval.heap();
        let process = process(eval)?;
        let gathered = process.dist()?.all_gather_object(length, &object, group);
        let sent = sent(&gathered).then(|| vec![Heard::of(take::heard(obj, heap))]);
        let called =
            sent.map(|sent| received_objects::made(process, "all_gather_object", group, sent));
        let called = called.transpose()?.flatten();
        gathered.map_err(refused)?;
        if list.is_none() {
            let class = class_of(object_list);
            let text = format!("'{class}' object does not support item assignment");
            return Err(type_error(text));
        }
        if let Some(called) = called {
            for (at, from) in called.members().iter().enumerate() {
                received_objects::hear(&called, (*from, 0), (object_list, at), eval)?;
            }
        }
        Ok(NoneType)
    }

    fn gather_object<'v>(
        obj: Value<'v>,
        #[starlark(default = NoneType)] object_gather_list: Value<'v>,
        #[starlark(default = NoneType)] dst: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = NoneType)] group_dst: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let options = to_rank(dst, group, Truth(false), group_dst, "GatherOptions")?;
        let (of, root) = (options.group, (options.dst, options.group_dst));
        let length = take::items(object_gather_list).map(|list| list.len());
        let object = pickled::object(obj, eval)?;
        let heap = eval.heap();
        let process = process(eval)?;
        let gathered = process.dist()?.gather_object(&object, length, options);
        let sent = sent(&gathered).then(|| vec![Heard::of(take::heard(obj, heap))]);
        let called = sent.map(|sent| received_objects::made(process, "gather_object", of, sent));
        let called = called.transpose()?.flatten();
        gathered.map_err(refused)?;
        if let Some(called) = called.filter(|called| called.is(called.root(root.0, root.1))) {
            for (at, from) in called.members().iter().enumerate() {
                received_objects::hear(&called, (*from, 0), (object_gather_list, at), eval)?;
            }
        }
        Ok(NoneType)
    }

    fn broadcast_object_list<'v>(
        object_list: Value<'v>,
        #[starlark(default = NoneType)] src: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(default = NoneType)] group_src: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let _ = device;
        let options = from_rank(src, group, Truth(false), group_src, "BroadcastOptions")?;
        let (of, root) = (options.group, (options.src, options.group_src));
        let objects = pickled::objects(object_list, eval)?;
        let heap = eval.heap();
        let process = process(eval)?;
        process.dist()?.broadcast_object_list(&objects, options).map_err(refused)?;
        let sent = heard(object_list, heap);
        let called = received_objects::made(process, "broadcast_object_list", of, sent)?;
        let Some(called) = called else { return Ok(NoneType) };
        let root = called.root(root.0, root.1);
        for at in (0..objects.len()).filter(|_| !called.is(root)) {
            received_objects::hear(&called, (root, at), (object_list, at), eval)?;
        }
        Ok(NoneType)
    }

    fn scatter_object_list<'v>(
        scatter_object_output_list: Value<'v>,
        #[starlark(default = NoneType)] scatter_object_input_list: Value<'v>,
        #[starlark(default = NoneType)] src: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = NoneType)] group_src: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let options = from_rank(src, group, Truth(false), group_src, "BroadcastOptions")?;
        let (of, root) = (options.group, (options.src, options.group_src));
        // A value that is not a list is refused as an empty one is.
        let length = take::entries(scatter_object_output_list).map_or(0, |list| list.len());
        let objects = match scatter_object_input_list {
            none if none.is_none() => None,
            list => Some(pickled::objects(list, eval)?),
        };
        let heap = eval.heap();
        let process = process(eval)?;
        let dist = process.dist()?;
        dist.scatter_object_list(length, objects.as_deref(), options).map_err(refused)?;
        let sent = heard(scatter_object_input_list, heap);
        if let Some(called) = received_objects::made(process, "scatter_object_list", of, sent)? {
            let from = (called.root(root.0, root.1), called.place());
            received_objects::hear(&called, from, (scatter_object_output_list, 0), eval)?;
        }
        Ok(NoneType)
    }

    fn send_object_list<'v>(
        object_list: Value<'v>,
        #[starlark(default = NoneType)] dst: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(default = NoneType)] group_dst: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let _ = device;
        let tag = 0;
        let to = SendTo {
            dst: root(dst, None, "BroadcastOptions")?,
            group_dst: root(group_dst, None, "BroadcastOptions")?,
            group: take::group(group)?,
            tag,
        };
        let (of, peer) = (to.group, (to.dst, to.group_dst));
        let objects = pickled::objects(object_list, eval)?;
        let heap = eval.heap();
        let process = process(eval)?;
        process.dist()?.send_object_list(&objects, to).map_err(refused)?;
        if let Some(between) = received_objects::between(process, of, peer, true)? {
            received_objects::passed(process, of, between, heard(object_list, heap))?;
        }
        Ok(NoneType)
    }

    fn recv_object_list<'v>(
        object_list: Value<'v>,
        #[starlark(default = NoneType)] src: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(default = NoneType)] group_src: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = device;
        let tag = 0;
        let from = RecvFrom {
            src: root(src, None, "BroadcastOptions")?,
            group_src: root(group_src, None, "BroadcastOptions")?,
            group: take::group(group)?,
            tag,
        };
        let length =
            take::items(object_list).ok_or_else(|| type_error("object_list is no list"))?.len();
        let (of, peer) = (from.group, (from.src, from.group_src));
        let process = process(eval)?;
        let source = process.dist()?.recv_object_list(length, from).map_err(refused)?;
        match received_objects::between(process, of, peer, false)? {
            Some(between) => {
                let called = received_objects::passed(process, of, between, Vec::new())?;
                for at in 0..length {
                    received_objects::hear(&called, (between[0], at), (object_list, at), eval)?;
                }
            }
            // The sender is known only in the run.
            None => received_objects::made_up(object_list, length, eval)?,
        }
        super::p2p::received(source, eval)
    }
}
