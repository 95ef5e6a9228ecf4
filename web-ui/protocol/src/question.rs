//! The requests of the page.

use crate::analysis::JobChange;
use crate::cluster::ClusterQuestion;
use crate::ddp::{DdpQuestion, ModelRef};
use crate::machine::Machine;
use crate::mesh::MeshQuestion;
use crate::session_id::SessionId;
use crate::session_question::SessionQuestion;
use lockstep_core::plan::{CollectiveLab, Plan};
use lockstep_diagnosis::{Kind, Place};
use lockstep_scenarios::TorchCallOptions;
use lockstep_sim::{Bounds, Order, Topology};
use serde::{Deserialize, Serialize};

/// A request of the page, with the number that its answers carry.
#[derive(Debug, Serialize, Deserialize)]
pub struct Question {
    /// The number of the question.
    pub id: u32,
    /// The wish.
    pub request: Request,
}

/// A request of the page.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Give up on an earlier question; that one is then answered with an error.
    Cancel {
        /// The number of the question.
        id: u32,
    },
    /// Simulate a plan to its end and hold it for stepping.
    Simulate {
        /// The session.
        session: SessionId,
        /// The plan.
        plan: Box<Plan>,
        /// The machine.
        machine: Machine,
        /// The order of what the plan leaves open; absent for the simulator's own.
        order: Option<Order>,
    },
    /// Look for an order of everything that a plan leaves open in which it does not complete.
    Explore {
        /// The plan.
        plan: Box<Plan>,
        /// The machine.
        machine: Machine,
        /// The bounds of the search.
        bounds: Bounds,
    },
    /// The cost of a collective on its own on a topology.
    Account {
        /// The collective.
        lab: CollectiveLab,
        /// The network.
        topology: Topology,
    },
    /// The time of it for each of several element counts, in picoseconds.
    Sweep {
        /// The collective.
        lab: CollectiveLab,
        /// The network.
        topology: Topology,
        /// Element counts.
        counts: Vec<u64>,
    },
    /// Read a plan.
    ReadPlan {
        /// The plan as JSON.
        json: String,
    },
    /// A call of torch.distributed as a plan.
    PlanCall {
        /// PyTorch's name of it.
        call: String,
        /// Its options.
        options: Box<TorchCallOptions>,
        /// Other options, to be had where these are refused.
        instead: Vec<TorchCallOptions>,
    },
    /// A mesh, and the data that a collective along each of its dimensions moves.
    Mesh(Box<MeshQuestion>),
    /// NCCL's choice on a cluster, and its time.
    Cluster(Box<ClusterQuestion>),
    /// The named clusters.
    KnownClusters,
    /// The hangs that ship.
    Hangs,
    /// The explanation of a kind of finding.
    ExplainKind {
        /// The kind.
        kind: Kind,
    },
    /// Read the model in the attached file and hold it.
    OpenModel {
        /// The session.
        session: SessionId,
    },
    /// DDP's work on a model.
    Ddp {
        /// The model.
        model: ModelRef,
        /// The question.
        question: Box<DdpQuestion>,
    },
    /// Read the trace in the attachment.
    OpenTrace {
        /// The session.
        session: SessionId,
        /// Its name.
        name: String,
    },
    /// Read the attached files as one recording.
    OpenFiles {
        /// The session.
        session: SessionId,
        /// Paths of the files, in their order.
        paths: Vec<String>,
    },
    /// A line of a file of a session with those around it, read again from the file that was attached.
    LogLines {
        /// The session.
        session: SessionId,
        /// The line that a finding names.
        place: Place,
    },
    /// Read the attached file for another worker, if it is a dump; its bytes come as the attachment.
    ReadDump {
        /// Its name.
        name: String,
    },
    /// Read and prove the schedule in the attached file, and follow it to before a step.
    CheckSchedule {
        /// The step before which it is shown; absent for the one where it goes wrong.
        step: Option<u32>,
    },
    /// Begin a trace whose bytes come piece by piece.
    OpenLive {
        /// The session.
        session: SessionId,
    },
    /// A question about a session that is held.
    About {
        /// The session.
        session: SessionId,
        /// The question.
        question: SessionQuestion,
    },
    /// Forget a session.
    Close {
        /// The session.
        session: SessionId,
    },
    /// The trace of a plan without holding it, in the attachment; on the network that the plan's
    /// nodes ask for, if no machine is given.
    TraceOf {
        /// The plan as JSON.
        plan_json: String,
        /// The machine.
        machine: Option<Machine>,
    },
    /// Try the repair of a recording's first finding, and hold the simulation of the repaired job; its plan comes as
    /// JSON in the attachment.
    Repair {
        /// The session.
        session: SessionId,
        /// The session of the repaired job.
        repaired: SessionId,
    },
    /// Simulate the job of a trace as it is and with a change, and hold the changed one.
    WhatIf {
        /// The session.
        session: SessionId,
        /// The session of the changed job.
        changed: SessionId,
        /// The change.
        change: Box<JobChange>,
    },
    /// A comparison of the ends of two sessions of one plan, value by value.
    Compare {
        /// The session of the simulation, or of another run.
        simulated: SessionId,
        /// The session of the run.
        run: SessionId,
    },
}

/// The answer to a question that was given up on.
pub const CANCELLED: &str = "cancelled";

impl SessionQuestion {
    /// The question as a request of the page.
    pub fn about(self, session: SessionId) -> Request {
        Request::About { session, question: self }
    }
}
