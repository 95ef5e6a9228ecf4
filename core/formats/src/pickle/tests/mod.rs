use super::*;
use proptest::prelude::*;

/// A value as text, bounded in depth.
fn show(pickle: &Pickle<'_>, value: Value<'_>, depth: usize) -> String {
    if depth == 0 {
        return "…".into();
    }
    let many = |values: &[Value<'_>]| {
        values.iter().map(|v| show(pickle, *v, depth - 1)).collect::<Vec<_>>().join(", ")
    };
    match value {
        Value::List(_) => format!("[{}]", many(pickle.seq(value).unwrap())),
        Value::Tuple(_) => format!("({})", many(pickle.seq(value).unwrap())),
        Value::Dict(_) => {
            let items = pickle.dict(value).unwrap().iter();
            let items = items
                .map(|[k, v]| format!("{}: {}", show(pickle, *k, 1), show(pickle, *v, depth - 1)));
            format!("{{{}}}", items.collect::<Vec<_>>().join(", "))
        }
        Value::Str(_) | Value::Text(_) => format!("{:?}", pickle.str(value).unwrap()),
        other => format!("{other:?}"),
    }
}

fn read(bytes: &[u8]) -> String {
    let pickle = Pickle::read(bytes).unwrap();
    show(&pickle, pickle.root(), 8)
}

/// `{"a": [1, -2, 300, 70000, 2**63 + 5, True, None], "t": (1.5, "é\n")}` in three protocols; CPython
/// loads each of them as that value.
#[test]
fn every_protocol_reads_the_same() {
    let protocol_0 = b"(dp0\nVa\np1\n(lp2\nI1\naI-2\naI300\naI70000\naL9223372036854775813L\naI01\naNasVt\np3\n(F1.5\nV\\u00e9\\u000a\np4\ntp5\ns.";
    let wanted = "{\"a\": [Int(1), Int(-2), Int(300), Int(70000), Unsigned(9223372036854775813), \
                  Bool(true), None], \"t\": (Float(1.5), \"é\\n\")}";
    assert_eq!(read(protocol_0), wanted);
    let protocol_2 = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00\x8a\x09\x05\x00\x00\x00\x00\x00\x00\x80\x00\x88NeX\x01\x00\x00\x00tq\x03G?\xf8\x00\x00\x00\x00\x00\x00X\x03\x00\x00\x00\xc3\xa9\nq\x04\x86q\x05u.";
    assert_eq!(read(protocol_2), wanted);
    let protocol_4 = b"\x80\x04\x95\x3a\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00\x8a\x09\x05\x00\x00\x00\x00\x00\x00\x80\x00\x88Ne\x8c\x01t\x94G?\xf8\x00\x00\x00\x00\x00\x00\x8c\x03\xc3\xa9\n\x94\x86\x94u.";
    assert_eq!(read(protocol_4), wanted);
}

#[test]
fn small_forms() {
    assert_eq!(read(b"S'it\\'s \\x41\\n'\n."), "\"it's A\\n\"");
    assert_eq!(read(b"U\x02hi."), "\"hi\"");
    assert_eq!(read(b"X\x02\x00\x00\x00\xff\xfe."), "\"\u{fffd}\u{fffd}\"");
    assert_eq!(read(b"\x8a\x00."), "Int(0)");
    assert_eq!(read(b"\x8a\x01\xff."), "Int(-1)");
    assert_eq!(read(b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f."), format!("Int({})", i64::MAX));
}

#[test]
fn what_would_run_code_is_refused_by_name_and_byte() {
    for (bytes, opcode, at) in [
        (&b"cos\nsystem\n(S'true'\ntR."[..], "GLOBAL", 0),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "STACK_GLOBAL", 14),
        (b"N)R.", "REDUCE", 2),
        (b"N}b.", "BUILD", 2),
        (b"(ios\nsystem\n.", "INST", 1),
        (b"(No.", "OBJ", 2),
        (b"N)\x81.", "NEWOBJ", 2),
        (b"N)}\x92.", "NEWOBJ_EX", 3),
        (b"\x82\x01.", "EXT1", 0),
        (b"\x83\x01\x00.", "EXT2", 0),
        (b"\x84\x01\x00\x00\x00.", "EXT4", 0),
        (b"Pid\n.", "PERSID", 0),
        (b"NQ.", "BINPERSID", 1),
    ] {
        let error = Pickle::read(bytes).unwrap_err();
        assert_eq!(error, PickleError::Refused { opcode, at });
        assert!(error.to_string().contains(opcode), "{error}");
    }
    let set = Pickle::read(b"\x8f.").unwrap_err();
    assert_eq!(set, PickleError::Unsupported { opcode: "EMPTY_SET", at: 0 });
}

#[test]
fn errors_say_where() {
    for (bytes, error) in [
        (&b""[..], PickleError::Truncated { at: 0 }),
        (b"\x80", PickleError::Truncated { at: 1 }),
        (b"X\xff\xff\xff\xffab", PickleError::Truncated { at: 7 }),
        (b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffab", PickleError::Truncated { at: 11 }),
        (b"I12", PickleError::Truncated { at: 3 }),
        (b"\x80\x07.", PickleError::Protocol { protocol: 7, at: 0 }),
        (b"N\xff.", PickleError::UnknownOpcode { byte: 0xff, at: 1 }),
        (b".", PickleError::StackUnderflow { opcode: "STOP", at: 0 }),
        (b"(N\x86.", PickleError::StackUnderflow { opcode: "TUPLE2", at: 2 }),
        (b"N(a.", PickleError::StackUnderflow { opcode: "APPEND", at: 2 }),
        (b"t.", PickleError::StackUnderflow { opcode: "TUPLE", at: 0 }),
        (b"}(Nu.", PickleError::StackUnderflow { opcode: "SETITEMS", at: 3 }),
        (b"NNa.", PickleError::WrongKind { opcode: "APPEND", wanted: "list", at: 2 }),
        (b"]NNs.", PickleError::WrongKind { opcode: "SETITEM", wanted: "dict", at: 3 }),
        (b"h\x05.", PickleError::NotInMemo { index: 5, at: 0 }),
        (b"Ix\n.", PickleError::BadArgument { opcode: "INT", at: 0 }),
        (b"Sx\n.", PickleError::BadArgument { opcode: "STRING", at: 0 }),
        (b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.", PickleError::IntegerTooLarge { at: 0 }),
        (
            b"\x8b\x20\x00\x00\x0000000000000000000000000000000000000.",
            PickleError::IntegerTooLarge { at: 0 },
        ),
    ] {
        assert_eq!(Pickle::read(bytes).unwrap_err(), error, "{bytes:?}");
    }
}

/// A billion laughs: each list holds the one before ten times.
#[test]
fn shared_values_are_there_once() {
    let mut bytes = b"]q\x00".to_vec();
    for level in 1..40 {
        bytes.push(b'(');
        for _ in 0..10 {
            bytes.extend([b'h', level - 1]);
        }
        bytes.extend([b'l', b'q', level]);
    }
    bytes.push(b'.');
    let pickle = Pickle::read(&bytes).unwrap();
    assert_eq!(pickle.sequences.len(), 40);
    assert_eq!(pickle.seq(pickle.root()).unwrap().len(), 10);
}

#[test]
fn a_list_may_hold_itself() {
    let pickle = Pickle::read(b"]q\x00h\x00a.").unwrap();
    assert_eq!(pickle.seq(pickle.root()).unwrap(), [pickle.root()]);
}

/// Neither reading nor dropping recurses.
#[test]
fn deep_nesting_is_flat() {
    let mut bytes = vec![b']'; 1 << 19];
    bytes.extend(vec![b'a'; (1 << 19) - 1]);
    bytes.push(b'.');
    drop(Pickle::read(&bytes).unwrap());
    for opcode in [b']', b'(', b'N'] {
        let error = Pickle::read(&vec![opcode; MAX_STACK + 1]).unwrap_err();
        assert_eq!(error, PickleError::TooDeep { limit: MAX_STACK, at: MAX_STACK });
    }
}

/// A memo index is no allocation.
#[test]
fn a_huge_memo_index_is_cheap() {
    assert_eq!(read(b"Nr\xff\xff\xff\xffj\xff\xff\xff\xff."), "None");
}

proptest! {
    #[test]
    fn any_bytes_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Pickle::read(&bytes);
    }

    #[test]
    fn any_opcodes_end_without_a_panic(
        codes in proptest::collection::vec(
            proptest::sample::select(b"NK]})}(atesul012qhj\x85\x86\x87\x94\x8a.".to_vec()), 0..300),
    ) {
        let _ = Pickle::read(&codes);
    }
}
