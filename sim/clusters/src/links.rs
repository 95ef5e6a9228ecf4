//! NICs of a node as free text counts them: `8 x 400 Gb/s a node`, `1 NIC per GPU, 200 Gb/s`, `two HDR
//! rails`.

/// The transport that free text names: of the link between nodes, or else of the kind.
pub(crate) fn network_of(inter_link: &str, kind: &str) -> Option<&'static str> {
    let names = [
        ("tcpxo", "tcpxo"),
        ("tcpx", "tcpx"),
        ("slingshot", "slingshot"),
        ("efa", "efa"),
        ("roce", "roce"),
        ("infiniband", "ib"),
        ("-ib", "ib"),
        ("ib ", "ib"),
        ("rdma", "ib"),
        ("tcp", "tcp"),
        ("ethernet", "tcp"),
        ("socket", "tcp"),
    ];
    // The link says more than the kind.
    let named = [inter_link, kind].into_iter().find_map(|text| {
        let text = text.to_lowercase();
        names.iter().find(|(word, _)| text.contains(word)).map(|(_, network)| *network)
    });
    // Generations of InfiniBand name it too.
    let link = inter_link.to_lowercase();
    named.or_else(|| GENERATIONS.iter().find(|(name, _)| link.contains(name)).map(|_| "ib"))
}

/// A transport as people write it.
pub(crate) fn transport_title(network: &str) -> &str {
    match network.split('-').next().unwrap_or(network) {
        "ib" => "InfiniBand",
        "roce" => "RoCE",
        "efa" => "EFA",
        "slingshot" => "Slingshot",
        "tcp" => "TCP",
        "tcpx" => "GPUDirect-TCPX",
        "tcpxo" => "GPUDirect-TCPXO",
        _ => network,
    }
}

/// Generations of InfiniBand and their rate of four lanes, Gb/s.
const GENERATIONS: [(&str, f64); 10] = [
    ("xdr", 800.0),
    ("ndr200", 200.0),
    ("ndr", 400.0),
    ("hdr100", 100.0),
    ("hdr", 200.0),
    ("edr", 100.0),
    ("fdr", 56.0),
    ("qdr", 40.0),
    ("slingshot-11", 200.0),
    ("slingshot-10", 100.0),
];

/// A number that free text says, and the GPUs that its clause counts it for: `per GPU` 1, `per pair of GPUs` 2;
/// none where it counts for the node.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Said<T> {
    value: T,
    per_gpus: Option<u32>,
}

/// NICs of a node and their rate, as far as free text tells.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Links {
    nics: Option<Said<u32>>,
    gbps: Option<Said<f64>>,
    /// The rate is that of a generation, which is a NIC's.
    of_generation: bool,
    per_gpus: Option<u32>,
    per_node: bool,
}

/// A word of the text: a number, the unit of a rate in Gb/s, the end of a clause, or another one.
#[derive(Clone, Debug, PartialEq)]
enum Word {
    Number(f64),
    /// A number in letters, which counts and is no rate.
    Count(f64),
    Unit(f64),
    Bytes,
    Times,
    End,
    Other(String),
}

impl Links {
    /// Reads a text.
    pub(crate) fn read(text: &str) -> Self {
        let words = words(text);
        let mut links = Self::default();
        for clause in words.split(|word| *word == Word::End) {
            links.read_clause(clause);
        }
        if links.gbps.is_none() {
            let lower = text.to_lowercase();
            let found = GENERATIONS.iter().find(|(name, _)| lower.contains(name));
            links.gbps = found.map(|(_, gbps)| Said { value: *gbps, per_gpus: None });
            links.of_generation = links.gbps.is_some();
        }
        links
    }

    fn read_clause(&mut self, clause: &[Word]) {
        let other = |at: usize, names: &[&str]| match clause.get(at) {
            Some(Word::Other(word)) => names.contains(&word.as_str()),
            _ => false,
        };
        let is_of_node = |at: usize| {
            other(at, &["a", "per", "each", "every", "on"])
                && (other(at + 1, &["node", "server", "host", "machine"])
                    || other(at + 1, &["a", "each", "every"])
                        && other(at + 2, &["node", "server", "host", "machine"]))
        };
        let per_gpus = gpus_of_clause(clause);
        self.per_gpus = self.per_gpus.or(per_gpus);
        self.per_node |= (0..clause.len()).any(is_of_node);
        let is_unit = |at: usize| matches!(clause.get(at), Some(Word::Unit(_) | Word::Bytes));
        // A number that counts is not followed by the unit of a rate.
        let count = |at: usize| match clause.get(at) {
            Some(Word::Count(value)) => Some(*value),
            Some(Word::Number(value)) if !is_unit(at + 1) => Some(*value),
            _ => None,
        };
        for at in 0..clause.len() {
            let rate = match (&clause[at], clause.get(at + 1)) {
                (Word::Number(value), Some(Word::Unit(factor))) => Some(value * factor),
                // `8 x 50 GB/s` are bytes of a NIC; other GB/s are what somebody measured.
                (Word::Number(value), Some(Word::Bytes))
                    if at > 0 && clause[at - 1] == Word::Times =>
                {
                    Some(value * 8.0)
                }
                _ => None,
            };
            if let Some(value) = rate.filter(|rate| *rate > 0.0) {
                self.gbps = self.gbps.or(Some(Said { value, per_gpus }));
            }
            let nouns =
                ["nic", "nics", "hca", "hcas", "rail", "rails", "adapter", "adapters", "likely"];
            let counted = match &clause[at] {
                Word::Times => match at.checked_sub(1).and_then(count) {
                    None if at > 0 && is_unit(at - 1) => count(at + 1),
                    before => before,
                },
                Word::Count(value) if matches!(clause.get(at + 1), Some(Word::Number(_))) => {
                    Some(*value)
                }
                // `400 Gb/s NICs, 8 a node`.
                Word::Number(_) | Word::Count(_) if is_of_node(at + 1) => count(at),
                // In `2 GPUs per NIC` the number is of GPUs.
                Word::Other(_) if other(at, &nouns) && !other(at.wrapping_sub(1), &["per"]) => {
                    (at.saturating_sub(3)..at).rev().find_map(count)
                }
                _ => None,
            };
            let counted = counted.map(whole).filter(|nics| (1..=64).contains(nics));
            self.nics = self.nics.or(counted.map(|value| Said { value, per_gpus }));
        }
    }

    /// NICs of a node and the rate of each, Gb/s, where a node of `gpus` GPUs has `usual` ones if the text does
    /// not tell; `tcp` where the transport is the kernel's, for which a rate is that of the node's one NIC.
    pub(crate) fn of_node(&self, gpus: u32, usual: (u32, f64), tcp: bool) -> (u32, f64) {
        let each = |nics: u32| f64::from(nics.max(1));
        // So many times a node has what is said of some GPUs.
        let times = |of: u32| (gpus / of.max(1)).max(1);
        let (usual_nics, usual_gbps) = usual;
        match (self.nics, self.gbps) {
            (Some(nics), rate) => {
                let count = match nics.per_gpus {
                    Some(of) if nics.value < gpus => nics.value * times(of),
                    _ => nics.value,
                };
                let gbps = match rate {
                    // So much a GPU, over so many NICs of the node.
                    Some(Said { value, per_gpus: Some(of) }) if nics.per_gpus.is_none() => {
                        value * f64::from(times(of)) / each(count)
                    }
                    Some(rate) => rate.value,
                    None => usual_gbps,
                };
                (count, gbps)
            }
            (None, Some(rate)) if self.per_gpus.is_some() => {
                (times(self.per_gpus.unwrap_or(1)), rate.value)
            }
            (None, Some(rate)) if tcp && !self.of_generation => (1, rate.value),
            (None, Some(rate)) => {
                let all = each(usual_nics);
                // A rate that no NIC has, or that is said of the node, is of all of them.
                let of_all = rate.value > 800.0
                    || self.per_node && !self.of_generation
                    || !self.of_generation && (rate.value - usual_gbps * all).abs() < 1e-6;
                (usual_nics, rate.value / if of_all { all } else { 1.0 })
            }
            (None, None) if self.per_gpus.is_some() => {
                (times(self.per_gpus.unwrap_or(1)), usual_gbps)
            }
            (None, None) => usual,
        }
    }
}

/// The GPUs that a clause counts for: `per GPU`, `a pair of GPUs`, `for every 4 GPUs`, `2 GPUs per NIC`.
fn gpus_of_clause(clause: &[Word]) -> Option<u32> {
    let is = |at: usize, names: &[&str]| match clause.get(at) {
        Some(Word::Other(word)) => names.contains(&word.as_str()),
        _ => false,
    };
    let number = |at: usize| match clause.get(at) {
        Some(Word::Number(value) | Word::Count(value)) if *value >= 1.0 => Some(whole(*value)),
        _ => None,
    };
    let gpus = ["gpu", "gpus"];
    (0..clause.len()).find_map(|at| {
        let counts = is(at, &["a", "per", "each", "every"]);
        let shares = is(at, &["for", "by", "between"]);
        // `per a pair` is as good as `per pair`.
        let next = if is(at + 1, &["a", "each", "every"]) { at + 2 } else { at + 1 };
        if counts && is(next, &gpus) && is(next + 1, &["pair", "pairs"])
            || (counts || shares)
                && is(next, &["pair", "couple"])
                && (is(next + 1, &gpus) || is(next + 1, &["of"]) && is(next + 2, &gpus))
        {
            return Some(2);
        }
        if (counts || shares) && number(next).is_some() && is(next + 1, &gpus) {
            return number(next);
        }
        let nics = ["nic", "nics", "hca", "hcas", "rail", "adapter"];
        if is(at, &gpus) && is(at + 1, &["a", "per", "each"]) && is(at + 2, &nics) {
            return at.checked_sub(1).and_then(number);
        }
        (counts && is(next, &gpus)).then_some(1)
    })
}

fn words(text: &str) -> Vec<Word> {
    // `Gb/s` counts bits and `GB/s` bytes, which only the case tells.
    let text = text.replace("GB/s", "gbyte").replace("GBps", "gbyte").to_lowercase();
    let text =
        text.replace(['×', '*'], "x").replace("/gpu", " per gpu").replace("/node", " per node");
    let mut words = Vec::new();
    for part in text.split_whitespace() {
        for piece in part.split_inclusive([',', ';', '(', ')', ':']) {
            let plain = piece.trim_end_matches([',', ';', '(', ')', ':']);
            read_word(plain.trim_end_matches('.'), &mut words);
            if plain.len() < piece.len() {
                words.push(Word::End);
            }
        }
    }
    words
}

/// Adds a word, which may hold several without a blank: `8x400G`, `dual-port`, `x8`, `4-NIC`.
fn read_word(word: &str, words: &mut Vec<Word>) {
    const LETTERS: [&str; 13] = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
        "eleven", "twelve",
    ];
    let more = [("single", 1.0), ("dual", 2.0), ("twin", 2.0), ("quad", 4.0), ("sixteen", 16.0)];
    let (first, rest) = word.split_once('-').unwrap_or((word, ""));
    let in_letters = LETTERS.iter().zip(0_u32..).map(|(name, value)| (*name, f64::from(value)));
    if let Some((_, value)) = in_letters.chain(more).find(|(name, _)| *name == first) {
        words.push(Word::Count(value));
        if !rest.is_empty() {
            words.push(Word::Other(rest.to_owned()));
        }
        return;
    }
    match word {
        "" => return,
        "x" => return words.push(Word::Times),
        "gb/s" | "gbps" | "gbit/s" | "gbit" | "gb" | "g" | "gbe" | "gigabit" => {
            return words.push(Word::Unit(1.0));
        }
        "tb/s" | "tbps" | "tbit/s" | "tbit" => return words.push(Word::Unit(1000.0)),
        "gbyte" => return words.push(Word::Bytes),
        _ => {}
    }
    let of_pcie = matches!(words.last(), Some(Word::Other(last)) if last.starts_with("pcie"));
    if of_pcie && word.starts_with('x') {
        return words.push(Word::Other(word.to_owned()));
    }
    if let Some(count) = word.strip_prefix('x')
        && count.parse::<u32>().is_ok()
    {
        words.push(Word::Times);
        return read_word(count, words);
    }
    let end = word.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(word.len());
    let (number, rest) = word.split_at(end);
    match number.parse::<f64>() {
        Ok(value) => {
            words.push(Word::Number(value));
            let rest = rest.trim_start_matches('-');
            match rest.strip_prefix('x') {
                Some(rest)
                    if rest.is_empty() || rest.starts_with(|it: char| it.is_ascii_digit()) =>
                {
                    words.push(Word::Times);
                    read_word(rest, words);
                }
                _ => read_word(rest, words),
            }
        }
        Err(_) => words.push(Word::Other(word.to_owned())),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn whole(value: f64) -> u32 {
    value.clamp(0.0, 1e6) as u32
}
