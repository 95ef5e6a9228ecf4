//! What is worth knowing of each algorithm: its formula, who picks it, what it costs.
//!
//! α is the latency of a message, β the bandwidth of a link in bytes a second, S the bytes of the
//! tensor (or of one rank's part, where the larger tensor has n of them), n the number of ranks;
//! each rank sends one message at a time and receives one at a time. A test holds every formula
//! against the simulator.
//!
//! Who picks what: NCCL 2.30 `src/graph/tuning.cc` and `enqueue.cc`; gloo `gloo/allreduce.cc`,
//! `allgather.cc`, `broadcast.cc`, `reduce.cc`, `gather.cc`, `scatter.cc`, `alltoall.cc`,
//! `barrier.cc`; MPICH as Thakur, Rabenseifner, Gropp 2005 describe it; PyTorch 2.7
//! `ProcessGroupNCCL.cpp`, `ProcessGroupGloo.cpp`.

use lockstep_core::collective::Collective;
use lockstep_core::schedule::Algorithm;

/// How exact a [`Formula`] is, in a network where every pair of ranks is alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// For every number of ranks.
    Always,
    /// For powers of two; others need some steps more.
    PowersOfTwo,
    /// It is never more.
    AtMost,
    /// Within a third.
    About,
}

impl Holds {
    /// What stands before the formula.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Holds::Always | Holds::PowersOfTwo => "=",
            Holds::AtMost => "≤",
            Holds::About => "≈",
        }
    }

    /// What stands behind it.
    pub(crate) fn note(self) -> &'static str {
        match self {
            Holds::PowersOfTwo => "for n = 2ᵏ",
            Holds::Always | Holds::AtMost | Holds::About => "",
        }
    }
}

/// The time of an algorithm: `hops`·α + `volume`·S/β.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Formula {
    /// Messages one after the other.
    pub(crate) hops: &'static str,
    /// Tensors (or parts) one after the other through a port.
    pub(crate) volume: &'static str,
    pub(crate) holds: Holds,
}

impl Formula {
    /// `2(n − 1)·α + 2(n − 1)/n·S/β`.
    pub(crate) fn text(self) -> String {
        let factor = |factor: &str, of: &str| match factor {
            "1" => of.to_owned(),
            _ if factor.contains(" + ") || factor.contains(" − ") => match is_product(factor) {
                true => format!("{factor}·{of}"),
                false => format!("({factor})·{of}"),
            },
            _ => format!("{factor}·{of}"),
        };
        let latency = factor(self.hops, "α");
        match self.volume {
            "0" => latency,
            volume => format!("{latency} + {}", factor(volume, "S/β")),
        }
    }
}

/// True when every sum in `text` is inside brackets.
fn is_product(text: &str) -> bool {
    let mut depth = 0;
    for letter in text.chars() {
        match letter {
            '(' | '⌈' => depth += 1,
            ')' | '⌉' => depth -= 1,
            '+' | '−' if depth == 0 => return false,
            _ => {}
        }
    }
    true
}

/// What is worth knowing of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lesson {
    pub(crate) formula: Formula,
    /// How it works, in a sentence.
    pub(crate) how: &'static str,
    /// Who picks it, and when.
    pub(crate) when: &'static str,
    /// What it costs, and what that means.
    pub(crate) cost: &'static str,
}

const fn formula(hops: &'static str, volume: &'static str, holds: Holds) -> Formula {
    Formula { hops, volume, holds }
}

const LOG: &str = "log₂(n)";
const LOG_UP: &str = "⌈log₂ n⌉";
const ALL_BUT_ONE: &str = "n − 1";
const RING_VOLUME: &str = "2(n − 1)/n";

/// The lesson of `algorithm` for `collective`.
pub(crate) fn lesson(collective: Collective, algorithm: Algorithm) -> Lesson {
    use Holds::{About, Always, AtMost, PowersOfTwo};
    let reduces = collective.reduce_op().is_some();
    let (formula, how, when, cost) = match (algorithm, collective) {
        (Algorithm::Ring, Collective::AllToAll) => (
            formula(ALL_BUT_ONE, "n(n − 1)/2", Always),
            "Every rank sends all its parts to its right neighbour, which keeps its own and passes the others on.",
            "Networks without switches, where only neighbours are connected.",
            "Parts travel n/2 hops on average, so n/2 times the bytes of the direct exchange pass through every port.",
        ),
        (Algorithm::Tree, Collective::Gather { .. } | Collective::Scatter { .. }) => (
            formula(LOG, ALL_BUT_ONE, PowersOfTwo),
            "A binomial tree: a rank hands on, in one message, what its whole subtree gets or gives.",
            "MPICH's gather and scatter for short messages.",
            "The root sends log₂ n messages instead of n − 1, but as many bytes, and others carry parts that are not theirs.",
        ),
        (Algorithm::Direct, Collective::Barrier) => (
            formula("2", "0", Always),
            "Everybody tells rank 0 that it has come, and rank 0 answers everybody.",
            "What monitored_barrier does, because rank 0 then knows who is missing.",
            "Two latencies, but rank 0 handles 2(n − 1) messages.",
        ),
        (
            Algorithm::BidirectionalRing,
            Collective::AllGather | Collective::ReduceScatter { .. },
        ) => (
            formula(ALL_BUT_ONE, "3(n − 1)/2", AtMost),
            "Two mirrored rings, each for half of every part.",
            "Machines whose links carry both directions at once, such as TPU tori.",
            "As the ring's here, where a rank has one port; with a port in each direction, half the bytes' time.",
        ),
        (Algorithm::KaryTree, Collective::AllReduce { .. }) => (
            formula("2(⌈log₄(3n + 1)⌉ − 1)", "8(⌈log₄(3n + 1)⌉ − 1)", AtMost),
            "Up a tree in which every parent has up to four children, and down again.",
            "Where latency is what counts and a port can take several messages at once.",
            "Half the levels of a binomial tree, but a parent's port carries up to four tensors in each of them.",
        ),
        (Algorithm::Chain, Collective::AllReduce { .. }) => (
            formula("(2n + 5)", "(2n + 5)/4", AtMost),
            "Segments are summed along a chain of ranks to rank 0, and passed back along it.",
            "NCCL, inside the nodes of its trees.",
            "The bytes of two tensors once the pipeline is full, but latencies grow with n; near rank 0 both ways share the ports.",
        ),
        (Algorithm::Ring, Collective::AllReduce { .. }) => (
            formula("2(n − 1)", RING_VOLUME, Always),
            "Every rank passes a chunk to its right neighbour and combines what comes from the left; after n − 1 steps each chunk is finished somewhere, and another n − 1 pass them on.",
            "NCCL's choice for large tensors, and gloo's for every size. NCCL runs several rings at once, one a channel.",
            "No algorithm sends less: each rank sends just under twice its tensor, however many ranks there are. But 2(n − 1) messages follow one another, so small tensors on many ranks are slow.",
        ),
        (Algorithm::Ring, Collective::AllGather) => (
            formula(ALL_BUT_ONE, ALL_BUT_ONE, Always),
            "Every rank passes on to the right what it got from the left, until all parts have been everywhere.",
            "NCCL's and gloo's all_gather, MPICH's for long messages; FSDP's parameters travel this way.",
            "Every rank must receive n − 1 parts, and gets them without a pause. The n − 1 latencies in a row are what PAT and Bruck avoid.",
        ),
        (Algorithm::Ring, _) => (
            formula(ALL_BUT_ONE, ALL_BUT_ONE, Always),
            "A chunk goes once around the ring and is combined with every rank's own on its way; it ends where it belongs.",
            "NCCL's reduce_scatter; FSDP's gradients travel this way. gloo has none: PyTorch makes an all_reduce and throws the rest away.",
            "Each rank sends n − 1 parts and no part twice, which is the least possible; the latencies are n − 1 in a row.",
        ),
        (Algorithm::Tree, Collective::AllReduce { .. }) => (
            formula("2log₂(n)", "2log₂(n)", PowersOfTwo),
            "Sums go up a binomial tree to one root, which halves the ranks that still hold one in each step; the result goes down the same way.",
            "For small tensors on many ranks. NCCL's Tree is the double binary tree: this one leaves half of the ranks idle in each step.",
            "Few latencies, 2 log₂ n, but the whole tensor on every edge: log₂ n times as many bytes in a row as the ring.",
        ),
        (Algorithm::Tree, Collective::Barrier) => (
            formula("2log₂(n)", "0", PowersOfTwo),
            "Signals go up a binomial tree; when the root has heard from all, the release goes down.",
            "MPI's choice where one process coordinates. PyTorch's NCCL barrier is an all_reduce of one element, which NCCL sends by a tree or, inside a node, a ring.",
            "Twice the latencies of the dissemination barrier, with 2(n − 1) messages instead of n log₂ n.",
        ),
        (Algorithm::Tree, _) => (
            formula(LOG, LOG, PowersOfTwo),
            if reduces {
                "In each step half of the ranks that still hold a sum send it to another and are done."
            } else {
                "In each step every rank that has the data sends it to one that has not: 1, 2, 4, … ranks."
            },
            if reduces {
                "MPICH's reduce for short messages. NCCL reduces by a ring of slices instead; gloo by a ring reduce-scatter and a gather."
            } else {
                "gloo's broadcast, and MPICH's for short messages. NCCL broadcasts by a ring of slices instead."
            },
            "The fewest latencies without sending to many at once, but the whole tensor in each of the log₂ n steps: for long messages a pipeline is faster.",
        ),
        (Algorithm::Direct, Collective::MonitoredBarrier { .. }) => (
            formula("2", "0", Always),
            "Rank 0 hears from every other rank in turn, then answers each of them.",
            "torch.distributed.monitored_barrier on gloo: to find who is missing. Rank 0 waits for one rank after the other, so it can name the first that has not come.",
            "Two latencies where messages cost nothing; on a large job rank 0's n − 1 messages each way are what it waits for.",
        ),
        (Algorithm::Direct, Collective::AllGather) => (
            formula("1", "2n − 3", Always),
            "Every rank sends its tensor to every other at once.",
            "For small tensors inside a node with all-to-all links; what a naive implementation does.",
            "A single latency, but n − 1 messages leave every port and arrive at every port at the same time, and wait for each other at both ends.",
        ),
        (Algorithm::Direct, Collective::ReduceScatter { .. }) => (
            formula(ALL_BUT_ONE, ALL_BUT_ONE, Always),
            "In step s every rank sends the rank s places to its right that one's part, which adds it: one at a time, so that the order of the additions is fixed.",
            "The first half of two-shot all_reduce kernels inside a node.",
            "The least bytes, n − 1 parts, and no neighbour is special; the same time as a ring where every pair of ranks is alike, and better where links between all pairs exist.",
        ),
        (Algorithm::Direct, Collective::AllToAll) => (
            formula("1", "2n − 3", Always),
            "Every rank sends every other rank its part, all at once.",
            "What NCCL does (grouped ncclSend and ncclRecv) and gloo too; MPICH for middle sizes. Mixture-of-experts layers live on it.",
            "A single latency. But here all ranks begin with the same receivers, so that many messages meet at one port while others are idle; gloo's ranks begin each with their neighbour.",
        ),
        (Algorithm::Direct, Collective::Reduce { .. }) => (
            formula("1", ALL_BUT_ONE, Always),
            "Every rank sends its tensor to the root, which adds them one after the other.",
            "Small groups only: parameter servers of old did it.",
            "One latency, and n − 1 whole tensors through the root's one port: it does not grow with the job.",
        ),
        (Algorithm::Direct, Collective::Gather { .. }) => (
            formula("1", ALL_BUT_ONE, Always),
            "Every rank sends its part to the root.",
            "What gloo does, and PyTorch on NCCL (a group of sends and receives).",
            "The root must receive n − 1 parts whatever one does; this takes no longer than that and one latency.",
        ),
        (Algorithm::Direct, Collective::Scatter { .. }) => (
            formula("1", ALL_BUT_ONE, Always),
            "The root sends every rank its part.",
            "What gloo does, and PyTorch on NCCL (a group of sends and receives).",
            "The root must send n − 1 parts whatever one does; this takes no longer than that and one latency.",
        ),
        (Algorithm::Direct, _) => (
            formula("1", ALL_BUT_ONE, Always),
            "The root sends the tensor to every other rank.",
            "Small groups, or networks that copy packets on their way.",
            "One latency, but the root's port sends n − 1 whole tensors while all others are idle.",
        ),
        (Algorithm::Dissemination, _) => (
            formula(LOG_UP, "0", Always),
            "In round s every rank signals the one 2ˢ places to its right: what it knows doubles each round.",
            "gloo's and MPICH's barrier. monitored_barrier is not: there rank 0 hears every rank by itself, so that it can name who is missing.",
            "No barrier has fewer rounds; n messages in each of them.",
        ),
        (Algorithm::RecursiveDoubling, Collective::AllReduce { .. }) => (
            formula(LOG, LOG, PowersOfTwo),
            "Partners at distance 1, 2, 4, … exchange their whole sums and both add them: a butterfly.",
            "MPICH up to 2 KiB.",
            "The fewest latencies of all that do not send to many at once, but the whole tensor in each round.",
        ),
        (Algorithm::RecursiveDoubling, _) => (
            formula(LOG, ALL_BUT_ONE, PowersOfTwo),
            "Partners at distance 1, 2, 4, … exchange all the parts they have.",
            "MPICH for short messages and powers of two.",
            "As few bytes as the ring and only log₂ n latencies; but late rounds send half of everything over the longest ways.",
        ),
        (Algorithm::RecursiveHalving, _) => (
            formula(LOG, ALL_BUT_ONE, PowersOfTwo),
            "Partners at distance n/2, n/4, … each give away the half that belongs to the other's side and sum the rest.",
            "MPICH's reduce_scatter for short messages.",
            "As few bytes as the ring and only log₂ n latencies. Other numbers of ranks fold first, and pay for it with whole tensors.",
        ),
        (Algorithm::HalvingDoubling, _) => (
            formula("2log₂(n)", RING_VOLUME, PowersOfTwo),
            "Rabenseifner's: a reduce-scatter by halving distances, then an all-gather by doubling them.",
            "MPICH for long messages, gloo's halving_doubling for those who ask for it.",
            "The ring's bytes at a tree's latencies: the best of both where every pair of ranks is alike. In real networks its long-distance rounds share links that a ring does not.",
        ),
        (Algorithm::BidirectionalRing, _) => (
            formula("2(n − 1)", "5(n − 1)/(2n)", About),
            "Two rings in opposite directions, each for half of the data.",
            "Where a link each way would be idle otherwise, as on a TPU's torus or on PCIe pairs.",
            "Half of a ring's time when each direction has a port of its own. Here both directions share a rank's one port, and nothing is won.",
        ),
        (Algorithm::TwoShot, _) => (
            formula("n", "(3n − 4)/n", Always),
            "Every rank sums one chunk that all others send it; then it sends the result to all.",
            "The custom all_reduce of vLLM and TensorRT-LLM inside a node, for middle sizes.",
            "About the ring's bytes with half of its latencies, given links between all pairs: NVSwitch, not a network.",
        ),
        (Algorithm::OneShot, _) => (
            formula("1", "2n − 3", Always),
            "Every rank sends its whole tensor to every other, and each sums for itself.",
            "The custom all_reduce of vLLM and TensorRT-LLM inside a node, for a few hundred KiB at most: a token's activations.",
            "One latency: nothing is faster for small tensors. The bytes grow with n, so it loses soon.",
        ),
        (Algorithm::Bruck, Collective::AllGather) => (
            formula(LOG_UP, ALL_BUT_ONE, Always),
            "In round s every rank sends all it has to the one 2ˢ places to its left; a turn at the end puts the parts in order.",
            "MPICH for short messages when n is no power of two; NCCL's PAT is its relative.",
            "The fewest rounds for any n and no byte too many; the last copy inside each rank is its price.",
        ),
        (Algorithm::Bruck, _) => (
            formula(LOG, "n/2·log₂(n)", PowersOfTwo),
            "In round s every part whose way has bit s set moves 2ˢ places to the right.",
            "MPICH up to 256 bytes a part.",
            "log₂ n latencies instead of many messages, but a part travels as often as its way has bits: log₂ n / 2 times the bytes.",
        ),
        (Algorithm::Pairwise, Collective::AllToAll) => (
            formula(ALL_BUT_ONE, ALL_BUT_ONE, Always),
            "n − 1 steps; in each, every rank exchanges with one partner, and no two meet at a port.",
            "MPICH for long messages; NCCL orders its grouped sends and receives in this way.",
            "No port ever waits for another's message: the least time for many bytes, at a latency each step.",
        ),
        (Algorithm::Pairwise, _) => (
            formula(ALL_BUT_ONE, ALL_BUT_ONE, Always),
            "n − 1 steps; in each, every rank exchanges one part with one partner.",
            "MPICH's reduce_scatter for long messages.",
            "The ring's bytes and latencies without its neighbours; where far links are slow, the ring is better.",
        ),
        (Algorithm::Chain, _) => (
            formula(ALL_BUT_ONE, "(n + 6)/8", Always),
            "The tensor is cut into 8 segments that follow each other from rank to rank.",
            if reduces {
                "How NCCL reduces: its Ring is such a chain of slices that ends at the root."
            } else {
                "How NCCL broadcasts: its Ring is such a chain of slices that begins at the root."
            },
            "Every port is busy at once, so long messages cost little more than their own length; but the first segment takes n − 1 latencies to arrive.",
        ),
        (Algorithm::KaryTree, _) => (
            formula("(⌈log₄(3n + 1)⌉ − 1)", "4(⌈log₄(3n + 1)⌉ − 1)", AtMost),
            "A tree in which every parent has up to four children.",
            "Where latency is what counts and a port can take several messages at once: stores, control messages.",
            "Half the levels of a binomial tree, but a parent's port sends up to four tensors in each of them.",
        ),
        (Algorithm::ScatterAllGather, _) => (
            formula("(log₂(n) + n − 1)", RING_VOLUME, PowersOfTwo),
            "Van de Geijn's: the root scatters the chunks down a tree, then a ring gathers them everywhere.",
            "MPICH's broadcast for long messages.",
            "Two tensors' worth of bytes whatever n is, where a tree sends log₂ n; the ring's latencies come on top.",
        ),
        (Algorithm::DoubleBinaryTree, _) => (
            formula("(4log₂(n) + 8)", "5", About),
            "Two binary trees, each for half of the data, in four segments; a rank inside one tree is a leaf of the other, so that every port is used.",
            "NCCL's Tree: its choice across nodes for small and middle sizes.",
            "Latencies grow with log₂ n and bytes do not grow at all. NCCL cuts finer than four segments and comes closer to the ring's two tensors.",
        ),
        (Algorithm::GlooRing, Collective::Reduce { .. }) => (
            formula("n", RING_VOLUME, About),
            "gloo's own ring: a reduce-scatter in which chunks go to the previous rank, then every rank sends its chunk to the root.",
            "gloo, always: PyTorch's reduce on CPUs. The order of the additions, and so every bit of the sums, is gloo's.",
            "Two tensors' worth of bytes whatever n is, at a ring's latencies. Chunks are whole segments of up to 1 MiB, so that some may be empty.",
        ),
        (Algorithm::GlooRing, _) => (
            formula("2(n − 1)", RING_VOLUME, About),
            "gloo's own ring: chunks go to the previous rank, and each begins where it will end.",
            "gloo, always: PyTorch's all_reduce on CPUs. The order of the additions, and so every bit of the sums, is gloo's.",
            "As the ring's. Chunks are whole segments of up to 1 MiB, so that small tensors leave some ranks' chunks empty.",
        ),
        (Algorithm::Pat, _) => (
            formula(LOG_UP, ALL_BUT_ONE, Always),
            "For each rank's part a binomial tree, all of them at once; what a rank sends for several trees goes in one message. The farthest ranks exchange the least.",
            "NCCL 2.23 and newer, for all_gather and reduce_scatter with one rank a node.",
            "Logarithmic latencies for any number of ranks, and no part is sent twice.",
        ),
        (Algorithm::Hierarchical, Collective::AllReduce { .. }) => (
            formula("2(n − 1)", RING_VOLUME, Always),
            "A reduce-scatter inside each node, an all_reduce of each shard across the nodes, and an all-gather inside.",
            "Horovod and others where the network between nodes is much slower than the one inside.",
            "The formula is that of one node. In m nodes of k ranks, 2(m − 1)/m of a k-th of the tensor crosses the network from each rank.",
        ),
        (Algorithm::Hierarchical, Collective::AllGather | Collective::ReduceScatter { .. }) => (
            formula(ALL_BUT_ONE, ALL_BUT_ONE, Always),
            "Across the nodes among the ranks with the same place, and inside the nodes.",
            "Where the network between nodes is much slower than the one inside.",
            "The formula is that of one node. Each part crosses the network once a node, and all ranks' network cards share it.",
        ),
        (Algorithm::Hierarchical, Collective::AllToAll) => (
            formula("1", "2n − 3", Always),
            "Inside the node each rank collects what goes to one rail, and sends it to each receiver in one message.",
            "Mixture-of-experts layers over many nodes (Tutel, DeepSpeed); NCCL's PXN does the same.",
            "The formula is that of one node. In m nodes of k ranks a rank sends k + m − 2 messages instead of n − 1, but most bytes twice.",
        ),
        (Algorithm::Hierarchical, Collective::Barrier) => (
            formula("2⌈log₂ n⌉", "0", AtMost),
            "Up a tree in each node, a dissemination among the nodes, and down the trees.",
            "MPI libraries on many-core nodes.",
            "Only ⌈log₂ m⌉ of the latencies are those of the network between the m nodes.",
        ),
        (Algorithm::Hierarchical, _) => (
            formula("n", RING_VOLUME, About),
            "The root's node cuts the tensor into shards, each of which takes a tree across the nodes.",
            "Where the network between nodes is much slower than the one inside.",
            "The formula is that of one node. In nodes of k ranks, each rank's network card carries a k-th of the tensor.",
        ),
        (Algorithm::Nvls, Collective::AllReduce { .. }) => (
            formula("2", "2(n + 1)/n", Always),
            "The node's NVLink switch adds up what it reads from the ranks; each rank gets one chunk of the sum and has the switch write it to everybody. In several nodes each has a switch of its own, and a double binary tree of the nodes sums each chunk before it is written: NCCL's NVLSTree.",
            "NCCL on Hopper and newer with NVSwitch, for most sizes.",
            "Every port carries n + 1 chunks each way instead of the ring's 2(n − 1), and in one node the latency does not grow with n; each level of the trees across costs two latencies of the network.",
        ),
        (Algorithm::Nvls, Collective::Broadcast { .. }) => (
            formula("1", "2", Always),
            "The root writes to the NVLink switch, which writes to everybody.",
            "Nobody's default: NCCL uses the switch for reductions and gathers.",
            "One tensor through each port; the switch ends with the node, so that all ranks must be in one. Here the switch takes the whole message before it sends; the hardware does not wait.",
        ),
        (Algorithm::Nvls, _) => (
            formula("1", "(n + 1)", Always),
            "The NVLink switch adds up, or hands to everybody, what the ranks write.",
            "NCCL on Hopper and newer with NVSwitch, for ranks of one node; across nodes only where the network's switches add up too (CollNet).",
            "A rank's port carries n parts one way and one part the other. Here the switch takes whole messages before it sends; the hardware does not wait.",
        ),
        (Algorithm::Sharp, Collective::Barrier) => (
            formula("1", "0", Always),
            "Switches count who has come, a leaf for each node and a spine above them, and release all.",
            "MPI libraries on InfiniBand with SHARP.",
            "One way up and one down, whatever n is. The formula is that of one leaf.",
        ),
        (Algorithm::Sharp, _) => (
            formula("1", "2", Always),
            "Switches add up: a leaf for each node, and a spine above the leaves that sends the result back down.",
            "NCCL's CollNet on InfiniBand with SHARP.",
            "A rank's port carries the tensor once each way, half of the ring's bytes. The formula is that of one leaf; here switches take whole messages before they send.",
        ),
    };
    Lesson { formula, how, when, cost }
}

/// What travels along a dimension of a mesh, by the name that people give it.
pub(crate) fn parallelism(name: &str) -> &'static str {
    match name {
        "tp" | "tensor" | "mp" => {
            "Tensor parallel: all_reduce of activations, twice a layer in each direction and always waited for. It belongs inside a node."
        }
        "dp" | "data" | "ddp" | "replicate" | "dp_replicate" => {
            "Data parallel: all_reduce of gradients once a step, hidden behind the backward pass. It may go across."
        }
        "fsdp" | "shard" | "dp_shard" => {
            "Sharded data parallel: all_gather of parameters before each layer, reduce_scatter of gradients after it."
        }
        "pp" | "pipe" | "stage" => {
            "Pipeline: activations sent to the next stage, once a micro-batch. Little data: it goes across first."
        }
        "cp" | "context" => "Context parallel: keys and values passed around a ring in attention.",
        "ep" | "expert" => "Expert parallel: all_to_all of tokens, twice a layer.",
        "sp" | "sequence" => {
            "Sequence parallel: all_gather and reduce_scatter in place of tensor parallel's all_reduce."
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::rank::GroupRank;
    use lockstep_core::reduce::ReduceOp;
    use lockstep_core::scenario::CollectiveLab;
    use lockstep_sim::{Link, Topology, cost};

    /// Evaluates a formula's text: what is read is what is checked.
    struct Reader<'a> {
        rest: &'a str,
        n: f64,
    }

    impl Reader<'_> {
        fn value(text: &str, n: f64) -> f64 {
            let mut reader = Reader { rest: text, n };
            let value = reader.sum();
            assert_eq!(reader.rest, "", "{text}");
            value
        }

        fn takes(&mut self, word: &str) -> bool {
            let rest = self.rest.trim_start();
            rest.strip_prefix(word).map(|rest| self.rest = rest).is_some()
        }

        fn sum(&mut self) -> f64 {
            let mut value = self.product();
            loop {
                if self.takes("+") {
                    value += self.product();
                } else if self.takes("−") {
                    value -= self.product();
                } else {
                    self.rest = self.rest.trim_start();
                    return value;
                }
            }
        }

        fn product(&mut self) -> f64 {
            let mut value = self.factor().expect("a factor");
            loop {
                if self.takes("/") {
                    value /= self.factor().expect("a divisor");
                } else if self.takes("·") {
                    value *= self.factor().expect("a factor");
                } else if let Some(next) = self.factor() {
                    value *= next;
                } else {
                    return value;
                }
            }
        }

        fn factor(&mut self) -> Option<f64> {
            if self.takes("(") {
                let value = self.sum();
                assert!(self.takes(")"));
                return Some(value);
            }
            if self.takes("⌈") {
                let value = self.sum();
                assert!(self.takes("⌉"));
                // 2.0000000001 is 2.
                return Some((value - 1e-9).ceil());
            }
            if self.takes("log₂") {
                return self.factor().map(f64::log2);
            }
            if self.takes("log₄") {
                return self.factor().map(|of| of.log2() / 2.0);
            }
            if self.takes("n") {
                return Some(self.n);
            }
            let rest = self.rest.trim_start();
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let value = rest[..digits].parse().ok()?;
            self.rest = &rest[digits..];
            Some(value)
        }
    }

    #[test]
    fn formulas_are_read_as_they_are_written() {
        assert_eq!(Reader::value("2(n − 1)/n", 4.0), 1.5);
        assert_eq!(Reader::value("n/2·log₂(n)", 8.0), 12.0);
        assert_eq!(Reader::value("4(⌈log₄(3n + 1)⌉ − 1)", 5.0), 4.0);
        let ring = Formula { hops: "2(n − 1)", volume: "2(n − 1)/n", holds: Holds::Always };
        assert_eq!(ring.text(), "2(n − 1)·α + 2(n − 1)/n·S/β");
        let tree = Formula { hops: "n − 1", volume: "1", holds: Holds::Always };
        assert_eq!(tree.text(), "(n − 1)·α + S/β");
    }

    /// Every formula says what the simulator takes, where it claims to: with latencies only, with
    /// bandwidth only, and with both.
    #[test]
    fn formulas_say_what_the_simulator_takes() {
        let (op, root) = (ReduceOp::Sum, GroupRank(0));
        let elements = 5040 * 64u64;
        for call in [
            Collective::AllReduce { op },
            Collective::AllGather,
            Collective::ReduceScatter { op },
            Collective::Broadcast { root },
            Collective::Reduce { op, root },
            Collective::Gather { root },
            Collective::Scatter { root },
            Collective::AllToAll,
            Collective::Barrier,
            Collective::MonitoredBarrier { wait_all_ranks: false },
        ] {
            for &algorithm in Algorithm::of(call) {
                let formula = lesson(call, algorithm).formula;
                for n in 2..=32u32 {
                    let lab = CollectiveLab::new(call, n, elements);
                    let plan =
                        CollectiveLab { algorithm, timeout_ms: 1 << 40, ..lab }.plan().unwrap();
                    // One element takes a picosecond.
                    for latency_ps in [0, 1 << 40] {
                        let link = Link { latency_ps, bytes_per_second: 4_000_000_000_000 };
                        let time = cost::time_ps(&plan, Topology::Uniform(link)).unwrap() as f64;
                        let ranks = f64::from(n);
                        let said = Reader::value(formula.hops, ranks) * latency_ps as f64
                            + Reader::value(formula.volume, ranks) * elements as f64;
                        let what = format!("{algorithm} {call} of {n}: takes {time}, said {said}");
                        // Chunks differ by an element where n does not divide the tensor.
                        let close = (time - said).abs() <= 4.0 * ranks;
                        match formula.holds {
                            Holds::Always => assert!(close, "{what}"),
                            Holds::PowersOfTwo if n.is_power_of_two() => assert!(close, "{what}"),
                            Holds::PowersOfTwo => {}
                            Holds::AtMost => assert!(time <= said, "{what}"),
                            Holds::About if n < 4 => {}
                            Holds::About => {
                                assert!((time / said - 1.0).abs() < 0.34, "{what}");
                            }
                        }
                    }
                }
            }
        }
    }
}
