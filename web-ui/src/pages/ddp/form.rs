//! The form: a model, and the setting that is edited.

use super::choice::{DEFAULT_MLP, FILE, LabChoice, Side};
use super::hooks::{HOOKS, WRAPPERS};
use super::knobs::{
    BUFFER_DTYPES, DEFAULT_CAP, Knobs, MAX_ACCUMULATE, MAX_BATCH, MAX_DEVICES, MAX_RANK, MAX_START,
    MAX_WORLD, PARAM_DTYPES, REDUCE_DTYPES, ZERO,
};
use crate::dom::when;
use crate::pages::machine_fields::MachineFields;
use crate::route::Route;
use crate::ui::{Choice, NumberField, SelectField, TextField};
use lockstep_torch::ddp::DdpVersion;
use lockstep_torch::ddp::model::{Device, known_models};
use lockstep_web_protocol::Machine;
use wasm_bindgen::JsCast;
use web_sys::{Event, HtmlInputElement};
use yew::prelude::*;

/// Caps that people try.
const CAPS: [(&str, &str); 11] = [
    (DEFAULT_CAP, "default: 1, then 25"),
    ("0", "0: a bucket a parameter"),
    ("1", "1 MiB"),
    ("5", "5 MiB"),
    ("10", "10 MiB"),
    ("25", "25 MiB"),
    ("50", "50 MiB"),
    ("100", "100 MiB"),
    ("400", "400 MiB"),
    ("1000000", "one bucket"),
    ("-1", "-1"),
];

/// The device of a cluster that is named after its card.
fn device_of(machine: Machine) -> Option<Device> {
    let Machine::Cluster { name, .. } = machine else { return None };
    let name = name.to_string().to_lowercase();
    Device::known().into_iter().find(|device| name.contains(&device.name.to_lowercase()))
}

/// The choice, and what hears of another one.
pub(super) struct LabForm {
    pub(super) choice: LabChoice,
    /// The name of the file that was read.
    pub(super) file: Option<String>,
    pub(super) on_choose: Callback<LabChoice>,
    /// A file was picked.
    pub(super) on_pick: Callback<Event>,
}

/// The fields of the edited setting: each writes its word into the address.
struct Fields<'a> {
    choice: &'a LabChoice,
    knobs: &'a Knobs,
    on_choose: &'a Callback<LabChoice>,
}

/// The choices that a list of words and labels makes.
fn labelled<const N: usize>(words: [(&str, &str); N]) -> Vec<Choice> {
    words.map(|(word, label)| Choice::new(word, label)).to_vec()
}

impl Fields<'_> {
    /// Sets one word of the address.
    fn set(&self, name: &'static str) -> Callback<String> {
        let (choice, plain) = (self.choice.clone(), self.knobs.write());
        self.on_choose
            .reform(move |value: String| choice.with(Knobs::read(&plain.clone().with(name, value))))
    }

    fn number(
        &self,
        name: &'static str,
        label: &'static str,
        value: u64,
        from: u64,
        to: u64,
    ) -> Html {
        let on_choose = self.set(name).reform(|value: u64| value.to_string());
        html! { <NumberField {name} {label} {value} min={from} max={to} {on_choose} /> }
    }

    fn text(
        &self,
        name: &'static str,
        label: &'static str,
        value: &str,
        wrong: Option<String>,
    ) -> Html {
        html! { <TextField {name} {label} value={value.to_owned()} {wrong} on_choose={self.set(name)} /> }
    }

    fn select(
        &self,
        name: &'static str,
        label: &'static str,
        value: &str,
        choices: Vec<Choice>,
    ) -> Html {
        html! { <SelectField {name} {label} value={value.to_owned()} {choices} on_choose={self.set(name)} /> }
    }

    /// A choice of values that people try, beside a field that takes any.
    fn known(
        &self,
        name: &'static str,
        field: &'static str,
        label: &'static str,
        value: &str,
        choices: Vec<Choice>,
    ) -> Html {
        html! { <SelectField {name} {label} value={value.to_owned()} {choices} on_choose={self.set(field)} /> }
    }

    fn flag(&self, name: &'static str, label: &'static str, on: bool) -> Html {
        let chosen = self.set(name).reform(|on: bool| u8::from(on).to_string());
        let onchange = when(&chosen, |event: Event| {
            let input: HtmlInputElement = event.target()?.dyn_into().ok()?;
            Some(input.checked())
        });
        html! {
            <label class="check"><input type="checkbox" checked={on} {onchange} data-test={format!("choose-{name}")} />
                <span class="mono">{ label }</span></label>
        }
    }

    /// The machine and its card.
    fn machine(&self) -> Html {
        let (choice, before) = (self.choice.clone(), self.knobs.machine);
        let on_route = self.on_choose.reform(move |route: Route| {
            let mut knobs = Knobs::read(&route);
            // Another cluster has other cards.
            if let Some(device) = device_of(knobs.machine).filter(|_| knobs.machine != before) {
                knobs.device = device.name;
            }
            choice.with(knobs)
        });
        let knobs = self.knobs;
        let devices =
            Device::known().into_iter().map(|device| Choice::word(&device.name)).collect();
        html! {
            <>
            <MachineFields machine={knobs.machine} route={knobs.write()} world_size={knobs.world} {on_route} />
            { self.select("device", "Device (40 % of its peak)", &knobs.device, devices) }
            { self.number("batch", "Samples a rank and pass", knobs.batch, 1, MAX_BATCH) }
            </>
        }
    }

    /// The arguments of DistributedDataParallel itself.
    fn arguments(&self) -> Html {
        let knobs = self.knobs;
        let mut caps = labelled(CAPS);
        if !CAPS.iter().any(|(cap, _)| *cap == knobs.cap) {
            caps.insert(0, Choice::new(&knobs.cap, "as typed"));
        }
        html! {
            <>
            { self.known("known-cap", "cap", "bucket_cap_mb", &knobs.cap, caps) }
            { self.text("cap", "bucket_cap_mb, as typed (MiB)", &knobs.cap, knobs.cap().err()) }
            <div class="checks">
                { self.flag("unused", "find_unused_parameters", knobs.find_unused) }
                { self.flag("static", "static_graph", knobs.static_graph) }
                { self.flag("view", "gradient_as_bucket_view", knobs.bucket_view) }
                { self.flag("buffers", "broadcast_buffers", knobs.broadcast_buffers) }
                { self.flag("last", "DDP_SET_LAST_BUCKET_CAP", knobs.last_cap) }
                { self.flag("syncbn", "SyncBatchNorm", knobs.sync_batch_norm) }
            </div>
            { self.select("hook", "Communication hook", knobs.hook, labelled(HOOKS)) }
            { self.number("accumulate", "Passes a step (all but the last in no_sync)", knobs.accumulate.into(), 1, MAX_ACCUMULATE.into()) }
            if knobs.hook_has_state() { { self.hook_state() } }
            </>
        }
    }

    /// The state of a communication hook that has one.
    fn hook_state(&self) -> Html {
        let knobs = self.knobs;
        let power = matches!(knobs.hook, "powersgd" | "batched");
        let local = knobs.hook == "localsgd";
        html! {
            <details class="links around" open={power || local} data-test="hook-state">
                <summary>{ "The hook's state" }</summary>
                <div>
                if power {
                    { self.number("psgd_start", "start_powerSGD_iter", knobs.power.start_iter, 0, MAX_START) }
                    { self.number("psgd_rank", "matrix_approximation_rank", knobs.power.matrix_approximation_rank, 1, MAX_RANK) }
                    <div class="checks">
                        { self.flag("feedback", "use_error_feedback", knobs.power.use_error_feedback) }
                        { self.flag("warm", "warm_start", knobs.power.warm_start) }
                    </div>
                    { self.text("psgd_rate", "min_compression_rate", &knobs.power.min_compression_rate.to_string(), None) }
                }
                if local {
                    { self.number("local_start", "start_localSGD_iter", knobs.local_start, 0, MAX_START) }
                    { self.number("subgroup", "Ranks of its subgroup (0: a node's)", knobs.subgroup.into(), 0, MAX_WORLD.into()) }
                    <div class="checks">{ self.flag("local_reduce", "post_local_gradient_allreduce", knobs.local_reduce) }</div>
                }
                { self.select("wrapper", "Wrapped in", knobs.wrapper, labelled(WRAPPERS)) }
                </div>
            </details>
        }
    }

    /// The fields that few need, folded: mixed precision, uneven inputs, averaging, and the order of
    /// gradients.
    fn around(&self) -> Html {
        let knobs = self.knobs;
        let set = around_words(knobs);
        let dtypes =
            |words: &[&str]| words.iter().map(|word| Choice::word(word)).collect::<Vec<_>>();
        let [param, reduce, buffers] = knobs.mixed;
        let [delayed, delay_hook] = &knobs.delay;
        html! {
            <details class="links around" open={!set.is_empty()} data-test="around">
                <summary>{ "Around it: " }{ if set.is_empty() { "mixed precision, join, averaging, …".to_owned() } else { set } }</summary>
                <div>
                    { self.select("mixed", "mixed_precision: param_dtype", param, dtypes(&PARAM_DTYPES)) }
                    { self.select("reduce", "reduce_dtype", reduce, dtypes(&REDUCE_DTYPES)) }
                    { self.select("mixed_buffers", "buffer_dtype", buffers, dtypes(&BUFFER_DTYPES)) }
                    { self.text("join", "Uneven inputs, by rank: join()", &knobs.join, knobs.uneven().err()) }
                    <div class="checks">{ self.flag("throw", "throw_on_early_termination", knobs.throw) }</div>
                    { self.known("known-averager", "averager", "Model averager", &knobs.averager, averagers(knobs)) }
                    { self.text("averager", "Averager, as typed", &knobs.averager, knobs.averager().err()) }
                    <div class="checks">{ self.flag("init", "init_sync", knobs.init_sync) }</div>
                    { self.text("ignore", "Parameters and buffers that DDP ignores", &knobs.ignore, None) }
                    { self.text("delay", "delay_all_reduce_named_params", delayed, None) }
                    { self.text("delay_hook", "param_to_hook_all_reduce", delay_hook, None) }
                    { self.text("order", "Order of gradients: 13-11,4", &knobs.order, knobs.order().err()) }
                    { self.text("nograd", "No gradient for (parameters, modules)", &knobs.nograd, None) }
                    { self.devices() }
                </div>
            </details>
        }
    }

    /// The devices of a process: replicas are of the 1.x source alone.
    fn devices(&self) -> Html {
        let (choice, plain) = (self.choice.clone(), self.knobs.write());
        let on_choose = self.on_choose.reform(move |devices: u64| {
            let mut route = plain.clone().with("devices", devices);
            if devices > 1 {
                route = route.with("version", DdpVersion::V1.name());
            }
            choice.with(Knobs::read(&route))
        });
        html! {
            <NumberField name="devices" label="Devices a process (replicas, 1.x)" value={u64::from(self.knobs.devices)} min={1}
                         max={u64::from(MAX_DEVICES)} {on_choose} />
        }
    }
}

/// The model: one that ships, an MLP by its sizes, or one from a file.
fn model_fields(props: &LabForm) -> Html {
    let choice = &props.choice;
    let on_model = {
        let choice = choice.clone();
        props.on_choose.reform(move |model: String| {
            let model = if model == "mlp" { DEFAULT_MLP.to_owned() } else { model };
            LabChoice { model, param: None, pass: None, ..choice.clone() }
        })
    };
    let on_sizes = {
        let choice = choice.clone();
        props.on_choose.reform(move |sizes: String| LabChoice {
            model: format!("mlp:{}", sizes.trim()),
            param: None,
            ..choice.clone()
        })
    };
    let mut models: Vec<Choice> =
        known_models().iter().map(|name| Choice::word(name).under("models that ship")).collect();
    models.push(Choice::new("mlp", "an MLP of your own").under("yours"));
    if let Some(name) = props.file.as_ref().or((choice.model == FILE).then_some(&choice.model)) {
        models.push(Choice::new(FILE, &format!("{name} (from a file)")).under("yours"));
    }
    let mlp = choice.model.strip_prefix("mlp:");
    let shown = if mlp.is_some() { "mlp" } else { choice.model.as_str() };
    html! {
        <>
        <SelectField name="model" label="Model" value={shown.to_owned()} choices={models} on_choose={on_model} />
        if let Some(mlp) = mlp {
            <TextField name="sizes" label="Layer sizes" value={mlp.to_owned()} on_choose={on_sizes} />
        }
        <label class="button quiet pick">{ "or drop a model file (JSON, CSV)…" }
            <input class="hidden" type="file" accept=".json,.csv,.txt" onchange={props.on_pick.clone()} data-test="pick-model" /></label>
        </>
    }
}

/// The form that changes the choice.
pub(super) fn lab_form(props: &LabForm) -> Html {
    let choice = &props.choice;
    let knobs = choice.edited();
    let fields = Fields { choice, knobs, on_choose: &props.on_choose };
    let versions = DdpVersion::ALL.map(|version| Choice::word(version.name())).to_vec();
    html! {
        <form class="choice" onsubmit={Callback::from(|event: SubmitEvent| event.prevent_default())} aria-label="Which model and setting">
            { model_fields(props) }
            { sides(choice, &props.on_choose) }
            { fields.number("world", "World size", knobs.world.into(), 1, MAX_WORLD.into()) }
            { fields.machine() }
            <h2 class="part">{ "DistributedDataParallel(…)" }</h2>
            { fields.arguments() }
            { fields.select("zero", "ZeroRedundancyOptimizer", knobs.zero, labelled(ZERO)) }
            if matches!(knobs.zero, "overlap" | "interleaved") {
                <div class="checks">{ fields.flag("shard", "shard_buckets", knobs.shard_buckets) }</div>
            }
            { fields.select("version", "PyTorch", knobs.version.name(), versions) }
            { fields.around() }
        </form>
    }
}

/// The folded fields that are set, in a few words.
fn around_words(knobs: &Knobs) -> String {
    let [param, reduce, buffers] = knobs.mixed;
    let mixed = (param, reduce, buffers) != (PARAM_DTYPES[0], REDUCE_DTYPES[0], BUFFER_DTYPES[0]);
    let all = [
        (mixed, "mixed precision"),
        (!knobs.join.is_empty(), "join"),
        (!knobs.averager.is_empty(), "averaging"),
        (!knobs.nograd.is_empty(), "no gradient"),
        (knobs.devices > 1, "replicas"),
        (!knobs.init_sync, "no init_sync"),
        (!knobs.ignore.is_empty(), "ignored"),
        (knobs.delay.iter().any(|text| !text.is_empty()), "delayed"),
        (!knobs.order.is_empty(), "an order"),
    ];
    let set = all.iter().filter(|(on, _)| *on).map(|(_, words)| *words);
    set.collect::<Vec<_>>().join(", ")
}

/// Averagers that people try, for so many ranks.
fn averagers(knobs: &Knobs) -> Vec<Choice> {
    let (world, local) = (knobs.world, knobs.local_ranks());
    let hierarchical = format!("hierarchical:2={local},4={world}:0");
    let mut all = vec![
        Choice::new("", "no"),
        Choice::new("periodic:4:0", "PeriodicModelAverager(period=4)"),
        Choice::new(
            &hierarchical,
            &format!("HierarchicalModelAverager({{2: {local}, 4: {world}}})"),
        ),
    ];
    if !all.iter().any(|known| known.value == knobs.averager) {
        all.insert(0, Choice::new(&knobs.averager, "as typed"));
    }
    all
}

/// The one of the two settings that the form changes.
fn sides(choice: &LabChoice, on_choose: &Callback<LabChoice>) -> Html {
    let go = |next: LabChoice| on_choose.reform(move |_: MouseEvent| next.clone());
    let Some(b) = &choice.b else {
        let with_b = LabChoice {
            b: Some(choice.a.clone()),
            edits: Side::B,
            tab: super::choice::Tab::Changes,
            ..choice.clone()
        };
        return html! {
            <button type="button" onclick={go(with_b)} data-test="compare">{ "Compare with another setting" }</button>
        };
    };
    let edit = |side: Side| go(LabChoice { edits: side, ..choice.clone() });
    let pressed = |side: Side| (choice.edits == side).to_string();
    let alone = LabChoice { b: None, edits: Side::A, ..choice.clone() };
    let other = LabChoice { a: b.clone(), b: Some(choice.a.clone()), ..choice.clone() };
    html! {
        <div class="sides" role="group" aria-label="The setting that the fields below change">
            <button type="button" aria-pressed={pressed(Side::A)} onclick={edit(Side::A)} data-test="edit-a">{ "A" }</button>
            <button type="button" aria-pressed={pressed(Side::B)} onclick={edit(Side::B)} data-test="edit-b">{ "B" }</button>
            <button type="button" class="quiet" onclick={go(other)} title="A becomes B, B becomes A" data-test="swap">{ "⇄" }</button>
            <button type="button" class="quiet" onclick={go(alone)} data-test="compare-end">{ "A alone" }</button>
        </div>
    }
}
