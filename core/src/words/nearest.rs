//! The known names that are nearest to a misspelled one.

/// A name longer than this is no slip of the pen.
const MAX_NAME: usize = 64;

/// The `most` names nearest to `name`, the nearest first; none that is farther away than half of
/// its letters. Capitals, `-` and `_` make no difference.
pub fn nearest<'a>(
    name: &str,
    names: impl IntoIterator<Item = &'a str>,
    most: usize,
) -> Vec<&'a str> {
    nearest_of(name, names.into_iter().collect(), most)
}

/// Not generic over the names, so that it is compiled once.
fn nearest_of<'a>(name: &str, names: Vec<&'a str>, most: usize) -> Vec<&'a str> {
    let typed = letters(name);
    if typed.is_empty() || typed.len() > MAX_NAME {
        return Vec::new();
    }
    let mut near: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|known| {
            let meant = letters(known);
            let far = distance(&typed, &meant);
            // A part of the name is meant as the name: `gather_into`.
            let part = typed.len() >= 3 && meant.windows(typed.len()).any(|part| part == typed);
            let far = if part { far.min(2) } else { far };
            (2 * far <= typed.len().max(meant.len())).then_some((far, known))
        })
        .collect();
    near.sort_by_key(|(far, _)| *far);
    near.truncate(most);
    near.into_iter().map(|(_, known)| known).collect()
}

fn letters(name: &str) -> Vec<char> {
    name.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).map(|c| c.to_ascii_lowercase()).collect()
}

/// The number of letters that have to be changed, left out, put in or swapped with their neighbour
/// (optimal string alignment; Damerau 1964).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, right) in b.iter().enumerate() {
            let changed = last[j] + usize::from(left != right);
            let mut least = changed.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i - 1] == *right && b[j - 1] == *left {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 9] = [
        "skipped-all-reduce",
        "mismatched-collectives",
        "all_reduce",
        "all_reduce_coalesced",
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_object",
        "broadcast",
        "barrier",
    ];

    fn near(name: &str) -> Vec<&'static str> {
        nearest(name, NAMES, 3)
    }

    #[test]
    fn slips_find_what_was_meant() {
        for (typed, meant) in [
            ("allreduce", "all_reduce"),
            ("all_redcue", "all_reduce"),
            ("All-Gather", "all_gather"),
            ("gather_into", "all_gather_into_tensor"),
            ("skiped-all-reduce", "skipped-all-reduce"),
            ("boradcast", "broadcast"),
        ] {
            assert_eq!(near(typed).first(), Some(&meant), "{typed}: {:?}", near(typed));
        }
    }

    #[test]
    fn what_is_like_nothing_finds_nothing() {
        assert!(near("").is_empty() && near("xqzvw").is_empty());
        assert!(near(&"a".repeat(1_000_000)).is_empty());
        assert_eq!(near("all_reduce").len(), 3);
    }

    #[test]
    fn a_distance_counts_letters() {
        let far = |a: &str, b: &str| distance(&letters(a), &letters(b));
        assert_eq!((far("", "abc"), far("abc", ""), far("abc", "abc")), (3, 3, 0));
        assert_eq!((far("ab", "ba"), far("kitten", "sitting")), (1, 3));
    }
}
