//! The example of the crate's documentation.
use lockstep_program::compile;
use lockstep_scenarios::program::{Options, ProgramError};

const TEXT: &str = r#"
import torch.distributed as dist

def main():
    dist.init_process_group("gloo")
    grad = tensor(1024, fill = dist.get_rank())
    if dist.get_rank() != 2:       # the bug
        dist.all_reduce(grad)

run(main, world_size = 4)
"#;

#[test]
fn a_text_becomes_a_plan_of_four_ranks() -> Result<(), ProgramError> {
    let compiled = compile("train.py", TEXT, &Options::default())?;
    assert_eq!(compiled.plan.world_size, 4);
    // Rank 2 has a program of its own.
    assert_eq!(compiled.plan.programs.len(), 2);
    Ok(())
}
