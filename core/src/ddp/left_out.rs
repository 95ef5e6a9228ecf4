//! What DDP leaves alone: `_ddp_params_and_buffers_to_ignore`, and the parameters that
//! `delay_all_reduce_named_params` takes out of the reducer (`distributed.py`).

use super::model::Model;
use super::options::DdpOptions;

impl DdpOptions {
    /// Whether a name is among those that DDP is to leave alone (`parameters_to_ignore`). Parameters
    /// and buffers go by it where states are broadcast.
    pub fn leaves_out(&self, name: &str) -> bool {
        let delayed = self.delay_all_reduce_named_params.iter().flatten();
        self.ignored.iter().chain(delayed).any(|left_out| left_out == name)
    }

    /// Whether the reducer has a parameter that requires grad (`_build_params_for_reducer`). It asks
    /// module by module, so that a parameter of the model itself is called `.weight` there, and
    /// nothing but that name takes it out; one that several modules share is left out if it is under
    /// each of its names.
    pub fn reduces(&self, model: &Model, name: &str) -> bool {
        self.name_in_reducer(model, name).is_some()
    }

    /// What PyTorch calls a parameter in its errors: of several modules that share it, each writes its
    /// own name over the one before (`_build_debug_param_to_name_mapping`). None if the reducer does
    /// not have it.
    pub(super) fn name_in_reducer(&self, model: &Model, name: &str) -> Option<String> {
        let aliases =
            model.tied.iter().filter(|(_, of)| of == name).map(|(alias, _)| alias.as_str());
        let names = std::iter::once(name).chain(aliases).map(in_its_module);
        names.rev().find(|name| !self.leaves_out(name))
    }
}

/// The name of a parameter as a module's and its own.
fn in_its_module(name: &str) -> String {
    if name.contains('.') { name.to_owned() } else { format!(".{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddp::{Ddp, DdpCall};

    fn model() -> Model {
        let text = r#"{"params": [["u", [5], 5, "float32", true], ["emb.weight", [10, 4], 40,
            "float32", true], ["l.weight", [4, 4], 16, "float32", true]],
            "tied": [["head.weight", "emb.weight"]]}"#;
        Model::read("m", text).unwrap()
    }

    /// As recorded with torch 2.7.1 of models of that form: what is ignored is not broadcast, and
    /// reduced all the same.
    #[test]
    fn a_name_of_the_model_itself_or_of_one_module_of_several_takes_nothing_out() {
        let model = model();
        let found = |ignored: &[&str]| {
            let ignored = ignored.iter().map(|name| (*name).to_owned()).collect();
            let options = DdpOptions { ignored, ..DdpOptions::default() };
            let (mut ddp, calls) = Ddp::new(0, &model, &options).unwrap();
            let states = calls.last().map_or(0, |call: &DdpCall| call.numel);
            let mut calls = Vec::new();
            ddp.forward(&Default::default(), &mut calls).unwrap();
            ddp.backward(&[2, 1, 0], &mut calls).unwrap();
            (states, calls.iter().map(|call| call.numel).collect::<Vec<_>>())
        };
        assert_eq!(found(&[]), (61, vec![61]));
        assert_eq!(found(&["u"]), (56, vec![61]));
        assert_eq!(found(&["u", ".u"]), (56, vec![56]));
        assert_eq!(found(&["emb.weight"]), (21, vec![61]));
        assert_eq!(found(&["emb.weight", "head.weight"]), (21, vec![21]));
        assert_eq!(found(&["head.weight"]), (61, vec![61]));
        assert_eq!(found(&["l.weight"]), (45, vec![45]));
    }

    #[test]
    fn errors_call_a_parameter_by_its_module_and_its_own_name() {
        let (model, options) = (model(), DdpOptions::default());
        let called = |name: &str| options.name_in_reducer(&model, name);
        assert_eq!(called("u").as_deref(), Some(".u"));
        assert_eq!(called("emb.weight").as_deref(), Some("head.weight"));
        assert_eq!(called("l.weight").as_deref(), Some("l.weight"));
    }
}
