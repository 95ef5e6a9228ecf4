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

/// Properties of [`LabForm`].
#[derive(Properties, PartialEq)]
pub(super) struct LabFormProps {
    pub(super) choice: LabChoice,
    /// The name of the file that was read.
    pub(super) file: Option<String>,
    pub(super) on_choose: Callback<LabChoice>,
    /// A file was picked.
    pub(super) on_pick: Callback<Event>,
}

/// The form that changes the choice.
#[component(LabForm)]
pub(super) fn lab_form(props: &LabFormProps) -> Html {
    let choice = &props.choice;
    let knobs = choice.edited();
    // Every field writes its word into the address of the edited setting.
    let set = |name: &'static str| {
        let (choice, plain) = (choice.clone(), knobs.write());
        props
            .on_choose
            .reform(move |value: String| choice.with(Knobs::read(&plain.clone().with(name, value))))
    };
    let number = |name: &'static str| set(name).reform(|value: u64| value.to_string());
    let model = {
        let choice = choice.clone();
        props.on_choose.reform(move |model: String| {
            let model = if model == "mlp" { DEFAULT_MLP.to_owned() } else { model };
            LabChoice { model, param: None, pass: None, ..choice.clone() }
        })
    };
    let sizes = {
        let choice = choice.clone();
        props.on_choose.reform(move |sizes: String| LabChoice {
            model: format!("mlp:{}", sizes.trim()),
            param: None,
            ..choice.clone()
        })
    };
    let machine = {
        let choice = choice.clone();
        let before = knobs.machine;
        props.on_choose.reform(move |route: Route| {
            let mut knobs = Knobs::read(&route);
            // Another cluster has other cards.
            if let Some(device) = device_of(knobs.machine).filter(|_| knobs.machine != before) {
                knobs.device = device.name;
            }
            choice.with(knobs)
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
    let devices =
        Device::known().into_iter().map(|device| Choice::word(&device.name)).collect::<Vec<_>>();
    let mut caps: Vec<Choice> = CAPS.iter().map(|(cap, label)| Choice::new(cap, label)).collect();
    if !CAPS.iter().any(|(cap, _)| *cap == knobs.cap) {
        caps.insert(0, Choice::new(&knobs.cap, "as typed"));
    }
    let versions = DdpVersion::ALL.map(|version| Choice::word(version.name())).to_vec();
    let hooks = HOOKS.map(|(word, label)| Choice::new(word, label)).to_vec();
    let wrappers = WRAPPERS.map(|(word, label)| Choice::new(word, label)).to_vec();
    let power = matches!(knobs.hook, "powersgd" | "batched");
    let zero = ZERO.map(|(word, label)| Choice::new(word, label)).to_vec();
    let dtypes = |words: &[&str]| words.iter().map(|word| Choice::word(word)).collect::<Vec<_>>();
    let mixed = knobs.mixed;
    let overlaps = matches!(knobs.zero, "overlap" | "interleaved");
    let around = around_words(knobs);
    let averagers = averagers(knobs);
    // Replicas are of the 1.x source alone.
    let replicate = {
        let (choice, plain) = (choice.clone(), knobs.write());
        props.on_choose.reform(move |devices: u64| {
            let mut route = plain.clone().with("devices", devices);
            if devices > 1 {
                route = route.with("version", DdpVersion::V1.name());
            }
            choice.with(Knobs::read(&route))
        })
    };
    let flag = |name: &'static str, label: &'static str, on: bool| {
        let chosen = set(name).reform(|on: bool| u8::from(on).to_string());
        let onchange = when(&chosen, |event: Event| {
            let input: HtmlInputElement = event.target()?.dyn_into().ok()?;
            Some(input.checked())
        });
        html! {
            <label class="check"><input type="checkbox" checked={on} {onchange} data-test={format!("choose-{name}")} />
                <span class="mono">{ label }</span></label>
        }
    };
    html! {
        <form class="choice" onsubmit={Callback::from(|event: SubmitEvent| event.prevent_default())} aria-label="Which model and setting">
            <SelectField name="model" label="Model" value={shown.to_owned()} choices={models} on_choose={model} />
            if let Some(mlp) = mlp {
                <TextField name="sizes" label="Layer sizes" value={mlp.to_owned()} on_choose={sizes} />
            }
            <label class="button quiet pick">{ "or drop a model file (JSON, CSV)…" }
                <input class="hidden" type="file" accept=".json,.csv,.txt" onchange={props.on_pick.clone()} data-test="pick-model" /></label>
            { sides(choice, &props.on_choose) }
            <NumberField name="world" label="World size" value={u64::from(knobs.world)} min={1} max={u64::from(MAX_WORLD)} on_choose={number("world")} />
            <MachineFields machine={knobs.machine} route={knobs.write()} world_size={knobs.world} on_route={machine} />
            <SelectField name="device" label="Device (40 % of its peak)" value={knobs.device.clone()} choices={devices} on_choose={set("device")} />
            <NumberField name="batch" label="Samples a rank and pass" value={knobs.batch} min={1} max={MAX_BATCH} on_choose={number("batch")} />
            <h2 class="part">{ "DistributedDataParallel(…)" }</h2>
            <SelectField name="known-cap" label="bucket_cap_mb" value={knobs.cap.clone()} choices={caps} on_choose={set("cap")} />
            <TextField name="cap" label="bucket_cap_mb, as typed (MiB)" value={knobs.cap.clone()} wrong={knobs.cap().err()} on_choose={set("cap")} />
            <div class="checks">
                { flag("unused", "find_unused_parameters", knobs.find_unused) }
                { flag("static", "static_graph", knobs.static_graph) }
                { flag("view", "gradient_as_bucket_view", knobs.bucket_view) }
                { flag("buffers", "broadcast_buffers", knobs.broadcast_buffers) }
                { flag("last", "DDP_SET_LAST_BUCKET_CAP", knobs.last_cap) }
                { flag("syncbn", "SyncBatchNorm", knobs.sync_batch_norm) }
            </div>
            <SelectField name="hook" label="Communication hook" value={knobs.hook} choices={hooks} on_choose={set("hook")} />
            <NumberField name="accumulate" label="Passes a step (all but the last in no_sync)" value={u64::from(knobs.accumulate)} min={1} max={u64::from(MAX_ACCUMULATE)} on_choose={number("accumulate")} />
            if knobs.hook_has_state() {
                <details class="links around" open={power || knobs.hook == "localsgd"} data-test="hook-state">
                    <summary>{ "The hook's state" }</summary>
                    <div>
                    if power {
                        <NumberField name="psgd_start" label="start_powerSGD_iter" value={knobs.power.start_iter} min={0} max={MAX_START} on_choose={number("psgd_start")} />
                        <NumberField name="psgd_rank" label="matrix_approximation_rank" value={knobs.power.matrix_approximation_rank} min={1} max={MAX_RANK} on_choose={number("psgd_rank")} />
                        <div class="checks">
                            { flag("feedback", "use_error_feedback", knobs.power.use_error_feedback) }
                            { flag("warm", "warm_start", knobs.power.warm_start) }
                        </div>
                        <TextField name="psgd_rate" label="min_compression_rate" value={knobs.power.min_compression_rate.to_string()} on_choose={set("psgd_rate")} />
                    }
                    if knobs.hook == "localsgd" {
                        <NumberField name="local_start" label="start_localSGD_iter" value={knobs.local_start} min={0} max={MAX_START} on_choose={number("local_start")} />
                        <NumberField name="subgroup" label="Ranks of its subgroup (0: a node's)" value={u64::from(knobs.subgroup)} min={0} max={u64::from(MAX_WORLD)} on_choose={number("subgroup")} />
                        <div class="checks">{ flag("local_reduce", "post_local_gradient_allreduce", knobs.local_reduce) }</div>
                    }
                    <SelectField name="wrapper" label="Wrapped in" value={knobs.wrapper} choices={wrappers} on_choose={set("wrapper")} />
                    </div>
                </details>
            }
            <SelectField name="zero" label="ZeroRedundancyOptimizer" value={knobs.zero} choices={zero} on_choose={set("zero")} />
            if overlaps {
                <div class="checks">{ flag("shard", "shard_buckets", knobs.shard_buckets) }</div>
            }
            <SelectField name="version" label="PyTorch" value={knobs.version.name()} choices={versions} on_choose={set("version")} />
            <details class="links around" open={!around.is_empty()} data-test="around">
                <summary>{ "Around it: " }{ if around.is_empty() { "mixed precision, join, averaging, …".to_owned() } else { around } }</summary>
                <div>
                    <SelectField name="mixed" label="mixed_precision: param_dtype" value={mixed[0]} choices={dtypes(&PARAM_DTYPES)} on_choose={set("mixed")} />
                    <SelectField name="reduce" label="reduce_dtype" value={mixed[1]} choices={dtypes(&REDUCE_DTYPES)} on_choose={set("reduce")} />
                    <SelectField name="mixed_buffers" label="buffer_dtype" value={mixed[2]} choices={dtypes(&BUFFER_DTYPES)} on_choose={set("mixed_buffers")} />
                    <TextField name="join" label="Uneven inputs, by rank: join()" value={knobs.join.clone()} wrong={knobs.uneven().err()} on_choose={set("join")} />
                    <div class="checks">{ flag("throw", "throw_on_early_termination", knobs.throw) }</div>
                    <SelectField name="known-averager" label="Model averager" value={knobs.averager.clone()} choices={averagers} on_choose={set("averager")} />
                    <TextField name="averager" label="Averager, as typed" value={knobs.averager.clone()} wrong={knobs.averager().err()} on_choose={set("averager")} />
                    <div class="checks">{ flag("init", "init_sync", knobs.init_sync) }</div>
                    <TextField name="ignore" label="Parameters and buffers that DDP ignores" value={knobs.ignore.clone()} on_choose={set("ignore")} />
                    <TextField name="delay" label="delay_all_reduce_named_params" value={knobs.delay[0].clone()} on_choose={set("delay")} />
                    <TextField name="delay_hook" label="param_to_hook_all_reduce" value={knobs.delay[1].clone()} on_choose={set("delay_hook")} />
                    <TextField name="order" label="Order of gradients: 13-11,4" value={knobs.order.clone()} wrong={knobs.order().err()} on_choose={set("order")} />
                    <TextField name="nograd" label="No gradient for (parameters, modules)" value={knobs.nograd.clone()} on_choose={set("nograd")} />
                    <NumberField name="devices" label="Devices a process (replicas, 1.x)" value={u64::from(knobs.devices)} min={1} max={u64::from(MAX_DEVICES)} on_choose={replicate} />
                </div>
            </details>
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

/// Which of the two settings the form changes.
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
