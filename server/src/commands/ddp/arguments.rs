//! The arguments of `lockstep ddp`, and their meaning for DDP.

use super::hooks::{HookArguments, dtype};
use crate::output_file::Overwrite;
use crate::plan_source::ClusterOptions;
use crate::terminal;
use anyhow::{Context, Result, bail};
use lockstep_clusters::{Compute, compute_card};
use lockstep_core::group::BackendName;
use lockstep_torch::ddp::join::{JoinOptions, Joinable};
use lockstep_torch::ddp::model::Device;
use lockstep_torch::ddp::plan::Training;
use lockstep_torch::ddp::zero::ZeroOverlap;
use lockstep_torch::ddp::{
    BucketCap, DdpOptions, DdpVersion, MixedPrecision, ModelAverager, RecordedRun, RingLink,
};
use std::path::PathBuf;

/// More ranks inside `join()` than this are not shown one by one.
const MAX_JOINING: u32 = 4096;

/// The device where nobody says one.
const DEFAULT_DEVICE: &str = "A100";

fn named_device(name: &str) -> Result<Device> {
    Device::named(name).with_context(|| format!("{name} is no device that is known"))
}

/// A card of the table of what cards compute as a device.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates of data sheets")]
fn device_of(card: &str, compute: &Compute) -> Device {
    let flops = |name: &str| compute.tflops.get(name).map_or(0, |rate| (rate * 1e12) as u64);
    Device {
        name: card.to_uppercase(),
        float32_flops: flops("float32"),
        half_flops: flops("float16"),
        bytes_per_second: (compute.memory_tbps * 1e12) as u64,
        // As of the devices that ship.
        efficiency_percent: 40,
    }
}

/// Show which parameters share a bucket, and every collective DDP issues
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A model by name (resnet18, gpt2-xl, mlp:64,128,10, …) or a file of one, JSON or CSV
    #[arg(long, value_name = "NAME_OR_FILE")]
    pub(super) model: String,
    /// The order in which gradients become ready, as indices: 13-11,4
    #[arg(long, value_name = "LIST")]
    pub(super) grad_ready_order: Option<String>,
    /// The number of ranks: 2, or those of the run with --verify-against
    #[arg(long, value_name = "N")]
    pub(super) world_size: Option<u32>,
    /// Ranks a node, for --plan; 0 for one node
    #[arg(long, value_name = "N", default_value_t = 0)]
    ranks_per_node: u32,
    #[command(flatten)]
    ddp: DdpArguments,
    #[command(flatten)]
    hook: HookArguments,
    #[command(flatten)]
    run: RunArguments,
    /// Compare with the JSON that a real PyTorch run wrote (docs/ddp_record.py)
    #[arg(long, value_name = "FILE")]
    pub(super) verify_against: Option<PathBuf>,
    /// Estimate a step with these caps and name the best; `default` is DDP's own
    #[arg(long, value_name = "MIB,…", value_delimiter = ',', num_args = 0..=1,
          allow_negative_numbers = true, default_missing_value = "default,0,1,2,5,10,25,50,100,200,400,1000000")]
    pub(super) sweep: Option<Vec<String>>,
    /// Write the training run as a plan, for `lockstep sim` and `lockstep run`; nothing is
    /// written where DDP raises before there is any plan
    #[arg(long, value_name = "FILE")]
    pub(super) plan: Option<PathBuf>,
    #[command(flatten)]
    pub(super) overwrite: Overwrite,
    /// Simulate the training run on all ranks and show rank 0's steps
    #[arg(long)]
    pub(super) simulate: bool,
    /// Show DDP's own log as `_get_ddp_logging_data()` returns it, with estimated times
    #[arg(long)]
    pub(super) log: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// DDP's own arguments.
#[derive(clap::Args)]
#[command(next_help_heading = "DDP's arguments")]
struct DdpArguments {
    /// DDP's bucket_cap_mb; an explicit 25 is not the default
    #[arg(long, value_name = "MIB", allow_hyphen_values = true)]
    bucket_cap_mb: Option<f64>,
    /// DDP's bucket_cap_mb_list of 2.15: 1,25; empty for an empty list
    #[arg(
        long,
        value_name = "MIB,…",
        conflicts_with = "bucket_cap_mb",
        allow_hyphen_values = true
    )]
    bucket_cap_mb_list: Option<String>,
    /// DDP's find_unused_parameters=True
    #[arg(long)]
    find_unused_parameters: bool,
    /// DDP's static_graph=True
    #[arg(long)]
    static_graph: bool,
    /// DDP's gradient_as_bucket_view=True: changes how the mean is formed, nothing that is shown
    #[arg(long)]
    gradient_as_bucket_view: bool,
    /// DDP's broadcast_buffers=False
    #[arg(long)]
    no_broadcast_buffers: bool,
    /// DDP's init_sync=False
    #[arg(long)]
    no_init_sync: bool,
    /// DDP's delay_all_reduce_named_params, with --param-to-hook-all-reduce
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    delay_all_reduce_named_params: Option<Vec<String>>,
    /// DDP's param_to_hook_all_reduce
    #[arg(long, value_name = "NAME")]
    param_to_hook_all_reduce: Option<String>,
    /// Parameters and buffers that DDP leaves alone (_ddp_params_and_buffers_to_ignore)
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    ignore: Vec<String>,
    /// DDP's mixed_precision: param=float16,reduce=float32,buffer=float16
    #[arg(long, value_name = "WHAT=DTYPE,…", value_delimiter = ',')]
    mixed_precision: Vec<String>,
    /// The environment variable DDP_SET_LAST_BUCKET_CAP=1
    #[arg(long)]
    set_last_bucket_cap: bool,
    /// The environment variable TORCH_DISTRIBUTED_DEBUG=INFO: errors name parameters; that of the run
    /// with --verify-against
    #[arg(long)]
    debug: bool,
    /// Devices of each process, with --version 1.x: a replica of the module on each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    device_ids: Option<u32>,
    /// The PyTorch whose rules are followed
    #[arg(long, value_name = "VERSION", default_value = "2.7", value_parser = ["1.x", "2.7", "2.15"])]
    version: String,
}

/// The training loop around it.
#[derive(clap::Args)]
#[command(next_help_heading = "The training loop")]
struct RunArguments {
    /// Passes that accumulate gradients before one reduces them: all but the last of so many are
    /// inside no_sync(). The last pass of all reduces whatever its number; inside join(), where no rank
    /// knows which that is, it does not
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    accumulate: u32,
    /// Passes that are shown; those of the run with --verify-against
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    iterations: u32,
    /// Inputs of each rank, inside join(): 5,3,4; the last holds for all ranks that follow
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    join: Option<Vec<u32>>,
    /// join(divide_by_initial_world_size=False)
    #[arg(long, requires = "join")]
    divide_by_effective_world_size: bool,
    /// join(throw_on_early_termination=True)
    #[arg(long, requires = "join")]
    throw_on_early_termination: bool,
    /// Parameters, or modules with all of theirs, that get no gradient in any pass
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    unused: Vec<String>,
    /// SyncBatchNorm in place of BatchNorm, in --plan and --simulate
    #[arg(long)]
    sync_batch_norm: bool,
    /// ZeroRedundancyOptimizer: each parameter broadcast by itself, or views of a bucket
    #[arg(long, value_enum)]
    zero: Option<ZeroChoice>,
    /// ZeroRedundancyOptimizer(overlap_with_ddp=True)
    #[arg(long, value_enum, conflicts_with = "zero")]
    zero_overlap: Option<OverlapChoice>,
    /// Its shard_buckets=True
    #[arg(long, requires = "zero_overlap")]
    shard_buckets: bool,
    /// Average models after steps: periodic:PERIOD:WARMUP or hierarchical:2=8,4=64:WARMUP
    #[arg(long, value_name = "HOW")]
    averager: Option<String>,
    /// Steps of --plan and --simulate
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Samples a rank and step
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    batch: u64,
    /// The card that computes: V100, A100, H100, H200 [default: the cluster's card, or A100]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// The backend: a compute stream beside the communication (nccl, unless --verify-against has
    /// another), or a CPU's process
    #[arg(long, value_enum)]
    backend: Option<BackendChoice>,
    /// Latency of a link between neighbouring ranks, for --sweep and --simulate
    #[arg(long, value_name = "NS", default_value_t = 5_000,
          value_parser = clap::value_parser!(u64).range(..=60_000_000_000))]
    link_latency_ns: u64,
    /// Bandwidth of that link
    #[arg(long, value_name = "N", default_value_t = 25_000_000_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    link_bytes_per_second: u64,
    #[command(flatten)]
    cluster: ClusterOptions,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ZeroChoice {
    Each,
    View,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OverlapChoice {
    /// hook_with_zero_step
    Step,
    /// hook_with_zero_step_interleaved
    Interleaved,
}

/// The backends that a plan can be for.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum BackendChoice {
    Nccl,
    Gloo,
    Host,
}

/// Uneven inputs, as the arguments ask for them.
pub(super) struct Uneven {
    pub(super) inputs: Vec<u32>,
    pub(super) join: JoinOptions,
    pub(super) joinables: Vec<Joinable>,
}

impl Arguments {
    /// The number of ranks.
    pub(super) fn ranks(&self) -> u32 {
        self.world_size.unwrap_or(2)
    }

    pub(super) fn options(&self) -> Result<DdpOptions> {
        let ddp = &self.ddp;
        let version = DdpVersion::ALL.into_iter().find(|version| version.name() == ddp.version);
        let version = version.unwrap_or_default();
        let bucket_cap = match (&ddp.bucket_cap_mb_list, ddp.bucket_cap_mb) {
            (Some(_), _) if version != DdpVersion::V2_15 => {
                bail!("--bucket-cap-mb-list is an argument of PyTorch 2.15: add --version 2.15")
            }
            (Some(list), _) => BucketCap::from_mb_list(&caps(list)?)?,
            (None, Some(mb)) => BucketCap::from_mb(mb)?,
            (None, None) => BucketCap::Default,
        };
        let zero_overlap = self.run.zero_overlap.map(|choice| ZeroOverlap {
            interleaved: choice == OverlapChoice::Interleaved,
            shard_buckets: self.run.shard_buckets,
            world_size: self.ranks(),
        });
        let mut comm_hook = self.hook.hook()?;
        if zero_overlap.is_some() && comm_hook.is_none() {
            // It wraps a hook.
            comm_hook = Some(lockstep_torch::ddp::CommHook::new(
                lockstep_torch::ddp::HookAlgorithm::AllReduce,
            ));
        }
        Ok(DdpOptions {
            bucket_cap,
            find_unused_parameters: ddp.find_unused_parameters,
            static_graph: ddp.static_graph,
            gradient_as_bucket_view: ddp.gradient_as_bucket_view,
            broadcast_buffers: !ddp.no_broadcast_buffers,
            init_sync: !ddp.no_init_sync,
            set_last_bucket_cap: ddp.set_last_bucket_cap,
            version,
            ignored: ddp.ignore.clone(),
            delay_all_reduce_named_params: ddp.delay_all_reduce_named_params.clone(),
            param_to_hook_all_reduce: ddp.param_to_hook_all_reduce.clone(),
            comm_hook,
            mixed_precision: mixed_precision(&ddp.mixed_precision)?,
            zero_overlap,
            debug: ddp.debug,
        })
    }

    /// Devices of each process, if they are asked for.
    pub(super) fn devices(&self) -> Option<u32> {
        self.ddp.device_ids
    }

    /// Passes that are shown, and how many of them accumulate.
    pub(super) fn passes(&self) -> (u32, u32) {
        (self.run.iterations, self.run.accumulate)
    }

    /// The ranks that `--join` has inputs for, unless one number is to hold for all.
    pub(super) fn joining(&self) -> Option<u32> {
        let inputs = self.run.join.as_ref().filter(|inputs| inputs.len() > 1)?;
        u32::try_from(inputs.len()).ok()
    }

    /// The uneven inputs that `join()` is to be shown with.
    pub(super) fn uneven(&self) -> Result<Option<Uneven>> {
        let Some(inputs) = &self.run.join else { return Ok(None) };
        if inputs.len() > self.ranks() as usize {
            let (found, ranks) = (inputs.len(), self.ranks());
            bail!("--join has the inputs of {found} ranks, but --world-size is {ranks}");
        }
        if self.ranks() > MAX_JOINING {
            bail!("--join shows what each rank does by itself: {MAX_JOINING} ranks at most");
        }
        if inputs.iter().any(|inputs| *inputs > 10_000) {
            bail!("--join takes up to 10,000 inputs a rank");
        }
        let mut joinables = vec![Joinable::Ddp];
        joinables.extend(self.run.zero.map(|choice| Joinable::Zero {
            parameters_as_bucket_view: matches!(choice, ZeroChoice::View),
        }));
        let last = inputs.last().copied().unwrap_or(0);
        let rest = (self.ranks() as usize).saturating_sub(inputs.len());
        let inputs = inputs.iter().copied().chain(std::iter::repeat_n(last, rest)).collect();
        Ok(Some(Uneven { inputs, join: self.join_options(), joinables }))
    }

    fn join_options(&self) -> JoinOptions {
        JoinOptions {
            divide_by_initial_world_size: !self.run.divide_by_effective_world_size,
            throw_on_early_termination: self.run.throw_on_early_termination,
        }
    }

    /// The parameters that get no gradient.
    pub(super) fn unused(&self) -> &[String] {
        &self.run.unused
    }

    pub(super) fn training(
        &self,
        options: DdpOptions,
        recorded: Option<&RecordedRun>,
    ) -> Result<Training> {
        let run = &self.run;
        let device = self.device()?;
        Ok(Training {
            options,
            ranks_per_node: self.ranks_per_node,
            backend: match run.backend {
                Some(BackendChoice::Nccl) => BackendName::Nccl,
                Some(BackendChoice::Gloo) => BackendName::Gloo,
                Some(BackendChoice::Host) => BackendName::Host,
                None => recorded.map_or(BackendName::Nccl, RecordedRun::backend),
            },
            steps: run.steps,
            batch: run.batch,
            accumulate: recorded.map_or(run.accumulate, RecordedRun::accumulate),
            averager: run.averager.as_deref().map(averager).transpose()?,
            sync_batch_norm: run.sync_batch_norm,
            zero: run.zero.map(|choice| matches!(choice, ZeroChoice::View)),
            uneven: run.join.clone().map(|inputs| lockstep_torch::ddp::plan::Uneven {
                inputs,
                options: self.join_options(),
            }),
            devices: self.ddp.device_ids.unwrap_or(1),
            ..Training::new(self.ranks(), device)
        })
    }

    /// The device that computes: as it is said, or the cluster's.
    fn device(&self) -> Result<Device> {
        let known = || {
            let known: Vec<_> = Device::known().into_iter().map(|device| device.name).collect();
            known.join(", ")
        };
        if let Some(name) = &self.run.device {
            return Device::named(name)
                .with_context(|| format!("{name:?} is no device that is known: {}", known()));
        }
        let Some(card) = self.cluster().card()? else { return named_device(DEFAULT_DEVICE) };
        // Cards whose arithmetic is that of another one, with other links.
        let arithmetic = match card.split('-').next().unwrap_or(&card) {
            "h800" | "gh200" => "h100",
            "a800" => "a100",
            "gb200" => "b200",
            own => own,
        };
        if let Some(device) = Device::named(arithmetic) {
            return Ok(device);
        }
        if let Ok(compute) = compute_card(arithmetic) {
            return Ok(device_of(arithmetic, &compute));
        }
        terminal::note(&format!(
            "lockstep: no rates of {card} are known, so {DEFAULT_DEVICE} computes; --device says another \
             ({})",
            known()
        ));
        named_device(DEFAULT_DEVICE)
    }

    pub(super) fn cluster(&self) -> &ClusterOptions {
        &self.run.cluster
    }

    /// A cluster times whole runs only: the closed form of --sweep and --log knows links.
    pub(super) fn check_cluster(&self) -> Result<()> {
        let closed = [("--sweep", self.sweep.is_some()), ("--log", self.log)];
        match closed.into_iter().find(|(_, given)| *given) {
            Some((option, _)) if self.cluster().cluster.is_some() => bail!(
                "{option} reckons with links and not with a cluster: give --cluster with --simulate"
            ),
            _ => Ok(()),
        }
    }

    pub(super) fn link(&self) -> RingLink {
        RingLink {
            latency_ps: self.run.link_latency_ns.saturating_mul(1000),
            bytes_per_second: self.run.link_bytes_per_second,
        }
    }
}

/// Caps of a list in MiB; an empty text is an empty list.
fn caps(list: &str) -> Result<Vec<f64>> {
    let caps = list.split(',').map(str::trim);
    let caps = caps.filter(|cap| !cap.is_empty() || !list.trim().is_empty());
    let cap = |cap: &str| {
        cap.parse().with_context(|| format!("--bucket-cap-mb-list has {cap:?}, which is no number"))
    };
    caps.map(cap).collect()
}

fn mixed_precision(words: &[String]) -> Result<Option<MixedPrecision>> {
    let mut mixed = MixedPrecision::default();
    for word in words {
        let (what, name) = word.split_once('=').with_context(|| {
            format!("--mixed-precision {word:?} is not of the form param=float16")
        })?;
        let place = match what.trim() {
            "param" | "param_dtype" => &mut mixed.param_dtype,
            "reduce" | "reduce_dtype" => &mut mixed.reduce_dtype,
            "buffer" | "buffer_dtype" => &mut mixed.buffer_dtype,
            _ => bail!("--mixed-precision knows param, reduce and buffer, not {what:?}"),
        };
        if place.replace(dtype(name)?).is_some() {
            bail!("--mixed-precision has {:?} twice", what.trim());
        }
    }
    Ok((!words.is_empty()).then_some(mixed))
}

fn averager(text: &str) -> Result<ModelAverager> {
    text.parse().context("--averager")
}
