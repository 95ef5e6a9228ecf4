//! Communication hooks on the command line.

use anyhow::{Result, bail};
use lockstep_core::dtype::Dtype;
use lockstep_torch::ddp::{CommHook, CompressionRate, HookAlgorithm, PostLocalSgd, PowerSgd};

/// A communication hook and its state.
#[derive(clap::Args)]
#[command(next_help_heading = "Communication hooks")]
pub(super) struct HookArguments {
    /// A communication hook
    #[arg(long, value_enum)]
    comm_hook: Option<HookChoice>,
    /// fp16_compress_wrapper and bf16_compress_wrapper: the hook finds buckets cast to this type
    #[arg(long, value_name = "DTYPE", requires = "comm_hook")]
    compress_wrapper: Option<String>,
    /// PowerSGD's matrix_approximation_rank
    #[arg(long, requires = "comm_hook", value_name = "N", default_value_t = 1)]
    power_sgd_rank: u64,
    /// PowerSGD's start_powerSGD_iter: 2 shows it at work in the third iteration
    #[arg(long, requires = "comm_hook", value_name = "N", default_value_t = 1000)]
    power_sgd_start_iter: u64,
    /// PowerSGD's min_compression_rate
    #[arg(
        long,
        requires = "comm_hook",
        value_name = "X",
        default_value = "2",
        allow_negative_numbers = true
    )]
    power_sgd_min_compression_rate: CompressionRate,
    /// PowerSGD's use_error_feedback=False
    #[arg(long, requires = "comm_hook")]
    no_error_feedback: bool,
    /// PowerSGD's warm_start=False
    #[arg(long, requires = "comm_hook")]
    no_warm_start: bool,
    /// post-localSGD's start_localSGD_iter: 2 shows it at work in the third iteration
    #[arg(long, requires = "comm_hook", value_name = "N", default_value_t = 100)]
    local_sgd_start_iter: u64,
    /// Ranks of post-localSGD's subgroup
    #[arg(long, requires = "comm_hook", value_name = "N", default_value_t = 1)]
    local_sgd_subgroup: u32,
    /// post-localSGD's post_local_gradient_allreduce=False
    #[arg(long, requires = "comm_hook")]
    no_post_local_gradient_allreduce: bool,
}

/// Communication hooks by name; the page's words and PyTorch's functions mean them too.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum HookChoice {
    /// allreduce_hook
    #[value(aliases = ["allreduce_hook"])]
    Allreduce,
    /// fp16_compress_hook
    #[value(aliases = ["fp16", "fp16_compress_hook"])]
    Fp16Compress,
    /// bf16_compress_hook
    #[value(aliases = ["bf16", "bf16_compress_hook"])]
    Bf16Compress,
    /// powerSGD_hook
    #[value(aliases = ["powersgd", "powerSGD_hook"])]
    PowerSgd,
    /// batched_powerSGD_hook, which fails an assertion in PyTorch 1.12 and later once it compresses
    #[value(aliases = ["batched", "batched_powerSGD_hook"])]
    BatchedPowerSgd,
    /// quantization_pertensor_hook
    #[value(aliases = ["pertensor", "quantization_pertensor_hook"])]
    QuantizationPertensor,
    /// quantization_perchannel_hook
    #[value(aliases = ["perchannel", "quantization_perchannel_hook"])]
    QuantizationPerchannel,
    /// post_localSGD_hook
    #[value(aliases = ["localsgd", "post_localSGD_hook"])]
    PostLocalSgd,
    /// noop_hook
    #[value(aliases = ["noop_hook"])]
    Noop,
}

impl HookArguments {
    pub(super) fn hook(&self) -> Result<Option<CommHook>> {
        let Some(choice) = self.comm_hook else { return Ok(None) };
        let state = PowerSgd {
            matrix_approximation_rank: self.power_sgd_rank,
            start_iter: self.power_sgd_start_iter,
            min_compression_rate: self.power_sgd_min_compression_rate,
            use_error_feedback: !self.no_error_feedback,
            warm_start: !self.no_warm_start,
        };
        let algorithm = match choice {
            HookChoice::Allreduce => HookAlgorithm::AllReduce,
            HookChoice::Fp16Compress => HookAlgorithm::Compress(Dtype::Float16),
            HookChoice::Bf16Compress => HookAlgorithm::Compress(Dtype::Bfloat16),
            HookChoice::PowerSgd => HookAlgorithm::PowerSgd(state),
            HookChoice::BatchedPowerSgd => HookAlgorithm::BatchedPowerSgd(state),
            HookChoice::QuantizationPertensor => HookAlgorithm::QuantizationPerTensor,
            HookChoice::QuantizationPerchannel => HookAlgorithm::QuantizationPerChannel,
            HookChoice::PostLocalSgd => {
                let state = PostLocalSgd {
                    start_iter: self.local_sgd_start_iter,
                    subgroup: self.local_sgd_subgroup,
                    post_local_gradient_allreduce: !self.no_post_local_gradient_allreduce,
                };
                HookAlgorithm::PostLocalSgd(state)
            }
            HookChoice::Noop => HookAlgorithm::Noop,
        };
        let wrapper = self.compress_wrapper.as_deref().map(dtype).transpose()?;
        if let Some(other) = wrapper.filter(|d| !matches!(d, Dtype::Float16 | Dtype::Bfloat16)) {
            bail!("there is no wrapper that compresses to {other}: float16 or bfloat16");
        }
        Ok(Some(CommHook { wrapper, algorithm }))
    }
}

/// A floating-point type by its name.
pub(super) fn dtype(name: &str) -> Result<Dtype> {
    let dtype = Dtype::from_torch_name(name.trim());
    match dtype.is_float() {
        true => Ok(dtype),
        false => bail!("{name:?} is no floating-point type: float16, bfloat16, float32, …"),
    }
}
