//! Names that alone hold the works of sends and receives, as the dialect finds them: the works are released
//! when the name gets another value, or its function ends.

use crate::dist::arguments as take;
use crate::dist::state::NamedWorks;
use crate::dist::values::WorkValue;
use crate::process::state::{Process, process};
use lockstep_torch::c10d::Work;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::{Value, ValueLike};

/// Adds the functions that the dialect writes.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
}

fn let_go(process: &mut Process<'_>, name: &str, works: Vec<Work>) -> anyhow::Result<()> {
    for work in works {
        process.dist()?.let_go_of_name(work, name);
    }
    Ok(())
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// A function begins in which such names are.
    fn _begun(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<NoneType> {
        process(eval)?.held.push(NamedWorks::new());
        Ok(NoneType)
    }

    /// `name = value`; `alone` says that nothing else holds the works in it.
    fn _bound<'v>(
        #[starlark(require = pos)] name: &str,
        #[starlark(require = pos)] value: Value<'v>,
        #[starlark(require = pos)] alone: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let process = process(eval)?;
        let all = take::items(value).unwrap_or_else(|| vec![value]);
        let works = all.iter().filter_map(|work| work.downcast_ref::<WorkValue>());
        let works = if alone { works.map(|work| work.0).collect() } else { Vec::new() };
        if process.held.is_empty() {
            process.held.push(NamedWorks::new());
        }
        let names = process.held.last_mut();
        let before = names.and_then(|names| names.insert(name.to_owned(), works));
        let_go(process, name, before.unwrap_or_default())?;
        Ok(value)
    }

    /// A function ends, with its result.
    fn _ended<'v>(
        #[starlark(default = NoneType)] value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let process = process(eval)?;
        for (name, works) in process.held.pop().unwrap_or_default() {
            let_go(process, &name, works)?;
        }
        Ok(value)
    }
}
