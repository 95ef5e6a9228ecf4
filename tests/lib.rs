//! The parts that tests across rooms share: the real binary, the real service over HTTP, a real
//! browser. What is started here is ended here, by its process id.

mod binary;

mod page;
mod service;
mod web_browser;

pub use binary::{Output, Patience, binary, data, lockstep};

pub use page::Page;
pub use service::{Answer, Service};
pub use web_browser::{Browser, Kind};
