//! A job's own files, as far as they were dropped on the page: recordings name their lines and do not
//! hold them.

use std::collections::BTreeMap;
use std::rc::Rc;
use yew::prelude::*;

/// Lines shown before and after the one that is meant.
const AROUND: usize = 6;

/// The texts that were dropped, by path: within the folder that was dropped, else the file's name.
pub(crate) type Texts = Rc<BTreeMap<String, Rc<str>>>;

/// A frame as recordings write it, `/job/train.py:88` or `/job/train.py:88 step`, as path and line.
pub(crate) fn place(frame: &str) -> Option<(&str, usize)> {
    // A path may hold blanks, and a drive's colon: the line is what stands behind the last colon.
    let (path, rest) = frame.rsplit_once(':')?;
    let line = rest.split(' ').next()?;
    let named = path.rsplit(['/', '\\']).next().is_some_and(|name| !name.is_empty());
    Some((path, line.parse().ok().filter(|line| *line > 0 && named)?))
}

/// The dropped file that a path means: of those with its name the one that has most of its folders;
/// `None` where there is none, or two are as like it.
pub(crate) fn meant<'t>(texts: &'t Texts, path: &str) -> Option<(&'t str, &'t Rc<str>)> {
    let alike = |dropped: &str| {
        let parts = |path| str::rsplit(path, ['/', '\\']);
        parts(dropped).zip(parts(path)).take_while(|(a, b)| a == b).count()
    };
    let most = texts.keys().map(|dropped| alike(dropped)).max().filter(|most| *most > 0)?;
    let mut best = texts.iter().filter(|(dropped, _)| alike(dropped) == most);
    let (dropped, text) = best.next()?;
    best.next().is_none().then_some((dropped.as_str(), text))
}

/// A line of a file with those around it; lines count from 1. `text` begins with line `first` of the file.
pub(crate) fn excerpt(name: &str, text: &str, first: usize, line: usize) -> Html {
    let from = line.saturating_sub(AROUND).max(first);
    let lines = (first..).zip(text.lines()).skip(from - first).take(line + AROUND + 1 - from);
    html! {
        <figure class="source" data-test="dropped-source">
            <figcaption class="mono">{ format!("{name}:{line}") }</figcaption>
            <ol>
                { for lines.map(|(at, text)| html! {
                    <li class={classes!((at == line).then_some("here"))}>
                        <span class="number">{ at }</span><code>{ text }</code>
                    </li>
                }) }
            </ol>
        </figure>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_places_in_files() {
        assert_eq!(place("/job/train.py:88"), Some(("/job/train.py", 88)));
        assert_eq!(place("/job/train.py:88 step"), Some(("/job/train.py", 88)));
        assert_eq!(place("train.py:1"), Some(("train.py", 1)));
        assert_eq!(place(r"C:\job\train.py:7"), Some((r"C:\job\train.py", 7)));
        for wrong in ["train.py", "train.py:", "train.py:0", ":3", "x:y"] {
            assert_eq!(place(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_path_means_the_file_with_most_of_its_folders() {
        let texts = |paths: &[&str]| -> Texts {
            Rc::new(paths.iter().map(|path| ((*path).to_owned(), Rc::from("x = 1"))).collect())
        };
        let meant = |paths: &[&str], path: &str| {
            meant(&texts(paths), path).map(|(dropped, _)| dropped.to_owned())
        };
        let one = ["train.py"];
        assert_eq!(meant(&one, "/srv/job/train.py").as_deref(), Some("train.py"));
        assert_eq!(meant(&one, "/srv/job/model.py"), None);
        assert_eq!(meant(&one, "/srv/job/pretrain.py"), None, "a name is whole");
        let two = ["job/a/step.py", "job/b/step.py"];
        assert_eq!(meant(&two, "/srv/job/b/step.py").as_deref(), Some("job/b/step.py"));
        assert_eq!(meant(&two, r"C:\job\a\step.py").as_deref(), Some("job/a/step.py"));
        assert_eq!(meant(&two, "step.py"), None, "either");
    }
}
