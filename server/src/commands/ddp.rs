//! `lockstep ddp`: what DistributedDataParallel does with a model.

use super::describe_ps;
use crate::{files, terminal};
use anyhow::{Context, Result, bail};
use lockstep_core::ddp::model::{Device, Model, known_models, named};
use lockstep_core::ddp::plan::{Training, training_plan};
use lockstep_core::ddp::timeline::{RingLink, SweepPoint, sweep_caps};
use lockstep_core::ddp::{
    BucketCap, CommHook, DdpCall, DdpOptions, DdpReport, DdpVersion, HookAlgorithm, Phase,
    PowerSgd, RecordedRun, format_indices,
};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Model files and recorded runs past this are refused.
const MAX_MODEL_BYTES: u64 = 64 << 20;

/// Iterations that are shown: the third is where a static graph rebuilds.
const ITERATIONS: u32 = 3;

/// Show which parameters share a bucket, and every collective DDP issues
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A model by name (resnet18, gpt2-xl, mlp:64,128,10, …) or a file of one, JSON or CSV
    #[arg(long, value_name = "NAME_OR_FILE")]
    model: String,
    /// DDP's bucket_cap_mb; an explicit 25 is not the default
    #[arg(long, value_name = "MIB", allow_hyphen_values = true)]
    bucket_cap_mb: Option<f64>,
    /// DDP's bucket_cap_mb_list of 2.15: 1,25
    #[arg(long, value_name = "MIB,…", value_delimiter = ',', conflicts_with = "bucket_cap_mb")]
    bucket_cap_mb_list: Option<Vec<f64>>,
    /// The number of ranks
    #[arg(long, value_name = "N", default_value_t = 2)]
    world_size: u32,
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
    /// The environment variable DDP_SET_LAST_BUCKET_CAP=1
    #[arg(long)]
    set_last_bucket_cap: bool,
    /// The PyTorch whose rules are followed
    #[arg(long, value_name = "VERSION", default_value = "2.7", value_parser = ["1.x", "2.7", "2.15"])]
    version: String,
    /// A communication hook, after its start iteration
    #[arg(long, value_enum)]
    comm_hook: Option<HookChoice>,
    /// Compare with the JSON that a real PyTorch run wrote (docs/ddp_record.py)
    #[arg(long, value_name = "FILE")]
    verify_against: Option<PathBuf>,
    /// Estimate a step with these caps and name the best; `default` is DDP's own
    #[arg(long, value_name = "MIB,…", value_delimiter = ',', num_args = 0..=1,
          default_missing_value = "default,0,1,2,5,10,25,50,100,200,400,1000000")]
    sweep: Option<Vec<String>>,
    /// Latency of a link between neighbouring ranks, for --sweep
    #[arg(long, value_name = "NS", default_value_t = 5_000)]
    link_latency_ns: u64,
    /// Bandwidth of that link
    #[arg(long, value_name = "N", default_value_t = 25_000_000_000)]
    link_bytes_per_second: u64,
    /// Write the training run as a plan, for `lockstep sim` and `lockstep run`
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Steps of --plan and --sweep
    #[arg(long, value_name = "N", default_value_t = 3)]
    steps: u32,
    /// Samples a rank and step of --plan and --sweep
    #[arg(long, value_name = "N", default_value_t = 32)]
    batch: u64,
    /// The device of --plan and --sweep: V100, A100, H100, H200
    #[arg(long, value_name = "NAME", default_value = "A100")]
    device: String,
    /// The backend of --plan: a compute stream beside the communication, or a CPU's process
    #[arg(long, value_enum, default_value = "nccl")]
    backend: BackendChoice,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Communication hooks by name.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum HookChoice {
    /// allreduce_hook
    Allreduce,
    /// fp16_compress_hook
    Fp16Compress,
    /// bf16_compress_hook
    Bf16Compress,
    /// powerSGD_hook with rank 1, from the second iteration on
    PowerSgd,
    /// batched_powerSGD_hook with rank 1, from the second iteration on
    BatchedPowerSgd,
    /// quantization_pertensor_hook
    QuantizationPertensor,
    /// quantization_perchannel_hook
    QuantizationPerchannel,
    /// noop_hook
    Noop,
}

impl HookChoice {
    fn hook(self) -> CommHook {
        let state = PowerSgd {
            start_iter: 1,
            use_error_feedback: false,
            warm_start: false,
            ..PowerSgd::default()
        };
        match self {
            HookChoice::Allreduce => CommHook::new(HookAlgorithm::AllReduce),
            HookChoice::Fp16Compress => CommHook::compress(Dtype::Float16),
            HookChoice::Bf16Compress => CommHook::compress(Dtype::Bfloat16),
            HookChoice::PowerSgd => CommHook::new(HookAlgorithm::PowerSgd(state)),
            HookChoice::BatchedPowerSgd => CommHook::new(HookAlgorithm::BatchedPowerSgd(state)),
            HookChoice::QuantizationPertensor => {
                CommHook::new(HookAlgorithm::QuantizationPerTensor)
            }
            HookChoice::QuantizationPerchannel => {
                CommHook::new(HookAlgorithm::QuantizationPerChannel)
            }
            HookChoice::Noop => CommHook::new(HookAlgorithm::Noop),
        }
    }
}

/// The backends that a plan can be for.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum BackendChoice {
    Nccl,
    Gloo,
    Host,
}

/// Collectives of a phase that the text names; `--json` has all.
const MAX_CALLS: usize = 5;

/// What `--json` prints: the report, and what differs from a real run.
#[derive(Serialize)]
struct Shown<'a> {
    schema: &'static str,
    #[serde(flatten)]
    report: &'a DdpReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    differences: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sweep: Option<&'a [SweepPoint]>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let model = model(&arguments.model)?;
    let options = arguments.options()?;
    if arguments.world_size == 0 {
        bail!("--world-size is 0; a job needs at least one rank");
    }
    let recorded = arguments.verify_against.as_deref().map(recorded_run).transpose()?;
    let iterations = recorded.as_ref().map_or(ITERATIONS, RecordedRun::iterations);
    let report = DdpReport::of(&model, &options, arguments.world_size, iterations)
        .map_err(|error| anyhow::anyhow!("DDP raises {}: {error}", error.class()))?;
    if let Some(path) = &arguments.plan {
        write_plan(path, &model, &arguments.training(options.clone())?)?;
    }
    let sweep = arguments.sweep.as_ref();
    let sweep = sweep.map(|caps| arguments.swept(caps, &model, options)).transpose()?;
    let differences = recorded.map(|recorded| recorded.differences(&report));
    let text = match arguments.json {
        true => {
            let differences = differences.as_deref();
            let sweep = sweep.as_deref();
            let shown = Shown { schema: "lockstep.ddp/1", report: &report, differences, sweep };
            serde_json::to_string(&shown)? + "\n"
        }
        false => {
            let sweep = sweep.as_deref().map(as_sweep).unwrap_or_default();
            as_text(&model, &report, differences.as_deref()) + &sweep
        }
    };
    terminal::print(text.as_bytes())?;
    let differs = differences.is_some_and(|differences| !differences.is_empty());
    Ok(ExitCode::from(u8::from(differs || report.error.is_some())))
}

impl Arguments {
    fn options(&self) -> Result<DdpOptions> {
        let version = DdpVersion::ALL.into_iter().find(|version| version.name() == self.version);
        let version = version.unwrap_or_default();
        let bucket_cap = match (&self.bucket_cap_mb_list, self.bucket_cap_mb) {
            (Some(_), _) if version != DdpVersion::V2_15 => {
                bail!("--bucket-cap-mb-list is an argument of PyTorch 2.15: add --version 2.15")
            }
            (Some(list), _) => BucketCap::from_mb_list(list)?,
            (None, Some(mb)) => BucketCap::from_mb(mb)?,
            (None, None) => BucketCap::Default,
        };
        Ok(DdpOptions {
            bucket_cap,
            find_unused_parameters: self.find_unused_parameters,
            static_graph: self.static_graph,
            gradient_as_bucket_view: self.gradient_as_bucket_view,
            broadcast_buffers: !self.no_broadcast_buffers,
            init_sync: !self.no_init_sync,
            set_last_bucket_cap: self.set_last_bucket_cap,
            version,
            comm_hook: self.comm_hook.map(HookChoice::hook),
            ..DdpOptions::default()
        })
    }
}

fn model(name: &str) -> Result<Model> {
    let path = Path::new(name);
    if !path.exists()
        && let Some(model) = named(name)
    {
        return Ok(model);
    }
    if !path.exists() {
        let known = known_models().join(", ");
        bail!("{name:?} is neither a file nor a model that ships ({known}, mlp:SIZES)");
    }
    let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into());
    Model::read(&stem, &read_text(path)?).with_context(|| format!("cannot use {name}"))
}

fn recorded_run(path: &Path) -> Result<RecordedRun> {
    let text = read_text(path)?;
    RecordedRun::read(&text).with_context(|| format!("cannot use {}", path.display()))
}

fn read_text(path: &Path) -> Result<String> {
    let bytes = files::read(path, MAX_MODEL_BYTES)?;
    String::from_utf8(bytes).with_context(|| format!("{} is no text", path.display()))
}

impl Arguments {
    fn training(&self, options: DdpOptions) -> Result<Training> {
        let Some(device) = Device::named(&self.device) else {
            let known: Vec<_> = Device::known().into_iter().map(|device| device.name).collect();
            bail!("{:?} is no device that is known: {}", self.device, known.join(", "));
        };
        Ok(Training {
            options,
            backend: match self.backend {
                BackendChoice::Nccl => BackendName::Nccl,
                BackendChoice::Gloo => BackendName::Gloo,
                BackendChoice::Host => BackendName::Host,
            },
            steps: self.steps,
            batch: self.batch,
            ..Training::new(self.world_size, device)
        })
    }

    /// What each cap costs, by the closed form of equal ranks on equal links.
    fn swept(
        &self,
        caps: &[String],
        model: &Model,
        options: DdpOptions,
    ) -> Result<Vec<SweepPoint>> {
        let caps = caps.iter().map(|cap| match cap.as_str() {
            "default" => Ok(None),
            cap => cap.parse().map(Some).with_context(|| format!("--sweep {cap:?} is no number")),
        });
        let caps: Vec<Option<f64>> = caps.collect::<Result<_>>()?;
        let link = RingLink {
            latency_ps: self.link_latency_ns.saturating_mul(1000),
            bytes_per_second: self.link_bytes_per_second,
        };
        let training = self.training(options)?;
        // The third step is the first that is like all others.
        let training = Training { steps: training.steps.max(3), ..training };
        Ok(sweep_caps(model, &training, link, &caps)?)
    }
}

fn write_plan(path: &Path, model: &Model, training: &Training) -> Result<()> {
    let plan = training_plan(model, training)?;
    let bytes = match path.extension().is_some_and(|end| end == "json") {
        true => plan.to_json().into_bytes(),
        false => plan.to_bytes(),
    };
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

fn as_sweep(points: &[SweepPoint]) -> String {
    let mut text = format!(
        "\nestimate of a step by cap\n{:>9}  {:>7}  {:>12}  {:>13}  {:>12}  efficiency\n",
        "cap (MiB)", "buckets", "step", "communication", "exposed"
    );
    let best = points.iter().min_by_key(|point| point.step_ps);
    for point in points {
        let cap = point.bucket_cap_mb.map_or("default".into(), |mb| mb.to_string());
        let efficiency = point.efficiency_permille;
        text.push_str(&format!(
            "{cap:>9}  {:>7}  {:>12}  {:>13}  {:>12}  {}.{} %{}\n",
            point.buckets,
            describe_ps(point.step_ps),
            describe_ps(point.communication_ps),
            describe_ps(point.exposed_ps),
            efficiency / 10,
            efficiency % 10,
            if best == Some(point) { "  best: the shortest step" } else { "" }
        ));
    }
    text
}

fn as_text(model: &Model, report: &DdpReport, differences: Option<&[String]>) -> String {
    let trained: Vec<_> = model.trained().collect();
    let bytes: u64 = trained.iter().map(|param| param.bytes()).sum();
    let mut text = format!(
        "{}: {} parameters that require grad, {} bytes; DDP of PyTorch {}, cap {} bytes, first \
         bucket {} bytes\n",
        report.model,
        trained.len(),
        with_commas(bytes),
        report.version,
        with_commas_signed(report.cap_bytes),
        with_commas_signed(report.first_bytes),
    );
    let name = |index: Option<&u32>| {
        let param = index.and_then(|index| trained.get(*index as usize));
        param.map_or("", |param| param.name.as_str())
    };
    let table = |title: &str, buckets: &[Vec<u32>], bytes: &[u64]| {
        let mut text = format!("\n{title}\n{:>6}  {:>13}  parameters\n", "bucket", "bytes");
        for ((number, bucket), bytes) in (0..).zip(buckets).zip(bytes) {
            let listed = shortened(&format_indices(bucket), 40);
            let (first, last) = (name(bucket.first()), name(bucket.last()));
            let names = if bucket.len() > 1 { format!("{first} … {last}") } else { first.into() };
            let bytes = with_commas(*bytes);
            text.push_str(&format!("{number:>6}  {bytes:>13}  {listed}  {names}\n"));
        }
        text
    };
    let never = report.rebuilt.is_none();
    let until = if never { "" } else { " (until the rebuild)" };
    text.push_str(&table(&format!("buckets{until}"), &report.initial, &report.initial_bytes));
    if let (Some(rebuilt), Some(bytes)) = (&report.rebuilt, &report.rebuilt_bytes) {
        text.push_str(&table("buckets rebuilt from the order of gradients", rebuilt, bytes));
    }
    text.push_str("\ncollectives\n");
    let last = report.collectives.iter().map(|call| call.iteration).max().unwrap_or(0);
    for iteration in 0..=last {
        for phase in [Phase::Construction, Phase::Forward, Phase::Backward] {
            let calls: Vec<_> = report.calls(iteration, phase).collect();
            if calls.is_empty() {
                continue;
            }
            let place = match phase {
                Phase::Construction => "constructor".to_owned(),
                Phase::Forward => format!("forward {iteration}"),
                Phase::Backward => format!("backward {iteration}"),
            };
            let one = |call: &&DdpCall| format!("{} {}[{}]", call.name(), call.dtype, call.numel);
            let mut shown: Vec<_> = calls.iter().take(MAX_CALLS).map(one).collect();
            if let Some(last) = calls.last().filter(|_| calls.len() > MAX_CALLS) {
                shown.push(format!("… {} more, the last {}", calls.len() - MAX_CALLS, one(last)));
            }
            text.push_str(&format!("  {place:<12} {}\n", shown.join(", ")));
        }
    }
    if let Some(error) = &report.error {
        text.push_str(&format!("\nDDP raises {error}\n"));
    }
    match differences {
        None => {}
        Some([]) => text.push_str("\nno difference from the recorded run\n"),
        Some(differences) => {
            text.push_str(&format!("\n{} differences from the recorded run\n", differences.len()));
            for difference in differences {
                text.push_str(&format!("  {difference}\n"));
            }
        }
    }
    text
}

fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most { text.to_owned() } else { format!("{}…", &text[..most]) }
}

fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn with_commas_signed(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", with_commas(number.unsigned_abs()))
}
