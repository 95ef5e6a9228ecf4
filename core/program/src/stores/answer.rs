//! The answer of an operation, from a table that holds the keys it finds.

use super::log::{Answer, What};
use lockstep_torch::c10d::DistError;
use lockstep_torch::c10d::store::{self, Store};

/// Makes a change and answers it; [`Answer::Done`] for an operation that changes nothing.
pub(super) fn change(table: &mut Store, key: &str, what: &What) -> Answer {
    let answer = match what {
        What::Set(value) => table.set(key, value).map(|()| Answer::Done),
        What::Append(value) => table.append(key, value).map(|()| Answer::Done),
        What::Add(amount) => table.add(key, *amount).map(Answer::Number),
        What::CompareSet { expected, desired } => {
            table.compare_set(key, expected, desired).map(Answer::Bytes)
        }
        What::Delete => table.delete_key(key).map(Answer::Yes),
        _ => Ok(Answer::Done),
    };
    answer.unwrap_or_else(Answer::Raises)
}

/// The table's answer to an operation, which may have to wait: `Err` names the first key that is missing.
pub(super) fn asked(table: &Store, keys: &[String], what: &What) -> Result<Answer, String> {
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    let answered = |found: Result<store::Answer<Answer>, DistError>| match found {
        Ok(store::Answer::Ready(answer)) => Ok(answer),
        Ok(store::Answer::WouldBlock(missing)) => {
            Err(missing.into_iter().next().unwrap_or_default())
        }
        Err(error) => Ok(Answer::Raises(error)),
    };
    let ready = store::Answer::Ready;
    match (what, &names[..]) {
        (What::Get, [key]) => answered(table.get(key).map(|got| got.map(Answer::Bytes))),
        (What::MultiGet, keys) => answered(table.multi_get(keys).map(|got| got.map(Answer::Many))),
        (What::Wait, keys) => answered(table.wait(keys).map(|got| got.map(|()| Answer::Done))),
        (What::Check, keys) => answered(table.check(keys).map(Answer::Yes).map(ready)),
        (What::NumKeys, _) => {
            answered(table.num_keys().map(|keys| Answer::Number(keys as i64)).map(ready))
        }
        _ => Ok(Answer::Done),
    }
}
