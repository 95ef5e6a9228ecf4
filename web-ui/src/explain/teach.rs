//! What is worth knowing of each algorithm: its formula, who picks it, what it costs.
//!
//! α is the latency of a message, β the bandwidth of a link in bytes a second, S the bytes of the
//! tensor (or of one rank's part, where the larger tensor has n of them), n the number of ranks, k
//! that of a pipeline's segments; each rank sends one message at a time and receives one at a time.
//! The formulas are those of one node. A test holds every one against the simulator, and the rounds
//! against the schedules.
//!
//! Who picks what: NCCL 2.30 `src/graph/tuning.cc` and `enqueue.cc`; gloo `gloo/allreduce.cc`,
//! `allgather.cc`, `broadcast.cc`, `reduce.cc`, `gather.cc`, `scatter.cc`, `alltoall.cc`,
//! `barrier.cc`; MPICH as Thakur, Rabenseifner, Gropp 2005 describe it; PyTorch 2.7
//! `ProcessGroupNCCL.cpp`, `ProcessGroupGloo.cpp`.

use super::formula::{Formula, Holds};
use lockstep_core::collective::Collective;
use lockstep_core::schedule::Algorithm;

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
    Formula { rounds: (hops, holds), hops, volume, holds }
}

const LOG: &str = "log₂(n)";
const LOG_UP: &str = "⌈log₂ n⌉";
const ALL_BUT_ONE: &str = "n − 1";
const RING_VOLUME: &str = "2(n − 1)/n";

// What formulas leave out.
const TURNS: &str = "how the messages of both directions take turns at a port";
const COLOURS: &str = "how full the last level is, and when a port waits for the other colour";
const SEGMENTS: &str = "that chunks are whole segments, so that some are larger than S/n";
const SHARDS: &str = "where handing out the shards and gathering them overlap or wait";

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
            formula("2", "0", Always).in_rounds("n", Always),
            "Everybody tells rank 0 that it has come, and rank 0 answers everybody.",
            "What monitored_barrier does, because rank 0 then knows who is missing.",
            "Two latencies, but rank 0 handles 2(n − 1) messages.",
        ),
        (
            Algorithm::BidirectionalRing,
            Collective::AllGather | Collective::ReduceScatter { .. },
        ) => (
            formula(ALL_BUT_ONE, "3(n − 1)/2", AtMost).in_rounds(ALL_BUT_ONE, Always),
            "Two mirrored rings, each for half of every part.",
            "Machines whose links carry both directions at once, such as TPU tori.",
            "As the ring's in one node, where a rank has one port here; with a port in each direction, half the bytes' time. In several nodes each direction has a slow link of its own between two nodes, and half of the ring's bytes cross it.",
        ),
        (Algorithm::KaryTree, Collective::AllReduce { .. }) => (
            formula("2(⌈log₄(3n + 1)⌉ − 1)", "8(⌈log₄(3n + 1)⌉ − 1)", AtMost)
                .in_rounds("5(⌈log₄(3n + 1)⌉ − 1)", AtMost),
            "Up a tree in which every parent has up to four children, and down again.",
            "Where latency is what counts and a port can take several messages at once.",
            "Half the levels of a binomial tree, but a parent's port carries up to four tensors in each of them.",
        ),
        (Algorithm::Chain, Collective::AllReduce { .. }) => (
            formula("(2n + k − 3)", "2(2n + k − 3)/k", AtMost).in_rounds("2n + k − 3", Always),
            "Segments of 512 KiB are summed along a chain of ranks to rank 0, and passed back along it; a smaller tensor is one segment.",
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
            "MPI's choice where one process coordinates. PyTorch's NCCL barrier, an all_reduce of one element, goes up and down such a tree.",
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
            formula("2", "0", Always).in_rounds("n", Always),
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
            "A single latency. Every rank begins with its own neighbour; but ports here are given to messages in the order in which they are posted, all of one rank's before the next one's, so that some wait where pairwise exchange would not.",
        ),
        (Algorithm::Direct, Collective::Reduce { .. }) => (
            formula("1", ALL_BUT_ONE, Always).in_rounds(ALL_BUT_ONE, Always),
            "Every rank sends its tensor to the root, which takes and adds them one after the other: a sender a round.",
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
            "gloo's and MPICH's barrier; NCCL's is an all_reduce of one element, the tree here. monitored_barrier is not: there rank 0 hears every rank by itself, so that it can name who is missing.",
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
        (Algorithm::BidirectionalRing, _) => (
            formula("2(n − 1)", "5(n − 1)/(2n)", About(TURNS)).in_rounds("2(n − 1)", Always),
            "Two rings in opposite directions, each for half of the data.",
            "Where a link each way would be idle otherwise, as on a TPU's torus or on PCIe pairs.",
            "Half of a ring's time when each direction has a port of its own. Here both directions share a rank's one port, so in one node nothing is won; in several nodes each direction has a slow link of its own between two nodes, and half of the ring's bytes cross it.",
        ),
        (Algorithm::TwoShot, _) => (
            formula("n", "(3n − 4)/n", Always),
            "Every rank sums one chunk that all others send it; then it sends the result to all.",
            "The custom all_reduce of vLLM and TensorRT-LLM inside a node, for middle sizes.",
            "About the ring's bytes with half of its latencies, given links between all pairs: NVSwitch, not a network. Drawn as messages, a rank adds what comes in the order of the ranks, one after the other; the kernels read all peers' memory at once and take two latencies for it all, which is why they win there.",
        ),
        (Algorithm::OneShot, _) => (
            formula("1", "2n − 3", Always),
            "Every rank sends its whole tensor to every other, and each sums for itself.",
            "The custom all_reduce of vLLM and TensorRT-LLM inside a node, for a few hundred KiB at most: a token's activations.",
            "One latency, the least that ranks can do by themselves; only a switch that adds up does as well. The bytes grow with n, so it loses soon.",
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
            formula(ALL_BUT_ONE, "(n + k − 2)/k", Always).in_rounds("n + k − 2", Always),
            "The tensor is cut into segments of 512 KiB, as NCCL's chunks are, that follow each other from rank to rank; a smaller one is one segment.",
            if reduces {
                "How NCCL reduces: its Ring is such a chain of slices that ends at the root."
            } else {
                "How NCCL broadcasts: its Ring is such a chain of slices that begins at the root."
            },
            "Every port is busy at once, so long messages cost little more than their own length; but the first segment takes n − 1 latencies to arrive.",
        ),
        (Algorithm::KaryTree, _) => (
            formula("(⌈log₄(3n + 1)⌉ − 1)", "4(⌈log₄(3n + 1)⌉ − 1)", AtMost).in_rounds(
                if reduces {
                    "4(⌈log₄(3n + 1)⌉ − 1)"
                } else {
                    "⌈log₄(3n + 1)⌉ − 1"
                },
                if reduces { AtMost } else { Always },
            ),
            "A tree in which every parent has up to four children.",
            "Where latency is what counts and a port can take several messages at once: stores, control messages.",
            "Half the levels of a binomial tree, but a parent's port sends up to four tensors in each of them.",
        ),
        (Algorithm::Knomial, Collective::Gather { .. } | Collective::Scatter { .. }) => (
            formula("⌈log₄ n⌉", ALL_BUT_ONE, AtMost).in_rounds("⌈log₄ n⌉", Always),
            "A k-nomial tree by radix 4: a rank hands on, in one message, what its whole subtree gets or gives, for up to three subtrees in each round.",
            "UCC's gather and scatter for short messages; MPICH lets one choose it.",
            "Half of the binomial tree's rounds, and the same bytes through the root's port; parts of subtrees travel several times.",
        ),
        (Algorithm::Knomial, _) => (
            formula("⌈log₄ n⌉", "3⌈log₄ n⌉", AtMost).in_rounds(
                if reduces { "3⌈log₄ n⌉" } else { "⌈log₄ n⌉" },
                if reduces { AtMost } else { Always },
            ),
            if reduces {
                "A binomial tree by radix 4: of each four ranks that still hold a sum, three send theirs to the fourth, which takes them in turn."
            } else {
                "A binomial tree by radix 4: in each round every rank that has the data sends it to three that have not."
            },
            "UCC, whose radix is 4 unless one says otherwise; MPICH and Open MPI on request.",
            "Half of the binomial tree's latencies, but a port carries three tensors a level instead of one: for short messages.",
        ),
        (Algorithm::DoubleBinaryTree, Collective::Broadcast { .. }) => (
            formula("(⌈log₂ n⌉ + 2k − 1)", "(1 + (⌈log₂ n⌉ − 1)/k)", About(COLOURS))
                .in_rounds("2⌈log₂ n⌉ + 2k − 2", AtMost),
            "Two binary trees with one root, each for half of the data; a rank inside one tree is a leaf of the other. The edges have two colours that take turns, so that no rank sends two messages in a step or receives two. Each half moves in segments of 512 KiB.",
            "Nobody's default: NCCL broadcasts by a ring of slices. Worth it for long messages to many ranks, where a chain's latencies are too many.",
            "Latencies grow with log₂ n and bytes do not grow at all: one tensor's time once the pipeline is full, the least there is.",
        ),
        (Algorithm::DoubleBinaryTree, Collective::Reduce { .. }) => (
            formula("(⌈log₂ n⌉ + 2k − 1)", "(1 + (⌈log₂ n⌉ − 1)/k)", About(COLOURS))
                .in_rounds("2⌈log₂ n⌉ + 2k − 2", AtMost),
            "Two binary trees with one root, each for half of the data, from the leaves to the root; a rank inside one tree is a leaf of the other. The edges have two colours that take turns, so that no rank sends two messages in a step or receives two. Each half moves in segments of 512 KiB.",
            "Nobody's default: NCCL reduces by a ring of slices. Worth it for long messages from many ranks.",
            "Latencies grow with log₂ n and bytes do not grow at all: one tensor's time once the pipeline is full, the least there is.",
        ),
        (Algorithm::HalvingDoubling, Collective::Reduce { .. }) => (
            formula("2log₂(n)", RING_VOLUME, PowersOfTwo),
            "Rabenseifner's: a reduce-scatter that halves the data and doubles the distance at each step, then a binomial gather of the finished chunks at the root.",
            "MPICH's reduce for long messages.",
            "Two tensors' worth of bytes at logarithmic latencies, where the binomial tree sends log₂ n tensors in a row.",
        ),
        (Algorithm::Hierarchical, Collective::Gather { .. } | Collective::Scatter { .. }) => (
            formula("1", ALL_BUT_ONE, Always),
            "Each node's leader collects or hands out its neighbours' parts, and exchanges them with the root in one message.",
            "MPI libraries on many-core nodes.",
            "The root exchanges m − 1 messages with other nodes instead of one with each of their ranks; the bytes through its port stay.",
        ),
        (Algorithm::HalvingDoubling, _) => (
            formula("2log₂(n)", RING_VOLUME, PowersOfTwo),
            "Rabenseifner's: a reduce-scatter that halves the data and doubles the distance at each step, then an all-gather that goes the same way back.",
            "MPICH for long messages, gloo's halving_doubling for those who ask for it.",
            "The ring's bytes at a tree's latencies: the best of both where every pair of ranks is alike. In real networks its long-distance rounds share links that a ring does not.",
        ),
        (Algorithm::ScatterAllGather, _) => (
            formula("(log₂(n) + n − 1)", RING_VOLUME, PowersOfTwo),
            "Van de Geijn's: the root scatters the chunks down a tree, then a ring gathers them everywhere.",
            "MPICH's broadcast for long messages.",
            "Two tensors' worth of bytes whatever n is, where a tree sends log₂ n; the ring's latencies come on top.",
        ),
        (Algorithm::DoubleBinaryTree, _) => (
            formula("(2⌈log₂ n⌉ + 4k − 2)", "(2 + (2⌈log₂ n⌉ − 1)/k)", About(COLOURS))
                .in_rounds("4⌈log₂ n⌉ + 4k − 4", AtMost),
            "Two binary trees with one root, each for half of the data; a rank inside one tree is a leaf of the other, so that every port is used. The edges have two colours that take turns, up and down, so that no rank sends two messages in a step or receives two. Each half moves in segments of 512 KiB, as NCCL's chunks are: a tensor of up to 1 MiB is one.",
            "NCCL's Tree: its choice across nodes for small and middle sizes.",
            "Latencies grow with log₂ n and bytes do not grow at all: two tensors' time once the pipeline is full, as the ring's. A tensor of few segments mostly waits for the pipeline to fill.",
        ),
        (Algorithm::GlooRing, Collective::Reduce { .. }) => (
            formula("n", RING_VOLUME, About(SEGMENTS)).in_rounds("n", Always),
            "gloo's own ring: a reduce-scatter in which chunks go to the previous rank, then every rank sends its chunk to the root.",
            "gloo, always: PyTorch's reduce on CPUs. The order of the additions, and so every bit of the sums, is gloo's.",
            "Two tensors' worth of bytes whatever n is, at a ring's latencies. Chunks are whole segments of up to 1 MiB, so that some may be empty.",
        ),
        (Algorithm::GlooRing, _) => (
            formula("2(n − 1)", RING_VOLUME, About(SEGMENTS)).in_rounds("2(n − 1)", Always),
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
            "In m nodes of k ranks, 2(m − 1)/m of a k-th of the tensor crosses the network from each rank.",
        ),
        (Algorithm::Hierarchical, Collective::AllGather | Collective::ReduceScatter { .. }) => (
            formula(ALL_BUT_ONE, ALL_BUT_ONE, Always),
            "Across the nodes among the ranks with the same place, and inside the nodes.",
            "Where the network between nodes is much slower than the one inside.",
            "Each part crosses the network once a node, and all ranks' network cards share it.",
        ),
        (Algorithm::Hierarchical, Collective::AllToAll) => (
            formula("1", "2n − 3", Always),
            "Inside the node each rank collects what goes to one rail, and sends it to each receiver in one message.",
            "Mixture-of-experts layers over many nodes (Tutel, DeepSpeed); NCCL's PXN does the same.",
            "In m nodes of k ranks a rank sends k + m − 2 messages instead of n − 1, but most bytes twice.",
        ),
        (Algorithm::Hierarchical, Collective::Barrier) => (
            formula("2⌈log₂ n⌉", "0", AtMost),
            "Up a tree in each node, a dissemination among the nodes, and down the trees.",
            "MPI libraries on many-core nodes.",
            "Only ⌈log₂ m⌉ of the latencies are those of the network between the m nodes.",
        ),
        (Algorithm::Hierarchical, _) => (
            formula("n", RING_VOLUME, About(SHARDS)).in_rounds("n", Always),
            "The root's node cuts the tensor into shards, each of which takes a tree across the nodes.",
            "Where the network between nodes is much slower than the one inside.",
            "In nodes of k ranks, each rank's network card carries a k-th of the tensor.",
        ),
        (Algorithm::Nvls, Collective::AllReduce { .. }) => (
            formula("2", "2(n + 1)/n", Always).in_rounds("4", Always),
            "The node's NVLink switch adds up what it reads from the ranks; each rank gets one chunk of the sum and has the switch write it to everybody. In several nodes each has a switch of its own, and a double binary tree of the nodes sums each chunk before it is written: NCCL's NVLSTree.",
            "NCCL on Hopper and newer with NVSwitch, for most sizes.",
            "Every port carries n + 1 chunks of S/n each way instead of the ring's 2(n − 1), and in one node the latency does not grow with n. The formula has twice those bytes, because here the switch takes a whole message before it sends; the hardware does not wait. In several nodes each level of the trees across costs two latencies of the network.",
        ),
        (Algorithm::Nvls, Collective::Broadcast { .. }) => (
            formula("1", "2", Always).in_rounds("2", Always),
            "The root writes to the NVLink switch, which writes to everybody.",
            "Nobody's default: NCCL uses the switch for reductions and gathers.",
            "One tensor through each port; the switch ends with the node, so that all ranks must be in one. Here the switch takes the whole message before it sends; the hardware does not wait.",
        ),
        (Algorithm::Nvls, _) => (
            formula("1", "(n + 1)", Always).in_rounds("2", Always),
            "The NVLink switch adds up, or hands to everybody, what the ranks write.",
            "NCCL on Hopper and newer with NVSwitch, for ranks of one node; across nodes only where the network's switches add up too (CollNet).",
            "A rank's port carries n parts one way and one part the other, n + 1 in a row in the formula: here the switch takes whole messages before it sends; the hardware does not wait.",
        ),
        (Algorithm::Sharp, Collective::Barrier) => (
            formula("1", "0", Always).in_rounds("2", Always),
            "Switches count who has come, a leaf for each node and, above several, a spine, and release all.",
            "MPI libraries on InfiniBand with SHARP.",
            "One way up and one down, whatever n is. With several leaves, two hops more by the spine.",
        ),
        (Algorithm::Sharp, _) => (
            formula("1", "2", Always).in_rounds("2", Always),
            "Switches add up: a leaf for each node and, above several leaves, a spine that sends the result back down.",
            "NCCL's CollNet on InfiniBand with SHARP.",
            "A rank's port carries the tensor once each way, half of the ring's bytes; the formula has both ways one after the other, because here switches take whole messages before they send. With several leaves two hops more go by the spine.",
        ),
    };
    Lesson { formula, how, when, cost }
}

#[cfg(test)]
mod tests;
