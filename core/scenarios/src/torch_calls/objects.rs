//! Objects: pickled sizes first, then pickles.

use super::backends::ANY;
use super::entry::{Done, Entry};
use crate::torch_call::Script;
use lockstep_torch::c10d::{FromRank, Object, PyObject, RecvFrom, SendTo, ToRank};

pub(super) const CALLS: [Entry; 6] = [
    call!(
        "broadcast_object_list",
        "The source's objects to every rank: their pickled sizes, then the pickles.",
        ANY,
        1,
        "objects = [\"config\", {\"lr\": 0.1}] if rank == {root} else [None, None]\n\
         dist.broadcast_object_list(objects, src={root})\n",
        |s| {
            let objects = match s.rank() == s.options.root {
                true => {
                    let settings = PyObject::Dict(vec![(text("lr"), PyObject::Float(0.1))]);
                    [(&text("config")).into(), (&settings).into()]
                }
                false => [(&PyObject::None).into(), (&PyObject::None).into()],
            };
            let root = FromRank::src(i64::from(s.options.root));
            s.on("broadcast_object_list(").broadcast_object_list(&objects, root)
        }
    ),
    call!(
        "all_gather_object",
        "Every rank's object to a list on every rank: sizes first, then pickles as long as the \
         longest.",
        ANY,
        1,
        "objects = [None] * world_size\n\
         dist.all_gather_object(objects, {\"rank\": rank})\n",
        |s| {
            let (length, object) = (s.options.world_size as usize, of_rank(s));
            s.on("all_gather_object(").all_gather_object(length, &object, None)
        }
    ),
    call!(
        "gather_object",
        "Every rank's object to a list on one rank; the sizes are gathered by all.",
        ANY,
        1,
        "objects = [None] * world_size if rank == {root} else None\n\
         dist.gather_object({\"rank\": rank}, objects, dst={root})\n",
        |s| {
            let length = (s.rank() == s.options.root).then_some(s.options.world_size as usize);
            let (object, to) = (of_rank(s), ToRank::dst(i64::from(s.options.root)));
            s.on("gather_object(").gather_object(&object, length, to)
        }
    ),
    call!(
        "scatter_object_list",
        "Object i of the source's list to rank i: the largest size, the pickles, the sizes.",
        ANY,
        1,
        "objects = [{\"rank\": r} for r in range(world_size)] if rank == {root} else None\n\
         output = [None]\n\
         dist.scatter_object_list(output, objects, src={root})\n",
        |s| {
            let root = s.options.root;
            let objects: Option<Vec<Object>> = (s.rank() == root).then(|| {
                (0..s.options.world_size).map(|rank| Object::from(&rank_object(rank))).collect()
            });
            let from = FromRank::src(i64::from(root));
            s.on("scatter_object_list(").scatter_object_list(1, objects.as_deref(), from)
        }
    ),
    call!(
        "send_object_list",
        "Objects to one rank: sizes, then pickles.",
        ANY,
        2,
        OBJECTS,
        objects
    ),
    call!("recv_object_list", "Objects from one rank.", ANY, 2, OBJECTS, objects),
];

const OBJECTS: &str = "\
peer = rank ^ 1
if peer < world_size:
    if rank % 2 == 0:
        dist.send_object_list([{\"rank\": rank}, \"done\"], dst=peer)
    else:
        objects = [None, None]
        dist.recv_object_list(objects, src=peer)
";

fn objects(s: &mut Script<'_, '_>) -> Done {
    let peer = s.rank() ^ 1;
    let objects = [of_rank(s), (&text("done")).into()];
    match (peer < s.options.world_size, s.rank() % 2) {
        (false, _) => Ok(()),
        (true, 0) => {
            s.on("send_object_list(").send_object_list(&objects, SendTo::dst(i64::from(peer)))
        }
        (true, _) => {
            let from = RecvFrom::src(i64::from(peer));
            s.on("recv_object_list(").recv_object_list(2, from).map(drop)
        }
    }
}

fn text(text: &str) -> PyObject {
    PyObject::Str(text.into())
}

fn rank_object(rank: u32) -> PyObject {
    PyObject::Dict(vec![(text("rank"), PyObject::Int(i64::from(rank)))])
}

fn of_rank(s: &Script<'_, '_>) -> Object {
    Object::from(&rank_object(s.rank()))
}
