//! Bus bandwidth: by how much the bytes of a collective are multiplied so that its rate can be compared with a link's.

/// The factor from algorithm bandwidth to bus bandwidth of a collective of `n` ranks (nccl-tests,
/// `doc/PERFORMANCE.md`); `None` of calls that have none, such as a barrier, and of a single rank.
pub fn bus_factor(op: &str, n: u32) -> Option<f64> {
    if n < 2 {
        return None;
    }
    let n = f64::from(n);
    // Profiles and logs write the backend in front: `nccl:all_reduce`.
    let op = op.rsplit(':').next().unwrap_or(op).trim_start_matches('_');
    let is = |name: &str| op.starts_with(name);
    if is("all_reduce") || is("allreduce") {
        Some(2.0 * (n - 1.0) / n)
    } else if ["all_gather", "allgather", "reduce_scatter", "all_to_all", "alltoall"]
        .into_iter()
        .any(is)
    {
        Some((n - 1.0) / n)
    } else if is("broadcast") || is("reduce") {
        Some(1.0)
    } else {
        None
    }
}
