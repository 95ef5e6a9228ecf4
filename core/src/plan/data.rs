//! Bytes that a tensor begins with.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// The first bytes of a tensor, little-endian; in JSON, hex digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TensorData(pub Vec<u8>);

impl Serialize for TensorData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
            serializer.serialize_str(&digits)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for TensorData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TensorData, D::Error> {
        if !deserializer.is_human_readable() {
            return Vec::deserialize(deserializer).map(TensorData);
        }
        let digits = String::deserialize(deserializer)?;
        let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
        let pairs = digits.as_bytes().chunks(2).map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        });
        let bytes: Option<Vec<u8>> = pairs.collect();
        bytes.map(TensorData).ok_or_else(|| D::Error::custom("a tensor's data is not hex digits"))
    }
}
