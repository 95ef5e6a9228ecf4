//! Sparse gradients in the reducer (`mark_variable_ready_sparse`, `reducer.cpp`): unlike dense ones,
//! which lie in the buckets' own memory, they have to be there.

use super::error::DdpError;

/// A reducer's knowledge of the sparse gradients of its parameters.
#[derive(Clone, Debug)]
pub(super) struct SparseGradients {
    /// Per parameter, whether its gradient is taken for a sparse one.
    expected: Vec<bool>,
    /// Per parameter, whether its gradient is of the other kind.
    unexpected: Vec<bool>,
    /// Per parameter, whether a backward pass has made it a gradient, in this iteration or before.
    defined: Vec<bool>,
    /// Per parameter, whether its bucket holds a gradient: a sparse one's is empty until the first.
    held: Vec<bool>,
}

impl SparseGradients {
    /// Per parameter, whether a sparse gradient is expected, and whether one of the other kind comes.
    pub(super) fn new(params: impl Iterator<Item = (bool, bool)>) -> SparseGradients {
        let (expected, unexpected): (Vec<_>, Vec<_>) = params.unzip();
        let none = vec![false; expected.len()];
        SparseGradients { expected, unexpected, defined: none.clone(), held: none }
    }

    /// Autograd has accumulated a gradient.
    pub(super) fn came(&mut self, place: usize) {
        if let Some(defined) = self.defined.get_mut(place) {
            *defined = true;
        }
    }

    /// The buckets are made anew, and hold nothing.
    pub(super) fn emptied(&mut self) {
        self.held.fill(false);
    }

    /// `mark_variable_ready_sparse` for a sparse parameter, and the effect of `mark_variable_ready_dense` on
    /// a sparse gradient.
    ///
    /// # Errors
    /// No pass so far has made a gradient for a sparse parameter, or one has made a gradient of the other
    /// kind.
    pub(super) fn mark_ready(&mut self, place: usize) -> Result<(), DdpError> {
        let defined = self.defined.get(place) == Some(&true);
        let unexpected = defined && self.unexpected.get(place) == Some(&true);
        if self.expected.get(place) != Some(&true) {
            return if unexpected { Err(DdpError::SparseStorage) } else { Ok(()) };
        }
        if !defined {
            return Err(DdpError::SparseUndefined);
        }
        if unexpected {
            return Err(DdpError::SparseExpected);
        }
        if let Some(held) = self.held.get_mut(place) {
            *held = true;
        }
        Ok(())
    }

    /// `_get_zeros_like_grad_buckets`: zeros for all buckets, before the first is communicated.
    ///
    /// # Errors
    /// When a sparse gradient's bucket holds none to take the shape of.
    pub(super) fn zeros_like_buckets(&self) -> Result<(), DdpError> {
        let mut empty = self.expected.iter().zip(&self.held).map(|(sparse, held)| *sparse && !held);
        if empty.any(|empty| empty) { Err(DdpError::ZerosLikeUndefined) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use crate::ddp::join::{JoinOptions, Joinable, JoinedRank, run_join_of};
    use crate::ddp::lab::{LabModel, LabRun, Setting};
    use crate::ddp::links::RingLink;
    use crate::ddp::model::Model;
    use crate::ddp::plan::{Training, Uneven, training_run_as_far};
    use crate::ddp::report::Phase;
    use crate::ddp::{DdpCall, DdpOptions, DdpReport, Purpose};
    use lockstep_core::group::BackendName;

    fn embedding(unused: bool) -> Model {
        let (second, sparse, unused) = match unused {
            true => (r#"["e3.weight", [9, 4], 36, "float32", true],"#, r#", "e3.weight""#, "e3"),
            false => ("", "", ""),
        };
        let unused = if unused.is_empty() { String::new() } else { format!("[{unused:?}]") };
        let text = format!(
            r#"{{"params": [["e.weight", [30, 4], 120, "float32", true], {second}
            ["l.weight", [4, 4], 16, "float32", true], ["l.bias", [4], 4, "float32", true]],
            "sparse": ["e.weight"{sparse}], "unused": [{unused}]}}"#
        );
        Model::read("embedding", &text).unwrap()
    }

    /// PyTorch 2.7.1 over gloo.
    #[test]
    fn a_sparse_gradient_that_never_came_raises_as_it_is_marked() {
        let model = embedding(true);
        let plain = DdpOptions::default;
        let searching = DdpOptions { find_unused_parameters: true, ..plain() };
        let as_views = DdpOptions { gradient_as_bucket_view: true, ..searching.clone() };
        let fixed = DdpOptions { static_graph: true, ..plain() };
        for (options, calls) in [(searching, 0), (as_views, 0), (fixed, 1)] {
            let report = DdpReport::of(&model, &options, 2, 3).unwrap();
            let told = report.error.as_deref();
            assert_eq!(told, Some("RuntimeError: Expected sparse gradient to be defined."));
            // A static graph's bitmap is reduced before.
            let made: Vec<&DdpCall> = report.calls(1, Phase::Backward).collect();
            assert_eq!(made.len(), calls);
            assert!(made.iter().all(|call| call.purpose == Purpose::UsedMap));
        }
        // Its bucket is left over as any other's.
        let left = DdpReport::of(&model, &plain(), 2, 3).unwrap().error.unwrap();
        assert!(left.contains("Expected to have finished reduction"), "{left}");
    }

    /// PyTorch 2.7.1 over gloo: tables that are tied to a layer of the other kind, the first of which
    /// DDP asks.
    #[test]
    fn a_gradient_of_the_other_kind_raises_as_it_is_marked() {
        for (sparse, said) in [
            (r#""t""#, "RuntimeError: Expected variable to have sparse gradient."),
            ("", "NotImplementedError: Cannot access storage of SparseTensorImpl"),
        ] {
            let text = format!(
                r#"{{"params": [["t", [30, 4], 120, "float32", true]],
                "sparse": [{sparse}], "unexpected": ["t"]}}"#
            );
            let model = Model::read("tied", &text).unwrap();
            let plain = DdpOptions::default;
            let searching = DdpOptions { find_unused_parameters: true, ..plain() };
            let fixed = DdpOptions { static_graph: true, ..plain() };
            for (options, calls) in [(plain(), 0), (searching, 0), (fixed, 1)] {
                let report = DdpReport::of(&model, &options, 2, 3).unwrap();
                assert_eq!(report.error.as_deref(), Some(said));
                assert_eq!(report.calls(1, Phase::Backward).count(), calls);
            }
            // Without a gradient there is none of any kind.
            let error = DdpReport::of(&model.without(&[0]), &plain(), 2, 3).unwrap().error;
            assert!(error.is_none_or(|error| error.contains("finished reduction")));
        }
    }

    /// Buckets are made anew for the second pass, so that a rank with two inputs has a bucket that one with a
    /// single input lacks.
    #[test]
    fn a_rank_that_has_joined_has_no_zeros_for_an_empty_bucket() {
        let (model, options) = (embedding(false), DdpOptions::default());
        let joined = |inputs: &[u32], options: &DdpOptions| {
            run_join_of(
                &[Joinable::Ddp],
                &model,
                options,
                inputs,
                JoinOptions::default(),
                1,
                BackendName::Gloo,
            )
            .unwrap()
        };
        let raised = |rank: &JoinedRank| rank.error.as_ref().map(ToString::to_string);
        let lacks = "Expected a proper Tensor but got None (or an undefined Tensor in C++) for \
                     argument #0 'self'";
        for (own, rebuilds) in [(0, 0), (1, 2)] {
            let ranks = joined(&[4, own], &options);
            assert_eq!(raised(&ranks[1]).as_deref(), Some(lacks));
            assert_eq!(ranks[1].after.len(), 2 + rebuilds);
            // The other one gets no further: it waits for it.
            assert_eq!((ranks[0].iterations.len() as u32, ranks[0].after.len()), (own + 1, 0));
        }
        assert_eq!(joined(&[4, 2], &options).iter().find_map(raised), None);
        let searching = DdpOptions { find_unused_parameters: true, ..options };
        assert_eq!(joined(&[4, 1], &searching).iter().find_map(raised), None);
        let uneven = Some(Uneven { inputs: vec![4, 1], options: JoinOptions::default() });
        let device = crate::ddp::model::Device::named("A100").unwrap();
        let training = Training { uneven, backend: BackendName::Gloo, ..Training::new(2, device) };
        let run = training_run_as_far(&model, &training).unwrap();
        run.plan_with_end().check().unwrap();
        assert_eq!(run.roles[1].raised().map(|(step, _, _)| step), Some(2));
        // The other rank's program ends in that step, and the lab says for whom it waits.
        assert_eq!(run.roles[0].steps.len(), 2);
        let links = RingLink { latency_ps: 1_000_000, bytes_per_second: 1 << 34 };
        let setting = Setting { training, links: links.into() };
        let lab = LabRun::of(&model, &setting).unwrap();
        assert_eq!((lab.waits_for(0), lab.waits_for(1), lab.steady()), (Some(1), None, 0..1));
        let last = lab.pass(1).unwrap();
        let told = last.sentence(&LabModel::of(&model), &setting, last.moments.len() - 1);
        assert!(
            told.starts_with("Rank 1 raises in this pass, and this one waits for it"),
            "{told}"
        );
    }
}
