//! The stack machine that reads a pickle.

use super::{DictId, MAX_STACK, Pickle, PickleError, SeqId, Span, TextId, Value, opcode, text};
use std::collections::BTreeMap;

/// Room for so many values is made before any is read.
const MAX_RESERVED: usize = 1 << 18;

impl<'a> Pickle<'a> {
    /// Reads a pickle. Bytes after its end are ignored, as in Python.
    ///
    /// # Errors
    /// When the pickle ends early, is malformed, or asks for more than data.
    pub fn read(bytes: &'a [u8]) -> Result<Pickle<'a>, PickleError> {
        let mut reader = Reader {
            bytes,
            at: 0,
            opcode_at: 0,
            code: b'.',
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            sparse_memo: BTreeMap::new(),
            pickle: Pickle {
                root: Value::None,
                // A dump's values take three bytes each; what is no dump may have fewer.
                elements: Vec::with_capacity((bytes.len() / 3).min(MAX_RESERVED)),
                sequences: Vec::new(),
                dicts: Vec::new(),
                texts: Vec::new(),
            },
        };
        while reader.step()? {}
        reader.pickle.root = reader.pop()?;
        Ok(reader.pickle)
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    /// The next byte to read.
    at: usize,
    /// The offset of the opcode in work.
    opcode_at: usize,
    /// The opcode in work.
    code: u8,
    stack: Vec<Value<'a>>,
    /// Heights of the stack at the open marks.
    marks: Vec<usize>,
    /// Remembered values; writers number them from 0 up.
    memo: Vec<Value<'a>>,
    /// Those whose number jumps ahead: a stranger may write any.
    sparse_memo: BTreeMap<u32, Value<'a>>,
    pickle: Pickle<'a>,
}

impl<'a> Reader<'a> {
    /// Carries out one opcode; false after the last.
    #[inline(always)]
    fn step(&mut self) -> Result<bool, PickleError> {
        self.opcode_at = self.at;
        let code = self.byte()?;
        let at = self.opcode_at;
        self.code = code;
        match code {
            // Half of a dump's opcodes: names of fields.
            b'h' => {
                let index = u32::from(self.byte()?);
                self.recall(index)?;
            }
            b'.' => return Ok(false),
            0x80 => {
                let protocol = self.byte()?;
                if protocol > 5 {
                    return Err(PickleError::Protocol { protocol, at });
                }
            }
            // Frames only tell how much to read ahead.
            0x95 => drop(self.array::<8>()?),
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            b'I' | b'L' | b'J' | b'K' | b'M' | 0x8a | 0x8b | b'F' | b'G' => {
                let number = self.number(code)?;
                self.push(number)?;
            }
            b'S' | b'T' | b'U' | b'V' | b'X' | 0x8c | 0x8d | b'B' | b'C' | 0x8e | 0x96 => {
                let string = self.string(code)?;
                self.push(string)?;
            }
            b'(' => {
                if self.marks.len() >= MAX_STACK {
                    return Err(PickleError::TooDeep { limit: MAX_STACK, at });
                }
                self.marks.push(self.stack.len());
            }
            b'0' => drop(self.pop()?),
            b'1' => {
                let from = self.mark()?;
                self.stack.truncate(from);
            }
            b'2' => {
                let top = self.top()?;
                self.push(top)?;
            }
            b']' | b')' | b'l' | b't' | 0x85..=0x87 | b'a' | b'e' => self.sequence(code)?,
            b'}' | b'd' | b's' | b'u' => self.mapping(code)?,
            b'p' | b'q' | b'r' | 0x94 => {
                let index = self.memo_index(code)?;
                let top = self.top()?;
                self.remember(index, top);
            }
            b'g' | b'j' => {
                let index = self.memo_index(code)?;
                self.recall(index)?;
            }
            _ if opcode::name(code).is_none() => {
                return Err(PickleError::UnknownOpcode { byte: code, at });
            }
            _ if opcode::runs_code(code) => {
                return Err(PickleError::Refused { opcode: self.opcode(), at });
            }
            _ => return Err(PickleError::Unsupported { opcode: self.opcode(), at }),
        }
        Ok(true)
    }

    fn sequence(&mut self, code: u8) -> Result<(), PickleError> {
        // TUPLE1, TUPLE2, TUPLE3.
        let from = match code {
            b']' | b')' => self.stack.len(),
            b'l' | b't' | b'e' => self.mark()?,
            b'a' => self.floor_checked(1)?,
            _ => self.floor_checked(usize::from(code) - 0x84)?,
        };
        if matches!(code, b'a' | b'e') {
            let Value::List(id) = self.below(from)? else { return Err(self.wrong_kind("list")) };
            let span = self.pickle.sequences.get(id.0 as usize);
            let mut span = *span.ok_or_else(|| self.wrong_kind("list"))?;
            self.extend(&mut span, from);
            if let Some(place) = self.pickle.sequences.get_mut(id.0 as usize) {
                *place = span;
            }
            return Ok(());
        }
        let mut span = Span::default();
        self.extend(&mut span, from);
        let id = SeqId(self.pickle.sequences.len() as u32);
        self.pickle.sequences.push(span);
        self.push(if matches!(code, b']' | b'l') { Value::List(id) } else { Value::Tuple(id) })
    }

    fn mapping(&mut self, code: u8) -> Result<(), PickleError> {
        let from = match code {
            b'}' => self.stack.len(),
            b's' => self.floor_checked(2)?,
            _ => self.mark()?,
        };
        if !(self.stack.len() - from).is_multiple_of(2) {
            return Err(PickleError::StackUnderflow { opcode: self.opcode(), at: self.opcode_at });
        }
        if matches!(code, b'}' | b'd') {
            let mut span = Span::default();
            self.extend(&mut span, from);
            let id = DictId(self.pickle.dicts.len() as u32);
            self.pickle.dicts.push(span);
            return self.push(Value::Dict(id));
        }
        let Value::Dict(id) = self.below(from)? else { return Err(self.wrong_kind("dict")) };
        let span = self.pickle.dicts.get(id.0 as usize);
        let mut span = *span.ok_or_else(|| self.wrong_kind("dict"))?;
        self.extend(&mut span, from);
        if let Some(place) = self.pickle.dicts.get_mut(id.0 as usize) {
            *place = span;
        }
        Ok(())
    }

    /// Takes the values from `from` on off the stack and adds them to a container. One that has no room left
    /// moves to the end, with room for as many again: however a file takes turns between containers, the
    /// copied bytes stay proportionate to it.
    fn extend(&mut self, span: &mut Span, from: usize) {
        let values = self.stack.get(from..).unwrap_or_default();
        let elements = &mut self.pickle.elements;
        let wanted = span.length + values.len();
        if span.length == 0 || (span.start + span.length == elements.len()) {
            // It is new, or the last one: it grows where it lies.
            if span.length == 0 {
                span.start = elements.len();
            }
            elements.extend_from_slice(values);
            span.room = wanted;
        } else {
            if wanted > span.room {
                let start = elements.len();
                elements.extend_from_within(span.start..span.start + span.length);
                *span = Span { start, length: span.length, room: wanted * 2 };
                elements.resize(start + span.room, Value::None);
            }
            if let Some(place) = elements.get_mut(span.start + span.length..span.start + wanted) {
                place.copy_from_slice(values);
            }
        }
        span.length = wanted;
        self.stack.truncate(from);
    }

    #[inline]
    fn number(&mut self, code: u8) -> Result<Value<'a>, PickleError> {
        Ok(match code {
            b'J' => Value::Int(i64::from(i32::from_le_bytes(self.array()?))),
            b'K' => Value::Int(i64::from(self.byte()?)),
            b'M' => Value::Int(i64::from(u16::from_le_bytes(self.array()?))),
            b'G' => Value::Float(f64::from_be_bytes(self.array()?)),
            0x8a => {
                let length = usize::from(self.byte()?);
                // Time stamps.
                match length {
                    8 => Value::Int(i64::from_le_bytes(self.array()?)),
                    _ => self.long(length)?,
                }
            }
            0x8b => {
                let length = u32::from_le_bytes(self.array()?) as usize;
                self.long(length)?
            }
            b'F' => {
                let text = self.line_text()?;
                Value::Float(text.parse().map_err(|_| self.bad_argument())?)
            }
            // Protocol 0 writes booleans as the integers `00` and `01`.
            _ => match self.line_text()?.trim_end_matches('L') {
                "00" if code == b'I' => Value::Bool(false),
                "01" if code == b'I' => Value::Bool(true),
                digits => {
                    let value: i128 = digits.parse().map_err(|_| self.bad_argument())?;
                    self.integer(value)?
                }
            },
        })
    }

    /// A little-endian two's complement integer of `length` bytes.
    fn long(&mut self, length: usize) -> Result<Value<'a>, PickleError> {
        let bytes = self.take(length)?;
        let Some(&last) = bytes.last() else { return Ok(Value::Int(0)) };
        if length > 16 {
            return Err(PickleError::IntegerTooLarge { at: self.opcode_at });
        }
        let mut wide = if last & 0x80 == 0 { [0; 16] } else { [0xff; 16] };
        for (to, from) in wide.iter_mut().zip(bytes) {
            *to = *from;
        }
        self.integer(i128::from_le_bytes(wide))
    }

    fn integer(&self, value: i128) -> Result<Value<'a>, PickleError> {
        if let Ok(value) = i64::try_from(value) {
            return Ok(Value::Int(value));
        }
        let too_large = PickleError::IntegerTooLarge { at: self.opcode_at };
        u64::try_from(value).map(Value::Unsigned).map_err(|_| too_large)
    }

    fn string(&mut self, code: u8) -> Result<Value<'a>, PickleError> {
        let length = match code {
            b'S' => {
                let text = text::unquote(self.line()?).ok_or_else(|| self.bad_argument())?;
                return Ok(self.text(text));
            }
            b'V' => {
                let text = text::raw_unicode(self.line()?).ok_or_else(|| self.bad_argument())?;
                return Ok(self.text(text));
            }
            b'U' | 0x8c | b'C' => usize::from(self.byte()?),
            b'T' | b'X' | b'B' => u32::from_le_bytes(self.array()?) as usize,
            // A length that does not fit is longer than any file.
            _ => usize::try_from(u64::from_le_bytes(self.array()?)).unwrap_or(usize::MAX),
        };
        let bytes = self.take(length)?;
        Ok(match (code, std::str::from_utf8(bytes)) {
            (b'B' | b'C' | 0x8e | 0x96, _) => Value::Bytes(bytes),
            (_, Ok(text)) => Value::Str(text),
            // File names need not be UTF-8.
            (_, Err(_)) => self.text(String::from_utf8_lossy(bytes).into_owned()),
        })
    }

    fn text(&mut self, text: String) -> Value<'a> {
        let id = TextId(self.pickle.texts.len() as u32);
        self.pickle.texts.push(text);
        Value::Text(id)
    }

    #[inline]
    fn memo_index(&mut self, code: u8) -> Result<u32, PickleError> {
        Ok(match code {
            b'q' | b'h' => u32::from(self.byte()?),
            b'r' | b'j' => u32::from_le_bytes(self.array()?),
            0x94 => (self.memo.len() + self.sparse_memo.len()) as u32,
            _ => {
                let text = self.line_text()?;
                text.parse().map_err(|_| self.bad_argument())?
            }
        })
    }

    /// Pushes a remembered value.
    #[inline(always)]
    fn recall(&mut self, index: u32) -> Result<(), PickleError> {
        if let Some(value) = self.memo.get(index as usize) {
            let value = *value;
            return self.push(value);
        }
        let value = self.sparse_memo.get(&index).copied();
        self.push(value.ok_or(PickleError::NotInMemo { index, at: self.opcode_at })?)
    }

    #[inline]
    fn remember(&mut self, index: u32, value: Value<'a>) {
        let place = index as usize;
        if let Some(slot) = self.memo.get_mut(place) {
            *slot = value;
        } else if place == self.memo.len() && self.sparse_memo.is_empty() {
            self.memo.push(value);
        } else {
            self.sparse_memo.insert(index, value);
        }
    }

    // Inlined, a value is put together where it stays.
    #[inline(always)]
    fn push(&mut self, value: Value<'a>) -> Result<(), PickleError> {
        if self.stack.len() >= MAX_STACK {
            return Err(PickleError::TooDeep { limit: MAX_STACK, at: self.opcode_at });
        }
        self.stack.push(value);
        Ok(())
    }

    /// The first of the values that the opcode may take `count` of: not below the last mark.
    fn floor_checked(&self, count: usize) -> Result<usize, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack.len().checked_sub(count) {
            Some(from) if from >= floor => Ok(from),
            _ => Err(self.underflow()),
        }
    }

    fn pop(&mut self) -> Result<Value<'a>, PickleError> {
        self.floor_checked(1)?;
        self.stack.pop().ok_or_else(|| self.underflow())
    }

    fn top(&self) -> Result<Value<'a>, PickleError> {
        self.floor_checked(1)?;
        self.stack.last().copied().ok_or_else(|| self.underflow())
    }

    /// The value under those from `from` on, which an opcode adds them to.
    fn below(&self, from: usize) -> Result<Value<'a>, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let at = from.checked_sub(1).filter(|at| *at >= floor).ok_or_else(|| self.underflow())?;
        self.stack.get(at).copied().ok_or_else(|| self.underflow())
    }

    /// Takes the last mark away: where the values behind it begin.
    fn mark(&mut self) -> Result<usize, PickleError> {
        let mark = self.marks.pop().ok_or_else(|| self.underflow())?;
        if mark > self.stack.len() {
            return Err(self.underflow());
        }
        Ok(mark)
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, PickleError> {
        let byte = self.bytes.get(self.at).ok_or(PickleError::Truncated { at: self.at })?;
        self.at += 1;
        Ok(*byte)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], PickleError> {
        let truncated = PickleError::Truncated { at: self.bytes.len() };
        let end = self.at.checked_add(length).ok_or(truncated.clone())?;
        let taken = self.bytes.get(self.at..end).ok_or(truncated)?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| PickleError::Truncated { at: self.at })
    }

    /// The rest of the line, without its end.
    fn line(&mut self) -> Result<&'a [u8], PickleError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| *byte == b'\n');
        let length = length.ok_or(PickleError::Truncated { at: self.bytes.len() })?;
        let line = self.take(length)?;
        self.at += 1;
        Ok(line)
    }

    fn line_text(&mut self) -> Result<&'a str, PickleError> {
        let line = self.line()?;
        std::str::from_utf8(line).map(str::trim).map_err(|_| self.bad_argument())
    }

    /// The name of the opcode in work.
    fn opcode(&self) -> &'static str {
        opcode::name(self.code).unwrap_or("an unknown opcode")
    }

    fn bad_argument(&self) -> PickleError {
        PickleError::BadArgument { opcode: self.opcode(), at: self.opcode_at }
    }

    fn underflow(&self) -> PickleError {
        PickleError::StackUnderflow { opcode: self.opcode(), at: self.opcode_at }
    }

    fn wrong_kind(&self, wanted: &'static str) -> PickleError {
        PickleError::WrongKind { opcode: self.opcode(), wanted, at: self.opcode_at }
    }
}
