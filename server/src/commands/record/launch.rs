//! The command line that starts a script: `train.py --epochs 1`, `-m package.train`, `torchrun … train.py`.

use anyhow::{Result, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The launcher of the ranks. It decides which variables they find in their environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Launcher {
    /// `RANK`, `LOCAL_RANK`, `WORLD_SIZE`.
    #[default]
    Torchrun,
    /// `SLURM_PROCID` and its like.
    Slurm,
    /// `OMPI_COMM_WORLD_RANK`, `PMI_RANK`.
    Mpi,
}

/// A script with its arguments, and the number of ranks if the command line gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Launch {
    /// The script's path, a module's name, or `-c`.
    pub(super) script: String,
    /// True for `-m module`.
    pub(super) module: bool,
    /// The code of `python -c`.
    pub(super) code: Option<String>,
    /// The script's arguments.
    pub(super) arguments: Vec<String>,
    /// torchrun's `--nnodes`.
    pub(super) nodes: Option<u32>,
    /// torchrun's `--nproc-per-node`.
    pub(super) ranks_per_node: Option<u32>,
    /// All ranks, as srun and mpirun say it.
    pub(super) world_size: Option<u32>,
    /// The launcher of the ranks.
    pub(super) launcher: Launcher,
    /// True for `torch.distributed.launch`, which passes `--local-rank`.
    pub(super) local_rank_argument: bool,
    /// Variables that the launcher sets for the script's library: Accelerate's and Fabric's.
    pub(super) environment: BTreeMap<String, String>,
}

/// Modules that start a script on several ranks, as `python -m` names them.
const LAUNCHERS: [&str; 2] = ["torch.distributed.run", "torch.distributed.launch"];

/// Options of torchrun, accelerate and deepspeed that take no value.
const FLAGS: [&str; 14] = [
    "standalone",
    "no-python",
    "use-env",
    "run-path",
    "dry-run",
    "multi-gpu",
    "cpu",
    "tpu",
    "use-fsdp",
    "use-deepspeed",
    "use-megatron-lm",
    "debug",
    "quiet",
    "no-local-rank",
];

/// Options of `accelerate launch` that wrap the model otherwise, or name others.
const ACCELERATE_PLUGINS: [&str; 6] = [
    "use-fsdp",
    "use-deepspeed",
    "use-megatron-lm",
    "use-parallelism-config",
    "tpu",
    "config-file",
];

/// Options of `accelerate launch` with the variables that its library reads.
const ACCELERATE_VARIABLES: [(&str, &str); 2] = [
    ("mixed-precision", "ACCELERATE_MIXED_PRECISION"),
    ("gradient-accumulation-steps", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"),
];

/// Options of `fabric run` with the variables that its library reads.
const FABRIC_VARIABLES: [(&str, &str); 5] = [
    ("accelerator", "LT_ACCELERATOR"),
    ("strategy", "LT_STRATEGY"),
    ("devices", "LT_DEVICES"),
    ("num-nodes", "LT_NUM_NODES"),
    ("precision", "LT_PRECISION"),
];

impl Launch {
    /// True where no launcher starts ranks: the script may start them itself.
    pub(super) fn is_plain(&self) -> bool {
        self.launcher == Launcher::Torchrun
            && self.ranks_per_node.is_none()
            && self.world_size.is_none()
            && self.nodes.is_none()
    }

    /// The folder of the script, if it is a file.
    pub(super) fn folder(&self) -> Option<&Path> {
        let is_file = !self.module && self.code.is_none();
        Path::new(&self.script).parent().filter(|_| is_file)
    }

    /// Reads a command line as its user would type it.
    ///
    /// # Errors
    /// When it names no script.
    pub(super) fn parse(words: &[String]) -> Result<Launch> {
        let Some((first, rest)) = words.split_first() else {
            bail!("name the script behind `--`: lockstep record --world-size 8 -- train.py")
        };
        let program = first.rsplit('/').next().unwrap_or(first);
        match program {
            "torchrun" => return Launch::of_torchrun(rest),
            "accelerate" if rest.first().is_some_and(|word| word == "launch") => {
                return Launch::of_accelerate(&rest[1..]);
            }
            "fabric" if rest.first().is_some_and(|word| word == "run") => {
                return Launch::of_fabric(&rest[1..]);
            }
            "fabric" | "lightning" | "ray" | "horovodrun" | "composer" => bail!(
                "{program}'s command line is not read: name the script that it starts, \
                 lockstep record -n 8 -- train.py"
            ),
            "deepspeed" => {
                let launch = Launch::of_torchrun(rest)?;
                let passes = !rest.iter().any(|word| word == "--no_local_rank");
                return Ok(Launch { local_rank_argument: passes, ..launch });
            }
            "srun" => return Launch::of_srun(rest),
            "mpirun" | "mpiexec" => return Launch::of_mpirun(rest),
            _ => {}
        }
        let is_python = program.starts_with("python")
            && program.trim_start_matches("python").chars().all(|c| c.is_ascii_digit() || c == '.');
        let words = if is_python { rest } else { words };
        let words = match words.split_first() {
            Some((flag, rest)) if is_python && flag == "-u" => rest,
            _ => words,
        };
        match words {
            [flag, module, rest @ ..] if flag == "-m" => {
                if LAUNCHERS.contains(&module.as_str()) {
                    let launch = Launch::of_torchrun(rest)?;
                    let passes = module.ends_with(".launch") && !rest.iter().any(is_use_env);
                    return Ok(Launch { local_rank_argument: passes, ..launch });
                }
                Ok(Launch {
                    script: module.clone(),
                    module: true,
                    arguments: rest.to_vec(),
                    ..Launch::default()
                })
            }
            [flag, code, rest @ ..] if flag == "-c" => Ok(Launch {
                script: flag.clone(),
                code: Some(code.clone()),
                arguments: rest.to_vec(),
                ..Launch::default()
            }),
            [script, rest @ ..] if !script.starts_with('-') => {
                Ok(Launch { script: script.clone(), arguments: rest.to_vec(), ..Launch::default() })
            }
            [flag, ..] => bail!("{flag} stands where the script is expected"),
            [] => bail!("name the script behind {first}"),
        }
    }

    fn of_srun(words: &[String]) -> Result<Launch> {
        let mut sizes = Launch { launcher: Launcher::Slurm, ..Launch::default() };
        let rest = options_of(
            words,
            &["-n", "-N", "-c", "-p", "-t", "-w", "-J", "-A", "-G"],
            |name, value| {
                match name {
                    "n" | "ntasks" => sizes.world_size = Some(count(value, "--ntasks")?),
                    "N" | "nodes" => sizes.nodes = Some(count(value, "--nodes")?),
                    "ntasks-per-node" => {
                        sizes.ranks_per_node = Some(count(value, "--ntasks-per-node")?);
                    }
                    _ => {}
                }
                Ok(())
            },
        )?;
        Ok(sizes.starting(Launch::parse(rest)?))
    }

    fn of_mpirun(words: &[String]) -> Result<Launch> {
        let mut sizes = Launch { launcher: Launcher::Mpi, ..Launch::default() };
        let valued = ["-n", "-np", "-N", "-ppn", "-H", "-x", "-host", "-hostfile", "-npernode"];
        let rest = options_of(words, &valued, |name, value| {
            match name {
                "n" | "np" => sizes.world_size = Some(count(value, "-np")?),
                "N" | "ppn" | "npernode" => sizes.ranks_per_node = Some(count(value, "-N")?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(sizes.starting(Launch::parse(rest)?))
    }

    /// The script of `started`, on the ranks that this launcher starts; torchrun under srun counts its own.
    fn starting(self, started: Launch) -> Launch {
        if started.ranks_per_node.is_some() {
            return Launch { nodes: self.world_size.or(self.nodes), ..started };
        }
        Launch {
            nodes: self.nodes,
            ranks_per_node: self.ranks_per_node,
            world_size: self.world_size,
            launcher: self.launcher,
            ..started
        }
    }

    fn of_accelerate(words: &[String]) -> Result<Launch> {
        Launch::with_options(words, "accelerate", |launch, name, value| {
            if ACCELERATE_PLUGINS.contains(&name) {
                let option = name.replace('-', "_");
                bail!(
                    "--{option} of accelerate is not read: leave it out, and set the variables that it stands for \
                     (for FSDP: ACCELERATE_USE_FSDP=true FSDP_VERSION=2) before lockstep record"
                );
            }
            if let Some((_, variable)) =
                ACCELERATE_VARIABLES.iter().find(|(option, _)| *option == name)
            {
                launch.environment.insert((*variable).to_owned(), value.to_owned());
            }
            Ok(())
        })
    }

    fn of_fabric(words: &[String]) -> Result<Launch> {
        let mut launch = Launch::with_options(words, "fabric run", |launch, name, value| {
            let known = FABRIC_VARIABLES.iter().find(|(option, _)| *option == name);
            if let Some((_, variable)) = known {
                launch.environment.insert((*variable).to_owned(), value.to_owned());
            }
            if name == "devices" {
                // `0,2,` names the devices, `4` counts them.
                let named = value.split(',').filter(|device| !device.is_empty()).count() as u32;
                let is_list = value.contains(',');
                launch.ranks_per_node =
                    Some(if is_list { named } else { count(value, "--devices")? });
            }
            Ok(())
        })?;
        launch.environment.insert("LT_CLI_USED".to_owned(), "1".to_owned());
        launch.environment.entry("LT_DEVICES".to_owned()).or_insert_with(|| "1".to_owned());
        launch.environment.entry("LT_NUM_NODES".to_owned()).or_insert_with(|| "1".to_owned());
        launch.ranks_per_node = launch.ranks_per_node.or(Some(1));
        Ok(launch)
    }

    fn of_torchrun(words: &[String]) -> Result<Launch> {
        Launch::with_options(words, "torchrun", |_, _, _| Ok(()))
    }

    /// Reads the command line of `launcher`, whose options are like torchrun's; `each` hears every option as well.
    fn with_options(
        words: &[String],
        launcher: &str,
        mut each: impl FnMut(&mut Launch, &str, &str) -> Result<()>,
    ) -> Result<Launch> {
        let mut launch = Launch::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "-m" || word == "--module" {
                launch.module = true;
                continue;
            }
            let Some(option) = word.strip_prefix('-') else {
                launch.script = word.clone();
                launch.arguments = words.cloned().collect();
                return Ok(launch);
            };
            let option = option.trim_start_matches('-');
            let (name, inline) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (option, None),
            };
            let name = name.replace('_', "-");
            if FLAGS.contains(&name.as_str()) {
                each(&mut launch, &name, "")?;
                continue;
            }
            let value = match inline {
                Some(value) => value,
                None => words.next().cloned().unwrap_or_default(),
            };
            each(&mut launch, &name, &value)?;
            match name.as_str() {
                "nproc-per-node" | "num-gpus" => {
                    launch.ranks_per_node = Some(count(&value, &format!("--{name}"))?);
                }
                // accelerate counts all ranks.
                "num-processes" => launch.world_size = Some(count(&value, "--num_processes")?),
                // `1:4` is an elastic job: it is recorded at its largest.
                "nnodes" | "num-nodes" | "num-machines" => {
                    let most = value.rsplit(':').next().unwrap_or(&value);
                    launch.nodes = Some(count(most, "--nnodes")?);
                }
                _ => {}
            }
        }
        bail!("{launcher}'s command line names no script")
    }
}

/// Goes through a launcher's options; returns the rest of the words. `valued` are short options whose value
/// is the next word; a long option has its value behind `=`.
fn options_of<'a>(
    words: &'a [String],
    valued: &[&str],
    mut each: impl FnMut(&str, &str) -> Result<()>,
) -> Result<&'a [String]> {
    let mut rest = words;
    while let Some((word, behind)) = rest.split_first() {
        if !word.starts_with('-') {
            return Ok(rest);
        }
        rest = behind;
        let name = word.trim_start_matches('-');
        match (name.split_once('='), rest.split_first()) {
            (Some((name, value)), _) => each(name, value)?,
            (None, Some((value, behind))) if valued.contains(&word.as_str()) => {
                each(name, value)?;
                rest = behind;
            }
            _ => {}
        }
    }
    bail!("the launcher's command line names no script")
}

fn is_use_env(word: &String) -> bool {
    word == "--use-env" || word == "--use_env"
}

fn count(value: &str, option: &str) -> Result<u32> {
    match value.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => bail!("{option} {value}: give a number, since no GPU is asked for how many there are"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Launch {
        Launch::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn command_lines_as_people_write_them() {
        let own = parse("train.py --epochs 2");
        assert_eq!((own.script.as_str(), own.module), ("train.py", false));
        assert_eq!(own.arguments, ["--epochs", "2"]);
        assert_eq!(parse("python3 -u train.py --epochs 2"), own);
        let torchrun = parse("torchrun --standalone --nnodes=2 --nproc_per_node 4 train.py --lr 1");
        assert_eq!((torchrun.nodes, torchrun.ranks_per_node), (Some(2), Some(4)));
        assert_eq!((torchrun.script.as_str(), torchrun.arguments.len()), ("train.py", 2));
        let module = parse("python -m torch.distributed.run --nproc-per-node 4 -m pack.train x");
        assert!(module.module);
        assert_eq!((module.script.as_str(), module.ranks_per_node), ("pack.train", Some(4)));
        let words = ["python", "-c", "import train; train.main()"].map(str::to_owned);
        assert_eq!(
            Launch::parse(&words).unwrap().code.as_deref(),
            Some("import train; train.main()")
        );
        let elastic = parse("torchrun --nnodes 1:4 --rdzv-backend c10d --nproc-per-node 8 t.py");
        assert_eq!(elastic.nodes, Some(4));
    }

    #[test]
    fn other_launchers_have_their_own_variables() {
        let slurm = parse("srun -N 2 --ntasks-per-node=8 --gpus=16 python -u train.py --lr 1");
        assert_eq!(
            (slurm.launcher, slurm.nodes, slurm.ranks_per_node),
            (Launcher::Slurm, Some(2), Some(8))
        );
        assert_eq!((slurm.script.as_str(), slurm.arguments.len()), ("train.py", 2));
        assert_eq!(parse("mpirun -np 4 -x NCCL_DEBUG=INFO python t.py").world_size, Some(4));
        let accelerate =
            parse("accelerate launch --multi_gpu --num_processes 8 --num_machines 2 t.py --x 1");
        assert_eq!((accelerate.world_size, accelerate.nodes), (Some(8), Some(2)));
        assert_eq!((accelerate.script.as_str(), accelerate.arguments.len()), ("t.py", 2));
        let precision = parse("accelerate launch --num_processes 2 --mixed_precision bf16 t.py");
        assert_eq!(precision.environment["ACCELERATE_MIXED_PRECISION"], "bf16");
        let fabric = parse("fabric run --strategy ddp --devices=4 --num-nodes 2 t.py --lr 1");
        assert_eq!((fabric.ranks_per_node, fabric.nodes), (Some(4), Some(2)));
        assert_eq!((fabric.script.as_str(), fabric.arguments.len()), ("t.py", 2));
        let variables = ["LT_CLI_USED", "LT_DEVICES", "LT_NUM_NODES", "LT_STRATEGY"];
        assert_eq!(fabric.environment.keys().collect::<Vec<_>>(), variables);
        assert_eq!(fabric.environment["LT_STRATEGY"], "ddp");
        assert_eq!(parse("fabric run --devices 0,2, t.py").ranks_per_node, Some(2));
        assert!(!fabric.is_plain() && parse("python train.py").is_plain());
        let deepspeed = parse("deepspeed --num_gpus=4 t.py --deepspeed ds.json");
        assert_eq!((deepspeed.ranks_per_node, deepspeed.local_rank_argument), (Some(4), true));
        let agents = parse("srun -N 2 torchrun --nnodes 2 --nproc-per-node 4 t.py");
        assert_eq!(
            (agents.launcher, agents.nodes, agents.ranks_per_node),
            (Launcher::Torchrun, Some(2), Some(4))
        );
        assert!(
            parse("python -m torch.distributed.launch --nproc_per_node=2 t.py").local_rank_argument
        );
        assert!(
            !parse("python -m torch.distributed.launch --use_env --nproc_per_node=2 t.py")
                .local_rank_argument
        );
    }

    #[test]
    fn lines_without_a_script_are_refused() {
        for line in [
            "torchrun --nproc-per-node 4",
            "python",
            "--epochs",
            "torchrun --nproc-per-node gpu t.py",
            "accelerate launch --num_processes 2 --use_fsdp t.py",
            "fabric run --devices auto t.py",
            "horovodrun -np 2 t.py",
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert!(Launch::parse(&words).is_err(), "{line}");
        }
    }
}
