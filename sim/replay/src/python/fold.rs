//! Loops: what repeats is written once.

use super::merge::{Line, numbered};

/// The longest body of a loop that is looked for.
const LONGEST: usize = 4000;

/// Lines saved by a loop of fewer are not worth it.
const WORTH: usize = 2;

/// A part of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// A line: the indices of the lines that it stands for, one for each round of the loops around it.
    Line(Vec<usize>),
    /// A loop.
    Loop { rounds: usize, body: Vec<Node> },
}

/// Lines with their loops.
pub(super) fn folded(lines: &[Line]) -> Vec<Node> {
    let numbers = numbered(lines);
    let rows: Vec<(usize, Vec<usize>)> =
        numbers.into_iter().enumerate().map(|(at, number)| (number, vec![at])).collect();
    fold(&rows)
}

fn fold(rows: &[(usize, Vec<usize>)]) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut at = 0;
    while let Some((_, lines)) = rows.get(at) {
        let rest = rows.get(at..).unwrap_or_default();
        let Some((period, rounds)) = repeats(rest) else {
            nodes.push(Node::Line(lines.clone()));
            at += 1;
            continue;
        };
        let row = |place: usize| {
            let of = (0..rounds).filter_map(|round| rest.get(round * period + place));
            let lines = of.flat_map(|(_, lines)| lines.iter().copied()).collect();
            Some((rest.get(place)?.0, lines))
        };
        let body: Vec<(usize, Vec<usize>)> = (0..period).filter_map(row).collect();
        nodes.push(Node::Loop { rounds, body: fold(&body) });
        at += period * rounds;
    }
    nodes
}

/// The loop at the beginning that saves most lines: the length of its body and its rounds.
fn repeats(rows: &[(usize, Vec<usize>)]) -> Option<(usize, usize)> {
    let is = |at: usize, other: usize| matches!((rows.get(at), rows.get(other)), (Some((one, _)), Some((two, _))) if one == two);
    let longest = (rows.len() / 2).min(LONGEST);
    let mut best: Option<(usize, usize, usize)> = None;
    for period in (1..=longest).filter(|period| is(0, *period)) {
        let same = (0..rows.len()).take_while(|at| is(*at, at + period)).count();
        let rounds = same / period + 1;
        let saved = period * (rounds - 1);
        if rounds > 1 && saved >= WORTH && best.is_none_or(|(most, ..)| saved > most) {
            best = Some((saved, period, rounds));
        }
    }
    best.map(|(_, period, rounds)| (period, rounds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(numbers: &[usize]) -> Vec<(usize, Vec<usize>)> {
        numbers.iter().enumerate().map(|(at, number)| (*number, vec![at])).collect()
    }

    /// The lines in the order in which the loops run.
    fn unfolded(nodes: &[Node], round: usize, rounds: usize, out: &mut Vec<usize>) {
        for node in nodes {
            match node {
                Node::Line(lines) => {
                    assert_eq!(lines.len(), rounds);
                    out.extend(lines.get(round));
                }
                Node::Loop { rounds: own, body } => {
                    // The rounds of outer loops are the outer index of a line's list.
                    for inner in 0..*own {
                        unfolded(body, inner * rounds + round, own * rounds, out);
                    }
                }
            }
        }
    }

    #[test]
    fn nested_loops_are_found() {
        let nodes = fold(&rows(&[7, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 2, 9]));
        let [Node::Line(_), Node::Loop { rounds: 3, body }, Node::Line(_)] = nodes.as_slice()
        else {
            panic!("{nodes:?}");
        };
        assert!(
            matches!(body.as_slice(), [Node::Loop { rounds: 3, .. }, Node::Line(_)]),
            "{body:?}"
        );
    }

    proptest! {
        #[test]
        fn nothing_is_lost(numbers in prop::collection::vec(0_usize..3, 0..60)) {
            let rows = rows(&numbers);
            let nodes = fold(&rows);
            let mut lines = Vec::new();
            unfolded(&nodes, 0, 1, &mut lines);
            let again: Vec<usize> = lines.iter().map(|line| numbers[*line]).collect();
            prop_assert_eq!(again, numbers);
        }
    }
}
