//! The constructor's comparison of the models of all ranks (`verify_params_across_processes`).

use super::error::DdpError;

/// What each rank's constructor says of the shapes of its parameters: every rank compares the
/// numbers with all others, and the sizes with rank 0's. Types are not compared: a dtype that
/// differs passes silently.
pub fn verify_params(shapes: &[Vec<Vec<u64>>]) -> Vec<Result<(), DdpError>> {
    let verify = |(rank, own): (u32, &Vec<Vec<u64>>)| {
        let count = own.len() as u64;
        let differing = (0..).zip(shapes).find(|(_, others)| others.len() as u64 != count);
        if let Some((other, others)) = differing {
            let others = others.len() as u64;
            return Err(DdpError::ParamCount { rank, own: count, other, others });
        }
        let first = shapes.first().map(Vec::as_slice).unwrap_or_default();
        match own.iter().zip(first).position(|(own, first)| own != first) {
            Some(param) => Err(DdpError::ParamShape { rank, param, sizes: own[param].clone() }),
            None => Ok(()),
        }
    };
    (0..).zip(shapes).map(verify).collect()
}
