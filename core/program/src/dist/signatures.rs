//! The signatures of torch.distributed's functions, for Python's errors if a call has other arguments.
//!
//! The interpreter refuses such a call in words of its own; the rank raises Python's `TypeError` only if
//! PyTorch 2.7.1's signature does not take the call either, as `inspect.signature` shows it.

use crate::classes::missing_attribute;
use crate::dialect::rewritten::Rewritten;
use crate::python::error_text;

/// A function, its required parameters, and its optional ones.
type Signature = (&'static str, &'static [&'static str], &'static [&'static str]);

const SIGNATURES: [Signature; 36] = [
    ("broadcast", &["tensor"], &["src", "group", "async_op", "group_src"]),
    ("all_reduce", &["tensor"], &["op", "group", "async_op"]),
    ("reduce", &["tensor"], &["dst", "op", "group", "async_op", "group_dst"]),
    ("all_gather", &["tensor_list", "tensor"], &["group", "async_op"]),
    ("all_gather_into_tensor", &["output_tensor", "input_tensor"], &["group", "async_op"]),
    ("gather", &["tensor"], &["gather_list", "dst", "group", "async_op", "group_dst"]),
    ("scatter", &["tensor"], &["scatter_list", "src", "group", "async_op", "group_src"]),
    ("reduce_scatter", &["output", "input_list"], &["op", "group", "async_op"]),
    ("reduce_scatter_tensor", &["output", "input"], &["op", "group", "async_op"]),
    ("all_to_all", &["output_tensor_list", "input_tensor_list"], &["group", "async_op"]),
    (
        "all_to_all_single",
        &["output", "input"],
        &["output_split_sizes", "input_split_sizes", "group", "async_op"],
    ),
    ("barrier", &[], &["group", "async_op", "device_ids"]),
    ("monitored_barrier", &[], &["group", "timeout", "wait_all_ranks"]),
    ("send", &["tensor"], &["dst", "group", "tag", "group_dst"]),
    ("recv", &["tensor"], &["src", "group", "tag", "group_src"]),
    ("isend", &["tensor"], &["dst", "group", "tag", "group_dst"]),
    ("irecv", &["tensor"], &["src", "group", "tag", "group_src"]),
    ("init_device_mesh", &["device_type", "mesh_shape"], &[]),
    ("batch_isend_irecv", &["p2p_op_list"], &[]),
    ("broadcast_object_list", &["object_list"], &["src", "group", "device", "group_src"]),
    ("all_gather_object", &["object_list", "obj"], &["group"]),
    ("gather_object", &["obj"], &["object_gather_list", "dst", "group", "group_dst"]),
    (
        "scatter_object_list",
        &["scatter_object_output_list"],
        &["scatter_object_input_list", "src", "group", "group_src"],
    ),
    ("send_object_list", &["object_list"], &["dst", "group", "device", "group_dst"]),
    ("recv_object_list", &["object_list"], &["src", "group", "device", "group_src"]),
    ("all_reduce_coalesced", &["tensors"], &["op", "group", "async_op"]),
    ("all_gather_coalesced", &["output_tensor_lists", "input_tensor_list"], &["group", "async_op"]),
    (
        "new_group",
        &[],
        &[
            "ranks",
            "timeout",
            "backend",
            "pg_options",
            "use_local_synchronization",
            "group_desc",
            "device_id",
        ],
    ),
    (
        "new_subgroups",
        &[],
        &["group_size", "group", "timeout", "backend", "pg_options", "group_desc"],
    ),
    ("get_rank", &[], &["group"]),
    ("get_world_size", &[], &["group"]),
    ("get_backend", &[], &["group"]),
    ("get_global_rank", &["group", "group_rank"], &[]),
    ("get_group_rank", &["group", "global_rank"], &[]),
    ("destroy_process_group", &[], &["group"]),
    (
        "init_process_group",
        &[],
        &[
            "backend",
            "init_method",
            "timeout",
            "world_size",
            "rank",
            "store",
            "group_name",
            "pg_options",
            "device_id",
        ],
    ),
];

/// Functions up to here have the same arguments here as there, so that one too many is one too many
/// there.
const WHOLE: &str = "batch_isend_irecv";

/// The exception that Python raises where the interpreter says this of a line of the program, counted from 0.
pub(crate) fn exception(message: &str, line: Option<usize>, program: &Rewritten) -> Option<String> {
    error_text::exception(message)
        .or_else(|| missing_attribute::exception(message))
        .or_else(|| wrong_arguments(message, line, program))
}

fn wrong_arguments(message: &str, line: Option<usize>, program: &Rewritten) -> Option<String> {
    let (what, called) = message.rsplit_once(" for call to ")?;
    let called = called.trim_matches('`');
    let (_, required, optional) = SIGNATURES.iter().find(|(name, ..)| *name == called)?;
    let own = format!("def {called}(");
    if program.original.iter().any(|line| line.contains(&own)) {
        return None;
    }
    if let Some(name) =
        what.strip_prefix("Missing parameter `").and_then(|rest| rest.strip_suffix('`'))
    {
        let at = required.iter().position(|required| *required == name)?;
        let origin = line.and_then(|line| program.origin.get(line));
        let text = origin.and_then(|line| program.original.get(*line as usize));
        let text = text.map_or_else(String::new, |text| text.replace(' ', ""));
        let given = |name: &str| text.contains(&format!("{name}="));
        let missing: Vec<String> = required
            .iter()
            .enumerate()
            .filter(|(nth, name)| *nth == at || (*nth > at && !given(name)))
            .map(|(_, name)| format!("'{name}'"))
            .collect();
        let s = if missing.len() == 1 { "" } else { "s" };
        let names = missing.join(" and ");
        let count = missing.len();
        return Some(format!(
            "TypeError: {called}() missing {count} required positional argument{s}: {names}"
        ));
    }
    let found = what.strip_prefix("Found ")?;
    if let Some(extra) = found.strip_suffix(" extra positional argument(s)") {
        let position = |name: &str| SIGNATURES.iter().position(|(own, ..)| *own == name);
        if position(called) > position(WHOLE) {
            return None;
        }
        let (least, most) = (required.len(), required.len() + optional.len());
        let given = most.checked_add(extra.parse().ok()?)?;
        let takes = match optional.is_empty() {
            true => format!("{most}"),
            false => format!("from {least} to {most}"),
        };
        let s = if most == 1 { "" } else { "s" };
        return Some(format!(
            "TypeError: {called}() takes {takes} positional argument{s} but {given} were given"
        ));
    }
    let mut names = found.strip_suffix(" extra named parameter(s)")?.split('`');
    let unknown = names.find(|name| {
        let word = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
        word && !required.contains(name) && !optional.contains(name)
    })?;
    Some(format!("TypeError: {called}() got an unexpected keyword argument '{unknown}'"))
}
