//! `cargo xtask structure`: checks the rules between crates. Crates use only crates below them ([`LAYERS`]),
//! the files of a crate import each other one way, public items are used outside their crate, and tests lie
//! in folders of their own. `circles.txt` says how many files in circles a crate may still have, which can
//! only shrink.

mod arrows;
mod modules;
mod public;

use crate::shell;
use anyhow::{Context, Result, bail};
use arrows::{Arrows, arrows, circles};
use modules::Crate;
use public::{unused, words_of_examples};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// List every circle with its arrows, the names that draw each behind it
    #[arg(long)]
    circles: bool,
    /// Count lines of product code and of tests, a crate a line
    #[arg(long)]
    lines: bool,
}

/// The dependencies that each crate may have, besides crates of others (DESIGN.md, *Rooms*). Tests may use all.
const LAYERS: &[(&str, &[&str])] = &[
    ("lockstep-core", &[]),
    ("lockstep-torch", &["core"]),
    ("lockstep-formats", &["core"]),
    ("lockstep-analysis", &["core", "formats"]),
    ("lockstep-diagnosis", &["core", "formats"]),
    ("lockstep-scenarios", &["core", "torch"]),
    ("lockstep-program", &["core", "torch", "scenarios"]),
    ("lockstep-sim", &["core", "torch"]),
    ("lockstep-clusters", &["core"]),
    ("lockstep-replay", &["core", "torch", "formats", "analysis", "diagnosis", "sim"]),
    ("lockstep-gpu-exec", &["core", "torch", "formats"]),
    (
        "lockstep-server",
        &[
            "core",
            "torch",
            "formats",
            "analysis",
            "diagnosis",
            "scenarios",
            "program",
            "sim",
            "clusters",
            "replay",
            "gpu-exec",
        ],
    ),
    ("lockstep-lessons", &[]),
    (
        "lockstep-web-protocol",
        &["core", "torch", "analysis", "diagnosis", "scenarios", "sim", "replay"],
    ),
    (
        "lockstep-web-engine",
        &[
            "core",
            "torch",
            "formats",
            "analysis",
            "diagnosis",
            "scenarios",
            "sim",
            "clusters",
            "replay",
            "web-protocol",
        ],
    ),
    (
        "lockstep-web-ui",
        &[
            "core",
            "torch",
            "analysis",
            "diagnosis",
            "scenarios",
            "sim",
            "replay",
            "lessons",
            "web-protocol",
        ],
    ),
    ("lockstep-web-program", &["scenarios", "program"]),
];

/// The files that may be in circles, a crate a line; none in crates that are not named.
const TOLERATED: &str = include_str!("circles.txt");

/// Stages of a crate, in order: a file or a folder of its `src` each. A stage uses only earlier stages; files
/// of no stage come behind all of them.
const STAGES: &[(&str, &[&str])] = &[(
    "lockstep-diagnosis",
    &[
        "folded", "kinds", "repair", "report", "model", "words", "facts", "claim", "rules", "logs",
        "ladder", "decide",
    ],
)];

/// A crate of the workspace.
struct Member {
    name: String,
    folder: PathBuf,
    /// The root files of its library and programs.
    roots: Vec<PathBuf>,
    /// The crates of the workspace that its product code depends on.
    uses: Vec<String>,
}

/// Checks layers, circles and public items, and prints the lists that were asked for.
///
/// # Errors
/// When a crate uses one that it may not, more files are in circles than tolerated, or a public item is used
/// by nobody outside its crate.
pub(crate) fn structure(options: &Options) -> Result<()> {
    let members = members()?;
    if options.lines {
        return lines(&members);
    }
    let mut wrong = layers(&members);
    wrong.extend(unused_public(&members)?);
    wrong.extend(tests_among_product(&members)?);
    let tolerated = tolerated()?;
    for member in &members {
        let mut in_circles = 0;
        for root in &member.roots {
            let whole = Crate::read(root)?;
            let arrows = arrows(&whole);
            wrong.extend(backwards(member, &whole, &arrows));
            let found = circles(whole.files.len(), &arrows);
            in_circles += found.iter().map(Vec::len).sum::<usize>();
            if options.circles {
                found.iter().for_each(|circle| print(member, &whole, &arrows, circle));
            }
        }
        let most = tolerated.get(member.name.as_str()).copied().unwrap_or(0);
        if in_circles > most {
            wrong.push(format!(
                "{in_circles} files of {} import each other in circles, and {most} are tolerated: \
                 `cargo xtask structure --circles` lists them",
                member.name
            ));
        } else if in_circles < most {
            eprintln!(
                "{}: {in_circles} files are in circles; write that into circles.txt",
                member.name
            );
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(())
}

/// The check alone, as a part of the tests.
///
/// # Errors
/// As [`structure`].
pub(crate) fn check() -> Result<()> {
    structure(&Options { circles: false, lines: false })
}

/// The number of circles that `circles.txt` tolerates in each crate.
fn tolerated() -> Result<BTreeMap<&'static str, usize>> {
    let lines = TOLERATED.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (name, files) =
                line.split_once(' ').context("circles.txt: `crate files` a line")?;
            Ok((name, files.trim().parse().context("circles.txt: no number")?))
        })
        .collect()
}

/// The crates of the workspace.
fn members() -> Result<Vec<Member>> {
    let mut cargo = shell::cargo(["metadata", "--no-deps", "--format-version=1"]);
    let answer = cargo.output().context("cargo metadata does not start")?;
    let answer: Value = serde_json::from_slice(&answer.stdout).context("cargo metadata")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let members = list(&answer["packages"]).into_iter().map(|package| {
        let product = |kind: &str| matches!(kind, "lib" | "bin" | "cdylib" | "rlib");
        let roots = list(&package["targets"]).into_iter().filter_map(|target| {
            let kinds = list(&target["kind"]);
            let is_product = kinds.iter().any(|kind| product(&text(kind)));
            is_product.then(|| PathBuf::from(text(&target["src_path"])))
        });
        let uses = list(&package["dependencies"]).into_iter().filter_map(|used| {
            let in_workspace = !used["path"].is_null() && used["kind"].is_null();
            in_workspace.then(|| text(&used["name"]))
        });
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        Member {
            name: text(&package["name"]),
            folder: manifest.parent().unwrap_or(Path::new("")).to_owned(),
            roots: roots.collect(),
            uses: uses.collect(),
        }
    });
    Ok(members.collect())
}

/// Crates that use a crate that they may not use, a sentence each.
fn layers(members: &[Member]) -> Vec<String> {
    let mut wrong = Vec::new();
    for member in members {
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == member.name) else {
            continue;
        };
        for used in &member.uses {
            let short = used.strip_prefix("lockstep-").unwrap_or(used);
            if !allowed.contains(&short) {
                wrong.push(format!("{} may not depend on {used}: see LAYERS", member.name));
            }
        }
    }
    wrong
}

/// Files of tests that lie among product files and not in a folder `tests`, a sentence each.
fn tests_among_product(members: &[Member]) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    // The page's `explain` still has two such files.
    for member in members.iter().filter(|member| member.name != "lockstep-web-ui") {
        for file in own_files(member, members)? {
            let relative = file.strip_prefix(&member.folder).unwrap_or(&file);
            if is_test_among_product(relative) {
                wrong.push(format!(
                    "{}: {} is a file of tests among product files: move it into a folder `tests`",
                    member.name,
                    relative.display()
                ));
            }
        }
    }
    Ok(wrong)
}

/// True if a file of a crate, given by its path from the crate's folder, is named like a test and is in no
/// folder of tests.
fn is_test_among_product(file: &Path) -> bool {
    let is_product =
        file.starts_with("src") && !file.components().any(|it| it.as_os_str() == "tests");
    let name = file.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    // NVIDIA's nccl-tests are product code's subject.
    let is_tests = name.starts_with("tests") || name.ends_with("_tests") && name != "nccl_tests";
    is_product && is_tests
}

/// Arrows from a stage to one behind it, a sentence each.
fn backwards(member: &Member, whole: &Crate, arrows: &Arrows) -> Vec<String> {
    let Some((_, stages)) = STAGES.iter().find(|(name, _)| *name == member.name) else {
        return Vec::new();
    };
    let stage = |file: usize| {
        let (path, _) = whole.files.get(file)?;
        let path = path.strip_prefix(member.folder.join("src")).ok()?;
        let first = Path::new(path.components().next()?.as_os_str()).file_stem()?.to_owned();
        let at = stages.iter().position(|stage| first == *stage);
        Some((at.unwrap_or(stages.len()), first.to_string_lossy().into_owned()))
    };
    let mut wrong = Vec::new();
    for ((from, to), names) in arrows {
        let (Some(from), Some(to)) = (stage(*from), stage(*to)) else { continue };
        if from.0 < to.0 {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            wrong.push(format!(
                "{}: {} uses {} of {}, which is a later stage: see STAGES",
                member.name,
                from.1,
                names.join(", "),
                to.1
            ));
        }
    }
    wrong
}

fn print(member: &Member, whole: &Crate, arrows: &Arrows, circle: &[usize]) {
    let name = |file: usize| {
        let path = whole.files.get(file).map(|(path, _)| path.as_path()).unwrap_or(Path::new(""));
        path.strip_prefix(&member.folder).unwrap_or(path).display().to_string()
    };
    println!("{}: {} files in a circle", member.name, circle.len());
    let inside = |file: &usize| circle.binary_search(file).is_ok();
    // Those first that few names draw: they are the ones to take away.
    let mut drawn: Vec<_> =
        arrows.iter().filter(|((from, to), _)| inside(from) && inside(to)).collect();
    drawn.sort_by_key(|(_, names)| names.len());
    for ((from, to), names) in drawn {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        println!("  {} -> {}: {}", name(*from), name(*to), names.join(", "));
    }
}

/// Every Rust file below a folder.
fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in folder.read_dir().with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            rust_files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// The files of a crate and not of one in a folder below it.
fn own_files(member: &Member, members: &[Member]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    rust_files(&member.folder, &mut files)?;
    let below = members
        .iter()
        .filter(|other| other.folder != member.folder && other.folder.starts_with(&member.folder));
    let below: Vec<&Path> = below.map(|other| other.folder.as_path()).collect();
    files.retain(|file| !below.iter().any(|folder| file.starts_with(folder)));
    Ok(files)
}

fn lines(members: &[Member]) -> Result<()> {
    let (mut all_product, mut all_tests) = (0, 0);
    for member in members {
        let (mut product, mut tests) = (0, 0);
        for file in own_files(member, members)? {
            let text = std::fs::read_to_string(&file)?;
            let relative = file.strip_prefix(&member.folder).unwrap_or(&file);
            let is_test = relative.components().any(|part| {
                let part = part.as_os_str().to_string_lossy();
                matches!(&*part, "tests" | "tests.rs" | "benches" | "examples")
            });
            let inline = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
            let before = text.get(..inline).unwrap_or(&text).lines().count();
            match is_test || member.name == "lockstep-tests" {
                true => tests += text.lines().count(),
                false => {
                    product += before;
                    tests += text.lines().count() - before;
                }
            }
        }
        println!("{:<22} {product:>7} product {tests:>7} tests", member.name);
        all_product += product;
        all_tests += tests;
    }
    println!("{:<22} {all_product:>7} product {all_tests:>7} tests", "all");
    Ok(())
}

/// Public items of libraries that are not named outside their crate, a sentence each.
fn unused_public(members: &[Member]) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let fuzzers = words_of_folder(&shell::root().join("fuzz"))?;
    let words: Vec<Words> =
        members.iter().map(|member| Words::of(member, members)).collect::<Result<_>>()?;
    for (at, member) in members.iter().enumerate() {
        // Items of programs have no other users anyway, nor have the tests' shared parts.
        if member.name == "lockstep-tests" {
            continue;
        }
        let Some(root) = member.roots.iter().find(|root| root.ends_with("lib.rs")) else {
            continue;
        };
        let mut outside = fuzzers.clone();
        for (other, words) in words.iter().enumerate() {
            outside.extend(words.outside.iter().cloned());
            if other != at {
                outside.extend(words.product.iter().cloned());
            }
        }
        let (paths, files): (Vec<PathBuf>, Vec<syn::File>) =
            Crate::read(root)?.files.into_iter().unzip();
        for (file, name) in unused(&files, &outside) {
            let path = paths.get(file).map(PathBuf::as_path).unwrap_or(Path::new(""));
            wrong.push(format!(
                "{}: `{name}` in {} is public, and nothing outside the crate names it",
                member.name,
                path.strip_prefix(&member.folder).unwrap_or(path).display(),
            ));
        }
    }
    if !wrong.is_empty() {
        wrong.push("Make such items `pub(crate)` or private, or delete them.".to_owned());
    }
    Ok(wrong)
}

/// The words of a crate's files.
struct Words {
    /// The words of the crate's product code.
    product: BTreeSet<String>,
    /// The words of its integration tests and benches, and of the examples in its documents: they are crates
    /// of their own.
    outside: BTreeSet<String>,
}

impl Words {
    fn of(member: &Member, members: &[Member]) -> Result<Words> {
        let mut words = Words { product: BTreeSet::new(), outside: BTreeSet::new() };
        for file in own_files(member, members)? {
            let text = std::fs::read_to_string(&file)?;
            let relative = file.strip_prefix(&member.folder).unwrap_or(&file);
            let first = relative.components().next().map(|first| first.as_os_str().to_owned());
            let is_outside = first.is_some_and(|first| first == "tests" || first == "benches");
            words.outside.extend(words_of_examples(&text));
            let of = if is_outside { &mut words.outside } else { &mut words.product };
            of.extend(public::words(&text).map(str::to_owned));
        }
        Ok(words)
    }
}

fn words_of_folder(folder: &Path) -> Result<BTreeSet<String>> {
    let mut files = Vec::new();
    rust_files(folder, &mut files)?;
    let mut words = BTreeSet::new();
    for file in files {
        words.extend(public::words(&std::fs::read_to_string(file)?).map(str::to_owned));
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_lie_in_folders_of_their_own() {
        for (file, expected) in [
            ("src/plan/tests.rs", true),
            ("src/plan/lab_tests.rs", true),
            ("src/plan/tests/mod.rs", false),
            ("src/plan/check.rs", false),
            ("src/nccl_tests.rs", false),
            ("tests/suite/tests.rs", false),
        ] {
            assert_eq!(is_test_among_product(Path::new(file)), expected, "{file}");
        }
    }
}
