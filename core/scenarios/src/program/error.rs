//! The reasons that a program cannot become a plan.

use std::fmt;

/// The problem with a program, and its place.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProgramError {
    /// The line, counted from 1; 0 when it is the whole program.
    pub line: u32,
    /// The column, counted from 1; 0 when it is the whole line.
    pub column: u32,
    /// The problem, in words.
    pub message: String,
    /// The advice.
    pub help: Option<String>,
    /// The calls that led there, outermost first: function and line.
    pub stack: Vec<(String, u32)>,
}

impl ProgramError {
    /// An error in a line and a column, both counted from 0.
    pub fn at(line: usize, column: usize, message: impl Into<String>) -> ProgramError {
        ProgramError {
            line: line as u32 + 1,
            column: if column == 0 { 0 } else { column as u32 + 1 },
            message: message.into(),
            help: None,
            stack: Vec::new(),
        }
    }

    /// The error with a column: that of the line's first word, if nothing closer is known.
    #[must_use]
    pub fn in_column(mut self, text: &str) -> ProgramError {
        let line = (self.line as usize).checked_sub(1).and_then(|at| text.lines().nth(at));
        if let (0, Some(line)) = (self.column, line) {
            let indent = line.chars().take_while(|c| c.is_whitespace()).count();
            self.column = indent as u32 + 1;
        }
        self
    }

    /// An error of the whole program.
    pub fn whole(message: impl Into<String>) -> ProgramError {
        ProgramError { line: 0, ..ProgramError::at(0, 0, message) }
    }

    #[must_use]
    /// The same error with advice.
    pub fn with_help(mut self, help: impl Into<String>) -> ProgramError {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (0, _) => {}
            (line, 0) => write!(f, "line {line}: ")?,
            (line, column) => write!(f, "line {line}, column {column}: ")?,
        }
        f.write_str(&self.message)?;
        if let Some(help) = &self.help {
            write!(f, " ({help})")?;
        }
        Ok(())
    }
}

impl std::error::Error for ProgramError {}
