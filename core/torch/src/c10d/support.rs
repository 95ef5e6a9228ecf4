//! The calls that work on each device with each backend: the "Backends" tables of torch.distributed's
//! documents, as data.
//!
//! The tables are what the documents promise. The behaviour of 2.7.1 is in the calls themselves, and differs
//! in places, which [`Documents::note`] names.

use std::fmt;

/// A version of the documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Documents {
    /// PyTorch 0.4, which had the backend `tcp`.
    V0_4,
    /// PyTorch 1.x's last table, which is still in 2.7's documents.
    V2_7,
}

impl Documents {
    /// Every version, the oldest first.
    pub const ALL: [Documents; 2] = [Documents::V0_4, Documents::V2_7];

    /// The version's number.
    pub fn version(self) -> &'static str {
        match self {
            Documents::V0_4 => "0.4",
            Documents::V2_7 => "2.7",
        }
    }
}

/// A column of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the variants are the backends' names")]
pub enum Column {
    Tcp,
    Gloo,
    Mpi,
    Nccl,
}

impl Column {
    /// The backend's name.
    pub fn name(self) -> &'static str {
        match self {
            Column::Tcp => "tcp",
            Column::Gloo => "gloo",
            Column::Mpi => "mpi",
            Column::Nccl => "nccl",
        }
    }
}

/// The entry of a table for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It works.
    Yes,
    /// It does not.
    No,
    /// It depends on how the backend was built: an MPI that knows CUDA.
    Depends,
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Support::Yes => "✓",
            Support::No => "✘",
            Support::Depends => "?",
        })
    }
}

/// The rows of both tables, in their order.
pub const ROWS: [&str; 11] = [
    "send",
    "recv",
    "broadcast",
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "reduce_scatter",
    "all_to_all",
    "barrier",
];

/// A column's cells by row, as pairs of CPU and GPU: `y` yes, `n` no, `?` depends, and `--` for a
/// row that the table does not have.
type Cells = [&'static str; 11];

const V0_4: [(Column, Cells); 4] = [
    (Column::Tcp, ["yn", "yn", "yn", "yn", "yn", "yn", "yn", "yn", "--", "--", "yn"]),
    (Column::Gloo, ["nn", "nn", "yy", "yy", "nn", "nn", "nn", "nn", "--", "--", "yy"]),
    (Column::Mpi, ["y?", "y?", "y?", "y?", "y?", "y?", "y?", "y?", "--", "--", "y?"]),
    (Column::Nccl, ["nn", "nn", "ny", "ny", "ny", "ny", "nn", "nn", "--", "--", "nn"]),
];

const V2_7: [(Column, Cells); 3] = [
    (Column::Gloo, ["yn", "yn", "yy", "yy", "yn", "yn", "yn", "yn", "nn", "nn", "yn"]),
    (Column::Mpi, ["y?", "y?", "y?", "y?", "y?", "y?", "y?", "y?", "nn", "y?", "y?"]),
    (Column::Nccl, ["ny", "ny", "ny", "ny", "ny", "ny", "ny", "ny", "ny", "ny", "ny"]),
];

impl Documents {
    /// The table's columns, in order.
    pub fn columns(self) -> impl Iterator<Item = Column> {
        self.table().iter().map(|(column, _)| *column)
    }

    fn table(self) -> &'static [(Column, Cells)] {
        match self {
            Documents::V0_4 => &V0_4,
            Documents::V2_7 => &V2_7,
        }
    }

    /// The documents' entry for `call` (a name of [`ROWS`]) with `backend` on a CPU or a GPU;
    /// `None` if they have no such row or column.
    pub fn support(self, backend: Column, gpu: bool, call: &str) -> Option<Support> {
        let row = ROWS.iter().position(|name| *name == call)?;
        let (_, cells) = self.table().iter().find(|(column, _)| *column == backend)?;
        match cells[row].as_bytes().get(usize::from(gpu))? {
            b'y' => Some(Support::Yes),
            b'n' => Some(Support::No),
            b'?' => Some(Support::Depends),
            _ => None,
        }
    }

    /// The table's rows, in order: each call with its support in every column, on a CPU and on a GPU.
    pub fn rows(self) -> impl Iterator<Item = (&'static str, Vec<[Support; 2]>)> {
        ROWS.into_iter().filter_map(move |call| {
            let cells = self.columns().map(|column| {
                Some([self.support(column, false, call)?, self.support(column, true, call)?])
            });
            Some((call, cells.collect::<Option<_>>()?))
        })
    }

    /// Every note on the table, with its backend and call.
    pub fn notes(self) -> impl Iterator<Item = (Column, &'static str, &'static str)> {
        ROWS.into_iter().flat_map(move |call| {
            self.columns().filter_map(move |column| Some((column, call, self.note(column, call)?)))
        })
    }

    /// A note on the cases in which PyTorch 2.7.1 really does something else than its documents say.
    pub fn note(self, backend: Column, call: &str) -> Option<&'static str> {
        match (self, backend, call) {
            (Documents::V2_7, Column::Gloo, "reduce_scatter") => Some(
                "2.7.1's reduce_scatter_tensor works all the same, by an all_reduce that always \
                 sums; only the list form is refused",
            ),
            (Documents::V2_7, Column::Gloo, "all_to_all") => {
                Some("2.7.1's all_to_all_single works all the same; only the list form is refused")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_of_every_table_can_be_asked() {
        for documents in Documents::ALL {
            for column in documents.columns() {
                let known = ROWS.iter().filter(|row| {
                    let cell = |gpu| documents.support(column, gpu, row);
                    assert_eq!(cell(false).is_some(), cell(true).is_some());
                    cell(false).is_some()
                });
                let rows = if documents == Documents::V0_4 { 9 } else { 11 };
                assert_eq!(known.count(), rows, "{documents:?} {column:?}");
                assert_eq!(documents.rows().count(), rows);
            }
        }
        let said = Documents::V2_7.support(Column::Nccl, false, "broadcast");
        assert_eq!(said, Some(Support::No));
        assert_eq!(Documents::V2_7.support(Column::Tcp, false, "send"), None);
        assert_eq!(Documents::V0_4.support(Column::Mpi, true, "send"), Some(Support::Depends));
    }
}
