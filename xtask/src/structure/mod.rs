//! `cargo xtask structure`: what holds between rooms, checked. Crates use only what lies below them
//! ([`LAYERS`]), and the files of a crate import each other one way: a circle of files fails unless
//! `circles.txt` tolerates it, and what it tolerates can only shrink.

mod arrows;
mod modules;

use crate::shell;
use anyhow::{Context, Result, bail};
use arrows::{Arrows, arrows, circles};
use modules::{Crate, public_names};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// List every circle with its arrows, the names that draw each behind it
    #[arg(long)]
    circles: bool,
    /// List public items whose names no other crate mentions
    #[arg(long)]
    unused_pub: bool,
    /// Count lines of product code and of tests, a crate a line
    #[arg(long)]
    lines: bool,
}

/// What each crate may depend on, besides crates of others (DESIGN.md, *Rooms*). Tests may use all.
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

/// The files in the largest circle that a crate may have, a crate a line. Crates that are not named
/// have none.
const TOLERATED: &str = include_str!("circles.txt");

/// Stages of a crate, in order: a file or a folder of its `src` each. What a stage holds uses only what
/// stands before it; files of no stage come behind all of them.
const STAGES: &[(&str, &[&str])] = &[(
    "lockstep-diagnosis",
    &[
        "folded", "kinds", "report", "model", "words", "facts", "claim", "rules", "logs", "ladder",
        "decide",
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

/// Checks the layers and the circles, and lists what is asked for.
///
/// # Errors
/// When a crate uses one that it may not, or a circle is larger than tolerated.
pub(crate) fn structure(options: &Options) -> Result<()> {
    let members = members()?;
    if options.lines {
        return lines(&members);
    }
    if options.unused_pub {
        return unused_pub(&members);
    }
    let mut wrong = layers(&members);
    let tolerated = tolerated()?;
    for member in &members {
        let mut largest = 0;
        for root in &member.roots {
            let whole = Crate::read(root)?;
            let arrows = arrows(&whole);
            wrong.extend(backwards(member, &whole, &arrows));
            let found = circles(whole.files.len(), &arrows);
            largest = largest.max(found.first().map_or(0, Vec::len));
            if options.circles {
                found.iter().for_each(|circle| print(member, &whole, &arrows, circle));
            }
        }
        let most = tolerated.get(member.name.as_str()).copied().unwrap_or(0);
        if largest > most {
            wrong.push(format!(
                "{largest} files of {} import each other in a circle, and {most} are tolerated: \
                 `cargo xtask structure --circles` lists them",
                member.name
            ));
        } else if largest < most {
            eprintln!(
                "{}: the largest circle has {largest} files; write that into circles.txt",
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
    structure(&Options { circles: false, unused_pub: false, lines: false })
}

/// What `circles.txt` tolerates.
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

/// Crates that use what they may not, a sentence each.
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

fn unused_pub(members: &[Member]) -> Result<()> {
    let mut words: Vec<(&str, BTreeSet<String>)> = Vec::new();
    for member in members {
        let mut own = BTreeSet::new();
        for file in own_files(member, members)? {
            let text = std::fs::read_to_string(&file)?;
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            own.extend(text.split(|c| !is_word(c)).map(str::to_owned));
        }
        words.push((&member.name, own));
    }
    for member in members.iter().filter(|member| LAYERS.iter().any(|(it, _)| *it == member.name)) {
        // What only programs have is used by nobody else anyway.
        let Some(root) = member.roots.iter().find(|root| root.ends_with("lib.rs")) else {
            continue;
        };
        for (path, syntax) in &Crate::read(root)?.files {
            for name in public_names(syntax) {
                let used = |(other, words): &(&str, BTreeSet<String>)| {
                    *other != member.name && words.contains(&name)
                };
                if !words.iter().any(used) {
                    let path = path.strip_prefix(&member.folder).unwrap_or(path);
                    println!("{}: {} in {}", member.name, name, path.display());
                }
            }
        }
    }
    Ok(())
}
