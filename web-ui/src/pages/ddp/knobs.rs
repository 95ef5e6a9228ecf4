//! One setting of the lab as an address holds it, and what it means to DDP.

use super::hooks::{self, HOOKS, WRAPPERS};
use super::links::links_of;
use crate::pages::asked::{Asked, Unmet};
use crate::pages::machine_choice;
use crate::route::{Route, View};
use lockstep_core::dtype::Dtype;
use lockstep_torch::ddp::join::JoinOptions;
use lockstep_torch::ddp::lab::Setting;
use lockstep_torch::ddp::model::Device;
use lockstep_torch::ddp::plan::{Training, Uneven};
use lockstep_torch::ddp::zero::ZeroOverlap;
use lockstep_torch::ddp::{
    BucketCap, CommHook, DdpOptions, DdpVersion, HookAlgorithm, MixedPrecision, ModelAverager,
    PostLocalSgd, PowerSgd, parse_indices,
};
use lockstep_web_protocol::{Machine, PlacedSetting};

/// The largest world: the plan lists its ranks.
pub(super) const MAX_WORLD: u32 = 1 << 17;
/// The most passes that accumulate.
pub(super) const MAX_ACCUMULATE: u32 = 8;
/// The most samples a rank and pass.
pub(super) const MAX_BATCH: u64 = 1 << 16;
/// The cap when none is given, as an address writes it.
pub(super) const DEFAULT_CAP: &str = "default";

/// The choices for `ZeroRedundancyOptimizer`: the word in the address, and the meaning.
pub(super) const ZERO: [(&str, &str); 5] = [
    ("no", "no"),
    ("each", "broadcasts one by one"),
    ("view", "parameters_as_bucket_view"),
    ("overlap", "overlap_with_ddp: hook_with_zero_step"),
    ("interleaved", "overlap_with_ddp: hook_with_zero_step_interleaved"),
];

/// Types of mixed precision: the word in the address; the first leaves it out.
pub(super) const PARAM_DTYPES: [&str; 3] = ["no", "float16", "bfloat16"];
pub(super) const REDUCE_DTYPES: [&str; 4] = ["as-param", "float16", "bfloat16", "float32"];
pub(super) const BUFFER_DTYPES: [&str; 3] = ["no", "float16", "bfloat16"];

/// The largest rank of PowerSGD, and the latest start of a hook.
pub(super) const MAX_RANK: u64 = 1024;
pub(super) const MAX_START: u64 = 1_000_000;
/// `PostLocalSGDState`'s start in PyTorch's example; it has no default.
const LOCAL_START: u64 = 100;

/// Devices of a process at most.
pub(super) const MAX_DEVICES: u32 = 16;

/// The values that an address need not name: they are the defaults.
pub(super) const UNSAID: &[(&str, &str)] = &[
    ("wrapper", "no"),
    ("psgd_rank", "1"),
    ("psgd_start", "1000"),
    ("psgd_rate", "2"),
    ("feedback", "1"),
    ("warm", "1"),
    ("local_start", "100"),
    ("local_reduce", "1"),
    ("init", "1"),
    ("ignore", ""),
    ("delay", ""),
    ("delay_hook", ""),
    ("order", ""),
    ("mixed", "no"),
    ("reduce", "as-param"),
    ("mixed_buffers", "no"),
    ("shard", "0"),
    ("averager", ""),
    ("subgroup", "0"),
    ("join", ""),
    ("throw", "0"),
    ("devices", "1"),
    ("nograd", ""),
];

/// One setting, as it is chosen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Knobs {
    pub(super) world: u32,
    pub(super) device: String,
    pub(super) batch: u64,
    pub(super) machine: Machine,
    /// As it was typed.
    pub(super) cap: String,
    pub(super) version: DdpVersion,
    pub(super) find_unused: bool,
    pub(super) static_graph: bool,
    pub(super) bucket_view: bool,
    pub(super) broadcast_buffers: bool,
    pub(super) last_cap: bool,
    pub(super) hook: &'static str,
    /// One of [`WRAPPERS`].
    pub(super) wrapper: &'static str,
    /// `PowerSGDState`, of both of its hooks.
    pub(super) power: PowerSgd,
    /// `start_localSGD_iter`.
    pub(super) local_start: u64,
    /// `post_local_gradient_allreduce`.
    pub(super) local_reduce: bool,
    pub(super) init_sync: bool,
    /// Parameters and buffers that DDP ignores, as they were typed.
    pub(super) ignore: String,
    /// `delay_all_reduce_named_params` and `param_to_hook_all_reduce`, as they were typed.
    pub(super) delay: [String; 2],
    /// The order in which gradients become ready, as it was typed; empty for the model's.
    pub(super) order: String,
    pub(super) accumulate: u32,
    pub(super) sync_batch_norm: bool,
    /// One of [`ZERO`].
    pub(super) zero: &'static str,
    /// `shard_buckets` of its overlap.
    pub(super) shard_buckets: bool,
    /// `param_dtype`, `reduce_dtype` and `buffer_dtype`.
    pub(super) mixed: [&'static str; 3],
    /// As it was typed, empty for none.
    pub(super) averager: String,
    /// Ranks of post-localSGD's subgroups; 0 for those of a node.
    pub(super) subgroup: u32,
    /// Inputs of the ranks inside `join()` as they were typed, empty without it.
    pub(super) join: String,
    /// `throw_on_early_termination`.
    pub(super) throw: bool,
    /// Devices of a process, of 1.x.
    pub(super) devices: u32,
    /// Parameters and modules without gradient, as they were typed.
    pub(super) nograd: String,
}

/// The refusal of an iteration that is none.
const ITERATIONS: &str = "An iteration from 0 to 1,000,000.";

/// The device that an address asks for.
fn device_asked(asked: &mut Asked<'_>, route: &Route) -> String {
    match route.get("device").map(Device::named) {
        None => "A100".to_owned(),
        Some(Some(device)) => device.name,
        Some(None) => {
            let devices = Device::known();
            let ways = asked.near("device", devices.iter().map(|device| device.name.as_str()), 4);
            asked.refuse("device", "There is no such device.", ways);
            "A100".to_owned()
        }
    }
}

/// The numbers of PowerSGD's state that an address asks for.
fn power_asked(asked: &mut Asked<'_>) -> PowerSgd {
    let usual = PowerSgd::default();
    PowerSgd {
        matrix_approximation_rank: asked.number(
            "psgd_rank",
            (1, MAX_RANK),
            usual.matrix_approximation_rank,
            "matrix_approximation_rank is 1 to 1,024 here.",
        ),
        start_iter: asked.number("psgd_start", (0, MAX_START), usual.start_iter, ITERATIONS),
        min_compression_rate: asked.parsed("psgd_rate", usual.min_compression_rate),
        ..usual
    }
}

/// Longer texts are cut: an address is a stranger's.
const MAX_TEXT: usize = 4000;

impl Knobs {
    /// The words in an address; what it does not say, or says wrongly, is the default.
    pub(super) fn read(route: &Route) -> Knobs {
        Knobs::asked(route).0
    }

    /// The same, and what the address asks for that cannot be.
    pub(super) fn asked(route: &Route) -> (Knobs, Vec<Unmet>) {
        let route = &hooks::by_its_word(route);
        let mut asked = Asked::new(route);
        let mut word = |name: &str, words: &[&'static str], what: &str| {
            asked.one_of(name, words, str::to_owned, what).unwrap_or(words[0])
        };
        let hook = word("hook", &HOOKS.map(|(word, _)| word), "communication hook");
        let wrapper = word("wrapper", &WRAPPERS.map(|(word, _)| word), "wrapper of a hook");
        let zero = word("zero", &ZERO.map(|(word, _)| word), "way to shard the optimizer");
        let mixed = [
            word("mixed", &PARAM_DTYPES, "param_dtype here"),
            word("reduce", &REDUCE_DTYPES, "reduce_dtype here"),
            word("mixed_buffers", &BUFFER_DTYPES, "buffer_dtype here"),
        ];
        let device = device_asked(&mut asked, route);
        let versions = DdpVersion::ALL;
        let version = asked.one_of(
            "version",
            &versions,
            |of| of.name().to_owned(),
            "version of PyTorch's rules",
        );
        let mut flag = |name: &str, default: bool| {
            asked
                .one_of(name, &[false, true], |on| u8::from(on).to_string(), "switch: it is 0 or 1")
                .unwrap_or(default)
        };
        let (find_unused, static_graph) = (flag("unused", false), flag("static", false));
        let (bucket_view, broadcast_buffers) = (flag("view", false), flag("buffers", true));
        let (last_cap, sync_batch_norm) = (flag("last", false), flag("syncbn", false));
        let (shard_buckets, throw) = (flag("shard", false), flag("throw", false));
        let (feedback, warm) = (flag("feedback", true), flag("warm", true));
        let (local_reduce, init_sync) = (flag("local_reduce", true), flag("init", true));
        let world = "The lab takes 1 to 131,072 ranks: its plan lists them.";
        let batch = "The lab takes 1 to 65,536 samples a rank and pass.";
        let accumulate = "The lab follows 1 to 8 passes a step.";
        let on_devices = "A process has 1 to 16 devices here.";
        let subgroup = "Subgroups have up to as many ranks as there are; 0 takes those of a node.";
        let power =
            PowerSgd { use_error_feedback: feedback, warm_start: warm, ..power_asked(&mut asked) };
        let local_start = asked.number("local_start", (0, MAX_START), LOCAL_START, ITERATIONS);
        let text = |name: &str| -> String {
            route.get(name).unwrap_or_default().trim().chars().take(MAX_TEXT).collect()
        };
        let knobs = Knobs {
            world: asked.number("world", (1, MAX_WORLD.into()), 8, world) as u32,
            device,
            batch: asked.number("batch", (1, MAX_BATCH), 32, batch),
            machine: machine_choice::asked(&mut asked),
            cap: route.get("cap").unwrap_or(DEFAULT_CAP).trim().to_owned(),
            version: version.unwrap_or_default(),
            find_unused,
            static_graph,
            bucket_view,
            broadcast_buffers,
            last_cap,
            hook,
            wrapper,
            power,
            local_start,
            local_reduce,
            init_sync,
            ignore: text("ignore"),
            delay: [text("delay"), text("delay_hook")],
            order: text("order"),
            accumulate: asked.number("accumulate", (1, MAX_ACCUMULATE.into()), 1, accumulate)
                as u32,
            sync_batch_norm,
            zero,
            shard_buckets,
            mixed,
            averager: text("averager"),
            subgroup: asked.number("subgroup", (0, MAX_WORLD.into()), 0, subgroup) as u32,
            join: text("join"),
            throw,
            devices: asked.number("devices", (1, MAX_DEVICES.into()), 1, on_devices) as u32,
            nograd: text("nograd"),
        };
        (knobs, asked.unmet)
    }

    /// The address of the setting, without a prefix.
    pub(super) fn write(&self) -> Route {
        let flag = |on: bool| u8::from(on);
        machine_choice::write(Route::to(View::Ddp), self.machine)
            .with("world", self.world)
            .with("device", &self.device)
            .with("batch", self.batch)
            .with("cap", &self.cap)
            .with("version", self.version.name())
            .with("unused", flag(self.find_unused))
            .with("static", flag(self.static_graph))
            .with("view", flag(self.bucket_view))
            .with("buffers", flag(self.broadcast_buffers))
            .with("last", flag(self.last_cap))
            .with("hook", self.hook)
            .with("wrapper", self.wrapper)
            .with("psgd_rank", self.power.matrix_approximation_rank)
            .with("psgd_start", self.power.start_iter)
            .with("psgd_rate", self.power.min_compression_rate)
            .with("feedback", flag(self.power.use_error_feedback))
            .with("warm", flag(self.power.warm_start))
            .with("local_start", self.local_start)
            .with("local_reduce", flag(self.local_reduce))
            .with("init", flag(self.init_sync))
            .with("ignore", &self.ignore)
            .with("delay", &self.delay[0])
            .with("delay_hook", &self.delay[1])
            .with("order", &self.order)
            .with("accumulate", self.accumulate)
            .with("syncbn", flag(self.sync_batch_norm))
            .with("zero", self.zero)
            .with("mixed", self.mixed[0])
            .with("reduce", self.mixed[1])
            .with("mixed_buffers", self.mixed[2])
            .with("shard", flag(self.shard_buckets))
            .with("averager", &self.averager)
            .with("subgroup", self.subgroup)
            .with("join", &self.join)
            .with("throw", flag(self.throw))
            .with("devices", self.devices)
            .with("nograd", &self.nograd)
    }

    /// Ranks of post-localSGD's subgroups: those of a node, or 8.
    pub(super) fn local_ranks(&self) -> u32 {
        match (self.subgroup, self.machine.ranks_per_node()) {
            (0, 0) => self.world.min(8),
            (0, node) => node.min(self.world),
            (subgroup, _) => subgroup,
        }
    }

    /// `mixed_precision`, if any of its types is chosen.
    fn mixed_precision(&self) -> Option<MixedPrecision> {
        let dtype = |word: &str| match word {
            "float16" => Some(Dtype::Float16),
            "bfloat16" => Some(Dtype::Bfloat16),
            "float32" => Some(Dtype::Float32),
            _ => None,
        };
        let [param_dtype, reduce_dtype, buffer_dtype] = self.mixed.map(dtype);
        let mixed = MixedPrecision { param_dtype, reduce_dtype, buffer_dtype };
        (mixed != MixedPrecision::default()).then_some(mixed)
    }

    /// The averager that was typed.
    pub(super) fn averager(&self) -> Result<Option<ModelAverager>, String> {
        match self.averager.as_str() {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|error| format!("The averager {error}.")),
        }
    }

    /// The uneven inputs that were typed.
    pub(super) fn uneven(&self) -> Result<Option<Uneven>, String> {
        if self.join.is_empty() {
            return Ok(None);
        }
        let inputs = self.join.split(',').map(|part| {
            let part = part.trim();
            let inputs = part.parse::<u32>().ok().filter(|inputs| *inputs <= 100);
            inputs.ok_or_else(|| {
                format!(
                    "“{part}” is no number of inputs: write 0 to 100 for each rank, as in 5,3,4; \
                     the last holds for all ranks that follow"
                )
            })
        });
        let inputs: Vec<u32> = inputs.collect::<Result<_, _>>()?;
        if inputs.iter().take(self.world as usize).all(|inputs| *inputs == 0) {
            return Err("No rank has an input: there is nothing to train on.".to_owned());
        }
        let options =
            JoinOptions { throw_on_early_termination: self.throw, ..JoinOptions::default() };
        Ok(Some(Uneven { inputs, options }))
    }

    fn zero_overlap(&self) -> Option<ZeroOverlap> {
        let interleaved = self.zero == "interleaved";
        (interleaved || self.zero == "overlap").then_some(ZeroOverlap {
            interleaved,
            shard_buckets: self.shard_buckets,
            world_size: self.world,
        })
    }

    /// The cap that was typed.
    pub(super) fn cap(&self) -> Result<BucketCap, String> {
        let typed = self.cap.as_str();
        if typed.is_empty() || typed.eq_ignore_ascii_case(DEFAULT_CAP) {
            return Ok(BucketCap::Default);
        }
        let numbers = typed.split(',').map(|part| {
            let part = part.trim();
            part.parse::<f64>().map_err(|_| format!("“{part}” is no number of MiB"))
        });
        let numbers: Vec<f64> = numbers.collect::<Result<_, _>>()?;
        let cap = match numbers[..] {
            [mb] => BucketCap::from_mb(mb),
            _ if self.version != DdpVersion::V2_15 => {
                return Err("A list of caps is bucket_cap_mb_list of PyTorch 2.15: choose that \
                            version."
                    .to_owned());
            }
            _ => BucketCap::from_mb_list(&numbers),
        };
        cap.map_err(|error| error.to_string())
    }

    fn hook(&self) -> Option<CommHook> {
        let algorithm = match self.hook {
            "fp16" => return Some(CommHook::compress(Dtype::Float16)),
            "bf16" => return Some(CommHook::compress(Dtype::Bfloat16)),
            "allreduce" => HookAlgorithm::AllReduce,
            "powersgd" => HookAlgorithm::PowerSgd(self.power),
            "batched" => HookAlgorithm::BatchedPowerSgd(self.power),
            "pertensor" => HookAlgorithm::QuantizationPerTensor,
            "perchannel" => HookAlgorithm::QuantizationPerChannel,
            "localsgd" => HookAlgorithm::PostLocalSgd(PostLocalSgd {
                start_iter: self.local_start,
                subgroup: self.local_ranks(),
                post_local_gradient_allreduce: self.local_reduce,
            }),
            "noop" => HookAlgorithm::Noop,
            _ => return None,
        };
        let compress = match self.wrapper {
            "float16" => Some(Dtype::Float16),
            "bfloat16" => Some(Dtype::Bfloat16),
            _ => None,
        };
        Some(match compress {
            Some(dtype) => CommHook::wrapping(dtype, algorithm),
            None => CommHook::new(algorithm),
        })
    }

    /// True if there is anything of a hook's state to choose.
    pub(super) fn hook_has_state(&self) -> bool {
        !matches!(self.hook, "none" | "fp16" | "bf16" | "noop")
    }

    /// The ready order that was typed.
    pub(super) fn order(&self) -> Result<Option<Vec<u32>>, String> {
        if self.order.is_empty() {
            return Ok(None);
        }
        let order = parse_indices(&self.order);
        order.map(Some).map_err(|error| format!("The order of gradients: {error}."))
    }

    /// `delay_all_reduce_named_params` and `param_to_hook_all_reduce`.
    fn delayed(&self) -> (Option<Vec<String>>, Option<String>) {
        let (named, hooked) = (names(&self.delay[0]), self.delay[1].trim());
        ((!named.is_empty()).then_some(named), (!hooked.is_empty()).then(|| hooked.to_owned()))
    }

    /// The setting for DDP, on its machine.
    pub(super) fn placed(&self) -> Result<PlacedSetting, String> {
        Ok(PlacedSetting { setting: self.setting()?, machine: self.machine })
    }

    /// The setting for DDP.
    pub(super) fn setting(&self) -> Result<Setting, String> {
        let device = Device::named(&self.device).ok_or("there is no such device")?;
        let zero_overlap = self.zero_overlap();
        let (delay_all_reduce_named_params, param_to_hook_all_reduce) = self.delayed();
        // The overlap wraps a hook.
        let wrapped = zero_overlap.map(|_| CommHook::new(HookAlgorithm::AllReduce));
        let options = DdpOptions {
            bucket_cap: self.cap()?,
            find_unused_parameters: self.find_unused,
            static_graph: self.static_graph,
            gradient_as_bucket_view: self.bucket_view,
            broadcast_buffers: self.broadcast_buffers,
            init_sync: self.init_sync,
            ignored: names(&self.ignore),
            delay_all_reduce_named_params,
            param_to_hook_all_reduce,
            set_last_bucket_cap: self.last_cap,
            version: self.version,
            comm_hook: self.hook().or(wrapped),
            mixed_precision: self.mixed_precision(),
            zero_overlap,
            ..DdpOptions::default()
        };
        let training = Training {
            options,
            batch: self.batch,
            accumulate: self.accumulate,
            sync_batch_norm: self.sync_batch_norm,
            zero: match self.zero {
                "each" => Some(false),
                "view" => Some(true),
                _ => None,
            },
            averager: self.averager()?,
            uneven: self.uneven()?,
            devices: self.devices,
            unused: names(&self.nograd),
            grad_ready_order: self.order()?,
            ..Training::new(self.world, device)
        };
        Ok(Setting { training, links: links_of(self.machine) })
    }
}

/// Names between commas or spaces.
fn names(text: &str) -> Vec<String> {
    let names = text.split([',', ' ']).map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
