//! The findings of the diagnosis.

use super::facts::facts_list;
use super::go::Go;
use super::keys;
use super::ladder::{ladder, which};
use super::log_line::LogLine;
use super::prose::prose;
use super::what_is_this::WhatIsThis;
use crate::dom::{self, Listener};
use crate::explain;
use lockstep_core::rank::GlobalRank;
use lockstep_diagnosis::{
    Certainty, Evidence, Finding, Kind, Ladder, LadderCall, LadderStep, Report, Verdict,
};
use lockstep_web_protocol::{SessionId, Which};
use web_sys::KeyboardEvent;
use yew::prelude::*;

/// Properties of [`Findings`].
#[derive(Properties, PartialEq)]
pub(crate) struct FindingsProps {
    pub(crate) report: Report,
    /// A name of a rank or a call leads to it.
    #[prop_or_default]
    pub(crate) on_go: Option<Callback<Go>>,
    /// The session of which it is: its files are asked for the lines that the evidence names.
    #[prop_or_default]
    pub(crate) session: Option<SessionId>,
    /// A section in Markdown that the report ends with.
    #[prop_or_default]
    pub(crate) appendix: AttrValue,
}

/// Evidence shown before the reader asks for more.
const FEW: usize = 6;

/// The findings of the diagnosis: a card for each.
#[component(Findings)]
pub(crate) fn findings(props: &FindingsProps) -> Html {
    let report = &props.report;
    let (class, verdict) = match report.verdict {
        Verdict::Healthy => {
            ("good", "Healthy: nothing is wrong as far as the trace shows.".to_owned())
        }
        Verdict::Inconclusive => {
            ("unsure", "Inconclusive: no finding, but not all was seen.".to_owned())
        }
        Verdict::Unusable => ("bad", "There is nothing here that could be judged.".to_owned()),
        Verdict::Findings => (
            "bad",
            match report.findings.len() {
                1 => "1 finding".to_owned(),
                n => format!("{n} findings, most important first"),
            },
        ),
    };
    let save = {
        let (report, appendix) = (report.clone(), props.appendix.clone());
        Callback::from(move |_: MouseEvent| {
            let text = report.to_markdown() + &appendix;
            crate::dom::download("lockstep-report.md", text.as_bytes());
        })
    };
    let copied = use_state(|| false);
    {
        // The copied text lacks the newest note.
        let copied = copied.setter();
        use_effect_with(props.appendix.clone(), move |_| copied.set(false));
    }
    let copy = {
        let (report, appendix) = (report.clone(), props.appendix.clone());
        let copied = copied.setter();
        Callback::from(move |()| {
            let (text, copied) = (report.to_markdown() + &appendix, copied.clone());
            wasm_bindgen_futures::spawn_local(async move {
                copied.set(crate::dom::copy(&text).await);
            });
        })
    };
    use_keys(props, &copy);
    let verdict_word = format!("{:?}", report.verdict).to_lowercase();
    html! {
        <section class="findings" aria-label="Findings" data-test="findings" data-verdict={verdict_word}>
            <div class="row head"><p class={classes!("verdict", class)}>{ verdict }</p>
                <button onclick={copy.reform(|_: MouseEvent| ())} title="As Markdown, for an issue or a chat (R)" data-test="copy-report">{ if *copied { "Copied" } else { "Copy report" } }</button>
                <button onclick={save} data-test="save-report">{ "Save report" }</button></div>
            if report.verdict == Verdict::Inconclusive {
                <ul class="unseen" data-test="unseen">
                    { for report.unseen.iter().map(|unseen| html! { <li>{ prose(unseen) }</li> }) }
                </ul>
            }
            { for report.findings.iter().map(|finding| card(finding, props)) }
            { for report.notes.iter().map(|note| html! { <p class="note muted">{ prose(note) }</p> }) }
        </section>
    }
}

/// The ranks that are blamed, with the call that each finding names.
fn blamed(report: &Report) -> Vec<Go> {
    let of = |finding: &Finding| {
        let go = |rank: &GlobalRank| to_culprit(finding, *rank);
        finding.culprits.iter().take(MAX_CHIPS).map(go).collect::<Vec<Go>>()
    };
    report.findings.iter().flat_map(of).collect()
}

/// The call in which a rank is to blame: where its calls part from the others', else the one that the evidence names,
/// else the finding's own. Of a rank without any call it is the first of another rank that the evidence names.
fn to_culprit(finding: &Finding, rank: GlobalRank) -> Go {
    let parting = finding.ladder.as_ref().and_then(|ladder| parting_call(ladder, rank));
    let seen = finding.evidence.iter().find(|seen| seen.rank == rank).and_then(|seen| seen.entry);
    if matches!(finding.kind, Kind::RankMissing | Kind::RankDied)
        && parting.is_none()
        && seen.is_none()
        && let Some((other, entry)) =
            finding.evidence.iter().find_map(|seen| Some((seen.rank, seen.entry?)))
    {
        return Go { rank: other.0, which: Which::Entry(entry) };
    }
    let numbered = || Which::Numbered {
        group: finding.group.as_ref().map(|group| group.name.clone()),
        op: finding.op.clone(),
        seq: finding.seq,
    };
    let which = parting.map(which).or(seen.map(Which::Entry));
    Go { rank: rank.0, which: which.unwrap_or_else(numbered) }
}

/// The call that a rank to blame made where its calls part from the others': instead of the one that it left out, or
/// the last before that.
fn parting_call(ladder: &Ladder, rank: GlobalRank) -> Option<&LadderCall> {
    let side = ladder.sides.iter().position(|side| side.culprits && side.ranks.contains(&rank))?;
    let parts = ladder.rungs.iter().position(|rung| rung.differs)?;
    let (before, from) = ladder.rungs.split_at_checked(parts)?;
    from.iter().chain(before.iter().rev()).find_map(|rung| match rung.steps.get(side)? {
        LadderStep::Called(call) => Some(call),
        LadderStep::LeftOut | LadderStep::NotReached => None,
    })
}

/// Keys of findings that lead to a timeline: F goes to the next rank that is blamed and into the timeline, R
/// copies the report.
#[hook]
fn use_keys(props: &FindingsProps, copy: &Callback<()>) {
    let next = use_mut_ref(|| 0usize);
    let deps = (props.report.clone(), props.on_go.clone(), copy.clone());
    use_effect_with(deps, move |(report, on_go, copy)| {
        let (blamed, copy) = (blamed(report), copy.clone());
        let heard = on_go.clone().map(|on_go| {
            Listener::on(&dom::window(), "keydown", move |event: KeyboardEvent| {
                // A view that is kept and not shown hears nothing.
                let shown =
                    dom::document().query_selector("main:not([hidden]) .findings").ok().flatten();
                if keys::typing(&event) || shown.is_none() {
                    return;
                }
                match event.key().as_str() {
                    "r" => copy.emit(()),
                    "f" if !blamed.is_empty() => {
                        let mut at = next.borrow_mut();
                        on_go.emit(blamed[*at % blamed.len()].clone());
                        *at += 1;
                        dom::focus("main:not([hidden]) .lanes .timeline .stage");
                    }
                    _ => {}
                }
            })
        });
        move || drop(heard)
    });
}

fn ranks(ranks: &[GlobalRank]) -> String {
    explain::ranks(ranks.iter().map(|rank| rank.0))
}

fn card(finding: &Finding, props: &FindingsProps) -> Html {
    let on_go = props.on_go.as_ref();
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: String| {
        if !value.is_empty() {
            facts.push((name.to_owned(), value));
        }
    };
    fact(
        if finding.culprits.len() == 1 { "culprit" } else { "culprits" },
        ranks(&finding.culprits),
    );
    fact("victims", ranks(&finding.victims));
    fact(
        "call",
        match (&finding.op, finding.seq) {
            (Some(op), Some(seq)) => format!("{op} #{seq}"),
            (Some(op), None) => op.clone(),
            (None, Some(seq)) => format!("#{seq}"),
            (None, None) => String::new(),
        },
    );
    if let Some(group) = &finding.group {
        let label = if group.desc.is_empty() { &group.name } else { &group.desc };
        fact("group", format!("{label} (ranks {})", ranks(&group.ranks)));
    }
    fact(
        "certainty",
        match finding.certainty {
            Certainty::Certain => "certain: the trace shows it".to_owned(),
            Certainty::Likely => "likely: the trace fits it best".to_owned(),
            Certainty::Undecidable => "undecidable: the trace cannot tell who did it".to_owned(),
        },
    );
    let list =
        |ranks: &[GlobalRank]| ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let evidence = |from: usize, to: usize| {
        finding
            .evidence
            .iter()
            .skip(from)
            .take(to - from)
            .map(|seen| {
                html! {
                    <li>
                        { evidence_line(seen, props) }
                    </li>
                }
            })
            .collect::<Html>()
    };
    let count = finding.evidence.len();
    html! {
        <article class="finding" data-test="finding" data-kind={finding.kind.name()}
                 data-culprits={list(&finding.culprits)} data-victims={list(&finding.victims)}
                 data-seq={finding.seq.map(|seq| seq.to_string())} data-op={finding.op.clone()}>
            <h2>{ finding.kind.title() }</h2>
            { message(&finding.message) }
            { culprits(finding, on_go) }
            { facts_list(&facts) }
            if !finding.fix.is_empty() {
                <p class="fix"><b>{ "Fix " }</b>{ prose(&finding.fix) }</p>
            }
            if let Some(calls) = &finding.ladder { { ladder(calls, on_go) } }
            <WhatIsThis kind={finding.kind} />
            if count > 0 {
                <h3>{ "Evidence" }</h3>
                <ul class="evidence">{ evidence(0, count.min(FEW)) }</ul>
                if count > FEW {
                    <details><summary>{ format!("{} more", count - FEW) }</summary>
                        <ul class="evidence">{ evidence(FEW, count.min(FEW + 256)) }</ul></details>
                }
            }
        </article>
    }
}

/// The message of a finding: its first sentence says who did what, the others how that is known.
fn message(text: &str) -> Html {
    let (lead, rest) = text.split_once(". ").map_or((text, ""), |(_, rest)| {
        let lead = &text[..text.len() - rest.len()];
        (lead.trim_end(), rest)
    });
    html! {
        <div data-test="message"><p class="lead">{ prose(lead) }</p>
        if !rest.is_empty() { <p class="message">{ prose(rest) }</p> }</div>
    }
}

/// A line of the evidence; all of it leads to the line of the log that says so, else to the call, where it can be gone
/// to.
fn evidence_line(seen: &Evidence, props: &FindingsProps) -> Html {
    let words = html! {
        <>
        <b>{ format!("rank {}", seen.rank) }</b>
        if let Some(frame) = &seen.frame { <code>{ frame }</code> }
        <span>{ prose(&seen.note) }</span>
        if let Some(entry) = seen.entry { <span class="muted">{ format!("entry {entry}") }</span> }
        if let Some(place) = &seen.place { <code class="place">{ place.to_string() }</code> }
        </>
    };
    if let Some((place, session)) = seen.place.clone().zip(props.session) {
        return html! { <LogLine {place} {session} {words} /> };
    }
    let Some(on_go) = &props.on_go else { return words };
    let to = Go { rank: seen.rank.0, which: seen.entry.map_or(Which::Last, Which::Entry) };
    let go = on_go.reform(move |_: MouseEvent| to.clone());
    html! { <button class="goes line" onclick={go} title="Show it in the timeline" data-test="go-evidence">{ words }</button> }
}

/// More culprits than this are named in the facts only.
const MAX_CHIPS: usize = 32;

/// The same of victims, of which there are many.
const MAX_VICTIMS: usize = 8;

/// The ranks that are blamed and their first victims, each of which goes to where it is in the call that the finding
/// names; beside a culprit that is alone the first that is known of it, with its line.
fn culprits(finding: &Finding, on_go: Option<&Callback<Go>>) -> Html {
    // The call's own line is in the message: a rank that skipped the call is not at that line.
    let of_culprit = finding.evidence.iter().find(|seen| finding.culprits == [seen.rank]);
    let line = of_culprit.and_then(|seen| Some((seen, seen.frame.as_ref()?))).map(|(seen, frame)| {
        html! { <><span class="muted">{ prose(&seen.note) }</span>{ " " }<code data-test="culprit-line">{ frame }</code></> }
    });
    let Some(on_go) = on_go else {
        return html! { if let Some(line) = line { <p class="culprits">{ "Culprit: " }{ line }</p> } };
    };
    let to_line = line.zip(of_culprit).map(|(line, seen)| {
        let to = Go { rank: seen.rank.0, which: seen.entry.map_or(Which::Last, Which::Entry) };
        let go = on_go.reform(move |_: MouseEvent| to.clone());
        html! { <button class="goes" onclick={go} title="Show it in the timeline">{ line }</button> }
    });
    let chip = |rank: &GlobalRank, is_culprit: bool| {
        let to = to_culprit(finding, *rank);
        let rank = rank.0;
        let go = on_go.reform(move |_: MouseEvent| to.clone());
        html! {
            <button class={classes!("chip", is_culprit.then_some("culprit"))} onclick={go} title={format!("Show rank {rank} in the timeline")}
                    data-test={if is_culprit { "go-culprit" } else { "go-victim" }}>{ rank }</button>
        }
    };
    let (blamed, waiting) = (finding.culprits.iter(), finding.victims.iter());
    html! {
        <p class="culprits">
            { for blamed.take(MAX_CHIPS).map(|rank| chip(rank, true)) }
            { for to_line }
            if !finding.victims.is_empty() { <span class="muted">{ "victims" }</span> }
            { for waiting.take(MAX_VICTIMS).map(|rank| chip(rank, false)) }
            if finding.victims.len() > MAX_VICTIMS { <span class="muted">{ format!("and {} more", finding.victims.len() - MAX_VICTIMS) }</span> }
        </p>
    }
}
