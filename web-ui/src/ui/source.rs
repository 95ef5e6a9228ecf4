//! A program's text with a cursor per rank on the line where it stands.

use crate::explain;
use lockstep_core::plan::Source;
use lockstep_sim::View;
use lockstep_sim::view::Doing;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`SourceView`].
#[derive(Properties, PartialEq)]
pub(crate) struct SourceViewProps {
    pub(crate) source: Source,
    /// Its index among the plan's sources.
    #[prop_or_default]
    pub(crate) index: u32,
    pub(crate) view: Option<Rc<View>>,
    /// Ranks to be marked as the cause.
    #[prop_or_default]
    pub(crate) culprits: Vec<u32>,
    #[prop_or_default]
    pub(crate) tools: LineTools,
}

/// The actions that a line offers.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct LineTools {
    /// Lines that are stopped at.
    pub(crate) stops: Vec<u32>,
    /// Lines at which a rank can stand.
    pub(crate) reached: Rc<BTreeSet<u32>>,
    /// The line with an error; 0 for none.
    pub(crate) wrong: u32,
    /// Sets or takes away a stop.
    pub(crate) on_stop: Callback<u32>,
    /// Runs until a rank reaches the line.
    pub(crate) on_run_to: Callback<u32>,
    /// Looks at a rank.
    pub(crate) on_rank: Callback<u32>,
    /// The rank that is looked at.
    pub(crate) selected: Option<u32>,
}

/// More cursors than this on one line are written as ranges.
const MAX_CHIPS: usize = 8;

/// A program's text with a cursor per rank.
#[component(SourceView)]
pub(crate) fn source_view(props: &SourceViewProps) -> Html {
    let mut at: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut finished = Vec::new();
    for (rank, state) in props.view.iter().flat_map(|view| view.ranks.iter().enumerate()) {
        match state.line {
            Some(line) if line.source == props.index => {
                at.entry(line.line).or_default().push(rank as u32)
            }
            _ if matches!(state.doing, Doing::Finished) => finished.push(rank as u32),
            _ => {}
        }
    }
    let tools = &props.tools;
    let look = |rank: u32| tools.on_rank.reform(move |_: MouseEvent| rank);
    let chips = |ranks: &[u32]| {
        if ranks.len() > MAX_CHIPS {
            return html! { <span class="chip many">{ explain::ranks(ranks.iter().copied()) }</span> };
        }
        html! { <>{ for ranks.iter().map(|rank| {
            let culprit = props.culprits.contains(rank);
            html! {
                <button class={classes!("chip", culprit.then_some("culprit"), (tools.selected == Some(*rank)).then_some("selected"))}
                        data-test={format!("cursor-{rank}")} onclick={look(*rank)}
                        title={format!("rank {rank} stands here{}", if culprit { " (the cause)" } else { "" })}>{ *rank }</button>
            }
        }) }</> }
    };
    html! {
        <figure class="source" data-test="source">
            <figcaption class="mono">{ &props.source.path }</figcaption>
            <ol>
                { for (1..).zip(props.source.text.lines()).map(|(line, text)| {
                    // A wrapped line goes on further in: at the left it would seem to belong to another block.
                    let hanging = text.chars().take_while(|char| *char == ' ').count() + 2;
                    let here = at.get(&line).map(Vec::as_slice).unwrap_or_default();
                    html! {
                        <li class={classes!((!here.is_empty()).then_some("here"), (line == tools.wrong).then_some("wrong"))} data-line={line.to_string()}
                            data-ranks={here.iter().map(u32::to_string).collect::<Vec<_>>().join(",")}>
                            { gutter(tools, line) }
                            <code style={format!("--hanging:{hanging}ch")}>{ highlight(text) }</code>
                            <span class="cursors">{ chips(here) }</span>
                        </li>
                    }
                }) }
            </ol>
            if !finished.is_empty() {
                <p class="done">{ "Finished: " }{ chips(&finished) }</p>
            }
        </figure>
    }
}

/// A line's number, and what can be done with the line.
fn gutter(tools: &LineTools, line: u32) -> Html {
    if tools.reached.is_empty() {
        return html! { <span class="number">{ line }</span> };
    }
    if !tools.reached.contains(&line) {
        return html! { <span class="gutter"><i /><span class="number">{ line }</span><i /></span> };
    }
    let stops = tools.stops.contains(&line);
    let stop = tools.on_stop.reform(move |_: MouseEvent| line);
    let run_to = tools.on_run_to.reform(move |_: MouseEvent| line);
    html! {
        <span class="gutter">
            <button class="stop" onclick={stop} aria-pressed={stops.to_string()} aria-label={format!("Stop at line {line}")}
                    title={format!("Stop at line {line}")} data-test={format!("gutter-{line}")} />
            <span class="number">{ line }</span>
            <button class="run-to" onclick={run_to} aria-label={format!("Run to line {line}")} title="Run to here"
                    data-test={format!("run-to-{line}")}>{ "▸" }</button>
        </span>
    }
}

const WORDS: [&str; 20] = [
    "def", "if", "else", "elif", "for", "in", "import", "from", "as", "return", "continue", "and",
    "or", "not", "while", "with", "raise", "assert", "is", "pass",
];

/// Python, as much of it as helps the eye: words, comments, calls into torch.distributed.
fn highlight(line: &str) -> Html {
    let (code, comment) = match line.find('#') {
        Some(at) => line.split_at(at),
        None => (line, ""),
    };
    let mut parts = Vec::new();
    let mut rest = code;
    while !rest.is_empty() {
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let inside = rest.starts_with(word);
        let end = rest.find(|c| word(c) != inside).unwrap_or(rest.len());
        let (part, tail) = rest.split_at(end);
        rest = tail;
        let class = match part {
            _ if WORDS.contains(&part) => "word",
            _ if part.starts_with("dist.") => "dist",
            _ => {
                parts.push(html! { { part } });
                continue;
            }
        };
        parts.push(html! { <span {class}>{ part }</span> });
    }
    html! { <>{ for parts }<span class="comment">{ comment }</span></> }
}
