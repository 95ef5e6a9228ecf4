//! Decides between the claims of all rules: each mistake becomes one finding, with everyone who waits because
//! of it.
//!
//! 1. A rank that died, and the first row of each group whose calls differ, are claims by
//!    themselves.
//! 2. In the graph of who waits for whom, every wait leads somewhere: to one of those, to a rank
//!    that waits for nobody (it never made the call), or into a circle.
//! 3. What is left waits in a call that everybody made.
//! 4. Logs and other sources say more of the ranks that are blamed, or something else.

pub(crate) mod gaps;
pub(crate) mod moments;
mod with_logs;

use crate::claim::Claim;
use crate::facts::alternatives::Alternatives;
use crate::facts::other_sources::OtherSources;
use crate::facts::row_mismatch::{Mismatch, first_mismatches};
use crate::facts::{Facts, stuck_in};
use crate::kinds::Kind;
use crate::ladder::{About, ladder};
use crate::model::graph::Graph;
use crate::model::index::{Job, Made, Row};
use crate::model::messages::{self, PendingP2p};
use crate::report::{Certainty, Finding};
use crate::rules::any_source;
use crate::rules::deadlock;
use crate::rules::differing_calls;
use crate::rules::dropped_calls;
use crate::rules::gave_up_elsewhere;
use crate::rules::gradients_not_reduced;
use crate::rules::group_mismatch;
use crate::rules::group_name_clash;
use crate::rules::late_rank;
use crate::rules::left_out_before::or_left_out_before;
use crate::rules::lone_branch;
use crate::rules::missing_dumps;
use crate::rules::never_completed;
use crate::rules::never_joined;
use crate::rules::on_gloo;
use crate::rules::p2p_mismatch::{p2p_sizes, tags};
use crate::rules::rank_died;
use crate::rules::rank_missing;
use crate::rules::rank_unresponsive;
use crate::rules::send_recv_pairs;
use crate::rules::split_mismatch;
use crate::rules::store_wait;
use crate::rules::straggler;
use crate::rules::stuck_elsewhere;
use crate::rules::tag_ignored;
use crate::rules::unanswered_message;
use crate::rules::unfinished_collective;
use crate::rules::unlisted_group;
use crate::rules::work_dropped;
use crate::words;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{MaybeEarly, Outcome, RankLog, RankState};
use lockstep_formats::job_calls::Shows;
use std::collections::BTreeSet;

/// So many findings show the ranks' calls side by side; others follow from them.
const LADDERS: usize = 4;

/// The findings of a job.
#[derive(Default)]
pub(crate) struct Decided {
    /// Most important first.
    pub(crate) findings: Vec<Finding>,
    pub(crate) notes: Vec<String>,
    /// The number of ranks that calls or logs name.
    pub(crate) world_size: u32,
}

/// The findings of a job whose calls were recorded.
pub(crate) fn of_calls(job: &Job<'_>, sources: &OtherSources<'_>) -> Decided {
    let (claims, notes) = claims(job, sources);
    finish(Some(job), claims, notes, sources, job.log.world_size)
}

/// The findings of a job of `world` ranks that left only logs, or recordings without a call.
pub(crate) fn of_logs(sources: &OtherSources<'_>, world: u32) -> Decided {
    finish(None, Vec::new(), Vec::new(), sources, world)
}

/// The mistakes that are told without a look at who waits for whom: ranks that died, calls that differ,
/// messages that nobody answers.
struct Told<'a> {
    /// Messages that are not answered, but for those of ranks in an endless wait for a store.
    p2p: Vec<PendingP2p<'a>>,
    /// Ranks that wait for a store's key for ever.
    endless: Vec<GlobalRank>,
    mismatches: Vec<Mismatch>,
    dead: Option<GlobalRank>,
    /// Ranks that never answer a message, with tags that would have fitted.
    silent: BTreeSet<GlobalRank>,
    /// Receives from any source that took a message meant for another.
    taken: Vec<any_source::Taken<'a>>,
    /// Groups of one name that are not the same.
    namesakes: Vec<group_name_clash::Namesakes>,
    /// The ranks to blame for a call that differs, by row.
    blamed: BTreeSet<(usize, GlobalRank)>,
    /// The ranks to blame for everything else here.
    culprits: BTreeSet<GlobalRank>,
}

impl<'a> Told<'a> {
    fn of(job: &Job<'a>) -> Told<'a> {
        let mut p2p = messages::pending(job);
        let endless = store_wait::endless(job, &p2p);
        p2p.retain(|pending| !endless.contains(&pending.made.rank));
        // A call whose turn has not come is not held up by a peer of which nothing was recorded.
        p2p.retain(|pending| {
            let unseen = pending.partner.is_none() && job.rank(pending.peer).is_none();
            !unseen || !job.standing.contains(&pending.made.rank)
        });
        let mismatches = first_mismatches(job);
        let mut blamed: BTreeSet<(usize, GlobalRank)> = BTreeSet::new();
        for mismatch in &mismatches {
            let sides = mismatch.sides.iter().flat_map(|side| &side.ranks);
            blamed.extend(sides.map(|rank| (mismatch.row, *rank)));
        }
        let apart = messages::tags_apart(&p2p);
        let tagged: BTreeSet<GlobalRank> =
            apart.iter().flat_map(|(send, receive)| [send.made.rank, receive.made.rank]).collect();
        let silent = messages::silent(&p2p).difference(&tagged).copied().collect();
        let taken = any_source::find(job, &p2p);
        let namesakes = group_name_clash::find(job);
        let dead = died(job);
        let mut culprits: BTreeSet<GlobalRank> = tagged.union(&silent).copied().collect();
        culprits.extend(taken.iter().map(|taken| taken.waits.rank));
        culprits.extend(dead.into_iter().flat_map(|rank| rank_died::alike(job, rank)));
        culprits.extend(&endless);
        culprits.extend(namesakes.iter().flat_map(|namesakes| namesakes.ranks(job)));
        Told { p2p, endless, mismatches, dead, silent, taken, namesakes, blamed, culprits }
    }

    fn claims(&self, facts: &Facts<'_, '_>) -> Vec<Claim> {
        let dead = self.dead.and_then(|rank| rank_died::claim(facts, rank));
        let mut claims: Vec<Claim> = dead.into_iter().collect();
        claims.extend(store_wait::endless_loop(facts.job, &self.endless));
        let differing =
            self.mismatches.iter().flat_map(|mismatch| differing_calls::claims(facts, mismatch));
        claims.extend(differing.map(|claim| {
            let mut claim = or_left_out_before(facts, claim);
            on_gloo::tell(facts, &mut claim);
            claim
        }));
        let namesakes = self.namesakes.iter();
        claims.extend(namesakes.filter_map(|names| group_name_clash::claim(facts, names)));
        let apart = messages::tags_apart(facts.p2p);
        claims.extend(apart.iter().map(|(send, receive)| tags(facts, send.made, receive.made)));
        claims.extend(self.taken.iter().map(|taken| any_source::claim(facts, taken)));
        let silent = self.silent.iter();
        claims.extend(silent.filter_map(|rank| unanswered_message::silent(facts, *rank)));
        claims
    }
}

/// The claims of the calls, most important first, and notes.
fn claims(job: &Job<'_>, sources: &OtherSources<'_>) -> (Vec<Claim>, Vec<String>) {
    let told = Told::of(job);
    let graph = Graph::of(job, &told.p2p, &told.blamed, &told.culprits, told.dead);
    let facts = Facts { job, p2p: &told.p2p, graph: &graph, other_sources: sources };
    let (mut claims, mut notes) = (told.claims(&facts), Vec::new());
    let (stuck, in_pairs) = add_ends_of_waits(&facts, &told, &mut claims);
    add_never_completed(&facts, &stuck, in_pairs, &mut claims, &mut notes);
    if let Some(claim) = lone_branch::claim(&facts, &claims) {
        claims = vec![claim];
    }
    let slow = straggler::find(job).filter(|slow| {
        // A rank that always came late may just not have come yet; a timeout says otherwise.
        job.log.outcome != Outcome::TimedOut
            && claims.iter().all(|claim| may_be_a_straggler(job, slow, claim))
    });
    if let Some(slow) = slow {
        claims = vec![straggler::claim(&facts, &slow)];
    }
    rank_missing::doubt(&mut claims);
    claims.extend(rank_missing::not_needed(&facts, &claims));
    missing_dumps::explain(&facts, &mut claims);
    // Ranks that have not made equally many groups are told as that where they wait for each other.
    if claims.iter().all(|claim| claim.kind != Kind::GroupDeadlock) {
        let explained = !claims.is_empty();
        claims.extend(group_mismatch::claim(&facts, explained));
    }
    rank_unresponsive::tell(&facts, &mut claims);
    claims.extend(work_dropped::claims(&facts));
    claims.extend(tag_ignored::claim(&facts));
    claims.extend(gradients_not_reduced::claim(&facts));
    claims.extend(unfinished_collective::claims(&facts, &claims));
    notes.extend(gaps::dumped_early(job));
    if claims.is_empty() {
        notes.extend(straggler::or_clock(job));
    }
    gaps::soften(&facts, &mut claims);
    limit(&mut claims, sources.shows);
    gave_up_elsewhere::tell(&facts, &mut claims);
    (in_order(&facts, claims), notes)
}

/// Adds the claims of the ranks at which waiting ends: circles, ranks that wait for nobody, and splits
/// that do not fit. Returns the rows that everybody made and that do not end, and whether ranks wait in a
/// send and its receive, which have met and do not end.
fn add_ends_of_waits(
    facts: &Facts<'_, '_>,
    told: &Told<'_>,
    claims: &mut Vec<Claim>,
) -> (Vec<usize>, bool) {
    let sizes = p2p_sizes(facts);
    let mut explained: BTreeSet<GlobalRank> = told.blamed.iter().map(|(_, rank)| *rank).collect();
    explained.extend(&told.culprits);
    explained.extend(sizes.iter().flat_map(|claim| claim.culprits.iter().copied()));
    let (mut alone, mut stuck) = (Vec::new(), Vec::new());
    let mut circles = 0;
    for sink in facts.graph.sinks() {
        match sink.ranks.as_slice() {
            [rank] if explained.contains(rank) => {}
            [rank] => match stuck_in(facts, *rank) {
                Some(row) => stuck.push(row),
                None => alone.push(*rank),
            },
            _ => {
                circles += 1;
                claims.extend(deadlock::claim(facts, &sink, circles <= deadlock::COMPARED));
            }
        }
    }
    let silent = alone.extract_if(.., |rank| rank_unresponsive::is_unknown(facts, *rank));
    claims.extend(silent.filter_map(|rank| rank_unresponsive::unknown(facts, rank)));
    let pairs = send_recv_pairs::among(facts, &alone);
    alone.retain(|rank| !pairs.contains(rank));
    // DDP's constructor ends every rank: nobody waits for one that has not come yet.
    if claims.iter().all(|claim| claim.kind != Kind::DdpModelMismatch) {
        claims.extend(never_joined::claims(facts, &alone));
    }
    claims.extend(sizes);
    let (splits, explained_rows) = split_mismatch::claims(facts);
    stuck.retain(|row| !explained_rows.contains(row));
    claims.extend(splits.into_iter().map(|mut claim| {
        on_gloo::tell(facts, &mut claim);
        claim
    }));
    let unseen = unlisted_group::alone_in_groups(facts, !claims.is_empty());
    if unseen.is_some() {
        stuck.retain(|row| facts.job.rows.get(*row).is_none_or(|row| !facts.job.is_alone(row)));
    }
    claims.extend(unseen);
    (stuck, !pairs.is_empty())
}

/// Adds the claims of calls that everybody made and that do not end, then, as long as there is no claim,
/// those that need less evidence.
fn add_never_completed(
    facts: &Facts<'_, '_>,
    stuck: &[usize],
    in_pairs: bool,
    claims: &mut Vec<Claim>,
    notes: &mut Vec<String>,
) {
    if claims.is_empty() || !stuck.is_empty() {
        let circles = deadlock::queued(facts);
        if circles.is_empty() {
            claims.extend(never_completed::never_completed(facts, stuck, notes));
        }
        claims.extend(circles);
    }
    // A call that others saw end says that the dumps are of a running job.
    if claims.is_empty() && (notes.is_empty() || in_pairs) {
        claims.extend(send_recv_pairs::never_completed(facts));
    }
    let rules: [fn(&Facts<'_, '_>) -> Option<Claim>; 3] =
        [dropped_calls::claim, late_rank::claim, split_mismatch::ended_unequal];
    for rule in rules {
        if claims.is_empty() {
            claims.extend(rule(facts));
        }
    }
}

/// True of a claim that a rank explains that is only slow.
fn may_be_a_straggler(job: &Job<'_>, slow: &straggler::Straggler, claim: &Claim) -> bool {
    claim.kind == Kind::CallNeverCompleted
        || (matches!(claim.kind, Kind::RankNeverJoined | Kind::DdpUnusedParameters)
            && slow.ranks.iter().any(|rank| claim.culprits.contains(rank)))
        // Others came out of the call that it seems to miss.
        || (claim.kind == Kind::RankMissing && came_out(job, claim))
        // Dumps of a running job are of different moments.
        || (claim.kind == Kind::OpExtra && claim.open() != Alternatives::None)
        || (claim.kind == Kind::RootMismatch && maybe_early(job, claim))
}

/// Makes claims no surer than a source can be that does not show which calls ended, or which ranks there were.
fn limit(claims: &mut Vec<Claim>, shows: Option<Shows>) {
    match shows {
        Some(Shows::ObservedOrder | Shows::EndedCalls) => {
            // A rank without a profile or an execution trace was not recorded, which is nothing wrong.
            claims.retain(|claim| claim.kind != Kind::RankMissing);
        }
        Some(Shows::CallOrder | Shows::LastCalls) | None => {}
    }
    if let Some(Shows::ObservedOrder | Shows::CallOrder) = shows {
        // Two calls that differ, differ; who has not come may only not have come yet.
        for claim in claims.iter_mut().filter(|claim| !is_difference(claim.kind)) {
            claim.alternatives = claim.alternatives.max(Alternatives::LessLikely);
        }
    }
}

/// True of a kind that says that calls under one number differ.
fn is_difference(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::CollectiveMismatch
            | Kind::SizeMismatch
            | Kind::DtypeMismatch
            | Kind::ReduceOpMismatch
            | Kind::RootMismatch
    )
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
        Outcome::TimedOut => store_wait::standing(job),
        _ => None,
    }
}

/// True if the dumps of all that a cause names may be older than others'.
fn maybe_early(job: &Job<'_>, claim: &Claim) -> bool {
    let early = |own: &RankLog| own.recording.maybe_early != MaybeEarly::No;
    claim.culprits.iter().all(|rank| job.rank(*rank).is_some_and(early))
}

/// True if a rank came out of the call of a claim.
fn came_out(job: &Job<'_>, claim: &Claim) -> bool {
    let Some((group, seq)) = claim.group.zip(claim.seq) else { return false };
    let mut rows = job.open_rows().filter(|(_, row)| (row.group, row.seq) == (group, seq));
    rows.any(|(_, row)| row.made.iter().any(|made| !made.pending()))
}

/// Adds the victims and puts the claims in order, most important first.
fn in_order(facts: &Facts<'_, '_>, mut claims: Vec<Claim>) -> Vec<Claim> {
    let all_culprits: BTreeSet<GlobalRank> =
        claims.iter().flat_map(|claim| claim.culprits.iter().copied()).collect();
    for claim in &mut claims {
        let mut victims: BTreeSet<GlobalRank> = claim.also_victims.iter().copied().collect();
        victims.extend(facts.graph.waiting_for(&claim.culprits));
        claim.also_victims =
            victims.into_iter().filter(|rank| !all_culprits.contains(rank)).collect();
        // Printers cut long lists: the culprits must be in what is left.
        let culprits = &claim.culprits;
        claim.evidence.sort_by_key(|evidence| (!culprits.contains(&evidence.rank), evidence.rank));
    }
    claims.sort_by(|a, b| {
        let order = |claim: &Claim| {
            (!is_death(claim.kind), claim.open(), std::cmp::Reverse(claim.also_victims.len()))
        };
        order(a)
            .cmp(&order(b))
            .then_with(|| (a.kind, &a.culprits, a.seq).cmp(&(b.kind, &b.culprits, b.seq)))
    });
    held_up(facts, &all_culprits, &mut claims);
    claims
}

/// Makes findings of the claims of the calls and of those of the other sources.
fn finish(
    job: Option<&Job<'_>>,
    claims: Vec<Claim>,
    mut notes: Vec<String>,
    sources: &OtherSources<'_>,
    world: u32,
) -> Decided {
    let mut claims = with_logs::decide(claims, sources, world, &mut notes);
    if job.is_none() && claims.is_empty() {
        claims.extend(stuck_elsewhere::claim(sources));
    }
    // A claim of the logs stands behind those of the calls, and no claim behind one that nothing decides.
    claims.sort_by_key(|claim| claim.open() == Alternatives::AsLikely);
    let world_size = with_logs::world_size(world, &claims, &sources.heard);
    let mut findings: Vec<Finding> = Vec::with_capacity(claims.len());
    for claim in claims {
        let (culprits, victims) = (&claim.culprits, &claim.also_victims);
        let about = About { culprits, victims, call: claim.group.zip(claim.seq) };
        let shown = job.filter(|_| findings.len() < LADDERS);
        findings.push(Finding {
            kind: claim.kind,
            ladder: shown.and_then(|job| ladder(job, &about)),
            group: job.zip(claim.group).map(|(job, group)| words::group_ref(job.log, group)),
            seq: claim.seq,
            certainty: certainty(&claim),
            message: claim.message.text(),
            op: claim.op,
            culprits: claim.culprits,
            victims: claim.also_victims,
            fix: claim.fix,
            evidence: claim.evidence,
            repair: None,
        });
    }
    Decided { findings, notes, world_size }
}

/// The certainty of a claim: certain with no live alternative and no doubt.
fn certainty(claim: &Claim) -> Certainty {
    match claim.open() {
        Alternatives::None => Certainty::Certain,
        Alternatives::LessLikely => Certainty::Likely,
        Alternatives::AsLikely => Certainty::Undecidable,
    }
}

/// True for a rank's death, which goes before all other findings.
fn is_death(kind: Kind) -> bool {
    matches!(kind, Kind::RankDied | Kind::StoreWait | Kind::DdpModelMismatch)
}

/// Ranks that wait in calls which everybody made wait for a turn that the first claim holds up.
fn held_up(facts: &Facts<'_, '_>, culprits: &BTreeSet<GlobalRank>, claims: &mut [Claim]) {
    let known: BTreeSet<GlobalRank> =
        claims.iter().flat_map(|claim| claim.also_victims.iter().copied()).collect();
    let Some(first) = claims.first_mut() else { return };
    let slow = first.kind == Kind::Straggler;
    for (rank, log) in facts.job.log.logs() {
        let waits = log.calls.iter().any(|record| Made { rank, record }.pending());
        if waits && !slow && !known.contains(&rank) && !culprits.contains(&rank) {
            first.also_victims.push(rank);
        }
    }
    first.also_victims.sort_unstable();
}

impl Mismatch {
    /// The row itself.
    pub(crate) fn row<'s, 'a>(&self, facts: &'s Facts<'a, '_>) -> Option<&'s Row<'a>> {
        facts.job.rows.get(self.row)
    }
}
