//! `lockstep explain`: its statements are true.

use super::{assert_refused, json};
use lockstep_diagnosis::{Kind, findings_page};
use lockstep_tests::lockstep;

/// Every example that an explanation names is run, and its first finding is of that kind.
#[test]
fn examples_show_the_kind_that_they_explain() {
    for kind in Kind::ALL.iter().copied() {
        let Some(example) = kind.explanation().example else { continue };
        let arguments = example.split(' ').chain(["--json"]);
        let report = json(&lockstep(arguments));
        // `sim` wraps the findings in what else it says of the run.
        let findings = report["findings"].get("findings").unwrap_or(&report["findings"]);
        assert_eq!(findings[0]["kind"], kind.name(), "{example}: {report}");
    }
}

#[test]
fn the_names_are_those_of_the_json() {
    for kind in Kind::ALL.iter().copied() {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        assert_eq!(Kind::of_name(kind.name()), Some(kind));
        let told = lockstep(["explain", kind.name()]);
        assert!(told.code == 0 && told.out.starts_with(kind.title()), "{told:?}");
    }
    assert_eq!(lockstep(["explain"]).out.lines().count(), Kind::ALL.len());
    assert_refused(&lockstep(["explain", "op_skiped"]), "did you mean op_skipped?");
}

#[test]
fn the_page_of_findings_is_the_one_that_is_printed() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/findings.md");
    let kept = std::fs::read_to_string(path).unwrap();
    assert_eq!(lockstep(["explain", "--markdown"]).out, findings_page());
    assert!(
        kept == findings_page(),
        "docs/findings.md is old: lockstep explain --markdown > docs/findings.md"
    );
}
