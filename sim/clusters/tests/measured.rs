//! The measured tables that ship: every one is readable, names its source, and was measured on the
//! cluster that its file is named after.

#![allow(clippy::unwrap_used, missing_docs)]

use lockstep_clusters::compare::{Site, mean_error};
use lockstep_clusters::given::check_points;
use lockstep_clusters::{Calibration, Catalog, Collective, Table, fitted_as};
use std::collections::BTreeSet;
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

fn shipped_tables() -> Vec<Table> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/measured");
    let files = std::fs::read_dir(folder).unwrap();
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    texts.flat_map(|text| Table::parse_all(&text).unwrap()).collect()
}

/// Tables are told as fitted or predicted as docs/clusters.md does.
#[test]
fn fitted_tables_are_those_of_the_document() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/clusters.md");
    let document = std::fs::read_to_string(path).unwrap();
    let of = |word: &str| -> BTreeSet<String> {
        let rows = document.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
        let named = rows.filter(|row| row.len() > 6 && row[3] == word);
        named.map(|row| row[1].to_owned()).collect()
    };
    let tables = shipped_tables();
    let fitted: BTreeSet<String> = tables.iter().filter_map(fitted_as).map(str::to_owned).collect();
    assert_eq!(fitted, of("fitted"));
    assert_eq!(tables.len(), fitted.len() + of("predicted").len());
    // A table with another time is another table.
    let mut other = tables.iter().find(|table| fitted_as(table).is_some()).unwrap().clone();
    other.points.last_mut().unwrap().1 *= 1.01;
    assert_eq!(fitted_as(&other), None);
}

/// No real time is refused as impossible, alone or beside the others of its table.
#[test]
fn measured_times_can_be_given() {
    let catalog = Catalog::shipped().unwrap();
    for table in shipped_tables() {
        let site = Site::of_table(&catalog, &table).unwrap();
        let given = site.given(&table.points);
        assert!(given.is_ok(), "{} {} {:?}", table.kind, table.gpus, given.unwrap_err());
        assert_eq!(check_points(&given.unwrap()), Ok(()));
    }
}

/// The tables that back a prediction have the sizes of the shipped tables, and a cluster's file says so.
#[test]
fn sizes_without_a_measurement_are_extrapolated() {
    let catalog = Catalog::shipped().unwrap();
    for table in shipped_tables() {
        let site = Site::of_table(&catalog, &table).unwrap();
        let named = catalog.cluster(&site.cluster.name).unwrap();
        let domains = site.placement.domains;
        for (bytes, _) in &table.points {
            assert!(
                named.backs_size(table.collective, domains, *bytes),
                "{}: {} of {bytes} bytes on {domains}",
                named.name,
                table.collective
            );
        }
    }
    let h100 = catalog.cluster("h100x8").unwrap();
    for collective in [Collective::AllGather, Collective::AllToAll, Collective::SendRecv] {
        let backed = [8, 64 << 10, 4 << 20, 16 << 20, 1 << 30, 1 << 40];
        let backed = backed.map(|bytes| h100.backs_size(collective, 1, bytes));
        assert_eq!(backed, [false, false, false, true, true, false], "{collective}");
    }
    for cluster in &catalog.clusters {
        assert!(cluster.measured.iter().all(|it| it.bytes.is_some()), "{}", cluster.name);
    }
}
