//! TCP stores, also with a real PyTorch on the other side.

use crate::{LONG, SHORT, counts_every_addition, ends_in_time, waits_until_the_keys_exist};
use lockstep_gpu_exec::store::{
    PrefixStore, Store, StoreClient, StoreError, StoreServer, TcpStore, TcpStoreOptions,
};
use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

fn client(server: &StoreServer) -> StoreClient {
    StoreClient::connect(server.address(), LONG).unwrap()
}

#[test]
fn a_tcp_store_is_shared_by_its_clients() {
    let server = StoreServer::start().unwrap();
    waits_until_the_keys_exist(|| client(&server));
    counts_every_addition(|| client(&server));
    let texts = [
        "DistStoreError: wait timeout after 80ms, keys: /k",
        "DistStoreError: wait timeout after 80ms, keys: /there, /k",
        "DistStoreError: wait timeout after 80ms, keys: /there, /k",
    ];
    ends_in_time(&mut client(&server), texts);
}

/// gloo's keys as recorded in `init_duplicate_rank1`, through three prefixes.
#[test]
fn prefixes_are_in_the_text_of_a_timeout() {
    let server = StoreServer::start().unwrap();
    let mut store = client(&server);
    store.set_timeout(SHORT);
    let group =
        PrefixStore::new("cpu/", PrefixStore::new("0/", PrefixStore::new("default_pg", store)));
    let mut gloo = PrefixStore::new("0", group);
    let error = gloo.get("2").unwrap_err().to_string();
    assert_eq!(error, "DistStoreError: wait timeout after 80ms, keys: /default_pg/0//cpu//0/2");
}

#[test]
fn a_bad_addition_costs_only_its_own_connection() {
    let server = StoreServer::start().unwrap();
    let (mut bad, mut good) = (client(&server), client(&server));
    for value in [&b"apples"[..], b"", b"99999999999999999999"] {
        good.set("text", value).unwrap();
        good.check(&["text"]).unwrap();
        let lost = "DistNetworkError: failed to recv, got 0 bytes";
        assert_eq!(bad.add("text", 1).unwrap_err().to_string(), lost);
        assert_eq!(bad.get("text").unwrap_err().to_string(), lost);
        assert_eq!(good.get("text").unwrap(), value);
        bad = client(&server);
    }
}

/// A port of another service is reported once, and as such.
#[test]
fn what_is_no_store_is_told_so() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let answering = std::thread::spawn(move || {
        let (mut one, _) = listener.accept().unwrap();
        one.write_all(b"HTTP/1.0 400 Bad Request").unwrap();
        // Closed after all was read, so that the answer arrives.
        let _ = one.read(&mut [0; 64]);
        drop(listener.accept().unwrap());
    });
    let said = |error: StoreError| {
        assert!(error.source().is_none(), "its words would be said twice");
        error.to_string()
    };
    let other = said(StoreClient::connect(address, LONG).unwrap_err());
    let what = format!("what listens at {address} is no c10d store: it ");
    assert!(other.contains(&what) && other.contains("answered \"HTTP\""), "{other}");
    let gone = said(StoreClient::connect(address, LONG).unwrap_err());
    assert!(gone.contains(&what) && gone.contains("hung up"), "{gone}");
    answering.join().unwrap();
}

#[test]
fn workers_are_counted_as_they_come() {
    let free = (Ipv4Addr::LOCALHOST, 0).into();
    let serves = TcpStoreOptions {
        is_server: true,
        num_workers: Some(2),
        wait_for_workers: false,
        timeout: LONG,
    };
    let mut server = TcpStore::new(free, &serves).unwrap();
    let joins = TcpStoreOptions { is_server: false, wait_for_workers: true, ..serves.clone() };
    let mut other = TcpStore::new(server.address(), &joins).unwrap();
    other.set("k", b"v").unwrap();
    assert_eq!(server.get("k").unwrap(), b"v");
    // The key that counts the workers is a key too.
    assert_eq!(other.num_keys().unwrap(), 2);

    let alone =
        TcpStoreOptions { wait_for_workers: true, timeout: Duration::from_millis(1100), ..serves };
    let error = TcpStore::new(free, &alone).unwrap_err().to_string();
    let expected =
        "DistStoreError: Timed out after 1 seconds waiting for clients. 1/2 clients joined.";
    assert_eq!(error, expected);
}

#[test]
fn a_server_that_is_not_there_is_waited_for() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = StoreClient::connect(address, SHORT).unwrap_err().to_string();
    let expected = format!(
        "DistNetworkError: The client socket has timed out after 80ms while trying to connect to \
         (127.0.0.1, {}).",
        address.port()
    );
    assert_eq!(error, expected);
    // One that comes meanwhile is found.
    let waiting = std::thread::spawn(move || StoreClient::connect(address, LONG).is_ok());
    std::thread::sleep(Duration::from_millis(50));
    if let Ok(server) = StoreServer::listen(address) {
        assert!(waiting.join().unwrap());
        drop(server);
    }
}

#[test]
fn dropping_the_server_ends_those_who_wait() {
    let server = StoreServer::start().unwrap();
    let mut waiting = client(&server);
    let waiter = std::thread::spawn(move || waiting.get("never").is_err());
    std::thread::sleep(Duration::from_millis(20));
    let started = Instant::now();
    drop(server);
    assert!(waiter.join().unwrap());
    assert!(started.elapsed() < LONG);
}

#[test]
fn what_is_no_request_is_cut_off_and_harms_nobody() {
    let server = StoreServer::start().unwrap();
    let validation = [&[0u8][..], &0x3C85_F7CEu32.to_ne_bytes()].concat();
    let too_long = [&validation[..], &[1], &u64::MAX.to_ne_bytes()].concat();
    let missing = [&validation[..], &[3], &1u64.to_ne_bytes(), b"x"].concat();
    for bytes in [&[255u8; 64][..], &[19, 0, 0, 0, 0], &too_long, &missing] {
        let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(bytes).unwrap();
        // Closed, or reset because bytes were left unread: cut off either way.
        assert!(matches!(stream.read(&mut [0; 8]), Ok(0) | Err(_)));
    }
    let mut store = client(&server);
    store.set("key", &vec![7; 1 << 20]).unwrap();
    assert_eq!(store.get("key").unwrap(), vec![7; 1 << 20]);
    let error = store.set("key", &vec![7; 9 << 20]).unwrap_err().to_string();
    assert!(error.contains("a value of 9437184 is too long"), "{error}");
}

#[test]
fn nobody_makes_the_server_hold_more_than_its_limits() {
    let server = StoreServer::start().unwrap();
    let mut good = client(&server);
    let value = vec![7; 8 << 20];
    for key in 0..9 {
        good.set(&key.to_string(), &value).unwrap();
    }
    // Nine times eight MiB in one answer are over its 64.
    let keys: Vec<String> = (0..9).map(|key| key.to_string()).collect();
    let mut keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut greedy = client(&server);
    let error = greedy.multi_get(&keys).unwrap_err();
    let lost = "DistNetworkError: failed to recv, got 0 bytes";
    assert_eq!(error.to_string(), lost);
    keys.truncate(7);
    assert!(client(&server).multi_get(&keys).unwrap().iter().all(|got| *got == value));
    // So are they in one request, which its own client does not even send.
    let entries: Vec<(String, &[u8])> = (0..9).map(|n| (n.to_string(), &value[..])).collect();
    let entries: Vec<(&str, &[u8])> = entries.iter().map(|(k, v)| (k.as_str(), *v)).collect();
    let error = good.multi_set(&entries).unwrap_err().to_string();
    assert!(error.contains("a request of 75497") && error.contains("67108864"), "{error}");
    // A client of others is cut off on the way.
    let mut raw = std::net::TcpStream::connect(server.address()).unwrap();
    raw.set_read_timeout(Some(LONG)).unwrap();
    let validation = [&[0u8][..], &0x3C85_F7CEu32.to_ne_bytes()].concat();
    raw.write_all(&[&validation[..], &[11], &9u64.to_ne_bytes()].concat()).unwrap();
    let item = [&1u64.to_ne_bytes()[..], b"k", &(8u64 << 20).to_ne_bytes(), &value].concat();
    let sent = (0..9).try_for_each(|_| raw.write_all(&item));
    assert!(sent.is_err() || matches!(raw.read(&mut [0; 8]), Ok(0) | Err(_)));
    assert_eq!(good.get("0").unwrap(), value);
}

#[test]
fn strangers_do_not_keep_clients_out() {
    let server = StoreServer::start().unwrap();
    let connect = |_| std::net::TcpStream::connect(server.address()).unwrap();
    let mut before = client(&server);
    let strangers: Vec<_> = (0..300).map(connect).collect();
    let mut store = client(&server);
    store.set("key", b"value").unwrap();
    assert_eq!(before.get("key").unwrap(), b"value");
    // The oldest of them was hung up on.
    strangers[0].set_read_timeout(Some(LONG)).unwrap();
    assert!(matches!(std::io::Read::read(&mut &strangers[0], &mut [0; 8]), Ok(0) | Err(_)));
}

/// A client that says its requests byte by byte, as a PyTorch process would.
struct Raw(std::net::TcpStream);

impl Raw {
    fn connect(server: &StoreServer) -> Raw {
        let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(&[&[0u8][..], &0x3C85_F7CEu32.to_ne_bytes()].concat()).unwrap();
        Raw(stream)
    }

    fn say(&mut self, query: u8, key: &str, rest: &[u8]) {
        let key = [&(key.len() as u64).to_ne_bytes()[..], key.as_bytes()].concat();
        self.0.write_all(&[&[query][..], &key, rest].concat()).unwrap();
    }

    fn push(&mut self, key: &str, value: &str) {
        let value = [&(value.len() as u64).to_ne_bytes()[..], value.as_bytes()].concat();
        self.say(14, key, &value);
    }

    /// Waits for one key, and does not take the answer.
    fn wait(&mut self, key: &str) {
        self.0.write_all(&[&[6u8][..], &1u64.to_ne_bytes()].concat()).unwrap();
        self.0.write_all(&(key.len() as u64).to_ne_bytes()).unwrap();
        self.0.write_all(key.as_bytes()).unwrap();
    }

    fn byte(&mut self) -> u8 {
        let mut byte = [0];
        self.0.read_exact(&mut byte).unwrap();
        byte[0]
    }

    fn number(&mut self) -> i64 {
        let mut number = [0; 8];
        self.0.read_exact(&mut number).unwrap();
        i64::from_ne_bytes(number)
    }

    fn value(&mut self) -> String {
        let length = self.number();
        let mut value = vec![0; length.try_into().unwrap()];
        self.0.read_exact(&mut value).unwrap();
        String::from_utf8(value).unwrap()
    }

    fn pop(&mut self, key: &str) -> (i64, Option<String>) {
        self.say(15, key, &[]);
        let length = self.number();
        (length, (length > 0).then(|| self.value()))
    }

    fn queue_len(&mut self, key: &str) -> i64 {
        self.say(16, key, &[]);
        self.number()
    }

    /// The server has taken all that was said before.
    fn is_heard(&mut self) {
        self.say(16, "", &[]);
        self.number();
    }

    /// Nothing has been said to it.
    fn hears_nothing(&mut self) {
        self.0.set_nonblocking(true).unwrap();
        let heard = self.0.read(&mut [0]).unwrap_err();
        assert_eq!(heard.kind(), std::io::ErrorKind::WouldBlock);
        self.0.set_nonblocking(false).unwrap();
    }
}

/// `queue_push`, `queue_pop` and `queue_len` of PyTorch 2.8 and later.
#[test]
fn queues_hand_each_value_to_one_who_waits() {
    let server = StoreServer::start().unwrap();
    let (mut first, mut second) = (Raw::connect(&server), Raw::connect(&server));
    let mut pushing = Raw::connect(&server);
    assert_eq!(pushing.queue_len("/q"), 0);
    assert_eq!(pushing.pop("/q"), (0, None));
    pushing.push("/q", "a");
    pushing.push("/q", "b");
    assert_eq!(pushing.queue_len("/q"), 2);
    assert_eq!(pushing.pop("/q"), (2, Some("a".into())));
    // A queue is not a key, but `check` and `wait` see it.
    let mut store = client(&server);
    assert_eq!(store.num_keys().unwrap(), 0);
    assert!(store.check(&["q"]).unwrap());
    store.wait(&["q"], Some(SHORT)).unwrap();
    assert_eq!(pushing.pop("/q"), (1, Some("b".into())));
    assert!(!store.check(&["q"]).unwrap());

    first.wait("/q");
    first.hears_nothing();
    // The second one's wait is later than the first one's.
    pushing.is_heard();
    second.wait("/q");
    pushing.is_heard();
    pushing.push("/q", "for the first");
    assert_eq!(first.byte(), 0);
    assert_eq!(first.pop("/q"), (1, Some("for the first".into())));
    second.hears_nothing();
    pushing.push("/q", "for the second");
    assert_eq!(second.byte(), 0);
    // A value does not wake a client that has stopped waiting.
    first.wait("/q2");
    first.0.write_all(&[12]).unwrap();
    assert_eq!(first.byte(), 1);
    second.wait("/q2");
    pushing.is_heard();
    pushing.push("/q2", "x");
    assert_eq!(second.byte(), 0);
    first.hears_nothing();
}

#[test]
fn queues_count_among_what_the_server_holds() {
    let server = StoreServer::start().unwrap();
    let value = "7".repeat(8 << 20);
    let mut pushing = Raw::connect(&server);
    for _ in 0..127 {
        pushing.push("/q", &value);
    }
    assert_eq!(pushing.queue_len("/q"), 127);
    let mut greedy = Raw::connect(&server);
    greedy.push("/q", &value);
    assert!(matches!(greedy.0.read(&mut [0; 8]), Ok(0) | Err(_)));
    // Taking a value makes room.
    assert_eq!(pushing.pop("/q").0, 127);
    pushing.push("/q", &value);
    assert_eq!(pushing.queue_len("/q"), 127);
}

/// `list_keys` and `barrier` of PyTorch 2.15.
#[test]
fn a_barrier_ends_when_all_have_come() {
    let server = StoreServer::start().unwrap();
    let (mut first, mut second) = (Raw::connect(&server), Raw::connect(&server));
    first.say(18, "/b", &2i64.to_ne_bytes());
    second.is_heard();
    first.hears_nothing();
    second.say(18, "/b", &2i64.to_ne_bytes());
    assert_eq!((first.byte(), second.byte()), (0, 0));
    first.0.write_all(&[17]).unwrap();
    assert_eq!((first.number(), first.value()), (1, "/b".to_owned()));
    // One who gives up does not count as waiting any more, but has come.
    first.say(18, "/c", &2i64.to_ne_bytes());
    first.0.write_all(&[12]).unwrap();
    assert_eq!(first.byte(), 1);
    second.say(18, "/c", &2i64.to_ne_bytes());
    assert_eq!(second.byte(), 0);
    first.hears_nothing();
}

/// A key that is gone at once has been there.
#[test]
fn a_wait_ends_with_the_change_that_it_is_for() {
    let server = StoreServer::start().unwrap();
    let (mut waiting, mut changing) = (Raw::connect(&server), Raw::connect(&server));
    waiting.wait("/k");
    changing.is_heard();
    let set = [&[1u8][..], &2u64.to_ne_bytes(), b"/k", &1u64.to_ne_bytes(), b"v"].concat();
    let delete = [&[8u8][..], &2u64.to_ne_bytes(), b"/k"].concat();
    changing.0.write_all(&[set, delete].concat()).unwrap();
    assert_eq!(changing.number(), 1);
    assert_eq!(waiting.byte(), 0);
}

/// With a PyTorch at hand: `LOCKSTEP_PYTHON=/path/to/python cargo test … -- --ignored`. Its client
/// on our server, and our client on its server.
#[test]
#[ignore = "needs a Python with PyTorch in LOCKSTEP_PYTHON"]
fn pytorch_speaks_with_our_server_and_we_with_its() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let python = std::env::var_os("LOCKSTEP_PYTHON").unwrap();
    let run = |script: String| Command::new(&python).args(["-c", &script]).output().unwrap();
    let server = StoreServer::start().unwrap();
    let port = server.address().port();
    let output = run(format!(
        "
import datetime, torch.distributed as d
s = d.TCPStore('127.0.0.1', {port}, None, False, datetime.timedelta(seconds=20))
s.set('a', 'one'); s.append('a', ' two'); s.multi_set(['m', 'n'], ['1', '2'])
print(s.get('a'), s.add('count', 3), s.add('count', -1), s.check(['a', 'm']), s.check(['zz']))
print(s.compare_set('c', 'x', 'y'), s.compare_set('c', '', 'y'), s.multi_get(['m', 'n']))
print(s.delete_key('m'), s.delete_key('m'), s.num_keys())
s.set_timeout(datetime.timedelta(milliseconds=300))
try: s.get('never')
except Exception as error: print(type(error).__name__, str(error).splitlines()[0])
s.set('big', 'x' * 3000000); print(len(s.get('big')))
if hasattr(s, 'queue_push'):
    s.queue_push('q', 'a'); s.queue_push('q', 'b')
    assert (s.queue_len('q'), s.queue_pop('q'), s.queue_pop('q', False), s.queue_len('q')) \
        == (2, b'a', b'b', 0)
    try: s.queue_pop('q', False); assert False
    except d.QueueEmptyError: pass
    import threading
    got, other = [], s.clone()
    waiting = threading.Thread(target=lambda: got.append(other.queue_pop('q')))
    other.set_timeout(datetime.timedelta(seconds=20)); waiting.start()
    s.queue_push('q', 'c'); waiting.join(); assert got == [b'c'], got
if hasattr(s, 'list_keys'):
    assert sorted(s.list_keys()) == ['a', 'big', 'c', 'count', 'n'], s.list_keys()
if hasattr(s, 'barrier'):
    other = s.clone()
    waiting = threading.Thread(target=lambda: other.barrier('b', 2, datetime.timedelta(seconds=20)))
    waiting.start(); s.barrier('b', 2, datetime.timedelta(seconds=20)); waiting.join()
"
    ));
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = "\
b'one two' 3 2 True False
b'x' b'y' [b'1', b'2']
True False 4
DistStoreError wait timeout after 300ms, keys: /never
3000000
";
    assert_eq!(text, expected, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(client(&server).get("count").unwrap(), b"2");

    let mut theirs = Command::new(&python)
        .args([
            "-c",
            "
import datetime, torch.distributed as d
s = d.TCPStore('127.0.0.1', 0, None, True, datetime.timedelta(seconds=20))
print(s.port, flush=True); input()
",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(theirs.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = (Ipv4Addr::LOCALHOST, line.trim().parse().unwrap()).into();
    let mut store = StoreClient::connect(address, LONG).unwrap();
    store.set("a", b"one").unwrap();
    store.append("a", b" two").unwrap();
    store.multi_set(&[("m", b"1"), ("n", b"2")]).unwrap();
    assert_eq!(store.multi_get(&["a", "m"]).unwrap(), [b"one two".to_vec(), b"1".to_vec()]);
    assert_eq!(store.add("count", 3).unwrap(), 3);
    assert_eq!(store.compare_set("c", b"x", b"y").unwrap(), b"x");
    assert!(store.check(&["a", "n"]).unwrap() && !store.check(&["c"]).unwrap());
    assert!(store.delete_key("n").unwrap() && !store.delete_key("n").unwrap());
    assert_eq!(store.num_keys().unwrap(), 3);
    let error = store.wait(&["never"], Some(SHORT)).unwrap_err().to_string();
    assert_eq!(error, "DistStoreError: wait timeout after 80ms, keys: /never");
    theirs.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(theirs.wait().unwrap().success());
}
