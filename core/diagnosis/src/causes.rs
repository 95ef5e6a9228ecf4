//! From the calls to the findings: each cause once, with everyone who waits because of it.
//!
//! 1. A rank that died, and the first row of each group whose calls differ, are causes by
//!    themselves.
//! 2. In the graph of who waits for whom, every wait leads somewhere: to one of those, to a rank
//!    that waits for nobody (it never made the call), or into a circle.
//! 3. What is left waits in a call that everybody made.

use super::absent;
use super::any_source;
use super::dead;
use super::deadlock;
use super::differing;
use super::dropped;
use super::gaps;
use super::graph::Graph;
use super::groups_apart;
use super::in_flight;
use super::index::{Job, Row};
use super::left_over;
use super::lost;
use super::lost_waits;
use super::met;
use super::mismatch::{Mismatch, first_mismatches};
use super::namesakes;
use super::on_gloo;
use super::out_of_all;
use super::p2p::{self, PendingP2p};
use super::report::{Certainty, Evidence, Finding, Kind};
use super::splits;
use super::straggler;
use super::too_late;
use super::unanswered;
use super::unlisted;
use super::unresponsive;
use super::unsaid;
use super::words;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Called, MaybeEarly, Outcome, RankLog, RankState};
use std::collections::BTreeSet;

/// Everything that a cause is found from.
pub(super) struct Scene<'a, 'j> {
    pub(super) job: &'j Job<'a>,
    pub(super) p2p: &'j [PendingP2p<'a>],
    pub(super) graph: &'j Graph,
}

/// A cause before its victims are known.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    pub(super) kind: Kind,
    pub(super) culprits: Vec<GlobalRank>,
    /// Ranks that suffer although they wait for nobody any more.
    pub(super) also_victims: Vec<GlobalRank>,
    pub(super) group: Option<GroupId>,
    pub(super) seq: Option<u64>,
    pub(super) op: Option<String>,
    pub(super) certainty: Certainty,
    pub(super) message: String,
    pub(super) fix: String,
    pub(super) evidence: Vec<Evidence>,
}

/// The findings of a job, most important first, and notes.
pub(super) fn findings(job: &Job<'_>) -> (Vec<Finding>, Vec<String>) {
    let mut p2p = p2p::pending(job);
    let endless = lost_waits::endless(job, &p2p);
    p2p.retain(|pending| !endless.contains(&pending.made.rank));
    // Its turn has not come: it is not for want of one of whom nothing was recorded.
    p2p.retain(|pending| {
        let unseen = pending.partner.is_none() && job.rank(pending.peer).is_none();
        !unseen || !job.standing.contains(&pending.made.rank)
    });
    let mismatches = first_mismatches(job);
    let dead = died(job);
    let mut blamed: BTreeSet<(usize, GlobalRank)> = BTreeSet::new();
    for mismatch in &mismatches {
        let sides = mismatch.sides.iter().flat_map(|side| &side.ranks);
        blamed.extend(sides.map(|rank| (mismatch.row, *rank)));
    }
    let apart = p2p::tags_apart(&p2p);
    let tagged: BTreeSet<GlobalRank> =
        apart.iter().flat_map(|(send, receive)| [send.made.rank, receive.made.rank]).collect();
    let silent = p2p::silent(&p2p);
    let silent: BTreeSet<GlobalRank> = silent.difference(&tagged).copied().collect();
    let mut culprits: BTreeSet<GlobalRank> = tagged.union(&silent).copied().collect();
    let taken = any_source::find(job, &p2p);
    culprits.extend(taken.iter().map(|taken| taken.waits.rank));
    culprits.extend(dead.into_iter().flat_map(|rank| dead::alike(job, rank)));
    culprits.extend(&endless);
    let namesakes = namesakes::find(job);
    culprits.extend(namesakes.iter().flat_map(|namesakes| namesakes.ranks(job)));
    let graph = Graph::of(job, &p2p, &blamed, &culprits, dead);
    let scene = Scene { job, p2p: &p2p, graph: &graph };

    let mut causes: Vec<Cause> =
        dead.and_then(|rank| dead::cause(&scene, rank)).into_iter().collect();
    causes.extend(lost_waits::endless_loop(job, &endless));
    let differing = mismatches.iter().flat_map(|mismatch| differing::causes(&scene, mismatch));
    causes.extend(differing.map(|mut cause| {
        on_gloo::tell(&scene, &mut cause);
        cause
    }));
    causes.extend(namesakes.iter().filter_map(|it| namesakes::cause(&scene, it)));
    causes.extend(apart.iter().map(|(send, receive)| tags(&scene, send.made, receive.made)));
    causes.extend(taken.iter().map(|taken| any_source::cause(&scene, taken)));
    causes.extend(silent.iter().filter_map(|rank| unanswered::silent(&scene, *rank)));
    let mut explained: BTreeSet<GlobalRank> = blamed.iter().map(|(_, rank)| *rank).collect();
    explained.extend(culprits);
    let sizes = p2p_sizes(&scene);
    explained.extend(sizes.iter().flat_map(|cause| cause.culprits.iter().copied()));
    let (mut alone, mut stuck) = (Vec::new(), Vec::new());
    let mut circles = 0;
    for sink in graph.sinks() {
        match sink.ranks.as_slice() {
            [rank] if explained.contains(rank) => {}
            [rank] => match stuck_in(&scene, *rank) {
                Some(row) => stuck.push(row),
                None => alone.push(*rank),
            },
            _ => {
                circles += 1;
                causes.extend(deadlock::cause(&scene, &sink, circles <= deadlock::COMPARED));
            }
        }
    }
    // Both stand in a send and its receive, which have met and have not ended.
    let pairs = met::among(&scene, &alone);
    alone.retain(|rank| !pairs.contains(rank));
    let in_pairs = !pairs.is_empty();
    // DDP's constructor ends every rank: who has not come yet will not be waited for.
    if causes.iter().all(|cause| cause.kind != Kind::DdpModelMismatch) {
        causes.extend(absent::causes(&scene, &alone));
    }
    causes.extend(sizes);
    let (splits, explained_rows) = splits::causes(&scene);
    stuck.retain(|row| !explained_rows.contains(row));
    causes.extend(splits.into_iter().map(|mut cause| {
        on_gloo::tell(&scene, &mut cause);
        cause
    }));
    let unseen = unlisted::alone_in_groups(&scene, !causes.is_empty());
    if unseen.is_some() {
        stuck.retain(|row| job.rows.get(*row).is_none_or(|row| !job.is_alone(row)));
    }
    causes.extend(unseen);
    let mut notes = Vec::new();
    let hangs = !causes.is_empty();
    if !hangs || !stuck.is_empty() {
        let circles = deadlock::queued(&scene);
        if circles.is_empty() {
            causes.extend(in_flight::never_completed(&scene, &stuck, &mut notes));
        }
        causes.extend(circles);
    }
    // A call that others saw end says that the dumps are of a running job.
    if causes.is_empty() && (notes.is_empty() || in_pairs) {
        causes.extend(met::never_completed(&scene));
    }
    if causes.is_empty() {
        causes.extend(dropped::cause(&scene));
    }
    if causes.is_empty() {
        causes.extend(too_late::cause(&scene));
    }
    if causes.is_empty() {
        causes.extend(splits::ended_unequal(&scene));
    }
    if let Some(cause) = out_of_all::cause(&scene, &causes) {
        causes = vec![cause];
    }
    let slow = straggler::find(job);
    if let Some(slow) = slow {
        let only_it = |cause: &Cause| {
            cause.kind == Kind::CallNeverCompleted
                || (matches!(cause.kind, Kind::RankNeverJoined | Kind::DdpUnusedParameters)
                    && slow.ranks.iter().any(|rank| cause.culprits.contains(rank)))
                // Others came out of the call that it seems to miss.
                || (cause.kind == Kind::RankMissing && came_out(job, cause))
                // Dumps of a running job are of different moments.
                || (cause.kind == Kind::OpExtra && cause.certainty != Certainty::Certain)
                || (cause.kind == Kind::RootMismatch && maybe_early(job, cause))
        };
        // A rank that always came late may just not have come yet; a timeout says otherwise.
        if causes.iter().all(only_it) && job.log.outcome != Outcome::TimedOut {
            causes = vec![straggler::cause(&scene, &slow)];
        }
    }
    lost::doubt(&mut causes);
    causes.extend(lost::not_needed(&scene, &causes));
    // Ranks that have not made equally many groups are told as that where they wait for each other.
    if causes.iter().all(|cause| cause.kind != Kind::GroupDeadlock) {
        let explained = !causes.is_empty();
        causes.extend(groups_apart::cause(&scene, explained));
    }
    unresponsive::tell(&scene, &mut causes);
    causes.extend(unsaid::causes(&scene));
    causes.extend(left_over::causes(&scene, &causes));
    notes.extend(gaps::dumped_early(job));
    if causes.is_empty() {
        notes.extend(straggler::or_clock(job));
    }
    gaps::soften(&scene, &mut causes);
    (finish(&scene, causes), notes)
}

/// The rank whose death ended the job. Ranks that an executor ended after that, or after a
/// timeout, died of it.
fn died(job: &Job<'_>) -> Option<GlobalRank> {
    match &job.log.outcome {
        Outcome::RankDied { rank, .. } => Some(*rank),
        Outcome::Unknown => {
            let dead = |(rank, log): (GlobalRank, &lockstep_core::trace::RankLog)| {
                matches!(log.state, RankState::Died { .. }).then_some(rank)
            };
            job.log.logs().find_map(dead)
        }
        Outcome::TimedOut => lost_waits::standing(job),
        _ => None,
    }
}

/// True if the dumps of all that a cause names may be older than others'.
fn maybe_early(job: &Job<'_>, cause: &Cause) -> bool {
    let early = |own: &RankLog| own.maybe_early != MaybeEarly::No;
    cause.culprits.iter().all(|rank| job.rank(*rank).is_some_and(early))
}

/// True if a rank came out of the call of a cause.
fn came_out(job: &Job<'_>, cause: &Cause) -> bool {
    let Some((group, seq)) = cause.group.zip(cause.seq) else { return false };
    let mut rows = job.open_rows().filter(|(_, row)| (row.group, row.seq) == (group, seq));
    rows.any(|(_, row)| row.made.iter().any(|made| !made.pending()))
}

/// The row in which a rank waits that has everybody's call, and completes nowhere: whoever waits
/// for the rank waits for that. Not one that its process would go on behind, as another's did.
fn stuck_in(scene: &Scene<'_, '_>, rank: GlobalRank) -> Option<usize> {
    let went_on = |made: &super::index::Made<'_>| {
        let last = scene.job.rank(made.rank).and_then(|own| own.calls.last());
        made.rank != rank && last.is_some_and(|last| last.work > made.record.work)
    };
    let mut full = full_rows(scene, rank);
    full.find(|(_, row)| !row.made.iter().any(went_on)).map(|(at, _)| at)
}

/// The rows in which a rank waits that have everybody's call, and complete nowhere.
pub(super) fn full_rows<'s, 'a>(
    scene: &'s Scene<'a, '_>,
    rank: GlobalRank,
) -> impl Iterator<Item = (usize, &'s Row<'a>)> {
    scene.job.open_rows().filter(move |(_, row)| {
        let Some(own) = row.of(rank) else { return false };
        own.pending() && nobody_done(scene, row) && !held_up_before(scene, row)
    })
}

/// True if a member of the row waits in an earlier call, for somebody who has not come or for the
/// other side of a send or receive: its turn has not come.
fn held_up_before(scene: &Scene<'_, '_>, row: &Row<'_>) -> bool {
    let unanswered = |made: &super::index::Made<'_>| {
        let first = scene.p2p.partition_point(|pending| pending.made.rank < made.rank);
        let own = scene.p2p.iter().skip(first).take_while(|pending| pending.made.rank == made.rank);
        let mut earlier = own.take_while(|pending| pending.made.record.work < made.record.work);
        earlier.any(|pending| pending.partner.is_none())
    };
    scene.job.held_up_before(row) || row.made.iter().any(unanswered)
}

/// A send and a receive that would meet if they had one tag.
fn tags(
    scene: &Scene<'_, '_>,
    send: super::index::Made<'_>,
    receive: super::index::Made<'_>,
) -> Cause {
    let log = scene.job.log;
    let mut pair = vec![send.rank, receive.rank];
    pair.sort_unstable();
    let (sends, receives) = (&send.record.call, &receive.record.call);
    Cause {
        kind: Kind::P2pMismatch,
        culprits: pair,
        also_victims: Vec::new(),
        group: Some(sends.group),
        seq: send.record.seq,
        op: Some(sends.op.clone()),
        certainty: Certainty::Certain,
        message: format!(
            "Rank {} sends to rank {} with tag {} in {}, and rank {} receives from it with tag {} \
             in {}: they never meet.",
            send.rank,
            receive.rank,
            sends.tag,
            words::short_call(log, send),
            receive.rank,
            receives.tag,
            words::short_call(log, receive),
        ),
        fix: "Give both sides the same tag, and make the calls of one tag in the same order."
            .to_owned(),
        evidence: vec![evidence(scene, send, "sends"), evidence(scene, receive, "receives")],
    }
}

/// True if every member made the call, and it completed on none. A member that went on saw it
/// complete, even if the recording has dropped it since.
fn nobody_done(scene: &Scene<'_, '_>, row: &Row<'_>) -> bool {
    let size = scene.job.group(row.group).map_or(0, |group| group.size() as usize);
    row.made.len() == size && row.made.iter().all(|made| made.pending())
}

/// Sends and receives that met with different sizes or element types.
fn p2p_sizes(scene: &Scene<'_, '_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for pending in scene.p2p.iter().filter(|pending| pending.made.record.call.op.contains("recv")) {
        let Some(send) = pending.partner else { continue };
        let (got, sent) = (&pending.made.record.call, &send.record.call);
        let sizes = (got.payload(), sent.payload());
        let dtype = |call: &Called| {
            let mut tensors = call.inputs.iter().chain(&call.outputs);
            tensors.next().map(|tensor| tensor.dtype).filter(|dtype| *dtype != Dtype::Unknown)
        };
        let (expects, sends) = match (dtype(got), dtype(sent)) {
            (Some(got), Some(sent)) if got != sent => (format!("{got}"), format!("{sent}")),
            _ if sizes.0 == sizes.1 || sizes.0 == 0 || sizes.1 == 0 => continue,
            _ => ("elements".to_owned(), "elements".to_owned()),
        };
        let log = scene.job.log;
        let mut pair = vec![pending.made.rank, send.rank];
        pair.sort_unstable();
        causes.push(Cause {
            kind: Kind::P2pMismatch,
            culprits: pair,
            also_victims: Vec::new(),
            group: Some(got.group),
            seq: pending.made.record.seq,
            op: Some(got.op.clone()),
            certainty: Certainty::Certain,
            message: format!(
                "Rank {} sends {} {sends} to rank {}, which expects {}{}: {} meets {}.{}",
                send.rank,
                sizes.1,
                pending.made.rank,
                sizes.0,
                if expects == sends { String::new() } else { format!(" {expects}") },
                words::call(log, send),
                words::call(log, pending.made),
                on_gloo::of_message(scene, got, sent),
            ),
            fix:
                "Give both sides a tensor of the same shape and dtype; if the size varies, send it \
                  first."
                    .to_owned(),
            evidence: vec![
                evidence(scene, send, "sends"),
                evidence(scene, pending.made, "receives"),
            ],
        });
    }
    causes
}

/// Adds the victims and puts the findings in order.
fn finish(scene: &Scene<'_, '_>, causes: Vec<Cause>) -> Vec<Finding> {
    let all_culprits: BTreeSet<GlobalRank> =
        causes.iter().flat_map(|cause| cause.culprits.iter().copied()).collect();
    let mut findings: Vec<Finding> = Vec::with_capacity(causes.len());
    for cause in causes {
        let mut victims: BTreeSet<GlobalRank> = cause.also_victims.into_iter().collect();
        victims.extend(scene.graph.waiting_for(&cause.culprits));
        let mut evidence = cause.evidence;
        // Printers cut long lists: the culprits must be in what is left.
        evidence.sort_by_key(|evidence| (!cause.culprits.contains(&evidence.rank), evidence.rank));
        findings.push(Finding {
            kind: cause.kind,
            culprits: cause.culprits,
            victims: victims.into_iter().filter(|rank| !all_culprits.contains(rank)).collect(),
            group: cause.group.map(|group| words::group_ref(scene.job.log, group)),
            seq: cause.seq,
            op: cause.op,
            certainty: cause.certainty,
            message: cause.message,
            fix: cause.fix,
            evidence,
        });
    }
    findings.sort_by(|a, b| {
        let order =
            |f: &Finding| (!is_death(f.kind), f.certainty, std::cmp::Reverse(f.victims.len()));
        order(a)
            .cmp(&order(b))
            .then_with(|| (a.kind, &a.culprits, a.seq).cmp(&(b.kind, &b.culprits, b.seq)))
    });
    held_up(scene, &all_culprits, &mut findings);
    findings
}

/// Whether a rank died: that comes first.
fn is_death(kind: Kind) -> bool {
    matches!(kind, Kind::RankDied | Kind::StoreWait | Kind::DdpModelMismatch)
}

/// Ranks that wait in calls which everybody made wait for a turn that the first finding holds up.
fn held_up(scene: &Scene<'_, '_>, culprits: &BTreeSet<GlobalRank>, findings: &mut [Finding]) {
    let known: BTreeSet<GlobalRank> =
        findings.iter().flat_map(|finding| finding.victims.iter().copied()).collect();
    let Some(first) = findings.first_mut() else { return };
    let slow = first.kind == Kind::Straggler;
    for (rank, log) in scene.job.log.logs() {
        let waits = log.calls.iter().any(|record| super::index::Made { rank, record }.pending());
        if waits && !slow && !known.contains(&rank) && !culprits.contains(&rank) {
            first.victims.push(rank);
        }
    }
    first.victims.sort_unstable();
}

/// A call as evidence.
pub(super) fn evidence(
    scene: &Scene<'_, '_>,
    made: super::index::Made<'_>,
    verb: &str,
) -> Evidence {
    let log = scene.job.log;
    Evidence {
        rank: made.rank,
        entry: Some(made.record.record_id.unwrap_or(u64::from(made.record.work))),
        frame: words::line_of(log, made.rank, made.record),
        note: format!("{verb} {}", words::call_without_line(log, made)),
    }
}

/// The absence of a call as evidence.
pub(super) fn no_call(rank: GlobalRank, note: impl Into<String>) -> Evidence {
    Evidence { rank, entry: None, frame: None, note: note.into() }
}

impl Mismatch {
    /// The row itself.
    pub(super) fn row<'s, 'a>(&self, scene: &'s Scene<'a, '_>) -> Option<&'s Row<'a>> {
        scene.job.rows.get(self.row)
    }
}
