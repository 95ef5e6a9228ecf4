//! The names that a program finds under `torch`, `models`, `DDP` and `optim`.

use crate::dist::values::DtypeValue;
use crate::python::types::TypeValue;
use crate::torch::construction::functions;
use lockstep_core::dtype::Dtype;
use starlark::environment::GlobalsBuilder;

/// Adds `torch`.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    builder.namespace("torch", |builder| {
        for dtype in Dtype::COMPUTABLE {
            builder.set(dtype.name(), DtypeValue(dtype));
        }
        for (name, dtype) in [
            ("float", Dtype::Float32),
            ("double", Dtype::Float64),
            ("half", Dtype::Float16),
            ("long", Dtype::Int64),
            ("int", Dtype::Int32),
        ] {
            builder.set(name, DtypeValue(dtype));
        }
        functions(builder);
        crate::torch::joining::functions(builder);
        crate::tensor::functions::add(builder);
        crate::nn::functional::of_torch(builder);
        crate::torch::settings::functions(builder);
        crate::python::exceptions::of_torch(builder);
        crate::torch::amp::functions(builder);
        builder.namespace("amp", crate::torch::amp::add);
        builder.namespace("cuda", |builder| {
            builder.namespace("amp", crate::torch::amp::cuda);
            crate::torch::cuda::add(builder);
            crate::torch::streams::functions(builder);
            crate::python::exceptions::of_torch(builder);
        });
        builder.set("backends", crate::python::standard_library::SettingsValue);
        builder.namespace("accelerator", crate::torch::cuda::accelerator);
        builder.namespace("distributed", crate::dist::functions);
        builder.namespace("multiprocessing", crate::execute::launched_processes::multiprocessing);
        builder.set("Tensor", TypeValue("Tensor".to_owned()));
        builder.set("Size", TypeValue("Size".to_owned()));
        builder.namespace("optim", |builder| {
            crate::nn::optimizer::optimizers(builder);
            builder.namespace("lr_scheduler", crate::nn::optimizer::schedulers);
        });
        builder.namespace("nn", |builder| {
            builder.namespace("parallel", crate::nn::ddp_passes::parallel);
            crate::nn::layers::layers(builder);
            crate::nn::layers::bare(builder);
            crate::nn::losses::classes(builder);
            builder.namespace("functional", crate::nn::losses::functional);
            builder.namespace("utils", |builder| {
                crate::nn::optimizer::utils(builder);
                crate::nn::unfollowed_names::of_utils(builder);
            });
            builder.namespace("init", crate::nn::functional::init);
        });
        builder.namespace("autograd", crate::nn::unfollowed_names::autograd);
        builder.namespace("utils", |builder| {
            builder.namespace("data", crate::data::loaders::add);
            builder.namespace("checkpoint", crate::nn::checkpoints::functions);
        });
    });
}

/// Adds `models`, `DDP` and the optimizers.
pub(crate) fn add_models(builder: &mut GlobalsBuilder) {
    builder.namespace("models", crate::nn::layers::zoo);
    builder.namespace("torchvision", |builder| {
        builder.namespace("models", crate::nn::layers::zoo);
        builder.namespace("datasets", crate::data::loaders::of_torchvision);
    });
    crate::nn::ddp_passes::parallel(builder);
    builder.namespace("optim", |builder| {
        crate::nn::optimizer::optimizers(builder);
        builder.namespace("lr_scheduler", crate::nn::optimizer::schedulers);
    });
}
