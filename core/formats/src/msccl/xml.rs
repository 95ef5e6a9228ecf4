//! The XML text as a program: `algo`, `gpu`, `tb` and `step` elements, read as a stream.
//!
//! Foreign input stays small: no document type, no entities but the five of XML, nothing below `step`, and
//! numbers in their ranges before anything is sized by them.

use super::error::{LineError, MscclError};
use super::names::names;
use super::program::{Block, Gpu, Memory, Op, Place, Program, Stated, Step};
use lockstep_core::schedule::MAX_TABLE_RANKS;
use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use std::collections::BTreeMap;

/// Steps in all; most become one or two actions.
const MAX_STEPS: usize = 1 << 19;
/// Thread blocks of one GPU; msccl-executor-nccl has room for 1,024.
const MAX_BLOCKS: i64 = 1 << 12;
/// Attributes that are looked at; the executor looks at 16.
const MAX_ATTRIBUTES: usize = 64;
/// The largest chunk number and count in a file.
const MAX_CHUNK: i64 = 1 << 16;

/// Reads a program.
pub(super) fn parse(text: &str) -> Result<Program, MscclError> {
    let mut parser = Parser::default();
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    loop {
        let start = reader.buffer_position();
        let line = |position: u64| {
            let end = (position as usize).min(text.len());
            1 + text.as_bytes()[..end].iter().filter(|byte| **byte == b'\n').count()
        };
        let event = reader.read_event().map_err(|error| MscclError::Line {
            line: line(reader.error_position()),
            why: LineError::NotXml(error.to_string()),
        })?;
        let done = match event {
            Event::Start(element) => parser.open(&element),
            Event::End(_) => parser.close(),
            Event::Eof if parser.depth > 0 => {
                Err(LineError::OpenElement(ELEMENTS[parser.depth - 1]))
            }
            Event::Eof => break,
            Event::Text(text) if text.trim().is_empty() => Ok(()),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => Ok(()),
            Event::DocType(_) => Err(LineError::DocumentType),
            _ => Err(LineError::Text),
        };
        done.map_err(|why| MscclError::Line { line: line(start), why })?;
    }
    parser.program().map_err(|why| MscclError::Line { line: 1, why })
}

/// The depth of the reader, and the parts it has read.
#[derive(Default)]
struct Parser {
    /// Of `algo`, `gpu`, `tb` and `step`, how many are open.
    depth: usize,
    head: Option<Head>,
    /// By id, as they come.
    gpus: Vec<Option<OpenGpu>>,
    gpu: usize,
    tb: usize,
    steps: usize,
}

/// The attributes of `algo`.
struct Head {
    name: String,
    collective: String,
    root: u32,
    in_place: bool,
    chunks: u32,
}

/// A GPU whose blocks may come in any order.
#[derive(Default)]
struct OpenGpu {
    scratch: u32,
    blocks: BTreeMap<usize, Block>,
}

const ELEMENTS: [&str; 4] = ["algo", "gpu", "tb", "step"];

impl Parser {
    fn open(&mut self, element: &BytesStart<'_>) -> Result<(), LineError> {
        let name = element.name();
        match ELEMENTS.get(self.depth) {
            Some(expected) if name.as_ref() == *expected => {}
            Some(expected) => {
                let found = shown(name.as_ref());
                return Err(LineError::Element { found, expected });
            }
            None => return Err(LineError::BelowStep(shown(name.as_ref()))),
        }
        let attributes = Attributes::of(element)?;
        match self.depth {
            0 => self.open_algo(&attributes)?,
            1 => self.open_gpu(&attributes)?,
            2 => self.open_block(&attributes)?,
            _ => self.step(&attributes)?,
        }
        self.depth += 1;
        Ok(())
    }

    fn close(&mut self) -> Result<(), LineError> {
        self.depth = self.depth.saturating_sub(1);
        Ok(())
    }

    fn open_algo(&mut self, attributes: &Attributes) -> Result<(), LineError> {
        if self.head.is_some() {
            return Err(LineError::SecondProgram);
        }
        let gpus = attributes.number("ngpus", 1, i64::from(MAX_TABLE_RANKS))? as u32;
        let root = match attributes.text("root") {
            Some(_) => attributes.number("root", 0, i64::from(gpus) - 1)? as u32,
            None => 0,
        };
        let in_place = attributes.number("inplace", 0, 1)? == 1;
        let out_of_place = attributes.number("outofplace", 0, 1)? == 1;
        if !in_place && !out_of_place {
            return Err(LineError::NoPlace);
        }
        self.head = Some(Head {
            name: attributes.required("name")?.to_owned(),
            collective: attributes.required("coll")?.to_owned(),
            root,
            in_place,
            chunks: attributes.number("nchunksperloop", 1, MAX_CHUNK)? as u32,
        });
        self.gpus.resize_with(gpus as usize, || None);
        Ok(())
    }

    fn open_gpu(&mut self, attributes: &Attributes) -> Result<(), LineError> {
        let id = attributes.number("id", 0, self.gpus.len() as i64 - 1)? as usize;
        let scratch = attributes.number("s_chunks", 0, MAX_CHUNK)? as u32;
        // Their sizes follow from the collective; here they only have to be numbers.
        attributes.number("i_chunks", 0, MAX_CHUNK)?;
        attributes.number("o_chunks", 0, MAX_CHUNK)?;
        if self.gpus[id].is_some() {
            return Err(LineError::Twice(format!("gpu {id}")));
        }
        self.gpu = id;
        self.gpus[id] = Some(OpenGpu { scratch, blocks: BTreeMap::new() });
        Ok(())
    }

    fn open_block(&mut self, attributes: &Attributes) -> Result<(), LineError> {
        let id = attributes.number("id", 0, MAX_BLOCKS - 1)? as usize;
        let last = self.gpus.len() as i64 - 1;
        let peer = |attribute| -> Result<Option<u32>, LineError> {
            let peer = attributes.number(attribute, -1, last)?;
            if peer == self.gpu as i64 {
                return Err(LineError::OwnGpu { attribute, peer });
            }
            Ok(u32::try_from(peer).ok())
        };
        let block = Block {
            send: peer("send")?,
            recv: peer("recv")?,
            channel: attributes.number("chan", 0, i64::from(u16::MAX))? as u32,
            steps: Vec::new(),
        };
        let Some(gpu) = self.gpus[self.gpu].as_mut() else {
            return Err(LineError::Outside("a thread block", "a gpu"));
        };
        if gpu.blocks.insert(id, block).is_some() {
            return Err(LineError::Twice(format!("tb {id} of gpu {}", self.gpu)));
        }
        self.tb = id;
        Ok(())
    }

    fn step(&mut self, attributes: &Attributes) -> Result<(), LineError> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(LineError::TooMany { limit: MAX_STEPS, what: "steps" });
        }
        let gpu = self.gpus[self.gpu].as_mut();
        let Some(block) = gpu.and_then(|gpu| gpu.blocks.get_mut(&self.tb)) else {
            return Err(LineError::Outside("a step", "a thread block"));
        };
        let number = attributes.number("s", 0, MAX_STEPS as i64)? as usize;
        if number != block.steps.len() {
            let expected = block.steps.len();
            return Err(LineError::StepNumber { found: number, expected });
        }
        let kind = attributes.required("type")?;
        let op = Op::ALL.into_iter().find(|op| op.name() == kind).ok_or_else(|| {
            let known = Op::ALL.iter().map(|op| op.name()).collect();
            LineError::StepType { found: shown(kind), known }
        })?;
        let block_number = attributes.number("depid", -1, MAX_BLOCKS - 1)?;
        let step_number = attributes.number("deps", -1, MAX_STEPS as i64)?;
        let after = match (u32::try_from(block_number), u32::try_from(step_number)) {
            (Ok(tb), Ok(step)) => Some((tb, step)),
            (Err(_), _) => None,
            (Ok(tb), Err(_)) => return Err(LineError::NoDependency(tb)),
        };
        let count = attributes.number("cnt", 0, MAX_CHUNK)? as u32;
        if count == 0 && op != Op::Nop {
            return Err(LineError::NoChunks(op.name()));
        }
        block.steps.push(Step {
            op,
            src: attributes.place("srcbuf", "srcoff")?,
            dst: attributes.place("dstbuf", "dstoff")?,
            count,
            after,
            flagged: attributes.number("hasdep", 0, 1)? == 1,
            stated: match (attributes.text("at"), attributes.text("nth")) {
                (Some(_), Some(_)) => Some(Stated {
                    at: attributes.number("at", 0, MAX_STEPS as i64)? as u32,
                    nth: attributes.number("nth", 0, MAX_STEPS as i64)? as u32,
                }),
                _ => None,
            },
        });
        Ok(())
    }

    /// The program that was read, once the text has ended.
    fn program(self) -> Result<Program, LineError> {
        let Some(head) = self.head else {
            return Err(LineError::NoProgram);
        };
        let size = self.gpus.len() as u32;
        let collectives = names(head.root);
        let known = collectives.iter().find(|(name, _)| *name == head.collective);
        let Some((_, collective)) = known else {
            let known = collectives.iter().map(|(name, _)| *name).collect();
            return Err(LineError::Collective { found: shown(&head.collective), known });
        };
        // `nchunksperloop` counts the larger of the two tensors.
        let parts = if collective.in_place() { 1 } else { size };
        if head.chunks % parts != 0 {
            let (chunks, gpus, collective) = (head.chunks, size, head.collective);
            return Err(LineError::Chunks { chunks, gpus, collective });
        }
        let mut gpus = Vec::with_capacity(self.gpus.len());
        for (id, gpu) in self.gpus.into_iter().enumerate() {
            let gpu = gpu.ok_or(LineError::NoGpu { gpu: id, gpus: size })?;
            let missing = gpu.blocks.keys().zip(0..).find(|(tb, place)| *tb != place);
            if let Some((_, tb)) = missing {
                return Err(LineError::NoBlock { tb, gpu: id });
            }
            gpus.push(Gpu { scratch: gpu.scratch, blocks: gpu.blocks.into_values().collect() });
        }
        let (cut, in_place) = (head.chunks / parts, head.in_place);
        Ok(Program { name: head.name, collective: *collective, cut, in_place, gpus })
    }
}

/// The attributes of one element, unescaped.
struct Attributes(Vec<(String, String)>);

impl Attributes {
    fn of(element: &BytesStart<'_>) -> Result<Attributes, LineError> {
        let mut read: Vec<(String, String)> = Vec::new();
        for attribute in element.attributes().with_checks(false) {
            let attribute = attribute.map_err(|error| {
                let (name, why) = ("a bad attribute".to_owned(), error.to_string());
                LineError::Attribute { name, why }
            })?;
            let name = attribute.key.as_ref().to_owned();
            let value = attribute.normalized_value(XmlVersion::Explicit1_0);
            let value = value.map_err(|error| {
                let (name, why) = (shown(&name), error.to_string());
                LineError::Attribute { name, why }
            })?;
            let value = value.into_owned();
            if read.iter().any(|(known, _)| *known == name) {
                return Err(LineError::Twice(shown(&name)));
            }
            if read.len() == MAX_ATTRIBUTES {
                return Err(LineError::TooMany { limit: MAX_ATTRIBUTES, what: "attributes" });
            }
            read.push((name, value));
        }
        Ok(Attributes(read))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn required(&self, name: &'static str) -> Result<&str, LineError> {
        self.text(name).ok_or(LineError::Lacks(name))
    }

    fn number(&self, name: &'static str, from: i64, to: i64) -> Result<i64, LineError> {
        let text = self.required(name)?;
        let number = text.trim().parse::<i64>().ok().filter(|n| (from..=to).contains(n));
        number.ok_or_else(|| LineError::Number { name, found: shown(text), from, to })
    }

    fn place(&self, memory: &'static str, offset: &'static str) -> Result<Place, LineError> {
        let letter = self.required(memory)?;
        let named = Memory::ALL.into_iter().find(|known| known.letter() == letter);
        let named =
            named.ok_or_else(|| LineError::Memory { name: memory, found: shown(letter) })?;
        Ok(Place { memory: named, offset: self.number(offset, -1, MAX_CHUNK)? })
    }
}

/// The beginning of a stranger's text.
fn shown(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
