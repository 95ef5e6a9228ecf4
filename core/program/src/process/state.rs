//! A process that executes the program: one rank, or none, while the script is only searched for `run`.

use crate::dialect;
use crate::dialect::rewritten::Rewritten;
use crate::dist::values::Context;
use crate::process::grad_mode;
use crate::process::known_by_all::{Known, Shown};
use crate::process::undecided::{self, Decided, Unknown, UnknownValue};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::TensorId;
use lockstep_scenarios::program::ProgramError;
use lockstep_torch::c10d::{Clock, Dist, Tensor};
use starlark::any::ProvidesStaticType;
use starlark::eval::Evaluator;
use starlark::values::FrozenValue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The arguments of `run`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) line: u32,
    pub(crate) name: Option<String>,
    pub(crate) world_size: u32,
    pub(crate) ranks_per_node: Option<u32>,
    pub(crate) topology: Option<String>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) cpu_only: bool,
    /// The PyTorch version that the program says it was written for.
    pub(crate) torch: Option<(u32, u32)>,
    /// By rank, how many times as long it computes.
    pub(crate) slow: BTreeMap<u32, f64>,
}

/// A function that runs before each call of a program's.
pub(crate) type BeforeCall = fn(&mut Process<'_>) -> anyhow::Result<()>;

/// The state that the functions of a program work on.
#[derive(ProvidesStaticType)]
pub(crate) struct Process<'j> {
    dist: Option<Dist<'j>>,
    source: u32,
    text: Vec<String>,
    pub(crate) origin: Vec<u32>,
    pub(crate) run: Option<Run>,
    /// The output so far: the line, the text, and how many operations came before.
    pub(crate) printed: Vec<(u32, String, u32)>,
    /// The text of a line that has not ended.
    pub(crate) unfinished: String,
    pub(crate) slowness: f64,
    pub(crate) contexts: Vec<Context>,
    /// Runs before each call: makes the tensors that operators have put off, since an operator of the
    /// interpreter does not know its process.
    pub(crate) before_call: BeforeCall,
    /// True if `torch.set_grad_enabled(False)` is in effect outside of all contexts.
    no_grad: bool,
    pub(crate) modules: Vec<crate::nn::state::Wrapped>,
    /// The stream event of each `torch.cuda.Event`.
    pub(crate) events: Vec<lockstep_torch::c10d::StreamEvent>,
    /// The PyTorch version that the program says it was written for.
    torch: Option<(u32, u32)>,
    /// The coalescing managers that it has made.
    pub(crate) managers: Vec<crate::dist::state::CoalescingManager>,
    /// The joins that are open, innermost last.
    pub(crate) joins: Vec<crate::nn::state::OpenJoin>,
    /// The facts that the rank hears from the others, and they from it.
    pub(crate) known: Arc<Known>,
    pub(crate) shown: Shown,
    /// Objects that it has not heard and goes on without.
    pub(crate) unheard: usize,
    /// Its stores.
    pub(crate) stores: crate::stores::Side,
    /// The line that is executed, counted from 1.
    pub(crate) line: u32,
    /// Variables that the program has set, or deleted.
    pub(crate) environ: BTreeMap<String, Option<String>>,
    /// Types that are named.
    pub(crate) classes: Vec<(&'static str, FrozenValue)>,
    /// Records that the program has branched on an answer that is not known yet.
    pub(crate) decided: Decided,
    /// The arguments that its user gives the script.
    pub(crate) arguments: Arc<[String]>,
    /// The steps of one optimizer after which the process ends, where its user gives a number.
    pub(crate) steps: Option<u32>,
    /// The last question, and its line.
    pub(crate) asked: Option<(Unknown, u32)>,
    /// Tensors that were taken for ones on the GPU, and the lines that made them.
    pub(crate) guessed: BTreeMap<TensorId, u32>,
    /// True if the program says of a tensor or model that it is on a GPU.
    pub(crate) names_cuda: bool,
    /// `torch.cuda.set_device(…)`.
    pub(crate) cuda_device: Option<u32>,
    /// `torch.cuda.device_count()` of a script that has started no ranks yet.
    pub(crate) gpus: Option<u32>,
    /// Processes that the script has started itself.
    pub(crate) started: u32,
    /// True if the script used something that only a rank has.
    pub(crate) asked_for_rank: bool,
    /// Functions that a program's functions call, by name.
    pub(crate) natives: Vec<(&'static str, FrozenValue)>,
    /// True if the process has made random numbers, which differ from PyTorch's.
    pub(crate) random: bool,
    /// The assumptions that were made, each with its line: there are no files.
    pub(crate) assumed: Vec<(u32, &'static str)>,
    /// The works that only names hold, of each function that is under way.
    pub(crate) held: Vec<crate::dist::state::NamedWorks>,
    /// Tensors of one number that others are computed with, by type, size and the number's bits.
    pub(crate) constants: BTreeMap<(Dtype, u64, u64), Tensor>,
    /// The settings of its loggers.
    pub(crate) loggers: crate::python::loggers::Loggers,
    /// The last exception of `raise`, as the last line of its traceback.
    pub(crate) raised: Option<String>,
    /// True if the process has ended in a way that nothing in it can catch.
    pub(crate) gone: bool,
    /// The plan's tensors of parameters (false) and gradients (true), by their numbers.
    pub(crate) parameters: BTreeMap<(u32, bool), TensorId>,
    /// The forward pass that it is in.
    pub(crate) forward: crate::nn::state::ForwardState,
    /// The number of objects of the program's classes that it has made.
    pub(crate) objects: u64,
    /// The loops with an `else` that it has left by `break` last.
    pub(crate) broken: BTreeSet<u32>,
    /// The program, in the interpreter's words.
    pub(crate) program: Option<Arc<Rewritten>>,
}

impl<'j> Process<'j> {
    /// `torch.is_grad_enabled()`.
    pub(crate) fn grad_enabled(&self) -> bool {
        let mut inner = self.contexts.iter().rev();
        let found = inner.find_map(|context| match context {
            Context::Grad(enabled) => Some(*enabled),
            _ => None,
        });
        found.unwrap_or(!self.no_grad)
    }

    /// `torch.set_grad_enabled(mode)` as a statement: from here on, or to the end of the block that has
    /// said otherwise.
    pub(crate) fn set_grad(&mut self, mode: bool) {
        let inner = self.contexts.iter_mut().rev();
        let mut said = inner.filter_map(|context| match context {
            Context::Grad(enabled) => Some(enabled),
            _ => None,
        });
        match said.next() {
            Some(enabled) => *enabled = mode,
            None => self.no_grad = !mode,
        }
        grad_mode::enable(mode);
    }

    /// A `with` block begins.
    pub(crate) fn enter(&mut self, context: Context) {
        self.contexts.push(context);
        grad_mode::enable(self.grad_enabled());
    }

    /// The innermost `with` block ends.
    pub(crate) fn leave(&mut self) -> Option<Context> {
        let last = self.contexts.pop();
        grad_mode::enable(self.grad_enabled());
        last
    }

    /// A process that is no rank: looks for `run`.
    pub(crate) fn outside(text: &str) -> Process<'j> {
        Process {
            dist: None,
            source: 0,
            text: text.lines().map(str::to_owned).collect(),
            origin: Vec::new(),
            run: None,
            printed: Vec::new(),
            unfinished: String::new(),
            slowness: 1.0,
            contexts: Vec::new(),
            before_call: |_| Ok(()),
            no_grad: false,
            modules: Vec::new(),
            events: Vec::new(),
            gpus: None,
            torch: None,
            managers: Vec::new(),
            joins: Vec::new(),
            known: Arc::default(),
            shown: Shown::default(),
            unheard: 0,
            stores: crate::stores::Side::default(),
            line: 0,
            environ: BTreeMap::new(),
            classes: Vec::new(),
            decided: Decided::default(),
            arguments: Arc::default(),
            steps: None,
            asked: None,
            guessed: BTreeMap::new(),
            names_cuda: text.lines().any(names_cuda),
            cuda_device: None,
            started: 0,
            asked_for_rank: false,
            natives: Vec::new(),
            random: false,
            assumed: Vec::new(),
            held: Vec::new(),
            constants: BTreeMap::new(),
            loggers: crate::python::loggers::Loggers::default(),
            raised: None,
            gone: false,
            parameters: BTreeMap::new(),
            forward: crate::nn::state::ForwardState::default(),
            objects: 0,
            broken: BTreeSet::new(),
            program: None,
        }
    }

    /// A rank, which computes as slowly as `run` says.
    pub(crate) fn of(
        dist: Dist<'j>,
        source: u32,
        text: &str,
        run: &Run,
        known: &Arc<Known>,
    ) -> Process<'j> {
        let known = known.clone();
        let slowness = run.slow.get(&dist.process().0).copied().unwrap_or(1.0);
        let torch = run.torch;
        Process { dist: Some(dist), source, slowness, torch, known, ..Process::outside(text) }
    }

    /// True if the program was written for a PyTorch before `version`.
    pub(crate) fn torch_before(&self, version: (u32, u32)) -> bool {
        self.torch.is_some_and(|torch| torch < version)
    }

    /// True for a rank; false while the script is only searched for `run`.
    pub(crate) fn is_rank(&self) -> bool {
        self.dist.is_some()
    }

    /// torch.distributed as the rank has it, at the line that is executed.
    ///
    /// # Errors
    /// When no rank has been started yet.
    pub(crate) fn dist(&mut self) -> anyhow::Result<&mut Dist<'j>> {
        let line = self.line;
        let source = self.source;
        match &mut self.dist {
            Some(dist) => {
                dist.at(source, line);
                Ok(dist)
            }
            None => {
                self.asked_for_rank = true;
                Err(anyhow::anyhow!(
                    "no rank has been started here: what ranks do belongs in the function that is \
                     handed to run(main, world_size = …)"
                ))
            }
        }
    }

    /// A part of a forward pass is computed: a computation of the plan for each stretch between calls.
    ///
    /// # Errors
    /// As [`Process::dist`].
    pub(crate) fn computes_forward(&mut self, duration_ns: u64) -> anyhow::Result<()> {
        let inside = self.forward.depth > 0;
        let (source, line, before) = (self.source, self.forward.line, self.forward.computed_to);
        let dist = self.dist()?;
        if !(before == Some(dist.ops()) && dist.compute_longer(duration_ns)) {
            if inside {
                dist.at(source, line);
            }
            dist.compute("forward", duration_ns);
        }
        self.forward.computed_to = Some(self.ops());
        Ok(())
    }

    /// `torch.cuda.current_device()`: without `set_device`, the rank's own, which PyTorch calls 0.
    pub(crate) fn cuda_device(&self) -> u32 {
        let local = self.dist.as_ref().and_then(|dist| dist.environ("LOCAL_RANK"));
        let local = local.and_then(|local| local.parse().ok());
        self.cuda_device.or(local).unwrap_or(0)
    }

    /// The lines of guesses that made a difference: the tensor went into a call, in a program that
    /// says of others where they are.
    pub(crate) fn guesses(&self) -> Vec<u32> {
        let Some(dist) = self.dist.as_ref().filter(|_| self.names_cuda) else { return Vec::new() };
        let used = self.guessed.iter().filter(|(tensor, _)| dist.has_used(**tensor));
        used.map(|(_, line)| *line).collect()
    }

    /// A function of [`Process::natives`].
    pub(crate) fn native(&self, name: &str) -> anyhow::Result<FrozenValue> {
        let found = self.natives.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| *value).ok_or_else(|| anyhow::anyhow!("there is no {name}"))
    }

    /// An answer that only a run gives.
    pub(crate) fn unknown(&mut self, what: Unknown) -> UnknownValue {
        self.asked = Some((what, self.line));
        UnknownValue::new(what, &self.decided)
    }

    /// Nothing may have been decided by such an answer.
    ///
    /// # Errors
    /// When something was.
    pub(crate) fn nothing_made_up(&self) -> anyhow::Result<()> {
        if let Some(why) = self.decided.why() {
            anyhow::bail!("{why}");
        }
        if undecided::decided_by_values() {
            let before = "here or a little before, by taking a tensor for true or false";
            anyhow::bail!("{} ({before})", undecided::VALUES);
        }
        if undecided::decided_by_object() {
            anyhow::bail!("{} (here or a little before)", undecided::OBJECT);
        }
        match self.asked.filter(|_| self.decided.any()) {
            Some((what, line)) => Err(anyhow::anyhow!("{what} (asked in line {line})")),
            None => Ok(()),
        }
    }

    /// The column of the original for one of a line that it was rewritten to, both counted from 0.
    pub(crate) fn column_of(&self, line: usize, rewritten: &str, column: usize) -> usize {
        let original = self.origin.get(line).and_then(|line| self.text.get(*line as usize));
        original.map_or(column, |original| dialect::column(rewritten, column, original))
    }

    /// The text of the program.
    pub(crate) fn lines(&self) -> &[String] {
        &self.text
    }

    /// The text of the line that is executed.
    pub(crate) fn line_text(&self) -> &str {
        let line = (self.line as usize).checked_sub(1).and_then(|line| self.text.get(line));
        line.map_or("", String::as_str)
    }

    /// True if a name appears only once in the program, where it is assigned.
    pub(crate) fn names_once(&self, name: &str) -> bool {
        fn part(c: char) -> bool {
            c.is_alphanumeric() || c == '_'
        }
        let words = self.text.iter().flat_map(|line| line.split(|c: char| !part(c)));
        !name.is_empty()
            && name.chars().all(part)
            && (name == "_" || words.filter(|word| *word == name).count() == 1)
    }

    /// The program's name for the value that a statement makes: `grad` in `grad = tensor(…)`.
    pub(crate) fn assigned_name(&self) -> Option<String> {
        let (name, _) = self.line_text().split_once('=')?;
        let name = name.split(':').next().unwrap_or(name).trim();
        let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_');
        (plain && !name.is_empty()).then(|| name.to_owned())
    }

    /// The process ends by an exception.
    pub(crate) fn ends(&mut self, error: &ProgramError) {
        self.line = error.line;
        if let Ok(dist) = self.dist() {
            dist.die(error.message.clone());
        }
    }

    /// The rank's clock by the times of its program, unless the rank waits for an object that it has not
    /// received.
    pub(crate) fn clock(&self) -> Option<Clock> {
        self.dist.as_ref().filter(|_| self.unheard == 0).map(Dist::clock)
    }

    /// The number of operations that the rank has done.
    pub(crate) fn ops(&self) -> usize {
        self.dist.as_ref().map_or(0, |dist| dist.ops())
    }

    /// True if a call of torch.distributed's is among the operations from this number on.
    pub(crate) fn calls_since(&self, op: usize) -> bool {
        self.dist.as_ref().is_some_and(|dist| dist.calls_since(op))
    }
}

/// True if a line moves a tensor or model to a GPU.
fn names_cuda(line: &str) -> bool {
    let code = line.split('#').next().unwrap_or(line);
    let places = ["device", ".to("];
    code.contains(".cuda(")
        || (code.contains("cuda")
            && places.iter().any(|place| code.contains(place))
            && !code.contains("set_device(")
            && !code.contains("device_count("))
}

/// The process of a call, at the line that calls.
pub(crate) fn process<'x, 'e>(
    eval: &'x mut Evaluator<'_, '_, 'e>,
) -> anyhow::Result<&'x mut Process<'e>> {
    let span = eval.call_stack_top_location();
    let line = span.map(|span| span.resolve_span().begin.line);
    let process = eval
        .extra_mut
        .as_mut()
        .and_then(|extra| extra.downcast_mut::<Process<'e>>())
        .ok_or_else(|| anyhow::anyhow!("the interpreter has lost its process"))?;
    if let Some(line) = line {
        process.line = process.origin.get(line).map_or(0, |origin| origin + 1);
    }
    process.nothing_made_up()?;
    process.stores.go_on()?;
    (process.before_call)(process)?;
    Ok(process)
}
