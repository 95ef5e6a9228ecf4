//! A schedule from a file that was proved: the only kind that a plan can use.

use super::{Loss, ProofError, Schedule, ScheduleError, Standing, Table, prove};
use crate::collective::Collective;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A table that is proved: no other table is ever run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Table", into = "Table")]
pub struct ProvedTable(Arc<Table>);

impl ProvedTable {
    /// Proves a table.
    ///
    /// # Errors
    /// [`ScheduleError::Refused`] with the first place where it goes wrong.
    pub fn new(table: Table) -> Result<ProvedTable, ScheduleError> {
        let table = Arc::new(table);
        let claims = table.collective();
        let schedule = Schedule::unproved(table.clone(), claims);
        match prove(&schedule) {
            Ok(_) => Ok(ProvedTable(table)),
            Err(error) => {
                let (table, error) = (table.name().to_owned(), Box::new(error));
                Err(ScheduleError::Refused { table, claims, error })
            }
        }
    }

    /// The contents of the ranks' buffers before `step` of a table, proved or not: a refused one
    /// can be looked at too.
    pub fn standing(table: &Arc<Table>, step: u32) -> Standing {
        Standing::before(&Schedule::unproved(table.clone(), table.collective()), step)
    }

    /// The place where the missing part of a refused table's wrong result was lost, if it was.
    pub fn loss(table: &Arc<Table>, error: &ProofError) -> Option<Loss> {
        Loss::of(&Schedule::unproved(table.clone(), table.collective()), error)
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.0
    }
}

impl TryFrom<Table> for ProvedTable {
    type Error = ScheduleError;

    fn try_from(table: Table) -> Result<ProvedTable, ScheduleError> {
        ProvedTable::new(table)
    }
}

impl From<ProvedTable> for Table {
    fn from(proved: ProvedTable) -> Table {
        Arc::unwrap_or_clone(proved.0)
    }
}

impl Schedule {
    /// The schedule of `collective` that a file gave, among `size` ranks.
    ///
    /// # Errors
    /// When it carries out another call, or among other ranks.
    pub fn from_table(
        table: &ProvedTable,
        collective: Collective,
        size: u32,
    ) -> Result<Schedule, ScheduleError> {
        let table = table.table();
        if !table.carries_out(collective) || table.size() != size {
            return Err(ScheduleError::OtherCall {
                table: table.name().to_owned(),
                claims: table.collective(),
                table_size: table.size(),
                collective,
                size,
            });
        }
        Ok(Schedule::unproved(table.clone(), collective))
    }
}
