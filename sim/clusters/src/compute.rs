//! Rates of cards: those of their data sheets, and the part of them that training reaches.

use crate::catalog::CatalogError;
use lockstep_core::words::nearest;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The table that ships.
const TABLE: &str = include_str!("../data/compute.toml");

/// The rates of a card: arithmetic and memory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compute {
    /// The source of the rates.
    pub source: String,
    /// Peak rates by element type, 10¹² floating point operations a second.
    pub tflops: BTreeMap<String, f64>,
    /// Peak memory bandwidth, TB/s.
    #[serde(rename = "memory_TBps")]
    pub memory_tbps: f64,
    /// Memory, GB.
    #[serde(rename = "memory_GB")]
    pub memory_gb: f64,
    /// The part of the peak rate that matrix products reach.
    pub matmul_fraction: f64,
    /// The part of the peak bandwidth that operators reach.
    pub memory_fraction: f64,
    /// The shortest time of an operator, microseconds.
    pub launch_us: f64,
}

/// All cards by name, ascending.
///
/// # Errors
/// If the shipped table is wrong; a test reads it.
pub(crate) fn compute_cards() -> Result<BTreeMap<String, Compute>, CatalogError> {
    toml::from_str(TABLE).map_err(|error| CatalogError::Parse {
        file: "compute.toml".to_owned(),
        why: error.to_string(),
    })
}

/// The card of that name.
///
/// # Errors
/// When there is none, with the nearest name.
pub fn compute_card(name: &str) -> Result<Compute, CatalogError> {
    let mut cards = compute_cards()?;
    cards.remove(&name.to_lowercase()).ok_or_else(|| CatalogError::UnknownCard {
        name: name.to_owned(),
        meant: nearest(name, cards.keys().map(String::as_str), 1)
            .first()
            .map_or_else(String::new, |meant| format!(" did you mean {meant}?")),
        known: cards.keys().cloned().collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds_what_training_needs() {
        let cards = compute_cards().unwrap();
        for (name, card) in &cards {
            assert!(card.tflops.contains_key("float32"), "{name}");
            assert!(card.tflops.values().all(|rate| *rate > 0.0), "{name}");
            for part in [card.matmul_fraction, card.memory_fraction] {
                assert!(part > 0.0 && part <= 1.0, "{name}");
            }
            assert!(card.memory_tbps > 0.0 && card.memory_gb > 0.0 && card.launch_us > 0.0);
        }
        assert_eq!(compute_card("H100").unwrap(), cards["h100"]);
        let error = compute_card("h110").unwrap_err().to_string();
        assert!(error.contains("did you mean h100?"), "{error}");
    }
}
