//! Lists of parameter indices as short texts: `13-11,4` is 13, 12, 11, 4.

/// The most indices in a text: `0-4294967295` is short, its list is not.
const MAX_INDICES: usize = 1 << 20;

/// The reason that a text is no list of indices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexListError {
    /// An item is neither `n` nor `a-b`.
    #[error("{item:?} is no index; write 4 for one index and 13-11 for 13, 12, 11")]
    BadItem {
        /// The item.
        item: String,
    },
    /// It would be too long.
    #[error("the list stands for more than {MAX_INDICES} indices")]
    TooLong,
}

/// Reads a list of indices; an empty text is an empty list.
///
/// # Errors
/// When an item is not of the form `n` or `a-b`, or the list is too long.
pub fn parse_indices(text: &str) -> Result<Vec<u32>, IndexListError> {
    let mut indices = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let bad = || IndexListError::BadItem { item: item.to_owned() };
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| bad());
        let (first, last) = match item.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(item)?, number(item)?),
        };
        if first.abs_diff(last) as usize >= MAX_INDICES - indices.len().min(MAX_INDICES) {
            return Err(IndexListError::TooLong);
        }
        match first <= last {
            true => indices.extend(first..=last),
            false => indices.extend((last..=first).rev()),
        }
    }
    Ok(indices)
}

/// Writes a list of indices, runs of neighbours as `a-b`.
pub fn format_indices(indices: &[u32]) -> String {
    let mut items: Vec<String> = Vec::new();
    let mut rest = indices;
    while let Some((&first, after)) = rest.split_first() {
        let up = after.iter().zip(1..).take_while(|(i, n)| Some(**i) == first.checked_add(*n));
        let down = after.iter().zip(1..).take_while(|(i, n)| Some(**i) == first.checked_sub(*n));
        let more = up.count().max(down.count());
        items.push(match more {
            0 => first.to_string(),
            _ => format!("{first}-{}", after[more - 1]),
        });
        rest = &after[more..];
    }
    items.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_and_refuses() {
        assert_eq!(parse_indices("13-11,4").unwrap(), [13, 12, 11, 4]);
        assert_eq!(parse_indices("").unwrap(), Vec::<u32>::new());
        assert_eq!(format_indices(&[13, 12, 11, 4, 0, 1]), "13-11,4,0-1");
        assert_eq!(parse_indices("0-4294967295"), Err(IndexListError::TooLong));
        assert!(parse_indices("a").unwrap_err().to_string().contains("\"a\""));
        assert!(parse_indices("-1").is_err());
    }

    proptest! {
        #[test]
        fn every_list_comes_back(list in prop::collection::vec(0u32..40, 0..60)) {
            prop_assert_eq!(parse_indices(&format_indices(&list)).unwrap(), list);
        }
    }
}
