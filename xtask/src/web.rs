//! `cargo xtask web`: the page, as static files in `dist/`.
//!
//! The crate `web-ui` is compiled once for `wasm32-unknown-unknown` (page and worker are the same
//! module), `web-ui/program` beside it (what executes programs, fetched late). Both are packed by
//! wasm-bindgen's own library, whose version the lock file pins together with the page's. Every
//! address in the result is relative, so that `dist/` works under any path. Beside each file lies
//! its `.gz`, for servers that send files compressed; `lockstep` embeds both.

use crate::shell;
use anyhow::{Context, Result, bail};
use flate2::{Compression, GzBuilder};
use lockstep_lessons::Shelf;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the page is compiled for.
pub(crate) const TARGET: &str = "wasm32-unknown-unknown";

/// The packages that become modules, and their names: page and worker are one, what executes
/// programs is fetched when one is opened. `NAME.js` and `NAME_bg.wasm`.
const MODULES: [(&str, &str); 2] =
    [("lockstep-web-ui", "lockstep_web_ui"), ("lockstep-web-program", "lockstep_web_program")];

/// Smaller files gain nothing worth a second copy.
const MIN_COMPRESSED_BYTES: usize = 1024;

/// The profile that the page is compiled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Options {
    /// Compile quickly instead of small: for looking at a change, not for shipping
    #[arg(long)]
    dev: bool,
}

impl Options {
    /// The page that ships.
    pub(crate) const SHIPPED: Options = Options { dev: false };

    /// The profile in the workspace's `Cargo.toml`.
    fn profile(self) -> &'static str {
        if self.dev { "web-dev" } else { "web" }
    }
}

/// A page that is compiled and not packed: `dist/` is as it was.
#[must_use]
pub(crate) struct Compiled {
    modules: PathBuf,
}

/// Builds the page and returns the folder it is in.
///
/// # Errors
/// When the target cannot be installed, the page does not compile, or files cannot be written.
pub(crate) fn build(options: Options) -> Result<PathBuf> {
    compile(options)?.pack()
}

/// Compiles the page's modules.
///
/// # Errors
/// When the target cannot be installed or the page does not compile.
pub(crate) fn compile(options: Options) -> Result<Compiled> {
    let profile = format!("--profile={}", options.profile());
    ensure_target()?;
    // Its own folder: the page's profile shares nothing with other builds, and a page that is
    // being built does not hold them up.
    let target_dir = shell::root().join("target").join("web");
    for (package, _) in MODULES {
        // `cargo rustc --crate-type`: with an rlib beside it, cargo would drop the LTO. A package
        // at a time: together, the page's module would get the features of the other one.
        let package = format!("--package={package}");
        let arguments = [
            "rustc",
            &package,
            "--lib",
            "--crate-type=cdylib",
            &profile,
            "--target",
            TARGET,
            "--target-dir",
        ];
        shell::run(shell::cargo(arguments).arg(&target_dir))?;
    }
    Ok(Compiled { modules: target_dir.join(TARGET).join(options.profile()) })
}

impl Compiled {
    /// Fills `dist/` and returns it.
    ///
    /// # Errors
    /// When files cannot be read or written.
    pub(crate) fn pack(self) -> Result<PathBuf> {
        let root = shell::root();
        let dist = root.join("dist");
        pack(&root, &self.modules, &dist)?;
        report(&dist)?;
        Ok(dist)
    }
}

/// Adds the wasm target if the toolchain lacks it. rustup does so by itself from
/// `rust-toolchain.toml`, unless `RUSTUP_AUTO_INSTALL=0` is set.
///
/// # Errors
/// When it is missing and rustup cannot add it.
pub(crate) fn ensure_target() -> Result<()> {
    let sysroot = Command::new("rustc")
        .args(["--print", "sysroot"])
        .current_dir(shell::root())
        .output()
        .context("could not run `rustc`; install Rust from https://rustup.rs")?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim());
    if sysroot.join("lib/rustlib").join(TARGET).join("lib").is_dir() {
        return Ok(());
    }
    let mut add = Command::new("rustup");
    add.args(["target", "add", TARGET]).current_dir(shell::root());
    shell::run(&mut add).with_context(|| {
        format!("the Rust target {TARGET} is missing; install it with `rustup target add {TARGET}`")
    })
}

/// Fills `dist` anew, unless nothing has changed since it was last filled.
fn pack(root: &Path, built: &Path, dist: &Path) -> Result<()> {
    let page = root.join("index.html");
    if !page.is_file() {
        bail!("index.html is missing in the repository's root; the page starts there");
    }
    let assets = root.join("web-ui").join("assets");
    let wasm = MODULES.map(|(_, module)| built.join(format!("{module}.wasm")));
    let mut sources = wasm.to_vec();
    sources.push(page);
    if assets.is_dir() {
        files_below(&assets, &mut sources)?;
    }
    let lessons = root.join("web-ui").join("lessons");
    let mut lesson_sources = Vec::new();
    for folder in ["text", "files"] {
        files_below(&lessons.join(folder), &mut lesson_sources)?;
    }
    // The stamp names every source and when it changed.
    let mut stamp = String::new();
    let mut packed = vec![root.join(SAMPLES)];
    for (_, folder) in sample_folders(root)? {
        files_below(&folder, &mut packed)?;
    }
    for source in sources.iter().chain(&lesson_sources).chain(&packed) {
        let modified = fs::metadata(source)
            .and_then(|metadata| metadata.modified())
            .with_context(|| format!("could not read {}", source.display()))?;
        stamp.push_str(&format!("{} {modified:?}\n", source.display()));
    }
    let stamp_file = root.join("target").join("web").join("dist.stamp");
    if dist.is_dir() && fs::read_to_string(&stamp_file).is_ok_and(|old| old == stamp) {
        return Ok(());
    }
    if dist.exists() {
        fs::remove_dir_all(dist).context("could not empty dist/")?;
    }
    fs::create_dir_all(dist).context("could not make dist/")?;
    for (wasm, (_, module)) in wasm.iter().zip(MODULES) {
        wasm_bindgen_cli_support::Bindgen::new()
            .input_path(wasm)
            .web(true)?
            .typescript(false)
            // The glue fetches the module from beside itself; without this it takes only bytes.
            .omit_default_module_path(false)
            .remove_name_section(true)
            .remove_producers_section(true)
            .out_name(module)
            .generate(dist)
            .context("wasm-bindgen could not pack the page")?;
    }
    for source in &sources[MODULES.len()..] {
        let name = source.strip_prefix(&assets).or_else(|_| source.strip_prefix(root))?;
        let to = dist.join(name);
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(source, &to).with_context(|| format!("could not write {}", to.display()))?;
    }
    pack_samples(root, dist)?;
    write_lessons(&lessons, &dist.join("lessons"))?;
    compress(dist)?;
    fs::write(&stamp_file, stamp).context("could not write target/web/dist.stamp")
}

/// The recordings that ship with the page: a line each, with its id, its folder and its title.
const SAMPLES: &str = "web-ui/samples.txt";

/// The folder of each sample, by its id.
fn sample_folders(root: &Path) -> Result<Vec<(String, PathBuf)>> {
    let listed = fs::read_to_string(root.join(SAMPLES)).context(SAMPLES)?;
    let fields = listed.lines().map(|line| {
        let mut fields = line.split(" | ");
        Some((fields.next()?.to_owned(), root.join(fields.next()?)))
    });
    fields
        .collect::<Option<_>>()
        .with_context(|| format!("{SAMPLES}: a line is `id | folder | title`"))
}

/// Writes each sample as an archive: its dumps and its log, not what explains them to us.
fn pack_samples(root: &Path, dist: &Path) -> Result<()> {
    fs::create_dir_all(dist.join("samples"))?;
    for (id, folder) in sample_folders(root)? {
        let archive = fs::File::create(dist.join("samples").join(format!("{id}.tar")))?;
        let mut tar = tar::Builder::new(archive);
        tar.mode(tar::HeaderMode::Deterministic);
        let mut files = Vec::new();
        files_below(&folder, &mut files).with_context(|| format!("{SAMPLES}: {id}"))?;
        for file in files.iter().filter(|file| !is_about(file)) {
            tar.append_path_with_name(file, file.strip_prefix(&folder)?)?;
        }
        tar.finish()?;
    }
    Ok(())
}

/// Writes the lessons as the page fetches them: their texts as JSON, the files that they open as
/// they are.
fn write_lessons(from: &Path, to: &Path) -> Result<()> {
    let mut texts = Vec::new();
    files_below(&from.join("text"), &mut texts)?;
    let texts = texts.iter().map(|path| {
        let text = fs::read_to_string(path);
        let text = text.with_context(|| format!("could not read {}", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, text))
    });
    let texts = texts.collect::<Result<Vec<(String, String)>>>()?;
    let texts = texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let shelf = Shelf::read(texts).context("in web-ui/lessons/text")?;
    fs::create_dir_all(to).context("could not make dist/lessons/")?;
    for (name, json) in shelf.files()? {
        fs::write(to.join(&name), json).with_context(|| format!("could not write {name}"))?;
    }
    let (folder, mut files) = (from.join("files"), Vec::new());
    files_below(&folder, &mut files)?;
    for file in files {
        let copy = to.join("files").join(file.strip_prefix(&folder)?);
        if let Some(folder) = copy.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(&file, &copy).with_context(|| format!("could not write {}", copy.display()))?;
    }
    Ok(())
}

/// Whether a file explains a recording instead of being part of it.
fn is_about(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == "md" || ending == "py" || ending == "json")
}

/// Adds the files below `folder` in name order.
fn files_below(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        match path.is_dir() {
            true => files_below(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

fn compress(dist: &Path) -> Result<()> {
    let mut files = Vec::new();
    files_below(dist, &mut files)?;
    for file in files {
        let bytes = fs::read(&file)?;
        if bytes.len() < MIN_COMPRESSED_BYTES {
            continue;
        }
        let mut name = file.into_os_string();
        name.push(".gz");
        // No time and no name inside: the same page is the same bytes.
        let mut gz = GzBuilder::new().write(fs::File::create(&name)?, Compression::best());
        gz.write_all(&bytes)?;
        gz.finish()?;
    }
    Ok(())
}

fn report(dist: &Path) -> Result<()> {
    for (_, module) in MODULES {
        let wasm = dist.join(format!("{module}_bg.wasm"));
        let whole = fs::metadata(&wasm)?.len();
        let mut gz = wasm.into_os_string();
        gz.push(".gz");
        let sent = fs::metadata(&gz).map_or(whole, |metadata| metadata.len());
        eprintln!("dist/ has {module}: {} KB, {} KB compressed", whole / 1000, sent / 1000);
    }
    Ok(())
}
