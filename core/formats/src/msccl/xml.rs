//! The XML text as a program: `algo`, `gpu`, `tb` and `step` elements, read as a stream.
//!
//! What comes from strangers stays small: no document type, no entities but the five of XML,
//! nothing below `step`, and numbers in their ranges before anything is sized by them.

use super::error::MscclError;
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
            why: format!("this is not XML: {error}"),
        })?;
        let done = match event {
            Event::Start(element) => parser.open(&element),
            Event::End(_) => parser.close(),
            Event::Eof if parser.depth > 0 => {
                Err(format!("the file ends inside <{}>", ELEMENTS[parser.depth - 1]))
            }
            Event::Eof => break,
            Event::Text(text) if text.trim().is_empty() => Ok(()),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => Ok(()),
            Event::DocType(_) => Err("a document type is not read: remove it".to_owned()),
            _ => Err("there is text between the elements".to_owned()),
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
    fn open(&mut self, element: &BytesStart<'_>) -> Result<(), String> {
        let name = element.name();
        match ELEMENTS.get(self.depth) {
            Some(expected) if name.as_ref() == *expected => {}
            Some(expected) => {
                return Err(format!("<{}> where <{expected}> should be", shown(name.as_ref())));
            }
            None => return Err(format!("<{}> inside a <step>", shown(name.as_ref()))),
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

    fn close(&mut self) -> Result<(), String> {
        self.depth = self.depth.saturating_sub(1);
        Ok(())
    }

    fn open_algo(&mut self, attributes: &Attributes) -> Result<(), String> {
        if self.head.is_some() {
            return Err("a second <algo>: a file holds one program".to_owned());
        }
        let gpus = attributes.number("ngpus", 1, i64::from(MAX_TABLE_RANKS))? as u32;
        let root = match attributes.text("root") {
            Some(_) => attributes.number("root", 0, i64::from(gpus) - 1)? as u32,
            None => 0,
        };
        let in_place = attributes.number("inplace", 0, 1)? == 1;
        let out_of_place = attributes.number("outofplace", 0, 1)? == 1;
        if !in_place && !out_of_place {
            return Err("inplace and outofplace are both 0: the program is for no call".to_owned());
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

    fn open_gpu(&mut self, attributes: &Attributes) -> Result<(), String> {
        let id = attributes.number("id", 0, self.gpus.len() as i64 - 1)? as usize;
        let scratch = attributes.number("s_chunks", 0, MAX_CHUNK)? as u32;
        // Their sizes follow from the collective; here they only have to be numbers.
        attributes.number("i_chunks", 0, MAX_CHUNK)?;
        attributes.number("o_chunks", 0, MAX_CHUNK)?;
        if self.gpus[id].is_some() {
            return Err(format!("gpu {id} is there twice"));
        }
        self.gpu = id;
        self.gpus[id] = Some(OpenGpu { scratch, blocks: BTreeMap::new() });
        Ok(())
    }

    fn open_block(&mut self, attributes: &Attributes) -> Result<(), String> {
        let id = attributes.number("id", 0, MAX_BLOCKS - 1)? as usize;
        let last = self.gpus.len() as i64 - 1;
        let peer = |name| -> Result<Option<u32>, String> {
            let peer = attributes.number(name, -1, last)?;
            if peer == self.gpu as i64 {
                return Err(format!("{name}=\"{peer}\" is the thread block's own gpu"));
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
            return Err("a thread block outside a gpu".to_owned());
        };
        if gpu.blocks.insert(id, block).is_some() {
            return Err(format!("tb {id} of gpu {} is there twice", self.gpu));
        }
        self.tb = id;
        Ok(())
    }

    fn step(&mut self, attributes: &Attributes) -> Result<(), String> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(format!("more than {MAX_STEPS} steps"));
        }
        let gpu = self.gpus[self.gpu].as_mut();
        let Some(block) = gpu.and_then(|gpu| gpu.blocks.get_mut(&self.tb)) else {
            return Err("a step outside a thread block".to_owned());
        };
        let number = attributes.number("s", 0, MAX_STEPS as i64)? as usize;
        if number != block.steps.len() {
            let expected = block.steps.len();
            return Err(format!("step s=\"{number}\" where s=\"{expected}\" should be"));
        }
        let kind = attributes.required("type")?;
        let op = Op::ALL.into_iter().find(|op| op.name() == kind).ok_or_else(|| {
            let kinds: Vec<_> = Op::ALL.iter().map(|op| op.name()).collect();
            format!("type=\"{}\" is no step; it is one of {}", shown(kind), kinds.join(", "))
        })?;
        let block_number = attributes.number("depid", -1, MAX_BLOCKS - 1)?;
        let step_number = attributes.number("deps", -1, MAX_STEPS as i64)?;
        let after = match (u32::try_from(block_number), u32::try_from(step_number)) {
            (Ok(tb), Ok(step)) => Some((tb, step)),
            (Err(_), _) => None,
            (Ok(tb), Err(_)) => return Err(format!("depid=\"{tb}\" without a step in deps")),
        };
        let count = attributes.number("cnt", 0, MAX_CHUNK)? as u32;
        if count == 0 && op != Op::Nop {
            return Err(format!("cnt=\"0\": a step of type {kind} moves at least one chunk"));
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
    fn program(self) -> Result<Program, String> {
        let Some(head) = self.head else {
            return Err("there is no <algo>: this is no MSCCL program".to_owned());
        };
        let size = self.gpus.len() as u32;
        let collectives = names(head.root);
        let known = collectives.iter().find(|(name, _)| *name == head.collective);
        let Some((_, collective)) = known else {
            let names: Vec<_> = collectives.iter().map(|(name, _)| *name).collect();
            return Err(format!(
                "coll=\"{}\" promises nothing that could be proved; it is one of {}",
                shown(&head.collective),
                names.join(", ")
            ));
        };
        // `nchunksperloop` counts the larger of the two tensors.
        let parts = if collective.in_place() { 1 } else { size };
        if head.chunks % parts != 0 {
            return Err(format!(
                "nchunksperloop=\"{}\" is no multiple of ngpus=\"{size}\", but {} has a part for \
                 every gpu",
                head.chunks, head.collective
            ));
        }
        let mut gpus = Vec::with_capacity(self.gpus.len());
        for (id, gpu) in self.gpus.into_iter().enumerate() {
            let gpu = gpu.ok_or_else(|| format!("gpu {id} of ngpus=\"{size}\" is missing"))?;
            let missing = gpu.blocks.keys().zip(0..).find(|(tb, place)| *tb != place);
            if let Some((_, tb)) = missing {
                return Err(format!("tb {tb} of gpu {id} is missing: blocks count from 0"));
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
    fn of(element: &BytesStart<'_>) -> Result<Attributes, String> {
        let mut read: Vec<(String, String)> = Vec::new();
        for attribute in element.attributes().with_checks(false) {
            let attribute = attribute.map_err(|error| format!("a bad attribute: {error}"))?;
            let name = attribute.key.as_ref().to_owned();
            let value = attribute.normalized_value(XmlVersion::Explicit1_0);
            let value = value.map_err(|error| format!("{}: {error}", shown(&name)))?.into_owned();
            if read.iter().any(|(known, _)| *known == name) {
                return Err(format!("{} is there twice", shown(&name)));
            }
            if read.len() == MAX_ATTRIBUTES {
                return Err(format!("more than {MAX_ATTRIBUTES} attributes"));
            }
            read.push((name, value));
        }
        Ok(Attributes(read))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn required(&self, name: &str) -> Result<&str, String> {
        self.text(name).ok_or_else(|| format!("the attribute {name} is missing"))
    }

    fn number(&self, name: &str, from: i64, to: i64) -> Result<i64, String> {
        let text = self.required(name)?;
        let number = text.trim().parse::<i64>().ok().filter(|n| (from..=to).contains(n));
        number.ok_or_else(|| {
            format!("{name}=\"{}\" is no whole number from {from} to {to}", shown(text))
        })
    }

    fn place(&self, memory: &str, offset: &str) -> Result<Place, String> {
        let letter = self.required(memory)?;
        let named = Memory::ALL.into_iter().find(|known| known.letter() == letter);
        let named =
            named.ok_or_else(|| format!("{memory}=\"{}\" is none of i, o and s", shown(letter)))?;
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
