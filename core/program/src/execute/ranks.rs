//! Executing a program, once for each of its ranks.

use super::leftovers::Leftovers;
use super::missing_imports::AbsentValue;
use super::{job, launched_processes};
use crate::bundle::Bundle;
use crate::classes::objects;
use crate::dist::sent_objects::Board;
use crate::execute::failure::{Failure, failure, reword_unknown};
use crate::process::known_by_all::{Known, MAX_TIMES, Shown};
use crate::process::state::{Process, Run};
use crate::python::builtin_classes;
use crate::stores::{Agreed, Log, Look, Rounds};
use crate::tensor::made;
use crate::torch::globals;
use crate::{dialect, dist};
use lockstep_core::rank::GlobalRank;
use lockstep_scenarios::program::{Compiled, Limits, Options, Printed, ProgramError};
use lockstep_torch::c10d::{Job, Machine};
use starlark::codemap::FileSpanRef;
use starlark::collections::SmallMap;
use starlark::environment::{Globals, GlobalsBuilder, LibraryExtension, Module};
use starlark::eval::{BeforeStmtFunc, Evaluator};
use starlark::syntax::{AstModule, Dialect};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The most executions of a program for the objects that ranks send each other, and the most executions of
/// one rank.
const MAX_HEARD: u32 = 200;
const MAX_EXECUTIONS: u32 = 20_000;
/// The number of executions for a rank that then runs without an end; each takes as long as it may.
const MAX_ENDLESS: u32 = 2;

/// Prints that are kept.
const MAX_PRINTED: usize = 10_000;

/// The machines that `topology` can name, and the ranks of a node: GPUs that share an NVLink switch.
const MACHINES: [(&str, u32); 5] =
    [("uniform", 0), ("hgx-a100", 8), ("hgx-h100", 8), ("hgx-h200", 8), ("nvl72", 72)];

fn machine(name: &str) -> Option<u32> {
    MACHINES.iter().find(|(known, _)| *known == name).map(|(_, ranks)| *ranks)
}

/// Executes the program once; with `sums`, operators between values are calls.
pub(crate) fn executed(
    path: &str,
    text: &str,
    bundle: Option<&Bundle>,
    options: &Options,
    sums: bool,
) -> Result<Compiled, ProgramError> {
    let limits = options.limits;
    let text = bundle.map_or(text, |bundle| &bundle.shown);
    if text.len() > limits.text_bytes {
        let why = format!("the program has {} bytes; {} are read", text.len(), limits.text_bytes);
        return Err(ProgramError::whole(why));
    }
    let rewritten = Arc::new(match bundle {
        None => dialect::asking(text, sums)?,
        Some(bundle) => {
            let shown = |error: ProgramError| match error.line.checked_sub(1) {
                Some(line) => ProgramError { line: bundle.shown_line(line) + 1, ..error },
                None => error,
            };
            dialect::asking(&bundle.text, sums).map_err(shown)?.shown_as(bundle)
        }
    });
    let globals = globals();
    let script = Script {
        path,
        rewritten: &rewritten,
        globals: &globals,
        limits,
        arguments: options.arguments.as_slice().into(),
        steps: options.steps,
        unknown: RefCell::default(),
    };
    let mut assumed = Vec::new();
    let run = script.says(text, options, &mut assumed)?;
    let world_size = options.world_size.unwrap_or(run.world_size);
    if world_size == 0 || world_size > limits.world_size {
        let why = format!("{world_size} ranks; a program has 1 to {}", limits.world_size);
        return Err(ProgramError { line: run.line, ..ProgramError::whole(why) });
    }
    let of_machine = match run.topology.as_deref() {
        Some(name) => Some(machine(name).ok_or_else(|| {
            let names: Vec<&str> = MACHINES.iter().map(|(name, _)| *name).collect();
            let why = format!("{name:?} is no known topology; there are {}", names.join(", "));
            ProgramError { line: run.line, ..ProgramError::whole(why) }
        })?),
        None => None,
    };
    let per_node = options.ranks_per_node.or(run.ranks_per_node).or(of_machine).unwrap_or(0);
    let told = Told { run: &run, world_size, per_node, timeout_ms: options.timeout_ms };
    let mut known = Arc::new(Known::default());
    for times in 1.. {
        let (compiled, shown) = script.heard(text, &told, &mut known)?;
        let stores = script.stores(text, &told, &known, &shown)?;
        let learned = Known::from(&shown, stores);
        let last = times == MAX_TIMES;
        if learned == *known || (last && learned.stores == known.stores) {
            let mut compiled = known.assumed(compiled, &shown);
            compiled.assumed.splice(..0, assumed);
            return Ok(compiled);
        }
        if last {
            break;
        }
        known = Arc::new(learned);
    }
    Err(ProgramError::whole(
        "what the ranks hear from each other through stores changes what they do, again and again",
    )
    .with_help("Let nothing that a store answers decide which models are trained."))
}

/// The ranks of a script that does not say how many it has, as torchrun's do not.
const RANKS_OF_A_SCRIPT: u32 = 4;

impl Script<'_> {
    /// The number of ranks that the program starts, and the way: the arguments of `run`, or a
    /// script for torchrun, in which every rank is the script itself.
    fn says(
        &self,
        text: &str,
        options: &Options,
        assumed: &mut Vec<(u32, String)>,
    ) -> Result<Run, ProgramError> {
        let mut outside = Process::outside(text);
        let ranks = options.world_size.unwrap_or(RANKS_OF_A_SCRIPT);
        outside.gpus = Some(options.ranks_per_node.unwrap_or(ranks).min(ranks));
        let ended = self.evaluate(&mut outside, None);
        // A program may call a function of its own so, as PyTorch's tutorials do.
        let own_run = self.rewritten.text.lines().any(|line| line.starts_with("def run("));
        let starts = |line: &str| {
            let line = line.trim_start();
            let runs = line.starts_with("run(") && !own_run;
            runs || line.contains(".spawn(") || line.contains("Process(")
        };
        if let Some(run) = outside.run {
            ended.map_err(|failure| self.of_no_rank(failure, text))?;
            return Ok(run);
        }
        let told = options.world_size.is_some() && ended.is_ok();
        if (outside.asked_for_rank || told) && !self.rewritten.text.lines().any(starts) {
            let (line, world_size) = (outside.line, RANKS_OF_A_SCRIPT);
            if options.world_size.is_none() {
                assumed.push((
                    line,
                    format!(
                        "the script does not say how many ranks it has (torchrun does), and \
                         {world_size} are taken; run(main, world_size = 8) at its end, or \
                         lockstep sim --world-size 8, says otherwise"
                    ),
                ));
            }
            return Ok(Run { line, world_size, ..Run::default() });
        }
        ended.map_err(|failure| self.of_no_rank(failure, text))?;
        Err(ProgramError::whole("the program does not say how many ranks it has")
            .with_help("End it with: run(main, world_size = 4)"))
    }

    /// The error of a program before any rank was started.
    fn of_no_rank(&self, failure: Failure, text: &str) -> ProgramError {
        match failure.endless {
            true => self.in_its_loop(failure.error, &mut Process::outside(text)),
            false => failure.error,
        }
    }
}

/// A rank that could not be followed.
struct Lost {
    rank: GlobalRank,
    error: ProgramError,
    /// True if the rank ran longer than allowed.
    endless: bool,
}

/// The arguments of `run`, and the options from outside.
struct Told<'r> {
    run: &'r Run,
    world_size: u32,
    per_node: u32,
    timeout_ms: Option<u64>,
}

impl Script<'_> {
    /// Executes the program for each rank until the objects that they send each other change no more. Until
    /// then a rank may receive objects that another one would never have sent, had it received everything
    /// itself: its calls and its failure because of them are dropped.
    fn heard(
        &self,
        text: &str,
        told: &Told<'_>,
        known: &mut Arc<Known>,
    ) -> Result<(Compiled, Vec<Shown>), ProgramError> {
        let mut endless = 0;
        for _ in 0..(MAX_EXECUTIONS / told.world_size).clamp(4, MAX_HEARD) {
            let (executed, shown) = self.ranks(text, told, known)?;
            let objects = Board::of(shown.iter().map(|shown| &shown.objects));
            endless += u32::from(matches!(executed, Err(Lost { endless: true, .. })));
            if objects == *known.objects || endless > MAX_ENDLESS {
                return match executed {
                    Ok(compiled) => Ok((compiled, shown)),
                    Err(lost) => Err(self.of_lost(lost, text, told, known)),
                };
            }
            *known = Arc::new(known.with_objects(objects));
        }
        Err(ProgramError::whole(
            "what the ranks send each other as objects depends on what they hear, again and again",
        )
        .with_help("Fewer steps in which an object follows from the one before, or fewer ranks."))
    }

    /// Executes the program for each rank, with the facts that they know of each other: the result, or the
    /// reason that it cannot be followed, and the prints of the ranks in either case.
    fn ranks(
        &self,
        text: &str,
        told: &Told<'_>,
        known: &Arc<Known>,
    ) -> Result<(Result<Compiled, Lost>, Vec<Shown>), ProgramError> {
        let (run, limits) = (told.run, self.limits);
        let (mut job, source) = self.job(text, told)?;
        let mut printed = Vec::new();
        let mut raised: Vec<(Vec<GlobalRank>, ProgramError)> = Vec::new();
        let mut shown = Vec::new();
        let mut assumed = BTreeSet::new();
        let mut ops = 0;
        let mut lost: Option<Lost> = None;
        for rank in (0..told.world_size).map(GlobalRank) {
            let Some(dist) = job.rank(rank) else { continue };
            let mut process = Process::of(dist, source, text, run, known);
            let ended = self.evaluate(&mut process, None);
            let failure = ended.as_ref().err().map(|failure| failure.error.message.as_str());
            let ended_at = process.clock();
            process.shown.stores = process.stores.end(failure, ended_at);
            // Without what it waits for, a rank comes no further, however it went on.
            let waits = process.shown.stores.stops() || process.unheard > 0;
            let ended = if waits { Ok(()) } else { ended };
            process.print_rest();
            let room = MAX_PRINTED - printed.len().min(MAX_PRINTED);
            let lines = std::mem::take(&mut process.printed).into_iter().take(room);
            printed.extend(lines.map(|(line, text, after)| Printed { rank, line, text, after }));
            match ended {
                Ok(()) => {}
                Err(Failure { raised: true, error, .. }) => {
                    process.ends(&error);
                    match raised.iter_mut().find(|(_, known)| *known == error) {
                        Some((ranks, _)) => ranks.push(rank),
                        None => raised.push((vec![rank], error)),
                    }
                }
                Err(Failure { endless, error, .. }) => {
                    let message = format!("{} (on rank {rank})", error.message);
                    let error = ProgramError { message, ..error };
                    let found = Lost { rank, error, endless };
                    // Without objects it comes to this, whatever the others send.
                    if process.shown.objects.is_empty() {
                        return Err(self.of_lost(found, text, told, known));
                    }
                    lost.get_or_insert(found);
                }
            }
            shown.push(std::mem::take(&mut process.shown));
            let guessed = process.guesses().into_iter().map(|line| (line, made::TAKEN_FOR_CUDA));
            assumed.extend(guessed);
            assumed.extend(process.assumed.iter().copied());
            ops += process.ops();
            if ops > limits.ops {
                let why = format!("the ranks do more than {} operations together", limits.ops);
                let error = ProgramError::whole(why).with_help("Fewer ranks, or fewer steps.");
                return Err(error);
            }
        }
        if let Some(lost) = lost {
            return Ok((Err(lost), shown));
        }
        let places = printed.iter_mut().map(|print| (print.rank, &mut print.after));
        let plan = job.finish_with(places).map_err(plan_error)?;
        let topology = run.topology.clone();
        let told = |(line, why): (u32, &str)| (line, why.to_owned());
        let assumed = assumed.into_iter().map(told).collect();
        Ok((Ok(Compiled { plan, topology, printed, raised, assumed }), shown))
    }
}

impl Script<'_> {
    /// The answers of stores, by executing ranks again that wait for an answer until none does.
    fn stores(
        &self,
        text: &str,
        told: &Told<'_>,
        known: &Arc<Known>,
        shown: &[Shown],
    ) -> Result<Agreed, ProgramError> {
        let mut logs: Vec<_> = shown.iter().map(|shown| shown.stores.clone()).collect();
        if logs.iter().all(Log::is_empty) {
            return Ok(Agreed::default());
        }
        let mut rounds = Rounds::new(&known.stores);
        let mut sent: Vec<_> = shown.iter().map(|shown| shown.objects.clone()).collect();
        let mut known = known.clone();
        // Ranks that went on without an object that they had not heard.
        let mut unsure: BTreeSet<GlobalRank> = BTreeSet::new();
        loop {
            let looked = rounds.look(&logs).and_then(|look| match look {
                Look::Settled => rounds.settled(&logs).map(|()| Look::Settled),
                look => Ok(look),
            });
            let objects = Board::of(sent.iter());
            let hears_more = !unsure.is_empty() && objects != *known.objects;
            known = Arc::new(known.with_objects(objects));
            let (ranks, stores, tries) = match looked {
                Ok(Look::Again(ranks)) => (ranks, rounds.agreed(&logs), false),
                Ok(Look::Try(ranks)) => (ranks, rounds.if_it_came(&logs), true),
                _ if hears_more => (unsure.iter().copied().collect(), rounds.agreed(&logs), false),
                Ok(Look::Settled) => return Ok(rounds.agreed(&logs)),
                Err(error) => return Err(error),
            };
            let known = Arc::new(known.with_stores(stores));
            let (mut job, source) = self.job(text, told)?;
            for rank in ranks {
                let Some(dist) = job.rank(rank) else { continue };
                let mut process = Process::of(dist, source, text, told.run, &known);
                let ended = self.evaluate(&mut process, None).err();
                let failure = ended.as_ref().map(|failure| failure.error.message.as_str());
                let ended_at = process.clock();
                let log = process.stores.end(failure, ended_at);
                if tries {
                    rounds.tried(rank, &logs, &log);
                    continue;
                }
                match process.unheard > 0 {
                    true => unsure.insert(rank),
                    false => unsure.remove(&rank),
                };
                if let (Some(known), Some(of)) =
                    (logs.get_mut(rank.index()), sent.get_mut(rank.index()))
                {
                    *known = log;
                    *of = std::mem::take(&mut process.shown.objects);
                }
            }
        }
    }

    /// A job that nothing has been recorded of, and its source.
    fn job(&self, text: &str, told: &Told<'_>) -> Result<(Job, u32), ProgramError> {
        let Told { run, world_size, per_node, timeout_ms } = *told;
        let name = run.name.clone().unwrap_or_else(|| self.path.to_owned());
        let mut job = Job::new(name, world_size).map_err(plan_error)?;
        job.ranks_per_node(per_node);
        let local = if per_node == 0 { world_size } else { per_node.min(world_size) };
        // If the program uses mpi, PyTorch is assumed to have it built in.
        job.machine(Machine { cuda_devices: if run.cpu_only { 0 } else { local }, mpi: true });
        if let Some(timeout_ms) = timeout_ms.or(run.timeout_ms) {
            job.timeout_ms(timeout_ms);
        }
        let source = job.source(self.path, text);
        Ok((job, source))
    }

    /// The error of a rank that could not be followed: of one that went on without an end, with the
    /// line that it was at.
    fn of_lost(
        &self,
        Lost { rank, error, endless }: Lost,
        text: &str,
        told: &Told<'_>,
        known: &Arc<Known>,
    ) -> ProgramError {
        if !endless {
            return error;
        }
        let Ok((mut job, source)) = self.job(text, told) else { return error };
        let Some(dist) = job.rank(rank) else { return error };
        self.in_its_loop(error, &mut Process::of(dist, source, text, told.run, known))
    }

    /// The error with the line that the process is at when its steps are used up. The interpreter does not
    /// report the line: the program is executed again, and every statement noted.
    fn in_its_loop(&self, error: ProgramError, again: &mut Process<'_>) -> ProgramError {
        let at = Cell::new(0);
        match self.evaluate(again, Some(&at)) {
            Err(_) if at.get() > 0 => ProgramError { line: at.get(), ..error },
            _ => error,
        }
    }
}

fn plan_error(error: lockstep_core::plan::PlanError) -> ProgramError {
    ProgramError::whole(error.to_string())
}

/// The names that a program has.
fn globals() -> Globals {
    let extensions = [
        LibraryExtension::StructType,
        LibraryExtension::Map,
        LibraryExtension::Filter,
        LibraryExtension::Partial,
        LibraryExtension::SetType,
    ];
    let mut builder = GlobalsBuilder::extended_by(&extensions);
    job::add(&mut builder);
    globals::add(&mut builder);
    dist::add(&mut builder);
    globals::add_models(&mut builder);
    builder.build()
}

/// A program ready to be executed.
struct Script<'a> {
    path: &'a str,
    rewritten: &'a Arc<dialect::rewritten::Rewritten>,
    globals: &'a Globals,
    limits: Limits,
    arguments: Arc<[String]>,
    steps: Option<u32>,
    /// Names that nothing in the program assigns, with the interpreter's message for each.
    unknown: RefCell<Vec<(String, String)>>,
}

/// Names of that kind that are looked for.
const MAX_UNKNOWN: usize = 200;

impl Script<'_> {
    /// Executes the program in a process. `at` gets the line of every statement. Names that nothing assigns
    /// are found before anything is executed, and matter only if one is used.
    fn evaluate(&self, process: &mut Process<'_>, at: Option<&Cell<u32>>) -> Result<(), Failure> {
        loop {
            let ended = self.evaluated(process, at);
            let said = ended.as_ref().err().map(|failure| failure.error.message.clone());
            let name = said.as_deref().and_then(|said| {
                said.strip_prefix("Variable `")?.split_once("` not found").map(|(name, _)| name)
            });
            let (Some(name), Some(said)) = (name, said.as_deref()) else { return ended };
            let Ok(mut known) = self.unknown.try_borrow_mut() else { return ended };
            if known.len() >= MAX_UNKNOWN || known.iter().any(|(own, _)| own == name) {
                return ended;
            }
            known.push((name.to_owned(), said.to_owned()));
        }
    }

    fn evaluated(&self, process: &mut Process<'_>, at: Option<&Cell<u32>>) -> Result<(), Failure> {
        let dialect = Dialect { enable_f_strings: false, enable_load: false, ..Dialect::Extended };
        let origin = &self.rewritten.origin;
        let failed = |error: &starlark::Error| failure(error, self.rewritten);
        let ast = AstModule::parse(self.path, self.rewritten.text.clone(), &dialect)
            .map_err(|error| failed(&error))?;
        crate::tensor::deferred::begin();
        crate::nn::parameter::begin();
        crate::process::grad_mode::begin();
        crate::process::undecided::begin();
        process.origin.clone_from(origin);
        process.program = Some(self.rewritten.clone());
        process.classes = builtin_classes::classes(self.globals);
        process.before_call = crate::tensor::arithmetic::work_off;
        process.arguments = self.arguments.clone();
        process.steps = self.steps;
        process.natives = launched_processes::natives(self.globals);
        let look = |span: FileSpanRef<'_>, _: bool, _: &mut Evaluator<'_, '_, '_>| {
            let line = origin.get(span.resolve_span().begin.line).map_or(0, |line| line + 1);
            if let Some(at) = at {
                at.set(line);
            }
        };
        let _leftovers = Leftovers::hold();
        let evaluated = Module::with_temp_heap(|module| {
            let mut eval = Evaluator::new(&module);
            let limited = eval
                .set_max_tick_count(self.limits.ticks)
                .and_then(|()| eval.set_max_heap_size(self.limits.heap_bytes))
                .and_then(|()| eval.set_max_callstack_size(64));
            if let Err(error) = limited {
                let error = ProgramError::whole(error.to_string());
                return Err(Failure { raised: false, endless: false, left: false, error });
            }
            if at.is_some() {
                eval.before_stmt_for_dap(BeforeStmtFunc::Fn(&look));
            }
            for (name, said) in self.unknown.borrow().iter() {
                let absent = AbsentValue::unknown(name, said, &process.decided);
                module.set(name, module.heap().alloc(absent));
            }
            module.set("_globals", objects::object("globals", SmallMap::new(), module.heap()));
            eval.extra_mut = Some(&mut *process);
            crate::python::try_statement::begin(&mut eval);
            let ended = eval.eval_module(ast, self.globals).map(|_| ());
            ended.map_err(|error| failed(&crate::python::try_statement::uncaught(error, &mut eval)))
        });
        let evaluated = match evaluated {
            Err(Failure { left: true, .. }) => Ok(()),
            evaluated => evaluated,
        };
        // The results of a made-up decision are made up as well.
        let made_up = |process: &Process<'_>| {
            process.nothing_made_up().map_err(|error| {
                let error =
                    ProgramError { line: process.line, ..ProgramError::whole(error.to_string()) };
                Failure { raised: false, endless: false, left: false, error }
            })
        };
        match evaluated {
            Ok(()) => made_up(process),
            Err(mut failure) => {
                if failure.raised {
                    made_up(process)?;
                }
                reword_unknown(&mut failure, process);
                Err(failure)
            }
        }
    }
}
