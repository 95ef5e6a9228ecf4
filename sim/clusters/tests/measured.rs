//! The measured tables that ship: every one is readable, names its source, and was measured on the
//! cluster that its file is named after.

use lockstep_clusters::compare::{Site, mean_error};
use lockstep_clusters::{Calibration, Catalog, Table};
use std::path::Path;

#[test]
fn every_table_is_of_the_cluster_of_its_file() {
    let catalog = Catalog::shipped().unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/measured");
    let (mut tables, mut points) = (0, 0);
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert_eq!(catalog.cluster(&stem).unwrap().name, stem);
        let text = std::fs::read_to_string(&path).unwrap();
        for text in text.split("\n\n") {
            let table = Table::parse(text).unwrap_or_else(|error| panic!("{stem}: {error}"));
            assert!(text.lines().any(|line| line.starts_with("# source: ")), "{stem}: {text}");
            let site = Site::of_table(&catalog, &table).unwrap();
            assert_eq!(site.cluster.name, stem, "{} is another machine", table.kind);
            let compared = site.compare(&table, &Calibration::default()).unwrap();
            // Another machine's or collective's table would be off by more.
            let off = mean_error(&compared, |_| true).unwrap();
            assert!(off < 2.0, "{stem}: {} of {} ranks is {off} off", table.collective, table.gpus);
            tables += 1;
            points += table.points.len();
        }
    }
    assert!((tables, points) > (100, 2000), "{tables} tables, {points} points");
}
