//! The output of `lockstep ddp` for people.

use super::answer::{Answer, Missing, RaisedInStep, Simulated};
use crate::commands::describe_ps;
use lockstep_core::trace::Outcome;
use lockstep_core::words::counted;
use lockstep_torch::ddp::join::JoinedRank;
use lockstep_torch::ddp::lab::{Best, SweepPoint};
use lockstep_torch::ddp::model::Model;
use lockstep_torch::ddp::replicas::{DeviceCopy, Replicas};
use lockstep_torch::ddp::{
    AfterSteps, DdpCall, DdpOptions, DdpReport, Half, Phase, format_indices,
};

/// Collectives of a phase that the text names; `--json` has all.
const MAX_CALLS: usize = 5;

/// Averaged steps that the text names.
const MAX_AVERAGED: usize = 8;

/// The whole answer.
pub(super) fn as_text(model: &Model, options: &DdpOptions, answer: &Answer) -> String {
    let not_compared = answer.not_compared.as_deref().unwrap_or_default();
    let parts = [
        Some(as_report(model, options, &answer.report)),
        Some(as_notes(&answer.notes)),
        answer.differences.as_deref().map(|differences| as_differences(differences, not_compared)),
        answer.replicas.as_ref().map(as_replicas),
        answer.join.as_deref().map(as_join),
        answer.planned_error.as_ref().map(as_planned),
        answer.simulated.as_ref().map(as_steps),
        answer.after_steps.as_ref().map(as_after_steps),
        answer.sweep.as_deref().map(|points| as_sweep(points, answer.best.as_ref())),
        answer.log.as_ref().map(|log| format!("\nDDP's log\n{log}\n")),
        Some(as_missing(&answer.missing)),
    ];
    parts.into_iter().flatten().collect()
}

fn as_sweep(points: &[SweepPoint], best: Option<&Best>) -> String {
    let mut text = format!(
        "\nestimate of a step by cap\n{:>9}  {:>7}  {:>12}  {:>13}  {:>12}  {:>12}  efficiency\n",
        "cap (MiB)", "buckets", "step", "communication", "exposed", "waiting"
    );
    for (index, point) in points.iter().enumerate() {
        let cap = point.bucket_cap_mb.map_or("default".into(), |mb| mb.to_string());
        let efficiency = point.efficiency_permille;
        text.push_str(&format!(
            "{cap:>9}  {:>7}  {:>12}  {:>13}  {:>12}  {:>12}  {}.{} %{}\n",
            point.buckets,
            describe_ps(point.step_ps),
            describe_ps(point.communication_ps),
            describe_ps(point.exposed_ps),
            describe_ps(point.waiting_ps),
            efficiency / 10,
            efficiency % 10,
            if best.is_some_and(|best| best.index == index) { "  *" } else { "" }
        ));
    }
    if let Some(best) = best {
        text.push_str(&format!("* best: {}\n", best.why));
    }
    text
}

/// The calls that ranks issue after their optimizers' steps.
fn as_after_steps(after: &AfterSteps) -> String {
    let mut text = "\nafter the optimizer's steps\n".to_owned();
    if let Some(zero) = &after.zero {
        let of = |of: Option<usize>| of.unwrap_or(0);
        let sizes = || zero.partition.iter().map(Vec::len);
        let calls: Vec<&DdpCall> = zero.broadcasts.iter().collect();
        text.push_str(&format!(
            "  ZeroRedundancyOptimizer{}: each rank updates {} to {} of {}, then {} in every step\n    \
             {}\n",
            if zero.parameters_as_bucket_view { "(parameters_as_bucket_view=True)" } else { "" },
            of(sizes().min()),
            of(sizes().max()),
            counted(sizes().sum::<usize>() as u64, "parameter"),
            counted(calls.len() as u64, "broadcast"),
            listed(&calls)
        ));
    }
    if !after.averaged.is_empty() {
        let mut steps: Vec<_> = after
            .averaged
            .iter()
            .take(MAX_AVERAGED)
            .map(|averaged| {
                let among = averaged.call.subgroup.map_or("all".into(), |size| size.to_string());
                format!("after step {} among {among}", averaged.step)
            })
            .collect();
        let more = after.averaged.len().saturating_sub(MAX_AVERAGED);
        if more > 0 {
            steps.push(format!("{more} more"));
        }
        text.push_str(&format!(
            "  parameters averaged {}, of {}: {}\n",
            steps.join(", "),
            counted(after.steps, "step"),
            after.averaged.first().map_or_else(String::new, |first| listed(&[&first.call]))
        ));
    } else if after.zero.is_none() {
        text.push_str(&format!(
            "  parameters are averaged after none of the first {}\n",
            counted(after.steps, "step")
        ));
    }
    text
}

/// The notes for the reader.
fn as_notes(notes: &[String]) -> String {
    notes.iter().map(|note| format!("\nnote: {note}\n")).collect()
}

/// The differences between the run and a real one.
fn as_differences(differences: &[String], not_compared: &[&str]) -> String {
    let mut text = match differences.len() {
        0 => "\nno difference from the recorded run\n".to_owned(),
        number => {
            let number = counted(number as u64, "difference");
            let lines = differences.iter().map(|line| format!("  {line}\n"));
            format!("\n{number} from the recorded run\n{}", lines.collect::<String>())
        }
    };
    if !not_compared.is_empty() {
        let missing = not_compared.join(", ");
        text.push_str(&format!("not compared, since the file does not hold it: {missing}\n"));
    }
    text
}

fn as_report(model: &Model, options: &DdpOptions, report: &DdpReport) -> String {
    // The reducer counts only its own.
    let own = model.trained().filter(|param| options.reduces(model, &param.name));
    let trained: Vec<_> = own.collect();
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
    let joins = report.collectives.iter().any(|call| call.phase == Phase::Joined);
    text.push_str(if joins {
        "\ncollectives of rank 0, inside join()\n"
    } else {
        "\ncollectives\n"
    });
    let last = report.collectives.iter().map(|call| call.iteration).max().unwrap_or(0);
    for iteration in 0..=last {
        let phases =
            [Phase::Construction, Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::Joined];
        for phase in phases {
            let calls: Vec<_> = report.calls(iteration, phase).collect();
            if calls.is_empty() {
                continue;
            }
            let place = match phase {
                Phase::Construction => "constructor".to_owned(),
                Phase::Forward => format!("forward {iteration}"),
                Phase::Backward => format!("backward {iteration}"),
                Phase::Optimizer => format!("optimizer {iteration}"),
                Phase::Joined => "joined".to_owned(),
            };
            text.push_str(&format!("  {place:<12} {}\n", listed(&calls)));
        }
    }
    // Before the hook begins there is nothing to tell of it.
    if let Some(stats) = report.compression.filter(|stats| stats.before > 0) {
        let before = with_commas(stats.before);
        let after = match stats.after {
            0 => "none after".to_owned(),
            after => format!("{} after, rate {:.2}", with_commas(after), stats.rate()),
        };
        text.push_str(&format!("\nPowerSGD: {before} elements before compression, {after}\n"));
    }
    if let Some(error) = &report.error {
        let place = report.error_at.map_or_else(String::new, |at| in_step(at.iteration, at.phase));
        text.push_str(&format!("\nDDP raises{place} {error}\n"));
    }
    text
}

/// The first calls, how many more, and the last.
fn listed(calls: &[&DdpCall]) -> String {
    let one = |call: &&DdpCall| {
        let among = call.subgroup.map(|size| format!(" among {size}")).unwrap_or_default();
        format!("{} {}[{}]{among}", call.name(), call.dtype, call.numel)
    };
    let mut shown: Vec<_> = calls.iter().take(MAX_CALLS).map(one).collect();
    if let Some(last) = calls.last().filter(|_| calls.len() > MAX_CALLS) {
        shown.push(format!("… {} more, the last {}", calls.len() - MAX_CALLS, one(last)));
    }
    shown.join(", ")
}

/// The extra work of a process with several devices.
fn as_replicas(replicas: &Replicas) -> String {
    let Replicas { devices, params, buffers, members, divisor } = replicas;
    let copied = |copies: &[DeviceCopy]| match copies {
        [] => "nothing".to_owned(),
        copies => {
            let one = |copy: &DeviceCopy| format!("{}[{}]", copy.dtype, copy.numel);
            copies.iter().map(one).collect::<Vec<_>>().join(", ")
        }
    };
    format!(
        "\n{devices} devices a process, each with a replica\n  before a forward pass \
         broadcast_coalesced from the first to the others: parameters {}; buffers {}\n  a bucket is \
         one all_reduce of {devices} tensors: a ring of {members}, divided by {divisor}\n",
        copied(params),
        copied(buffers)
    )
}

/// The calls of ranks with uneven inputs inside `join()`.
fn as_join(ranks: &[JoinedRank]) -> String {
    let mut text = "\nuneven inputs, inside join()\n".to_owned();
    let raising = ranks.iter().position(|done| done.error.is_some());
    for (rank, done) in ranks.iter().enumerate() {
        let divisors: Vec<_> =
            done.iterations.iter().filter_map(|step| Some(step.divisor?.to_string())).collect();
        let made = done.iterations.iter();
        let made: usize =
            made.map(|step| step.forward.len() + step.backward.len() + step.optimizer.len()).sum();
        let divided = match divisors.is_empty() {
            true => String::new(),
            false => format!(", gradients divided by {}", divisors.join(", ")),
        };
        text.push_str(&format!(
            "  rank {rank}: {} with {}{divided}\n",
            counted(done.iterations.len() as u64, "iteration"),
            counted(made as u64, "collective")
        ));
        let after: Vec<&DdpCall> = done.after.iter().collect();
        if !after.is_empty() {
            text.push_str(&format!("    then, without inputs: {}\n", listed(&after)));
        }
        match (&done.error, raising) {
            (Some(error), _) => text.push_str(&format!("    {}: {error}\n", error.class())),
            (None, Some(raising)) => {
                text.push_str(&format!("    then it waits for rank {raising}\n"))
            }
            (None, None) => {}
        }
    }
    text
}

/// ` in the backward pass of iteration 2:`
fn in_step(iteration: u32, half: Half) -> String {
    format!(" in the {} pass of iteration {iteration}:", half.name())
}

impl RaisedInStep {
    fn place(&self) -> String {
        let rank = self.rank.map(|rank| format!(" on rank {rank}")).unwrap_or_default();
        rank + &in_step(self.step, self.phase)
    }
}

/// Rank 0's steps as they were simulated.
fn as_steps(simulated: &Simulated) -> String {
    let mut text =
        format!("\nsimulated on {}, as rank 0 sees it\n", counted(simulated.world_size, "rank"));
    if !simulated.steps.is_empty() {
        text.push_str(&format!(
            "{:>6}  {:>12}  {:>12}  {:>12}  {:>12}\n",
            "step", "takes", "computes", "waits", "exposed"
        ));
    }
    for (number, step) in (1..).zip(&simulated.steps) {
        let takes = step.end_ps.saturating_sub(step.start_ps);
        text.push_str(&format!(
            "{number:>6}  {:>12}  {:>12}  {:>12}  {:>12}\n",
            describe_ps(takes),
            describe_ps(step.compute_ps),
            describe_ps(step.waiting_ps()),
            describe_ps(step.exposed_ps)
        ));
    }
    let waited_for = simulated.raised.as_ref().and_then(|raised| raised.rank);
    match &simulated.ended {
        Some(Outcome::TimedOut) if waited_for.is_some() => {}
        Some(Outcome::TimedOut) => text.push_str(&format!(
            "in {} a collective does not complete within its group's timeout: there the simulation \
             ends\n",
            match simulated.steps.len() {
                0 => "the constructor or step 1".to_owned(),
                steps => format!("step {}", steps + 1),
            }
        )),
        Some(outcome) => text.push_str(&format!("then it ends: {outcome:?}\n")),
        None => {}
    }
    if let Some(raised) = &simulated.raised {
        text.push_str(&format!("then DDP raises{} {}\n", raised.place(), raised.error));
    }
    if let Some(rank) = waited_for {
        text.push_str(&format!(
            "and the others wait for rank {rank} until their group's timeout: there the simulation \
             ends\n"
        ));
    }
    text
}

/// A plan that ends where DDP raises.
fn as_planned(raised: &RaisedInStep) -> String {
    format!("\nthe plan ends where DDP raises{} {}\n", raised.place(), raised.error)
}

/// The parts that are missing, since DDP raises.
fn as_missing(missing: &[Missing]) -> String {
    let line = |of: &Missing| format!("\nno {}: DDP raises {}\n", of.what, of.error);
    missing.iter().map(line).collect()
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
