//! Files of a program that were dropped together: the program itself, and those that it may import.

use crate::pages::debugger::text_of;
use crate::pages::recording::files::path_of;
use web_sys::File;

/// A program and the files beside it, by their paths from its folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Dropped {
    /// The program's own name.
    pub(super) name: String,
    pub(super) text: String,
    pub(super) files: Vec<(String, String)>,
}

/// Reads dropped files.
///
/// # Errors
/// One of them is too large, or no text.
pub(super) async fn read(files: Vec<File>) -> Result<Dropped, String> {
    let mut texts = Vec::new();
    for file in files {
        texts.push((path_of(&file), text_of(&file).await?));
    }
    Ok(sorted(texts))
}

/// The program among several texts, and the others by their paths from its folder.
fn sorted(mut texts: Vec<(String, String)>) -> Dropped {
    let main = (0..texts.len()).max_by_key(|at| {
        let (path, text) = &texts[*at];
        let starts = text.contains("__main__");
        let joins = text.contains("init_process_group");
        // Of two alike the one in the outermost folder, and then the one that came first.
        (starts, joins, std::cmp::Reverse(path.matches('/').count()), std::cmp::Reverse(*at))
    });
    let Some(main) = main else { return Dropped::default() };
    let (path, text) = texts.remove(main);
    let folder = path.rsplit_once('/').map(|(folder, _)| format!("{folder}/")).unwrap_or_default();
    let beside =
        |(path, text): (String, String)| Some((path.strip_prefix(&folder)?.to_owned(), text));
    let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
    Dropped { name, text, files: texts.into_iter().filter_map(beside).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_the_file_that_starts_and_others_lie_beside_it() {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let texts = vec![
            file("job/utils.py", "def f():\n    pass\n"),
            file("job/train.py", "if __name__ == '__main__':\n    main()\n"),
            file("job/models/net.py", "class Net: ..."),
            file("other/x.py", ""),
        ];
        let found = sorted(texts);
        assert!(found.text.contains("main()") && found.name == "train.py");
        let paths: Vec<&str> = found.files.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["utils.py", "models/net.py"]);
        assert_eq!(
            sorted(vec![file("a.py", "x")]),
            Dropped { name: "a.py".to_owned(), text: "x".to_owned(), files: Vec::new() }
        );
    }
}
