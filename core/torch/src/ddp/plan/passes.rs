//! A backward pass as operations: its layers, the calls that their gradients launch, and the waits.

use super::script::BACKWARD;
use super::writer::Writer;
use crate::ddp::error::DdpError;
use crate::ddp::model::Model;
use crate::ddp::wrapper::Ddp;
use lockstep_core::plan::Action;

pub(super) fn rebuilt(ddp: &Ddp) -> bool {
    ddp.reducer().is_some_and(|reducer| reducer.has_rebuilt())
}

/// The layers in reverse, the calls that their gradients launch, and the waits for these and for calls that
/// were `launched` before. If a bucket is left over, the end of the pass waits for none: DDP then raises in
/// the forward pass that follows.
pub(super) fn backward_pass(
    writer: &mut Writer<'_>,
    ddp: &mut Ddp,
    backward: &[(Option<usize>, Vec<u32>)],
    mut launched: Vec<u32>,
) -> Result<(), DdpError> {
    let phase = 1 + u32::from(rebuilt(ddp));
    writer.at(BACKWARD, "DistributedDataParallel.backward");
    writer.names.restart();
    let (mut first, mut passed) = (true, Ok(()));
    'layers: for (layer, ready) in backward {
        writer.backward_of(*layer);
        for &gradient in ready {
            let mut calls = Vec::new();
            passed = ddp.gradient(gradient, &mut calls);
            writer.gradient(gradient);
            if first {
                writer.marked(ddp.marked_unused());
                first = false;
            }
            launched.extend(calls.iter().map(|call| writer.call(call, phase, true)));
            if passed.is_err() {
                break 'layers;
            }
        }
        writer.launching = None;
    }
    writer.launching = None;
    let finalizes = passed.is_ok() && ddp.finalizes();
    if passed.is_ok() {
        let mut calls = Vec::new();
        passed = ddp.end_backward(&mut calls);
        launched.extend(calls.iter().map(|call| writer.call(call, phase, true)));
    }
    for op in launched.into_iter().filter(|_| finalizes) {
        writer.push(Action::Wait { op, timeout_ms: None });
    }
    passed
}

/// The gradients that a walk of the graph finds unused: the gradients that the backward pass does
/// not make ready, or that reentrant ones make ready inside it.
pub(in crate::ddp) fn unused(model: &Model, backward: &[(Option<usize>, Vec<u32>)]) -> Vec<u32> {
    let mut used = vec![false; model.trained().count()];
    for &gradient in backward.iter().flat_map(|(_, ready)| ready) {
        if let Some(used) = used.get_mut(gradient as usize) {
            *used = true;
        }
    }
    for &hidden in &model.reentrant {
        if let Some(used) = used.get_mut(hidden as usize) {
            *used = false;
        }
    }
    (0..).zip(used).filter(|(_, used)| !used).map(|(index, _)| index).collect()
}
