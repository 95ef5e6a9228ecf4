//! The decorators in front of a function: `@torch.no_grad()`, and the class that a method belongs
//! to. It is written behind the function.

use super::classes;
use super::expressions::expressions;
use super::rewritten::Rewritten;
use super::scan::Logical;
use super::words::first_word;
use lockstep_scenarios::program::ProgramError;

/// A function and its decorators: `@torch.no_grad()`.
pub(super) struct Decorated {
    name: String,
    decorators: Vec<String>,
    indent: usize,
    line: usize,
    /// The number of open blocks around it.
    depth: usize,
}

impl Decorated {
    /// The function that begins with a statement, if it has decorators.
    pub(super) fn of(
        statements: &[Logical],
        at: usize,
        depth: usize,
    ) -> Result<Option<Decorated>, ProgramError> {
        let Some(def) = statements.get(at) else { return Ok(None) };
        let front = statements.get(..at).unwrap_or_default().iter().rev();
        let front = front.take_while(|one| one.mask.trim_start().starts_with('@'));
        let decorator = |one: &Logical| -> Result<String, ProgramError> {
            let (text, mask) = expressions(one)?;
            let bare = text.get(..mask.trim_end().len()).unwrap_or(&text);
            Ok(bare.trim().trim_start_matches('@').replace('\n', " "))
        };
        let decorators: Vec<String> = front.map(decorator).collect::<Result<_, _>>()?;
        let name = def.mask.trim_start().trim_start_matches("def").trim_start();
        let name = first_word(name).to_owned();
        let (indent, line) = (def.indent, def.first);
        let method = classes::attached(&name).is_some();
        let found = Decorated { name, decorators, indent, line, depth };
        Ok((method || !found.decorators.is_empty()).then_some(found))
    }
}

impl Rewritten {
    /// Functions that have ended when so many blocks are open.
    pub(super) fn decorates(&mut self, decorated: &mut Vec<Decorated>, depth: usize) {
        while let Some(ended) = decorated.pop_if(|own| own.depth >= depth) {
            let Decorated { name, decorators, indent, line, .. } = ended;
            for (nth, decorator) in decorators.iter().enumerate() {
                let line = line.saturating_sub(nth + 1);
                self.line(&format!("{:indent$}{name} = _decorated({decorator}, {name})", ""), line);
            }
            if let Some((class, method)) = classes::attached(&name) {
                self.line(&format!("{:indent$}{class}.{method} = {name}", ""), line);
            }
        }
    }
}
