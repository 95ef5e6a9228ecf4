//! File stores, also of two processes.

use crate::{LONG, counts_every_addition, ends_in_time, waits_until_the_keys_exist};
use lockstep_gpu_exec::store::{FileStore, Store};
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn opened(path: &std::path::Path) -> FileStore {
    FileStore::open(path, None).unwrap()
}

#[test]
fn a_file_store_is_shared_by_whoever_opens_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    waits_until_the_keys_exist(|| opened(&path));
    counts_every_addition(|| opened(&path));
    let texts = [
        "RuntimeError: Timeout waiting for key: k after 80 ms",
        "RuntimeError: Wait timeout",
        "RuntimeError: Timeout waiting for key: k after 80 ms",
    ];
    ends_in_time(&mut opened(&path), texts);
}

#[test]
fn the_last_worker_removes_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let first = FileStore::open(&path, Some(2)).unwrap();
    let second = FileStore::open(&path, Some(2)).unwrap();
    drop(first);
    assert!(path.exists());
    drop(second);
    assert!(!path.exists());
    // Without a number of workers it stays.
    drop(opened(&path));
    assert!(path.exists());
}

/// A store whose open file is gone says so, and leaves no other one behind.
#[test]
fn a_file_that_was_removed_is_not_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = FileStore::open(&path, Some(1)).unwrap();
    std::fs::remove_file(&path).unwrap();
    let error = store.set("a", b"1").unwrap_err().to_string();
    assert!(error.contains("somebody has removed or emptied it"), "{error}");
    assert!(!path.exists());
    drop(store);
    assert!(!path.exists());
}

/// The file that PyTorch 2.7.1 wrote for: set a, set b empty, delete a, delete zz, append to ap
/// twice.
const PYTORCHS: &[u8] =
    b"\t\0\0\0refcount/\x01\0\0\x001\x02\0\0\0/a\x01\0\0\x001\x02\0\0\0/b\0\0\0\0\
    \x03\0\0\0-/a\0\0\0\0\x04\0\0\0-/zz\0\0\0\0\x03\0\0\0/ap\x01\0\0\0x\x03\0\0\0/ap\x02\0\0\0xy";

#[test]
fn the_file_is_pytorchs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = opened(&path);
    store.set("a", b"1").unwrap();
    store.set("b", b"").unwrap();
    store.delete_key("a").unwrap();
    store.delete_key("zz").unwrap();
    store.append("ap", b"x").unwrap();
    store.append("ap", b"y").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), PYTORCHS);
    std::mem::forget(store);

    let theirs = folder.path().join("theirs");
    std::fs::write(&theirs, PYTORCHS).unwrap();
    let mut store = opened(&theirs);
    assert_eq!(store.multi_get(&["b", "ap"]).unwrap(), [b"".to_vec(), b"xy".to_vec()]);
    assert!(!store.check(&["a"]).unwrap());
}

#[test]
fn a_broken_file_is_refused_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    for bytes in [&b"\xff\xff\xff\xff"[..], b"\x01\0\0\0", b"\x01\0\0\0\xff\0\0\0\0", b"abc"] {
        std::fs::write(&path, bytes).unwrap();
        let error = FileStore::open(&path, None).unwrap_err().to_string();
        assert!(error.contains("store\" cannot be used"), "{error}");
    }
    assert!(FileStore::open(folder.path().join("no/where"), None).is_err());
}

/// A writer that was killed in the middle of its record.
#[test]
fn what_a_killed_writer_has_begun_is_left_out_and_then_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let record = [&5u32.to_ne_bytes()[..], b"/torn", &3u32.to_ne_bytes(), b"abc"].concat();
    for length in 1..record.len() {
        let path = folder.path().join(length.to_string());
        let mut before = opened(&path);
        before.set("before", b"1").unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole[..], &record[..length]].concat()).unwrap();
        // One who has it open already, and one who opens it then.
        assert_eq!(before.get("before").unwrap(), b"1");
        assert!(!before.check(&["torn"]).unwrap(), "{length}");
        let mut later = opened(&path);
        assert!(!later.check(&["torn"]).unwrap(), "{length}");
        later.set("after", b"2").unwrap();
        for store in [&mut before, &mut later, &mut opened(&path)] {
            assert_eq!(store.multi_get(&["before", "after"]).unwrap(), [b"1", b"2"]);
        }
    }
}

const SHARED: &str = "LOCKSTEP_TEST_FILE_STORE";

/// The other process of the test below; nothing by itself.
#[test]
fn other_process() {
    let Some(path) = std::env::var_os(SHARED) else { return };
    let mut store = FileStore::open(PathBuf::from(path), Some(2)).unwrap();
    store.set_timeout(LONG);
    store.wait(&["ready"], None).unwrap();
    for _ in 0..100 {
        store.add("n", 1).unwrap();
    }
    store.set("done", b"by the other").unwrap();
}

#[test]
fn two_processes_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "file::other_process"])
        .env(SHARED, &path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut store = FileStore::open(&path, Some(2)).unwrap();
    store.set_timeout(LONG);
    store.set("ready", b"").unwrap();
    for _ in 0..100 {
        store.add("n", 1).unwrap();
    }
    let done = store.get("done");
    assert!(other.wait().unwrap().success());
    assert_eq!(done.unwrap(), b"by the other");
    assert_eq!(store.get("n").unwrap(), b"200");
    drop(store);
    assert!(!path.exists());
}

/// With a PyTorch at hand, as in `tcp`: its process and this one share a file.
#[test]
#[ignore = "needs a Python with PyTorch in LOCKSTEP_PYTHON"]
fn pytorch_shares_our_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let script = format!(
        "
import datetime, torch.distributed as d
s = d.FileStore({path:?}, 2)
s.set_timeout(datetime.timedelta(seconds=20))
print(s.get('ours'), s.add('n', 2), s.compare_set('c', '', 'x'), s.delete_key('gone'))
s.set('theirs', 'from PyTorch')
"
    );
    let mut store = FileStore::open(&path, Some(2)).unwrap();
    store.set_timeout(LONG);
    store.set("ours", b"from Lockstep").unwrap();
    store.set("gone", b"").unwrap();
    store.add("n", 40).unwrap();
    let python = std::env::var_os("LOCKSTEP_PYTHON").unwrap();
    let output = Command::new(python).args(["-c", &script]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text, "b'from Lockstep' 42 b'x' True\n", "{errors}");
    assert_eq!(store.get("theirs").unwrap(), b"from PyTorch");
    assert_eq!(store.get("n").unwrap(), b"42");
    assert!(!store.check(&["gone"]).unwrap());
    drop(store);
    assert!(!path.exists());
}
