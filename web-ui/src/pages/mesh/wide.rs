//! Meshes of more ranks than can be drawn, in words: where the groups of each dimension lie.

use super::choice::MeshChoice;
use crate::explain;
use lockstep_core::words::counted;
use yew::prelude::*;

/// The groups of one dimension: `size` ranks, `stride` apart.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lines {
    name: String,
    size: u32,
    stride: u32,
    groups: u32,
}

impl Lines {
    /// The dimensions of a mesh whose ranks are laid out row by row.
    fn of(dims: &[(String, u32)]) -> Vec<Lines> {
        let world: u32 = dims.iter().map(|(_, size)| size).product();
        let mut stride = world;
        let lines = dims.iter().map(|(name, size)| {
            stride /= (*size).max(1);
            Lines { name: name.clone(), size: *size, stride, groups: world / (*size).max(1) }
        });
        lines.collect()
    }

    /// The place of a rank along the dimension.
    fn place(&self, rank: u32) -> u32 {
        rank / self.stride.max(1) % self.size.max(1)
    }

    /// The first ranks of the group that a rank is in.
    fn first(&self, rank: u32) -> impl Iterator<Item = u32> {
        let (first, stride) = (rank - self.place(rank) * self.stride, self.stride);
        (0..self.size.min(3)).map(move |place| first + place * stride)
    }

    /// True if no group has ranks on two nodes: a group spans a block of `size * stride` ranks, and
    /// a border inside a block cuts one of its groups.
    fn stay_inside(&self, world: u32, node: u32) -> bool {
        let block = u64::from(self.size) * u64::from(self.stride);
        self.size == 1 || node == 0 || node >= world || u64::from(node) % block == 0
    }

    fn words(&self, rank: u32, world: u32, node: u32) -> String {
        let Lines { size, stride, groups, .. } = self;
        if *size == 1 {
            return "one rank a group: nothing is said along it".to_owned();
        }
        let first: Vec<String> = self.first(rank).map(|rank| rank.to_string()).collect();
        let more = if *size > 3 { ", …" } else { "" };
        let place =
            if self.stay_inside(world, node) { "each inside one node" } else { "across nodes" };
        format!(
            "{} of {size}, {place}; ranks {stride} apart: {}{more}",
            counted(*groups, "group"),
            first.join(", ")
        )
    }
}

/// The words about a mesh that is not drawn.
pub(super) fn told(choice: &MeshChoice) -> Html {
    let dims = choice.dims.as_deref().unwrap_or_default();
    let (world, node) = (choice.world_size(), choice.machine.ranks_per_node());
    let rank = choice.rank.unwrap_or(0);
    let lines = Lines::of(dims);
    let place: Vec<String> =
        lines.iter().map(|line| format!("{} {}", line.name, line.place(rank))).collect();
    let who = choice.rank.map(|rank| {
        format!(
            " Rank {rank} is {} on node {}.",
            place.join(", "),
            rank.checked_div(node).unwrap_or(0)
        )
    });
    html! {
        <>
        <div class="sentence"><p data-test="sentence">
            { format!("{} are too many to be drawn and simulated here; this is how they are laid out.{}", counted(world, "rank"), who.unwrap_or_default()) }
        </p></div>
        <section class="panel dims" aria-label="Each dimension">
            <div class="scrolls"><table class="plain">
                <thead><tr><th>{ "dimension" }</th><th>{ if choice.rank.is_some() { "groups, and the one of the rank" } else { "groups, and the first" } }</th><th class="what">{ "what travels along it" }</th></tr></thead>
                <tbody>{ for lines.iter().map(|line| html! {
                    <tr data-test={format!("dim-{}", line.name)}>
                        <td>{ &line.name }</td>
                        <td>{ line.words(rank, world, node) }</td>
                        <td class="muted what">{ explain::parallelism(&line.name) }</td>
                    </tr>
                }) }</tbody>
            </table></div>
        </section>
        </>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_web_engine::laid_out;

    /// Held against what `init_device_mesh` makes of small meshes.
    #[test]
    fn the_words_are_those_of_the_groups_that_are_made() {
        for shape in [&[2, 3, 4][..], &[8], &[4, 1, 2], &[2, 2, 2, 2, 2], &[3, 5]] {
            let names = ["a", "b", "c", "d", "e"];
            let dims = names.iter().zip(shape).map(|(name, size)| ((*name).to_owned(), *size));
            let dims: Vec<(String, u32)> = dims.collect();
            let world: u32 = shape.iter().product();
            for (line, made) in Lines::of(&dims).iter().zip(laid_out(&dims).unwrap()) {
                assert_eq!(line.groups as usize, made.len());
                for group in &made {
                    assert!(group.iter().zip(0..).all(|(rank, place)| line.place(*rank) == place));
                    let first: Vec<u32> = line.first(group[group.len() - 1]).collect();
                    assert_eq!(first, group[..group.len().min(3)]);
                }
                for node in 1..=world + 1 {
                    let node_of = |rank: &u32| rank / node;
                    let inside = made
                        .iter()
                        .all(|group| group.iter().all(|rank| node_of(rank) == node_of(&group[0])));
                    assert_eq!(line.stay_inside(world, node), inside, "{shape:?} {line:?} {node}");
                }
            }
        }
    }
}
