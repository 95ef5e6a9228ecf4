//! A dump's JSON form, which has no stacks.

use super::{ranks, state};
use crate::flight_recorder::{Dump, Entry, Site};
use lockstep_core::trace::TensorShape;
use serde_json::{Map, Value, json};

impl Dump {
    /// The dump as `torch._C._distributed_c10d._dump_fr_trace_json()` returns it.
    pub fn to_json(&self) -> String {
        let mut dump = Map::new();
        dump.insert("version".to_owned(), json!(self.written_version()));
        let groups = self.groups.iter().map(|group| {
            let config =
                json!({"name": group.name, "desc": group.desc, "ranks": ranks(&group.ranks)});
            (group.name.clone(), config)
        });
        dump.insert("pg_config".to_owned(), Value::Object(groups.collect()));
        dump.insert(self.library().to_owned(), json!(super::WRITER));
        let never = |seq: Option<u64>| seq.map_or("-1".to_owned(), |seq| seq.to_string());
        let status = self.status.iter().map(|(pg_id, status)| {
            let status = json!({
                "last_enqueued_collective": never(status.last_enqueued),
                "last_started_collective": "-1",
                "last_completed_collective": never(status.last_completed),
            });
            (pg_id.to_string(), status)
        });
        dump.insert("pg_status".to_owned(), Value::Object(status.collect()));
        let entries = self.entries.iter();
        let entries: Vec<Value> =
            entries.filter_map(|entry| Some(written(entry, self.site(entry)?))).collect();
        // Left out when there are none.
        if !entries.is_empty() {
            dump.insert("entries".to_owned(), Value::Array(entries));
        }
        Value::Object(dump).to_string()
    }
}

fn written(entry: &Entry, site: &Site) -> Value {
    let sizes = |tensors: &[TensorShape]| -> Vec<Vec<u64>> {
        tensors.iter().map(|tensor| tensor.shape.clone()).collect()
    };
    let dtypes = |tensors: &[TensorShape]| -> Vec<&str> {
        tensors.iter().map(|tensor| tensor.dtype.scalar_type()).collect()
    };
    let op = if site.p2p { entry.p2p_seq } else { entry.collective_seq };
    json!({
        "record_id": entry.record_id.unwrap_or(0),
        "pg_id": site.pg_id,
        "process_group": [site.group.as_deref().unwrap_or_default(), &*site.group_desc],
        "thread_name": "python",
        "thread_id": "0",
        "collective_seq_id": entry.collective_seq.unwrap_or(0),
        "p2p_seq_id": entry.p2p_seq.unwrap_or(0),
        "op_id": op.unwrap_or(0),
        "profiling_name": &*site.profiling_name,
        "time_created_ns": entry.created_ns,
        "input_sizes": sizes(&site.inputs),
        "input_dtypes": dtypes(&site.inputs),
        "output_sizes": sizes(&site.outputs),
        "output_dtypes": dtypes(&site.outputs),
        "state": state(entry),
        "time_discovered_started_ns": entry.started_ns.unwrap_or(0),
        "time_discovered_completed_ns": entry.completed_ns.unwrap_or(0),
        "retired": entry.completed,
        "timeout_ms": site.timeout_ms.unwrap_or(0),
        "is_p2p": site.p2p,
    })
}
