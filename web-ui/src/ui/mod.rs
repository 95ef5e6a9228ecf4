//! The parts that views are made of. A component a file.

mod buffer_map;
mod buffers;
mod canvas;
mod chart;
mod comparison;
mod elements;
mod facts;
mod field;
mod findings;
pub(crate) mod keys;
mod matrix;
mod real_run;
mod ring;
mod source;
mod timeline;
mod transport;
mod waits;
mod weave;

pub(crate) use buffer_map::BufferMap;
pub(crate) use buffers::Buffers;
pub(crate) use chart::{Chart, Curve};
pub(crate) use comparison::ComparisonCard;
pub(crate) use elements::Elements;
pub(crate) use facts::Facts;
pub(crate) use field::{Choice, NumberField, SelectField, SizeField};
pub(crate) use findings::Findings;
pub(crate) use keys::KeysHelp;
pub(crate) use matrix::Matrix;
pub(crate) use real_run::RealRun;
pub(crate) use ring::Ring;
pub(crate) use source::SourceView;
pub(crate) use timeline::{Legend, Timeline};
pub(crate) use transport::Transport;
pub(crate) use waits::WaitGraph;
pub(crate) use weave::WeaveDrawing;
