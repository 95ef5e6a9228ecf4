//! `cargo xtask web`: the page, as static files in `dist/`.
//!
//! Three crates are compiled for `wasm32-unknown-unknown`: `web-ui` is the page, `web-ui/engine` its
//! worker, fetched beside it, `web-ui/program` executes programs and is fetched late. They are packed
//! by wasm-bindgen's own library, whose version the lock file pins together with the page's. Every
//! address in the result is relative, so that `dist/` works under any path.
//!
//! Code and style lie under `assets/` with a digest of their bytes in the name, so that browsers and
//! servers may keep them for ever; only `index.html` says which belong together. Beside each file
//! lie its `.br` and `.gz`, for servers that send files compressed; `lockstep` embeds both.

use crate::shell;
use anyhow::{Context, Result, bail};
use brotli::enc::BrotliEncoderParams;
use flate2::{Compression, GzBuilder};
use lockstep_lessons::Shelf;
use std::fs;
use std::io::{Read as _, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use xxhash_rust::xxh3::xxh3_64;

/// The target that the page is compiled for.
const TARGET: &str = "wasm32-unknown-unknown";

/// The package of the page.
const PAGE_PACKAGE: &str = "lockstep-web-ui";

/// All that the page's module has is compiled as small as can be: it draws, and computes nothing
/// that takes long. Its engine shares most packages with it, and keeps the profile's level.
const SMALLEST: &str = "profile.web.opt-level=\"z\"";

/// Simulations, which the engine computes longest with, are compiled for speed. That adds little to a module
/// that is fetched beside the page. The interpreter shares what both compile.
const FASTEST: [&str; 2] = [
    "profile.web.package.lockstep-sim.opt-level=3",
    "profile.web.package.lockstep-core.opt-level=3",
];

/// The packages that become modules, and their names: `NAME.js` and `NAME_bg.wasm`.
const MODULES: [(&str, &str); 3] = [
    (PAGE_PACKAGE, "lockstep_web_ui"),
    ("lockstep-web-engine", "lockstep_web_engine"),
    ("lockstep-web-program", "lockstep_web_program"),
];

/// The folder of files whose names change with their contents.
const ASSETS: &str = "assets";

/// Smaller files gain nothing worth a second copy.
const MIN_COMPRESSED_BYTES: u64 = 1024;

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
    /// True if the packed files are compressed, too, which takes half a minute.
    compressed: bool,
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
        // at a time: together, the page's module would get the features of the other ones.
        let arguments = ["rustc", "--package", package, "--lib", "--crate-type=cdylib", &profile];
        let mut command = shell::cargo(arguments);
        let settings: &[&str] = match package {
            _ if options.dev => &[],
            PAGE_PACKAGE => &[SMALLEST],
            _ => &FASTEST,
        };
        for setting in settings {
            command.args(["--config", setting]);
        }
        shell::run(command.args(["--target", TARGET, "--target-dir"]).arg(&target_dir))?;
    }
    let modules = target_dir.join(TARGET).join(options.profile());
    Ok(Compiled { modules, compressed: !options.dev })
}

impl Compiled {
    /// Fills `dist/` and returns it.
    ///
    /// # Errors
    /// When files cannot be read or written.
    pub(crate) fn pack(self) -> Result<PathBuf> {
        let root = shell::root();
        let dist = root.join("dist");
        pack(&root, &self, &dist)?;
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
fn pack(root: &Path, built: &Compiled, dist: &Path) -> Result<()> {
    let page = root.join("index.html");
    if !page.is_file() {
        bail!("index.html is missing in the repository's root; the page starts there");
    }
    let assets = root.join("web-ui").join("assets");
    let wasm = MODULES.map(|(_, module)| built.modules.join(format!("{module}.wasm")));
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
    let mut stamp = format!("compressed: {}\n", built.compressed);
    let mut packed = vec![root.join(SAMPLES)];
    for (_, folder) in sample_folders(root)? {
        files_below(&folder, &mut packed)?;
    }
    let measured = root.join(MEASURED);
    files_below(&measured, &mut packed)?;
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
    name_by_content(dist)?;
    pack_samples(root, dist)?;
    copy_files(&measured, &dist.join("measured"))?;
    write_lessons(&lessons, &dist.join("lessons"))?;
    if built.compressed {
        compress(dist)?;
    }
    fs::write(&stamp_file, stamp).context("could not write target/web/dist.stamp")
}

/// The measured tables of clusters, which the page fetches beside its predictions.
pub(crate) const MEASURED: &str = "sim/clusters/data/measured";

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

/// Writes each sample as an archive: its dumps and its log, without the explanations for developers.
fn pack_samples(root: &Path, dist: &Path) -> Result<()> {
    fs::create_dir_all(dist.join("samples"))?;
    for (id, folder) in sample_folders(root)? {
        let archive = fs::File::create(dist.join("samples").join(format!("{id}.tar")))?;
        let mut tar = tar::Builder::new(archive);
        tar.mode(tar::HeaderMode::Deterministic);
        let mut files = Vec::new();
        files_below(&folder, &mut files).with_context(|| format!("{SAMPLES}: {id}"))?;
        for file in files.iter().filter(|file| !is_about(file)) {
            let name = file.strip_prefix(&folder)?;
            // The page unpacks no archive within an archive.
            match file.extension().is_some_and(|extension| extension == "gz") {
                true => append_unpacked(&mut tar, file, &name.with_extension(""))?,
                false => tar.append_path_with_name(file, name)?,
            }
        }
        tar.finish()?;
    }
    Ok(())
}

/// Appends what a gzip holds.
fn append_unpacked(tar: &mut tar::Builder<fs::File>, packed: &Path, name: &Path) -> Result<()> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(fs::File::open(packed)?)
        .read_to_end(&mut bytes)
        .with_context(|| format!("could not unpack {}", packed.display()))?;
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    Ok(tar.append_data(&mut header, name, &bytes[..])?)
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
    copy_files(&from.join("files"), &to.join("files"))
}

/// Copies all files below a folder.
fn copy_files(from: &Path, to: &Path) -> Result<()> {
    let mut files = Vec::new();
    files_below(from, &mut files)?;
    for file in files {
        let copy = to.join(file.strip_prefix(from)?);
        if let Some(folder) = copy.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(&file, &copy).with_context(|| format!("could not write {}", copy.display()))?;
    }
    Ok(())
}

/// True if a file explains a recording instead of being part of it.
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

/// The file that keeps its name: it says which of the others belong together.
const PAGE: &str = "index.html";

/// Moves the files in `dist` below [`ASSETS`], with a digest of its bytes in each name, and writes the new
/// names where files name each other. Pictures go into the files that show them.
fn name_by_content(dist: &Path) -> Result<()> {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(dist)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    // A file comes behind those that it names: scripts of ours start the glue of wasm-bindgen, which fetches its
    // module.
    let is_glue = |name: &str| MODULES.iter().any(|(_, module)| name == format!("{module}.js"));
    let rank = |name: &str| match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("wasm" | "css" | "svg") => 0,
        Some("js") if is_glue(name) => 1,
        Some("js") if name != "page.js" => 2,
        Some("js") => 3,
        _ => 4,
    };
    names.sort_by_key(|name| (rank(name), name.clone()));
    fs::create_dir(dist.join(ASSETS))?;
    let mut renamed: Vec<(String, String)> = Vec::new();
    let mut pictures: Vec<(String, String)> = Vec::new();
    for name in names {
        let path = dist.join(&name);
        let mut bytes = fs::read(&path)?;
        let is_asset = name != PAGE;
        if name.ends_with(".js") || name.ends_with(".html") {
            let folder = if is_asset { "" } else { "assets/" };
            let text = String::from_utf8(bytes).with_context(|| format!("{name} is no text"))?;
            let text = with_new_names(text, "", &pictures);
            bytes = with_new_names(text, folder, &renamed).into_bytes();
        }
        if !is_asset {
            fs::write(&path, bytes)?;
            continue;
        }
        if name.ends_with(".svg") {
            fs::remove_file(&path)?;
            pictures.push((name, picture_address(&bytes)));
            continue;
        }
        let (stem, ending) = name.rsplit_once('.').unwrap_or((&name, ""));
        let new = format!("{stem}-{:016x}.{ending}", xxh3_64(&bytes));
        fs::write(dist.join(ASSETS).join(&new), bytes)?;
        fs::remove_file(&path)?;
        renamed.push((name, new));
    }
    Ok(())
}

/// A picture as an address that holds it. A page that shows the same small picture in three places
/// would ask a server for it three times.
fn picture_address(svg: &[u8]) -> String {
    let svg = String::from_utf8_lossy(svg);
    let escaped = svg.trim_end().replace('%', "%25").replace('#', "%23").replace('"', "'");
    format!("data:image/svg+xml,{escaped}")
}

/// A text with new names for files, wherever an old one is in quotes, below `folder`.
fn with_new_names(mut text: String, folder: &str, renamed: &[(String, String)]) -> String {
    for (old, new) in renamed {
        for quote in ['"', '\'', '`'] {
            for before in ["", "./"] {
                let (old, new) = (
                    format!("{quote}{before}{old}{quote}"),
                    format!("{quote}{before}{folder}{new}{quote}"),
                );
                text = text.replace(&old, &new);
            }
        }
    }
    text
}

/// Writes `.br` and `.gz` beside every file that gains by it, on all cores.
fn compress(dist: &Path) -> Result<()> {
    let mut files = Vec::new();
    files_below(dist, &mut files)?;
    let mut large = Vec::new();
    for file in files {
        large.push((fs::metadata(&file)?.len(), file));
    }
    large.retain(|(bytes, _)| *bytes >= MIN_COMPRESSED_BYTES);
    large.sort();
    let large = Mutex::new(large);
    let next = || large.lock().unwrap_or_else(PoisonError::into_inner).pop();
    std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let work = || {
            while let Some((_, file)) = next() {
                compress_file(&file).with_context(|| file.display().to_string())?;
            }
            anyhow::Ok(())
        };
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let ended = |thread: ScopedJoinHandle<'_, Result<()>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().try_for_each(ended)
    })
}

fn compress_file(file: &Path) -> Result<()> {
    let bytes = fs::read(file)?;
    let beside = |ending: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(ending);
        fs::File::create(name)
    };
    // No time and no name inside: the same page is the same bytes.
    let mut gz = GzBuilder::new().write(beside(".gz")?, Compression::best());
    gz.write_all(&bytes)?;
    gz.finish()?;
    let parameters = BrotliEncoderParams {
        quality: 11,
        lgwin: 24,
        size_hint: bytes.len(),
        ..BrotliEncoderParams::default()
    };
    brotli::BrotliCompress(&mut bytes.as_slice(), &mut beside(".br")?, &parameters)?;
    Ok(())
}

fn report(dist: &Path) -> Result<()> {
    let mut files = Vec::new();
    files_below(&dist.join(ASSETS), &mut files)?;
    for wasm in files.iter().filter(|file| file.extension().is_some_and(|it| it == "wasm")) {
        let size = |ending: &str| {
            let mut name = wasm.as_os_str().to_owned();
            name.push(ending);
            fs::metadata(name).map(|metadata| metadata.len() / 1000)
        };
        let name = wasm.file_name().unwrap_or_default().to_string_lossy();
        eprint!("dist/ has {name}: {} KB", size("")?);
        match (size(".br"), size(".gz")) {
            (Ok(br), Ok(gz)) => eprintln!(", {br} KB by brotli, {gz} KB by gzip"),
            _ => eprintln!(),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_module_changes_the_names_of_all_that_lead_to_it() {
        let names = |wasm: &str| {
            let folder = tempfile::tempdir().unwrap();
            let dist = folder.path();
            for (name, text) in [
                ("lockstep_web_ui_bg.wasm", wasm),
                ("lockstep_web_ui.js", "new URL('lockstep_web_ui_bg.wasm', import.meta.url)"),
                ("page.js", "import init from \"./lockstep_web_ui.js\"; beside(\"engine.js\")"),
                ("engine.js", "// by page.js"),
                ("style.css", "body {}"),
                ("favicon.svg", "<svg/>"),
                ("index.html", "<script src=\"page.js\"></script><img src=\"favicon.svg\">"),
            ] {
                fs::write(dist.join(name), text).unwrap();
            }
            name_by_content(dist).unwrap();
            let mut files = Vec::new();
            files_below(dist, &mut files).unwrap();
            let texts = files.iter().map(|file| {
                let name = file.strip_prefix(dist).unwrap().display().to_string();
                (name, fs::read_to_string(file).unwrap())
            });
            texts.collect::<Vec<_>>()
        };
        let (one, other) = (names("one"), names("other"));
        for (name, text) in &one {
            let stays = name == PAGE;
            let shows = text.contains("<img src=\"data:image/svg+xml,<svg/>\">");
            assert!(!name.ends_with(".svg") && shows == stays, "{name}: {text}");
            assert_eq!(name.starts_with("assets/"), !stays, "{name}");
            // Whatever a file names is there.
            for quoted in text.split(['"', '\'']).filter(|it| it.contains('.') && !it.contains(' '))
            {
                let named = quoted.trim_start_matches("./");
                let path = if stays { named.to_owned() } else { format!("assets/{named}") };
                let is_file =
                    quoted.contains(".js") || quoted.contains(".wasm") || quoted.contains(".css");
                assert!(!is_file || one.iter().any(|(it, _)| *it == path), "{name}: {quoted}");
            }
        }
        let changed = one.iter().zip(&other).filter(|(one, other)| one.0 != other.0);
        let changed: Vec<&str> = changed.map(|(one, _)| one.0.split('-').next().unwrap()).collect();
        let expected = ["assets/lockstep_web_ui", "assets/lockstep_web_ui_bg", "assets/page"];
        assert_eq!(changed, expected);
    }
}
