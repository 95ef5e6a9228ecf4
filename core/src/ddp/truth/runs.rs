//! `ddp_runs`: what `docs/ddp_record.py` wrote, each run replayed with its own arguments.

use super::{list, recorded};
use crate::ddp::model::Model;
use crate::ddp::*;
use crate::dtype::Dtype;

const RUNS: [&str; 19] = [
    "bert_like",
    "branches_find_unused",
    "branches_find_unused_accumulate",
    "branches_static_graph",
    "experts_find_unused",
    "experts_static_find_unused_fp16",
    "mlp_cap0_accumulate",
    "mlp_cap_1",
    "mlp_default",
    "mlp_fp16",
    "odd_cap0_bucket_view_accumulate",
    "odd_set_last_bucket_cap",
    "odd_static_graph",
    "orders_set_last_static_graph",
    "resnet18",
    "resnet18_cap5_accumulate",
    "resnet18_find_unused_no_buffers",
    "transformer_cap_0.5",
    "transformer_find_unused",
];

#[test]
fn no_run_differs() {
    for name in RUNS.into_iter().chain(["transformer_static_graph"]) {
        let file = recorded(&format!("ddp_runs/{name}.json"));
        let text = file.to_string();
        let model = Model::read(name, &text).unwrap();
        let flag = |key: &str, default| file[key].as_bool().unwrap_or(default);
        let options = DdpOptions {
            bucket_cap: match file["bucket_cap_mb"].as_f64() {
                Some(mb) => BucketCap::from_mb(mb).unwrap(),
                None => BucketCap::Default,
            },
            find_unused_parameters: flag("find_unused_parameters", false),
            static_graph: flag("static_graph", false),
            broadcast_buffers: flag("broadcast_buffers", true),
            init_sync: flag("init_sync", true),
            gradient_as_bucket_view: flag("gradient_as_bucket_view", false),
            set_last_bucket_cap: flag("set_last_bucket_cap", false),
            comm_hook: file["comm_hook"].as_str().map(|_| CommHook::compress(Dtype::Float16)),
            ..DdpOptions::default()
        };
        let truth = RecordedRun::read(&text).unwrap();
        let report = |options: &DdpOptions, accumulate| {
            DdpReport::accumulating(&model, options, 2, truth.iterations(), accumulate).unwrap()
        };
        let own = report(&options, truth.accumulate());
        assert_eq!(truth.differences(&own), Vec::<String>::new(), "{name}");
        assert!(truth.iterations() as usize == list(&file["iterations"]).len());
        // Other arguments are told apart.
        let other = DdpOptions { bucket_cap: BucketCap::Bytes(77_777), ..options.clone() };
        assert!(!truth.differences(&report(&other, truth.accumulate())).is_empty(), "{name}");
        let more = report(&options, truth.accumulate() + 1);
        assert!(!truth.differences(&more).is_empty(), "{name}");
    }
}
