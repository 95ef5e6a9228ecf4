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
        let all = Table::parse_all(&text).unwrap_or_else(|error| panic!("{stem}: {error}"));
        let sources = text.lines().filter(|line| line.starts_with("# source: ")).count();
        assert_eq!(all.len(), sources, "{stem}: each table names its source");
        for table in all {
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

/// Tables of a folder, written into one file, are read as they are one by one; and comments inside a table
/// begin none.
#[test]
fn tables_behind_each_other_are_those_by_themselves() {
    let table = |collective: &str, rows: &str| {
        format!(
            "# source: a log\n# collective: {collective}\n# gpus: 8\n# nodes: 1\n# kind: H100\n{rows}"
        )
    };
    let one = table("all_reduce", "bytes,time_us\n8,10\n# odd: the next one\n16,99\n");
    let two = table("all_gather", "bytes,time_us\n1024,12.5\n# end of log\n");
    let alone: Vec<Table> = [&one, &two].map(|text| Table::parse(text).unwrap()).into();
    assert_eq!(Table::parse_all(&format!("{one}{two}")).unwrap(), alone);
    assert_eq!(Table::parse_all(&format!("{one}\n\n{two}")).unwrap(), alone);
    assert_eq!(alone[0].points, [(8, 10.0), (16, 99.0)]);
    let wrong = format!("{one}{}", two.replace("1024,12.5", "1024,none"));
    let error = Table::parse_all(&wrong).unwrap_err().to_string();
    assert!(error.starts_with(&format!("line {}: ", one.lines().count() + 7)), "{error}");
}
