//! A real number of a plan that can be compared by its bits.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A finite number; in JSON as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Real(u64);

impl Real {
    /// The number, or `None` if it is not finite.
    pub fn new(value: f64) -> Option<Real> {
        value.is_finite().then(|| Real(value.to_bits()))
    }

    /// Its value.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl Serialize for Real {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.get())
    }
}

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Real, D::Error> {
        let value = f64::deserialize(deserializer)?;
        Real::new(value).ok_or_else(|| serde::de::Error::custom("a number that is not finite"))
    }
}
