//! Clusters: their files, tables and logs of nccl-tests, and what machines say of themselves.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep_clusters::import::{self, Hints};
use lockstep_clusters::{Catalog, Table, nccl_tests, toml_text};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(mut catalog) = Catalog::shipped() else { return };
    let _ = Table::parse(text);
    let _ = nccl_tests::read("all_reduce.txt", text);
    let imported = import::read(&catalog, text, &Hints { name: "mine".into(), ..Hints::default() });
    let read = catalog.add_text("a.toml", text).ok().or(imported.ok().map(|it| it.cluster));
    if let Some(cluster) = read {
        let _ = catalog.given_points(&cluster);
        assert_eq!(catalog.add_text("b.toml", &toml_text(&cluster)).as_ref(), Ok(&cluster));
    }
});
