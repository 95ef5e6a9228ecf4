//! Every recorded assignment.

use super::{list, numbers, recorded};
use crate::ddp::assignment::initial_buckets;
use crate::ddp::assignment::rebuilt_buckets;
use crate::ddp::buckets::ItemOrder;
use crate::ddp::buckets::assign_by_size;
use crate::ddp::*;
use lockstep_core::dtype::Dtype;
use serde_json::Value;

/// The parameters that require grad of a model of `models.json`.
fn params(models: &Value, model: &str, as_dtype: Option<&str>) -> Vec<BucketParam> {
    let entries = list(&models["models"][model]["params"]);
    let trained = entries.iter().filter(|entry| entry[4].as_bool().unwrap());
    let params = trained.map(|entry| BucketParam {
        dtype: Dtype::from_torch_name(as_dtype.or(entry[3].as_str()).unwrap()),
        numel: entry[2].as_u64().unwrap(),
        // The recorded model has two `nn.Embedding(sparse=True)`; the file does not say which.
        sparse: model == "sparse-embedding"
            && ["emb_a.weight", "emb_b.weight"].contains(&entry[0].as_str().unwrap()),
    });
    params.collect()
}

fn options(row: &Value) -> DdpOptions {
    let bucket_cap = match &row["bucket_cap_mb"] {
        Value::Null => BucketCap::Default,
        mb => BucketCap::from_mb(mb.as_f64().unwrap()).unwrap(),
    };
    let find_unused_parameters = row["find_unused_parameters"].as_bool().unwrap_or(false);
    DdpOptions { bucket_cap, find_unused_parameters, ..DdpOptions::default() }
}

fn ranges(value: &Value) -> Vec<Vec<u32>> {
    list(value).iter().map(|text| parse_indices(text.as_str().unwrap()).unwrap()).collect()
}

fn indices(buckets: &[Bucket]) -> Vec<Vec<u32>> {
    buckets.iter().map(|bucket| bucket.indices.clone()).collect()
}

fn bytes(buckets: &[Bucket]) -> Vec<u64> {
    buckets.iter().map(|bucket| bucket.bytes).collect()
}

fn limits(buckets: &[Bucket]) -> Vec<u64> {
    buckets.iter().map(|bucket| bucket.limit).collect()
}

#[test]
fn every_run_of_buckets_json() {
    let (models, buckets) = (recorded("models.json"), recorded("buckets.json"));
    let runs = list(&buckets["runs"]);
    assert!(runs.len() > 100);
    for row in runs {
        let name = row["model"].as_str().unwrap();
        let about = format!("{name} {} {}", row["bucket_cap_mb"], row["find_unused_parameters"]);
        let params = params(&models, name, row["as_dtype"].as_str());
        let options = options(row);
        let (first, cap) = (options.bucket_cap.first_bytes(), options.bucket_cap.cap_bytes());
        assert_eq!(row["cap_bytes"].as_i64(), Some(cap), "{about}");
        assert_eq!(row["first_bytes"].as_i64(), Some(first), "{about}");

        let tensors: Vec<_> = params
            .iter()
            .zip(0..)
            .map(|(param, index)| SizedTensor {
                index,
                dtype: param.dtype,
                bytes: param.numel * param.dtype.size_bytes(),
                sparse: param.sparse,
            })
            .collect();
        for (field, sizes) in
            [("calc_first1mb_cap", vec![1 << 20, cap as u64]), ("calc_cap", vec![cap as u64])]
        {
            let assigned = assign_by_size(&tensors, &sizes, ItemOrder::Registration);
            assert_eq!(indices(&assigned), ranges(&row[field]["buckets"]), "{about} {field}");
            assert_eq!(limits(&assigned), numbers(&row[field]["limits"]), "{about} {field}");
        }

        let initial = initial_buckets(&params, &options);
        if row["initial"].is_array() {
            assert_eq!(indices(&initial), ranges(&row["initial"]), "{about} initial");
        }
        if row["logged_initial_bytes"].is_array() {
            assert_eq!(bytes(&initial), numbers(&row["logged_initial_bytes"]), "{about}");
        }
        let order = parse_indices(row["grad_ready_order"].as_str().unwrap()).unwrap();
        let rebuilt = rebuilt_buckets(&params, &order, &options);
        assert_eq!(rebuilt.is_none(), row["rebuilt"].is_null(), "{about}");
        if let Some(rebuilt) = rebuilt {
            assert_eq!(indices(&rebuilt), ranges(&row["rebuilt"]), "{about} rebuilt");
            assert_eq!(bytes(&rebuilt), numbers(&row["rebuilt_bytes"]), "{about}");
            assert_eq!(limits(&rebuilt), numbers(&row["rebuilt_limits"]), "{about}");
        }
    }
}

#[test]
fn every_row_of_last_bucket_cap_json() {
    let (models, file) = (recorded("models.json"), recorded("last_bucket_cap.json"));
    for row in list(&file["rows"]) {
        let params = params(&models, row["model"].as_str().unwrap(), None);
        let options = DdpOptions { set_last_bucket_cap: true, ..options(row) };
        let order: Vec<_> =
            numbers(&row["grad_ready_order"]).iter().map(|index| *index as u32).collect();
        let rebuilt = rebuilt_buckets(&params, &order, &options).unwrap();
        let truth: Vec<Vec<u64>> = list(&row["rebuilt"]).iter().map(numbers).collect();
        let sorted: Vec<Vec<u64>> =
            rebuilt.iter().map(|b| b.indices.iter().map(|i| u64::from(*i)).collect()).collect();
        assert_eq!(sorted, truth, "{row}");
        assert_eq!(bytes(&rebuilt), numbers(&row["rebuilt_bytes"]), "{row}");
    }
}

#[test]
fn every_row_of_cap_list_json() {
    let models = recorded("models.json");
    let file = recorded("cap_list.2.15.0.json");
    let sizes = |value: &Value| -> Option<Vec<u64>> {
        let text = value.as_str()?;
        Some(text.split(", ").map(|n| n.parse().unwrap()).collect())
    };
    let runs = recorded("buckets.json");
    for row in list(&file["rows"]) {
        let name = row["model"].as_str().unwrap();
        let params = params(&models, name, None);
        let list_mb: Vec<f64> =
            list(&row["bucket_cap_mb_list"]).iter().map(|mb| mb.as_f64().unwrap()).collect();
        let options = DdpOptions {
            bucket_cap: BucketCap::from_mb_list(&list_mb).unwrap(),
            find_unused_parameters: row["find_unused_parameters"].as_bool().unwrap(),
            version: DdpVersion::V2_15,
            ..DdpOptions::default()
        };
        assert_eq!(row["bucket_cap_bytes"].as_i64(), Some(options.bucket_cap.cap_bytes()));
        assert_eq!(
            Some(bytes(&initial_buckets(&params, &options))),
            sizes(&row["bucket_sizes"]),
            "{name} {list_mb:?} initial"
        );
        let same = |run: &&Value| run["model"] == *name;
        let order = list(&runs["runs"]).iter().find(same).unwrap()["grad_ready_order"].as_str();
        let order = parse_indices(order.unwrap()).unwrap();
        let rebuilt = rebuilt_buckets(&params, &order, &options);
        assert_eq!(
            rebuilt.as_deref().map(bytes),
            sizes(&row["rebuilt_bucket_sizes"]),
            "{name} {list_mb:?} rebuilt"
        );
        let logged = row["rebuilt_per_bucket_param_indices"].as_str().map(|text| {
            let bucket = |text: &str| text.split(' ').map(|n| n.parse().unwrap()).collect();
            text.split(", ").map(bucket).collect::<Vec<Vec<u32>>>()
        });
        assert_eq!(rebuilt.as_deref().map(indices), logged, "{name} {list_mb:?}");
    }
}

#[test]
fn every_permutation_of_leftover_order_json() {
    let file = recorded("leftover_order.json");
    let dtype = |name: &str| match name {
        "f32" => Dtype::Float32,
        "bf16" => Dtype::Bfloat16,
        "f16" => Dtype::Float16,
        "f64" => Dtype::Float64,
        "i64" => Dtype::Int64,
        "c64" => Dtype::Complex64,
        "u8" => Dtype::Uint8,
        "f8" => Dtype::Float8E4m3fn,
        other => panic!("{other}"),
    };
    let appended_for = |seen: &[Dtype]| -> Vec<Dtype> {
        let tensors: Vec<_> = seen
            .iter()
            .zip(0..)
            .map(|(dtype, index)| SizedTensor { index, dtype: *dtype, bytes: 8, sparse: false })
            .collect();
        let assigned = assign_by_size(&tensors, &[1 << 20], ItemOrder::GradReady);
        assigned.iter().map(|b| seen[b.indices[0] as usize]).collect()
    };
    for (seen, appended) in file["first_seen_to_appended"].as_object().unwrap() {
        let seen: Vec<_> = seen.split(',').map(dtype).collect();
        let truth: Vec<_> = appended.as_str().unwrap().split(',').map(dtype).collect();
        assert_eq!(appended_for(&seen), truth, "{seen:?}");
    }
    // The file lists those of up to three types and says of all that they are the reverse.
    assert_eq!(list(&file["exceptions"]).len(), 0);
    let all: Vec<_> = ["f32", "bf16", "f16", "f64", "i64", "c64", "u8", "f8"].map(dtype).into();
    let mut permutations: Vec<Vec<Dtype>> = all.iter().map(|dtype| vec![*dtype]).collect();
    let mut tested = 0;
    for _ in 2..=4 {
        let longer = permutations.iter().flat_map(|some| {
            let others = all.iter().filter(|dtype| !some.contains(dtype));
            others.map(|dtype| [some.as_slice(), &[*dtype]].concat())
        });
        permutations = longer.collect();
        for seen in &permutations {
            let reverse: Vec<_> = seen.iter().rev().copied().collect();
            assert_eq!(appended_for(seen), reverse);
            tested += 1;
        }
    }
    assert_eq!(file["equal_to_reverse_of_first_seen"], tested);
}

/// PyTorch's ImageNet example at the default cap, and issue #48880 of 2020 at cap 35, which kept
/// 1 MiB for the first bucket.
#[test]
fn resnet18_reduces_what_was_reported() {
    let models = recorded("models.json");
    let params = params(&models, "resnet18", None);
    let runs = recorded("buckets.json");
    let run = list(&runs["runs"]).iter().find(|run| run["model"] == "resnet18").unwrap();
    let order = parse_indices(run["grad_ready_order"].as_str().unwrap()).unwrap();
    let default = rebuilt_buckets(&params, &order, &DdpOptions::default()).unwrap();
    assert_eq!(bytes(&default), [2_052_000, 28_852_224, 15_853_824]);
    let bucket_cap = BucketCap::from_mb(35.0).unwrap();
    let old = DdpOptions { bucket_cap, version: DdpVersion::V1, ..DdpOptions::default() };
    let rebuilt = rebuilt_buckets(&params, &order, &old).unwrap();
    assert_eq!(bytes(&rebuilt), [2_052_000, 38_297_600, 6_408_448]);
    let new = DdpOptions { version: DdpVersion::V2_7, ..old.clone() };
    assert_ne!(rebuilt_buckets(&params, &order, &new), rebuilt_buckets(&params, &order, &old));
}

#[test]
fn a_cap_of_0_is_a_bucket_a_parameter_and_a_negative_one_none() {
    let params = [4, 16].map(|numel| BucketParam { dtype: Dtype::Float32, numel, sparse: false });
    let rebuilt = |mb| {
        let bucket_cap = BucketCap::from_mb(mb).unwrap();
        let options = DdpOptions { bucket_cap, ..DdpOptions::default() };
        rebuilt_buckets(&params, &[1, 0], &options).map(|buckets| indices(&buckets)).unwrap()
    };
    assert_eq!(rebuilt(0.0), [[1], [0]]);
    assert_eq!(rebuilt(-1.0), [[1, 0]]);
}
