//! A fault as one short text, written and read.

use super::{Fault, FaultError, FaultKind, Moment};
use crate::rank::GlobalRank;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:rank={}", self.what.name(), self.rank)?;
        match self.when {
            Moment::Call(call) => write!(f, ",call={call}")?,
            Moment::AfterMs(ms) => write!(f, ",after_ms={ms}")?,
        }
        match self.what {
            FaultKind::Stop { for_ms: Some(ms) } => write!(f, ",for_ms={ms}"),
            FaultKind::Delay { by_ms } => write!(f, ",by_ms={by_ms}"),
            FaultKind::Resize { count } => write!(f, ",count={count}"),
            FaultKind::Stop { for_ms: None } | FaultKind::Kill | FaultKind::Drop => Ok(()),
        }
    }
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Fault, FaultError> {
        let shown: String = text.chars().take(100).collect();
        let wrong = |why: &str| FaultError::Text { text: shown.clone(), why: why.to_owned() };
        let (kind, rest) = text.trim().split_once(':').ok_or_else(|| wrong("it has no colon"))?;
        if !matches!(kind.trim(), "kill" | "stop" | "delay" | "drop" | "resize") {
            return Err(wrong("no such kind: there are kill, stop, delay, drop and resize"));
        }
        let mut given = BTreeMap::new();
        for part in rest.split(',') {
            let (key, number) =
                part.split_once('=').ok_or_else(|| wrong("its parts are NAME=NUMBER"))?;
            let number: u64 =
                number.trim().parse().map_err(|_| wrong("a part has no whole number"))?;
            if given.insert(key.trim(), number).is_some() {
                return Err(wrong("a part is there twice"));
            }
        }
        let narrow =
            |number: u64| u32::try_from(number).map_err(|_| wrong("a number is too large"));
        let rank = given.remove("rank").ok_or_else(|| wrong("it does not say which rank"))?;
        let rank = GlobalRank(narrow(rank)?);
        let when = match (given.remove("call"), given.remove("after_ms")) {
            (Some(0), None) => return Err(wrong("calls are counted from 1")),
            (Some(call), None) => Moment::Call(narrow(call)?),
            (None, Some(ms)) if matches!(kind, "kill" | "stop") => Moment::AfterMs(ms),
            (None, Some(_)) => return Err(wrong("only kill and stop have after_ms")),
            _ => return Err(wrong("it names one of call and after_ms")),
        };
        let mut needs =
            |key: &str| given.remove(key).ok_or_else(|| wrong(&format!("it has no {key}")));
        let what = match kind.trim() {
            "kill" => FaultKind::Kill,
            "stop" => FaultKind::Stop { for_ms: needs("for_ms").ok() },
            "delay" => FaultKind::Delay { by_ms: needs("by_ms")? },
            "drop" => FaultKind::Drop,
            _ => FaultKind::Resize { count: needs("count")? },
        };
        match given.keys().next() {
            Some(more) => Err(wrong(&format!("it has no use for {more}"))),
            None => Ok(Fault { rank, when, what }),
        }
    }
}
