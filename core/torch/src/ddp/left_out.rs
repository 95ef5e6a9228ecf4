//! The parameters that DDP leaves alone: `_ddp_params_and_buffers_to_ignore`, and the parameters
//! that `delay_all_reduce_named_params` takes out of the reducer (`distributed.py`).

use super::model::{Model, meant};
use super::options::DdpOptions;
use lockstep_core::words::nearest;

/// An argument that names parameters and buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamingArgument {
    /// `_ddp_params_and_buffers_to_ignore`.
    Ignored,
    /// `delay_all_reduce_named_params`.
    Delayed,
    /// `param_to_hook_all_reduce`.
    Hooked,
}

impl NamingArgument {
    /// PyTorch's name for it.
    pub fn name(self) -> &'static str {
        match self {
            NamingArgument::Ignored => "_ddp_params_and_buffers_to_ignore",
            NamingArgument::Delayed => "delay_all_reduce_named_params",
            NamingArgument::Hooked => "param_to_hook_all_reduce",
        }
    }
}

/// A name in one of them that the model does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.told(.argument.name()))]
pub struct UnknownName {
    /// The argument that contains the name.
    pub argument: NamingArgument,
    name: String,
    near: Option<String>,
}

impl UnknownName {
    /// The problem in words, with the argument as its reader knows it.
    pub fn told(&self, argument: &str) -> String {
        let UnknownName { name, near, .. } = self;
        let meant = meant(near.as_deref());
        format!("{argument} has {name:?}, which is no parameter or buffer of the model{meant}")
    }
}

impl DdpOptions {
    /// True if DDP leaves a name alone (`parameters_to_ignore`). The broadcast of parameters and buffers goes
    /// by this.
    pub fn leaves_out(&self, name: &str) -> bool {
        let delayed = self.delay_all_reduce_named_params.iter().flatten();
        self.ignored.iter().chain(delayed).any(|left_out| left_out == name)
    }

    /// Checks that every named parameter and buffer is one of the model's. DDP itself ignores the others
    /// silently.
    ///
    /// # Errors
    /// The first name that the model does not have.
    pub fn check_names(&self, model: &Model) -> Result<(), UnknownName> {
        let known = || {
            let params = model.params.iter().map(|param| param.name.as_str());
            let shared = model.tied.iter().map(|(alias, _)| alias.as_str());
            params.chain(shared).chain(model.buffers.iter().map(|buffer| buffer.name.as_str()))
        };
        let of = |argument| move |name| (argument, name);
        let ignored = self.ignored.iter().map(of(NamingArgument::Ignored));
        let delayed = self.delay_all_reduce_named_params.iter().flatten();
        let delayed = delayed.map(of(NamingArgument::Delayed));
        let hooked = self.param_to_hook_all_reduce.iter().map(of(NamingArgument::Hooked));
        for (argument, name) in ignored.chain(delayed).chain(hooked) {
            // As the reducer calls a parameter of the model itself.
            let ignores = argument == NamingArgument::Ignored;
            let of_model = name.strip_prefix('.').filter(|_| ignores);
            if !known().any(|known| known == name || of_model == Some(known)) {
                let near = nearest(name, known(), 1).first().map(|near| (*near).to_owned());
                let name = name.chars().take(100).collect();
                return Err(UnknownName { argument, name, near });
            }
        }
        Ok(())
    }

    /// True if the reducer has a parameter that requires grad (`_build_params_for_reducer`). The reducer asks
    /// module by module, so a parameter of the model itself is called `.weight` there, and only that name
    /// excludes it. A parameter that several modules share is left out if each of its names is excluded.
    pub fn reduces(&self, model: &Model, name: &str) -> bool {
        self.name_in_reducer(model, name).is_some()
    }

    /// PyTorch's name for a parameter in its errors: of several modules that share it, each writes
    /// its own name over the one before (`_build_debug_param_to_name_mapping`). None if the reducer
    /// does not have it.
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

    /// As recorded with torch 2.7.1 for models of that form: an ignored parameter is not broadcast, and
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

    /// On the page as on the command line: the plan with a wrong name is refused.
    #[test]
    fn a_name_that_the_model_does_not_have_is_refused() {
        use crate::ddp::model::Device;
        use crate::ddp::plan::{Training, training_run_as_far};
        let refused = |options: DdpOptions| {
            let device = Device::named("A100").unwrap();
            let training = Training { options, ..Training::new(2, device) };
            training_run_as_far(&model(), &training).err().map(|error| error.to_string())
        };
        let ignored = |names: &[&str]| {
            let ignored = names.iter().map(|name| (*name).to_owned()).collect();
            DdpOptions { ignored, ..DdpOptions::default() }
        };
        assert_eq!(refused(ignored(&["u", ".u", "head.weight"])), None);
        assert_eq!(
            refused(ignored(&["l.wieght"])).unwrap(),
            "_ddp_params_and_buffers_to_ignore has \"l.wieght\", which is no parameter or buffer of \
             the model; did you mean l.weight?"
        );
        let delayed = DdpOptions {
            delay_all_reduce_named_params: Some(vec!["u".into()]),
            param_to_hook_all_reduce: Some(".u".into()),
            ..DdpOptions::default()
        };
        assert!(refused(delayed).unwrap().starts_with("param_to_hook_all_reduce has \".u\""));
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
