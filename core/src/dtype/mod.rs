//! Element types, named as `torch.dtype` prints them without the `torch.` prefix.

pub mod float8;

use serde::{Deserialize, Serialize};
use std::fmt;

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the variants are the names")]
pub enum Dtype {
    Float64,
    Float32,
    Float16,
    Bfloat16,
    #[serde(rename = "float8_e4m3fn")]
    Float8E4m3fn,
    #[serde(rename = "float8_e5m2")]
    Float8E5m2,
    Int64,
    Int32,
    Int16,
    Int8,
    Uint8,
    Bool,
    Complex128,
    Complex64,
    /// A type that a recording named and we do not know.
    Unknown,
}

impl Dtype {
    /// The types that the simulator and the executors can compute with.
    pub const COMPUTABLE: [Dtype; 14] = [
        Dtype::Float32,
        Dtype::Float64,
        Dtype::Float16,
        Dtype::Bfloat16,
        Dtype::Float8E4m3fn,
        Dtype::Float8E5m2,
        Dtype::Int64,
        Dtype::Int32,
        Dtype::Int16,
        Dtype::Int8,
        Dtype::Uint8,
        Dtype::Bool,
        Dtype::Complex64,
        Dtype::Complex128,
    ];

    /// Bytes of one element; 0 for [`Dtype::Unknown`].
    pub fn size_bytes(self) -> u64 {
        match self {
            Dtype::Complex128 => 16,
            Dtype::Float64 | Dtype::Int64 | Dtype::Complex64 => 8,
            Dtype::Float32 | Dtype::Int32 => 4,
            Dtype::Float16 | Dtype::Bfloat16 | Dtype::Int16 => 2,
            Dtype::Float8E4m3fn | Dtype::Float8E5m2 | Dtype::Int8 | Dtype::Uint8 | Dtype::Bool => 1,
            Dtype::Unknown => 0,
        }
    }

    /// True for the real floating-point types: `torch.dtype.is_floating_point`.
    pub fn is_float(self) -> bool {
        matches!(self, Dtype::Float64 | Dtype::Float32 | Dtype::Float16 | Dtype::Bfloat16)
            || self.is_float8()
    }

    /// True for the two 8-bit floating-point types.
    pub fn is_float8(self) -> bool {
        matches!(self, Dtype::Float8E4m3fn | Dtype::Float8E5m2)
    }

    /// True for the complex types: `torch.dtype.is_complex`.
    pub fn is_complex(self) -> bool {
        matches!(self, Dtype::Complex64 | Dtype::Complex128)
    }

    /// The type that `torch.view_as_real` gives a tensor: the type of a complex number's two parts,
    /// and any other type as it is. This is how PyTorch communicates complex tensors.
    pub fn as_real(self) -> Dtype {
        match self {
            Dtype::Complex64 => Dtype::Float32,
            Dtype::Complex128 => Dtype::Float64,
            real => real,
        }
    }

    /// Reads a name as `torch.dtype` prints it (`float32`) or as C++'s `ScalarType` does (`Float`, as in
    /// Flight Recorder dumps). Anything else is `Unknown`.
    pub fn from_torch_name(name: &str) -> Dtype {
        match name.strip_prefix("torch.").unwrap_or(name) {
            "float64" | "double" | "Double" => Dtype::Float64,
            "float32" | "float" | "Float" => Dtype::Float32,
            "float16" | "half" | "Half" => Dtype::Float16,
            "bfloat16" | "BFloat16" => Dtype::Bfloat16,
            "float8_e4m3fn" | "Float8_e4m3fn" => Dtype::Float8E4m3fn,
            "float8_e5m2" | "Float8_e5m2" => Dtype::Float8E5m2,
            "int64" | "long" | "Long" => Dtype::Int64,
            "int32" | "int" | "Int" => Dtype::Int32,
            "int16" | "short" | "Short" => Dtype::Int16,
            "int8" | "Char" => Dtype::Int8,
            "uint8" | "Byte" => Dtype::Uint8,
            "bool" | "Bool" => Dtype::Bool,
            "complex128" | "ComplexDouble" => Dtype::Complex128,
            "complex64" | "ComplexFloat" => Dtype::Complex64,
            _ => Dtype::Unknown,
        }
    }

    /// The name of C++'s `c10::ScalarType`, which PyTorch's own errors and recorders print.
    pub fn scalar_type(self) -> &'static str {
        match self {
            Dtype::Float64 => "Double",
            Dtype::Float32 => "Float",
            Dtype::Float16 => "Half",
            Dtype::Bfloat16 => "BFloat16",
            Dtype::Float8E4m3fn => "Float8_e4m3fn",
            Dtype::Float8E5m2 => "Float8_e5m2",
            Dtype::Int64 => "Long",
            Dtype::Int32 => "Int",
            Dtype::Int16 => "Short",
            Dtype::Int8 => "Char",
            Dtype::Uint8 => "Byte",
            Dtype::Bool => "Bool",
            Dtype::Complex128 => "ComplexDouble",
            Dtype::Complex64 => "ComplexFloat",
            Dtype::Unknown => "Undefined",
        }
    }

    /// The name in files and on the page.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::Float64 => "float64",
            Dtype::Float32 => "float32",
            Dtype::Float16 => "float16",
            Dtype::Bfloat16 => "bfloat16",
            Dtype::Float8E4m3fn => "float8_e4m3fn",
            Dtype::Float8E5m2 => "float8_e5m2",
            Dtype::Int64 => "int64",
            Dtype::Int32 => "int32",
            Dtype::Int16 => "int16",
            Dtype::Int8 => "int8",
            Dtype::Uint8 => "uint8",
            Dtype::Bool => "bool",
            Dtype::Complex128 => "complex128",
            Dtype::Complex64 => "complex64",
            Dtype::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Dtype;

    #[test]
    fn serde_and_torch_names_agree() {
        for dtype in Dtype::COMPUTABLE {
            let json = serde_json::to_string(&dtype).unwrap();
            assert_eq!(json, format!("{:?}", dtype.name()));
            assert_eq!(Dtype::from_torch_name(&format!("torch.{dtype}")), dtype);
            assert_eq!(Dtype::from_torch_name(dtype.scalar_type()), dtype);
        }
        assert_eq!(Dtype::from_torch_name("Float"), Dtype::Float32);
        assert_eq!(Dtype::from_torch_name("QInt8"), Dtype::Unknown);
    }
}
