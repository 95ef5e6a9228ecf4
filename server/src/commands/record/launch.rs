//! The command line that starts a script: `train.py --epochs 1`, `-m package.train`, `torchrun … train.py`.

use anyhow::{Result, bail};
use std::path::Path;

/// What is to be run, and on how many ranks if the command line says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Launch {
    /// The script's path, a module's name, or `-c`.
    pub(super) script: String,
    /// True for `-m module`.
    pub(super) module: bool,
    /// What `python -c` executes.
    pub(super) code: Option<String>,
    /// What the script is passed.
    pub(super) arguments: Vec<String>,
    /// torchrun's `--nnodes`.
    pub(super) nodes: Option<u32>,
    /// torchrun's `--nproc-per-node`.
    pub(super) ranks_per_node: Option<u32>,
}

/// Modules that start a script on several ranks, as `python -m` names them.
const LAUNCHERS: [&str; 2] = ["torch.distributed.run", "torch.distributed.launch"];

/// torchrun's options that take no value.
const FLAGS: [&str; 6] =
    ["standalone", "no-python", "use-env", "run-path", "dry-run", "signals-to-handle"];

impl Launch {
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
        if program == "torchrun" {
            return Launch::of_torchrun(rest);
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
                    return Launch::of_torchrun(rest);
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

    fn of_torchrun(words: &[String]) -> Result<Launch> {
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
                continue;
            }
            let value = match inline {
                Some(value) => value,
                None => words.next().cloned().unwrap_or_default(),
            };
            match name.as_str() {
                "nproc-per-node" => {
                    launch.ranks_per_node = Some(count(&value, "--nproc-per-node")?)
                }
                // `1:4` is an elastic job: it is recorded at its largest.
                "nnodes" => {
                    let most = value.rsplit(':').next().unwrap_or(&value);
                    launch.nodes = Some(count(most, "--nnodes")?);
                }
                _ => {}
            }
        }
        bail!("torchrun's command line names no script")
    }
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
    fn lines_without_a_script_are_refused() {
        for line in [
            "torchrun --nproc-per-node 4",
            "python",
            "--epochs",
            "torchrun --nproc-per-node gpu t.py",
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert!(Launch::parse(&words).is_err(), "{line}");
        }
    }
}
