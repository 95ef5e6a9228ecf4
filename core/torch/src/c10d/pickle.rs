//! The length of a pickled object: a writer of pickles for plain data, byte for byte as CPython's
//! `pickle.Pickler` writes them with its default protocol 4.

use super::error::{DistError, ErrorKind};

/// An object as the object calls send it: its pickle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pickle: Vec<u8>,
    /// The error that Python raises instead of pickling it.
    refused: Option<DistError>,
}

/// Plain Python data.
#[derive(Clone, Debug, PartialEq)]
pub enum PyObject {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// `int`, as far as 64 bits go.
    Int(i64),
    /// `int` past them, by its decimal digits.
    BigInt(String),
    /// `float`.
    Float(f64),
    /// `str`.
    Str(String),
    /// `bytes`.
    Bytes(Vec<u8>),
    /// `list`.
    List(Vec<PyObject>),
    /// `tuple`.
    Tuple(Vec<PyObject>),
    /// `dict`, in insertion order.
    Dict(Vec<(PyObject, PyObject)>),
    /// `set`, in its order.
    Set(Vec<PyObject>),
    /// Anything else, of which a pickle here has only bytes.
    Other {
        /// Its type.
        class: &'static str,
        /// The pickle's bytes.
        bytes: Vec<u8>,
    },
}

impl Object {
    /// An object whose pickle has `bytes` bytes, of which nothing else is known.
    pub fn of_len(bytes: usize) -> Object {
        Object { pickle: vec![0; bytes], refused: None }
    }

    /// An object by its pickle.
    pub fn from_pickle(pickle: Vec<u8>) -> Object {
        Object { pickle, refused: None }
    }

    /// The same object, of which Python raises this instead.
    #[must_use]
    pub fn refused_with(self, error: DistError) -> Object {
        Object { refused: Some(error), ..self }
    }

    /// Passes if the object can be pickled.
    pub(super) fn pickles(&self) -> Result<(), DistError> {
        self.refused.clone().map_or(Ok(()), Err)
    }

    /// The pickle.
    pub fn pickle(&self) -> &[u8] {
        &self.pickle
    }
}

/// Frames end near this many bytes (`FRAME_SIZE_TARGET`).
const FRAME: usize = 64 * 1024;

impl From<&PyObject> for Object {
    /// The object's pickle. Every part counts as an object of its own: Python writes a second
    /// mention of the same object in two or three bytes instead. Exact up to 64 KiB, where frames
    /// end.
    fn from(object: &PyObject) -> Object {
        let mut body = Vec::new();
        write(object, &mut body);
        body.push(b'.');
        let mut pickle = vec![0x80, 4];
        for frame in body.chunks(FRAME) {
            if frame.len() >= 4 {
                pickle.push(0x95);
                pickle.extend((frame.len() as u64).to_le_bytes());
            }
            pickle.extend(frame);
        }
        Object { pickle, refused: refused(object) }
    }
}

/// The error that Python raises for an object that it does not pickle, or of the first of its parts
/// that it does not.
fn refused(object: &PyObject) -> Option<DistError> {
    let (kind, text) = match object {
        PyObject::List(items) | PyObject::Tuple(items) | PyObject::Set(items) => {
            return items.iter().find_map(refused);
        }
        PyObject::Dict(items) => {
            return items.iter().find_map(|(key, value)| refused(key).or_else(|| refused(value)));
        }
        PyObject::Other { class: class @ ("ProcessGroup" | "Work"), .. } => {
            let class = format!("torch._C._distributed_c10d.{class}");
            (ErrorKind::TypeError, format!("cannot pickle '{class}' object"))
        }
        PyObject::Other { class: "Future", .. } => {
            (ErrorKind::RuntimeError, "Can not pickle torch.futures.Future".to_owned())
        }
        _ => return None,
    };
    Some(DistError::new(kind, text))
}

fn write(object: &PyObject, into: &mut Vec<u8>) {
    const MEMOIZE: u8 = 0x94;
    match object {
        PyObject::None => into.push(b'N'),
        PyObject::Bool(value) => into.push(if *value { 0x88 } else { 0x89 }),
        PyObject::Int(value) => write_int(*value, into),
        PyObject::Float(value) => {
            into.push(b'G');
            into.extend(value.to_be_bytes());
        }
        PyObject::Str(text) => {
            write_length(text.len(), [0x8c, b'X', 0x8d], into);
            into.extend(text.as_bytes());
            into.push(MEMOIZE);
        }
        PyObject::BigInt(digits) => {
            let bytes = twos_complement(digits);
            match u8::try_from(bytes.len()) {
                Ok(length) => into.extend([0x8a, length]),
                Err(_) => {
                    into.push(0x8b);
                    into.extend((bytes.len() as u32).to_le_bytes());
                }
            }
            into.extend(bytes);
        }
        PyObject::Bytes(bytes) | PyObject::Other { bytes, .. } => {
            write_length(bytes.len(), [b'C', b'B', 0x8e], into);
            into.extend(bytes);
            into.push(MEMOIZE);
        }
        PyObject::List(items) => {
            into.extend([b']', MEMOIZE]);
            for batch in items.chunks(1000) {
                match batch {
                    [item] => {
                        write(item, into);
                        into.push(b'a');
                    }
                    _ => {
                        into.push(b'(');
                        batch.iter().for_each(|item| write(item, into));
                        into.push(b'e');
                    }
                }
            }
        }
        PyObject::Tuple(items) if items.is_empty() => into.push(b')'),
        PyObject::Tuple(items) => {
            let short = (items.len() <= 3).then(|| 0x84 + items.len() as u8);
            if short.is_none() {
                into.push(b'(');
            }
            items.iter().for_each(|item| write(item, into));
            into.extend([short.unwrap_or(b't'), MEMOIZE]);
        }
        PyObject::Set(items) => {
            into.extend([0x8f, MEMOIZE]);
            for batch in items.chunks(1000) {
                into.push(b'(');
                batch.iter().for_each(|item| write(item, into));
                into.push(0x90);
            }
        }
        PyObject::Dict(items) => {
            into.extend([b'}', MEMOIZE]);
            for batch in items.chunks(1000) {
                let single = batch.len() == 1;
                if !single {
                    into.push(b'(');
                }
                for (key, value) in batch {
                    write(key, into);
                    write(value, into);
                }
                into.push(if single { b's' } else { b'u' });
            }
        }
    }
}

/// A whole number in decimal digits as the fewest bytes of its two's complement, the lowest first
/// (`pickle.encode_long`).
fn twos_complement(digits: &str) -> Vec<u8> {
    let negative = digits.starts_with('-');
    let mut bytes: Vec<u8> = vec![0];
    for digit in digits.bytes().filter(u8::is_ascii_digit) {
        let mut carry = u32::from(digit - b'0');
        for byte in &mut bytes {
            carry += u32::from(*byte) * 10;
            *byte = carry as u8;
            carry >>= 8;
        }
        if carry > 0 {
            bytes.push(carry as u8);
        }
    }
    // Room for the sign.
    bytes.push(0);
    if negative {
        let mut carry = true;
        for byte in &mut bytes {
            let (sum, over) = (!*byte).overflowing_add(u8::from(carry));
            (*byte, carry) = (sum, over);
        }
    }
    let fill = if negative { 0xff } else { 0 };
    while let [.., before, last] = bytes[..]
        && last == fill
        && before & 0x80 == fill & 0x80
    {
        bytes.pop();
    }
    bytes
}

fn write_int(value: i64, into: &mut Vec<u8>) {
    if let Ok(byte) = u8::try_from(value) {
        into.extend([b'K', byte]);
    } else if let Ok(short) = u16::try_from(value) {
        into.push(b'M');
        into.extend(short.to_le_bytes());
    } else if let Ok(int) = i32::try_from(value) {
        into.push(b'J');
        into.extend(int.to_le_bytes());
    } else {
        // As few bytes of the two's complement as tell the sign.
        let bytes = value.to_le_bytes();
        let fill = if value < 0 { 0xff } else { 0 };
        let sign = |byte: u8| byte & 0x80 == fill & 0x80;
        let mut length = 8;
        while length > 1 && bytes[length - 1] == fill && sign(bytes[length - 2]) {
            length -= 1;
        }
        into.extend([0x8a, length as u8]);
        into.extend(&bytes[..length]);
    }
}

/// The opcode for a length in one, four or eight bytes, and the length.
fn write_length(length: usize, opcodes: [u8; 3], into: &mut Vec<u8>) {
    if let Ok(byte) = u8::try_from(length) {
        into.extend([opcodes[0], byte]);
    } else if let Ok(int) = u32::try_from(length) {
        into.push(opcodes[1]);
        into.extend(int.to_le_bytes());
    } else {
        into.push(opcodes[2]);
        into.extend((length as u64).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PyObject::{BigInt, Bool, Bytes, Dict, Float, Int, List, None, Set, Str, Tuple};

    fn pickled(object: PyObject) -> Vec<u8> {
        Object::from(&object).pickle().to_vec()
    }

    /// `pickle.dumps(…)` of CPython 3.11, in hex digits.
    #[test]
    fn pickles_are_cpythons_byte_for_byte() {
        let text = |s: &str| Str(s.into());
        let cases = [
            (None, "80044e2e"),
            (Bool(true), "8004882e"),
            (Int(5), "80044b052e"),
            (Int(300), "80049504000000000000004d2c012e"),
            (Int(-7), "80049506000000000000004af9ffffff2e"),
            (Int(70_000), "80049506000000000000004a701101002e"),
            (Int(1 << 40), "80049509000000000000008a060000000000012e"),
            (Int(-(1 << 31) - 1), "80049508000000000000008a05ffffff7fff2e"),
            (Int(0x80_0000_0000), "80049509000000000000008a060000000080002e"),
            (Float(0.5), "8004950a00000000000000473fe00000000000002e"),
            (text("abc"), "80049507000000000000008c03616263942e"),
            (Bytes(vec![1, 2]), "800495060000000000000043020102942e"),
            (List(vec![]), "80045d942e"),
            (List(vec![Int(1)]), "80049506000000000000005d944b01612e"),
            (List(vec![Int(1), Int(2)]), "80049509000000000000005d94284b014b02652e"),
            (Tuple(vec![]), "8004292e"),
            (
                BigInt("9223372036854775808".into()),
                "8004950c000000000000008a090000000000000080002e",
            ),
            (
                BigInt("-9223372036854775809".into()),
                "8004950c000000000000008a09ffffffffffffff7fff2e",
            ),
            (
                BigInt("18446744073709551616".into()),
                "8004950c000000000000008a090000000000000000012e",
            ),
            (
                BigInt("-170141183460469231731687303715884105728".into()),
                "80049513000000000000008a10000000000000000000000000000000802e",
            ),
            (Set(vec![]), "80048f942e"),
            (Set(vec![Int(1), Int(2)]), "80049509000000000000008f94284b014b02902e"),
            (Tuple(vec![Int(1), Int(2)]), "80049507000000000000004b014b0286942e"),
            (
                Tuple(vec![Int(1), Int(2), Int(3), Int(4)]),
                "8004950c00000000000000284b014b024b034b0474942e",
            ),
            (
                Dict(vec![(text("rank"), Int(3))]),
                "8004950d000000000000007d948c0472616e6b944b03732e",
            ),
            (
                Dict(vec![(text("a"), None), (text("b"), Bool(false))]),
                "8004950f000000000000007d94288c0161944e8c01629489752e",
            ),
        ];
        for (object, expected) in cases {
            let hex: String = pickled(object).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, expected);
        }
    }

    /// The reader of data reads everything that the writer wrote.
    #[test]
    fn the_data_only_reader_reads_them_back() {
        let object = Dict(vec![(Str("loss".into()), Float(0.5)), (Int(-1), List(vec![None; 3]))]);
        let bytes = pickled(object);
        let pickle = lockstep_formats::pickle::Pickle::read(&bytes).unwrap();
        let items = pickle.dict(pickle.root()).unwrap();
        assert_eq!(pickle.str(items[0][0]), Some("loss"));
        assert_eq!(pickle.seq(items[1][1]).unwrap().len(), 3);
    }
}
