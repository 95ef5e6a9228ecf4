//! The options of `lockstep record`.

use crate::output_file::Overwrite;
use std::path::PathBuf;

/// Have your own PyTorch run a training script as every rank of a job, without GPUs, and write its plan
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The script and its arguments, behind `--`: `train.py --epochs 1`, `-m package.train`, or the whole
    /// `torchrun … train.py`
    #[arg(value_name = "SCRIPT", last = true, required_unless_present = "print_recorder")]
    pub(super) script: Vec<String>,
    /// The number of ranks; torchrun's --nnodes and --nproc-per-node say it as well
    #[arg(short = 'n', long, value_name = "RANKS")]
    pub(super) world_size: Option<u32>,
    /// Ranks a node; all on one node if absent
    #[arg(long, value_name = "RANKS")]
    pub(super) ranks_per_node: Option<u32>,
    /// The ranks that are recorded: all, or one of each role, which is copied to the others of the role. `roles`
    /// is for large worlds: ranks with the same place in all process groups but the data-parallel ones play a role
    #[arg(long, value_enum, default_value_t = Recorded::All)]
    pub(super) ranks: Recorded,
    /// End each rank after so many optimizer steps
    #[arg(long, value_name = "STEPS")]
    pub(super) steps: Option<u32>,
    /// The card on which the work between calls is timed (v100, a100, h100, h200, b200, mi300x, rtx4090, cpu), or
    /// `measured` for the times on this machine
    #[arg(long, value_name = "CARD", default_value = "h100")]
    pub(super) card: String,
    /// Let `torch.cuda` say what is true here, instead of one GPU a rank
    #[arg(long)]
    pub(super) no_cuda: bool,
    /// Let large matrix products and convolutions be zeros, so that a model for GPUs is recorded in seconds
    #[arg(long)]
    pub(super) no_math: bool,
    /// Let large float tensors have shapes and no values, so that a model larger than this machine's memory is
    /// recorded
    #[arg(long)]
    pub(super) no_memory: bool,
    /// Let torchvision's data sets be random images of the same shape, and pretrained weights the initial ones, so
    /// that nothing is downloaded
    #[arg(long)]
    pub(super) random_data: bool,
    /// The Python that has torch; LOCKSTEP_PYTHON, else python3
    #[arg(long, value_name = "PATH")]
    pub(super) python: Option<PathBuf>,
    /// End the recording when no rank makes a call for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(super) patience: u64,
    /// Where the plan goes; SCRIPT.plan.json in this folder if absent
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) overwrite: Overwrite,
    /// Keep what the recorder noted as well: a line `{"rank", "event"}` an event, rank by rank
    #[arg(long, value_name = "FILE", hide = true)]
    pub(super) notes: Option<PathBuf>,
    /// End with the process that has started this one
    #[arg(long, hide = true)]
    pub(super) with_parent: bool,
    /// Print JSON: the schema lockstep.record/1
    #[arg(long)]
    pub(super) json: bool,
    /// Print the Python file that records, and do nothing else
    #[arg(long)]
    pub(super) print_recorder: bool,
}

/// The ranks that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Recorded {
    All,
    Roles,
}
