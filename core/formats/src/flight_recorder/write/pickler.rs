//! Writes pickles of protocol 2 as PyTorch's pickler does: every string is remembered, and a frame
//! that was written before is referred to.

use lockstep_core::trace::Frame;
use std::collections::BTreeMap;

/// A pickle in the making. Callers put a value wherever one belongs: one a key, any number in a
/// list.
pub(super) struct Pickler {
    bytes: Vec<u8>,
    texts: BTreeMap<String, u32>,
    frames: BTreeMap<Frame, u32>,
    remembered: u32,
}

impl Pickler {
    pub(super) fn new() -> Pickler {
        Pickler {
            bytes: vec![0x80, 2],
            texts: BTreeMap::new(),
            frames: BTreeMap::new(),
            remembered: 0,
        }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(b'.');
        self.bytes
    }

    pub(super) fn dict(&mut self, items: impl FnOnce(&mut Pickler)) {
        self.bytes.extend(b"}(");
        items(self);
        self.bytes.push(b'u');
    }

    pub(super) fn list(&mut self, elements: impl FnOnce(&mut Pickler)) {
        self.bytes.extend(b"](");
        elements(self);
        self.bytes.push(b'e');
    }

    /// An item of a dict.
    pub(super) fn key(&mut self, key: &str, value: impl FnOnce(&mut Pickler)) {
        self.text(key);
        value(self);
    }

    pub(super) fn pair(&mut self, first: &str, second: &str) {
        self.text(first);
        self.text(second);
        self.bytes.push(0x86);
    }

    pub(super) fn text(&mut self, text: &str) {
        if let Some(index) = self.texts.get(text) {
            return self.refer(*index);
        }
        self.bytes.push(b'X');
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
        let index = self.remember();
        self.texts.insert(text.to_owned(), index);
    }

    pub(super) fn frame(&mut self, frame: &Frame) {
        if let Some(index) = self.frames.get(frame) {
            return self.refer(*index);
        }
        self.dict(|out| {
            out.key("name", |out| out.text(&frame.function));
            out.key("filename", |out| out.text(&frame.file));
            out.key("line", |out| out.number(u64::from(frame.line)));
        });
        let index = self.remember();
        self.frames.insert(frame.clone(), index);
    }

    pub(super) fn boolean(&mut self, value: bool) {
        self.bytes.push(if value { 0x88 } else { 0x89 });
    }

    pub(super) fn number(&mut self, number: u64) {
        if let Ok(small) = u8::try_from(number) {
            self.bytes.extend([b'K', small]);
        } else if let Ok(small) = u16::try_from(number) {
            self.bytes.push(b'M');
            self.bytes.extend(small.to_le_bytes());
        } else if let Ok(small) = i32::try_from(number) {
            self.bytes.push(b'J');
            self.bytes.extend(small.to_le_bytes());
        } else {
            // Nine bytes where the highest bit would be a sign.
            let bytes = number.to_le_bytes();
            let signed = number >> 63 == 1;
            self.bytes.extend([0x8a, if signed { 9 } else { 8 }]);
            self.bytes.extend(bytes);
            self.bytes.extend(signed.then_some(0));
        }
    }

    pub(super) fn number_or_none(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.number(number),
            None => self.bytes.push(b'N'),
        }
    }

    /// A number, or -1.
    pub(super) fn number_or_never(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.number(number),
            None => {
                self.bytes.push(b'J');
                self.bytes.extend((-1i32).to_le_bytes());
            }
        }
    }

    fn refer(&mut self, index: u32) {
        match u8::try_from(index) {
            Ok(small) => self.bytes.extend([b'h', small]),
            Err(_) => {
                self.bytes.push(b'j');
                self.bytes.extend(index.to_le_bytes());
            }
        }
    }

    fn remember(&mut self) -> u32 {
        let index = self.remembered;
        self.remembered += 1;
        match u8::try_from(index) {
            Ok(small) => self.bytes.extend([b'q', small]),
            Err(_) => {
                self.bytes.push(b'r');
                self.bytes.extend(index.to_le_bytes());
            }
        }
        index
    }
}
