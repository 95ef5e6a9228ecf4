//! One setting of the lab as an address holds it, and what it means to DDP.

use crate::pages::topology_choice;
use crate::route::{Route, View};
use lockstep_core::ddp::lab::Setting;
use lockstep_core::ddp::model::Device;
use lockstep_core::ddp::plan::Training;
use lockstep_core::ddp::timeline::RingLink;
use lockstep_core::ddp::{
    BucketCap, CommHook, DdpOptions, DdpVersion, HookAlgorithm, Links, PostLocalSgd, PowerSgd,
};
use lockstep_core::dtype::Dtype;
use lockstep_sim::{Link, Topology};

/// The largest world: the plan lists its ranks.
pub(super) const MAX_WORLD: u32 = 1 << 17;
/// The most passes that accumulate.
pub(super) const MAX_ACCUMULATE: u32 = 8;
/// The most samples a rank and pass.
pub(super) const MAX_BATCH: u64 = 1 << 16;
/// The cap when none is given, as an address writes it.
pub(super) const DEFAULT_CAP: &str = "default";

/// Communication hooks: the word in the address, and what it is.
pub(super) const HOOKS: [(&str, &str); 9] = [
    ("none", "none"),
    ("fp16", "fp16_compress_hook"),
    ("bf16", "bf16_compress_hook"),
    ("powersgd", "powerSGD_hook (rank 1)"),
    ("batched", "batched_powerSGD_hook (rank 1)"),
    ("pertensor", "quantization_pertensor_hook"),
    ("perchannel", "quantization_perchannel_hook"),
    ("localsgd", "post_localSGD_hook (nodes of 8)"),
    ("noop", "noop_hook"),
];

/// One setting, as it is chosen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Knobs {
    pub(super) world: u32,
    pub(super) device: String,
    pub(super) batch: u64,
    pub(super) topology: Topology,
    /// As it was typed.
    pub(super) cap: String,
    pub(super) version: DdpVersion,
    pub(super) find_unused: bool,
    pub(super) static_graph: bool,
    pub(super) bucket_view: bool,
    pub(super) broadcast_buffers: bool,
    pub(super) last_cap: bool,
    pub(super) hook: &'static str,
    pub(super) accumulate: u32,
    pub(super) sync_batch_norm: bool,
    /// `no`, `each` or `view`.
    pub(super) zero: &'static str,
}

fn one_of(route: &Route, name: &str, words: &[&'static str]) -> &'static str {
    let wanted = route.get(name);
    words.iter().copied().find(|word| Some(*word) == wanted).unwrap_or(words[0])
}

impl Knobs {
    /// The words in an address; what it does not say, or says wrongly, is the default.
    pub(super) fn read(route: &Route) -> Knobs {
        let flag = |name: &str, default: bool| match route.get(name) {
            Some("1") => true,
            Some("0") => false,
            _ => default,
        };
        let version = route.get("version");
        let version = DdpVersion::ALL.into_iter().find(|of| Some(of.name()) == version);
        let device = Device::named(route.get("device").unwrap_or("A100"));
        let hooks = HOOKS.map(|(word, _)| word);
        Knobs {
            world: route.number("world").unwrap_or(8u64).clamp(1, MAX_WORLD.into()) as u32,
            device: device.map_or_else(|| "A100".to_owned(), |device| device.name),
            batch: route.number("batch").unwrap_or(32u64).clamp(1, MAX_BATCH),
            topology: topology_choice::read(route),
            cap: route.get("cap").unwrap_or(DEFAULT_CAP).trim().to_owned(),
            version: version.unwrap_or_default(),
            find_unused: flag("unused", false),
            static_graph: flag("static", false),
            bucket_view: flag("view", false),
            broadcast_buffers: flag("buffers", true),
            last_cap: flag("last", false),
            hook: one_of(route, "hook", &hooks),
            accumulate: route.number("accumulate").unwrap_or(1u64).clamp(1, MAX_ACCUMULATE.into())
                as u32,
            sync_batch_norm: flag("syncbn", false),
            zero: one_of(route, "zero", &["no", "each", "view"]),
        }
    }

    /// The address of the setting, without a prefix.
    pub(super) fn write(&self) -> Route {
        let flag = |on: bool| u8::from(on);
        topology_choice::write(Route::to(View::Ddp), self.topology)
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
            .with("accumulate", self.accumulate)
            .with("syncbn", flag(self.sync_batch_norm))
            .with("zero", self.zero)
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
        // The start iterations are PyTorch's thousands of steps in; the lab shows what comes then.
        let state = PowerSgd {
            start_iter: 0,
            use_error_feedback: false,
            warm_start: false,
            ..PowerSgd::default()
        };
        Some(match self.hook {
            "fp16" => CommHook::compress(Dtype::Float16),
            "bf16" => CommHook::compress(Dtype::Bfloat16),
            "powersgd" => CommHook::new(HookAlgorithm::PowerSgd(state)),
            "batched" => CommHook::new(HookAlgorithm::BatchedPowerSgd(state)),
            "pertensor" => CommHook::new(HookAlgorithm::QuantizationPerTensor),
            "perchannel" => CommHook::new(HookAlgorithm::QuantizationPerChannel),
            "localsgd" => CommHook::new(HookAlgorithm::PostLocalSgd(PostLocalSgd {
                start_iter: 0,
                subgroup: 8,
                post_local_gradient_allreduce: true,
            })),
            "noop" => CommHook::new(HookAlgorithm::Noop),
            _ => return None,
        })
    }

    /// What it means to DDP.
    pub(super) fn setting(&self) -> Result<Setting, String> {
        let device = Device::named(&self.device).ok_or("there is no such device")?;
        let options = DdpOptions {
            bucket_cap: self.cap()?,
            find_unused_parameters: self.find_unused,
            static_graph: self.static_graph,
            gradient_as_bucket_view: self.bucket_view,
            broadcast_buffers: self.broadcast_buffers,
            set_last_bucket_cap: self.last_cap,
            version: self.version,
            comm_hook: self.hook(),
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
            ..Training::new(self.world, device)
        };
        Ok(Setting { training, links: links(self.topology) })
    }
}

/// The topology as the closed form takes it.
fn links(topology: Topology) -> Links {
    let link = |link: Link| RingLink {
        latency_ps: link.latency_ps,
        bytes_per_second: link.bytes_per_second,
    };
    match topology {
        Topology::Uniform(of) => Links::Uniform(link(of)),
        Topology::Nodes { ranks_per_node, inside, across } => {
            Links::Nodes { ranks_per_node, inside: link(inside), across: link(across) }
        }
    }
}
