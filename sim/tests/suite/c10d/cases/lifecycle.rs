//! The default group: before it is there, made, and gone.

use super::*;

pub(super) fn before_and_after() -> Vec<Case> {
    vec![
        case("all_reduce_before_init", |dist| {
            let x = tensor(dist, "x", 2);
            dist.all_reduce(&x, Reduction::default()).map(nothing)
        }),
        case("get_rank_before_init", |dist| dist.get_rank(None).map(nothing)),
        case("get_world_size_before_init", |dist| dist.get_world_size(None).map(nothing)),
        case("barrier_before_init", |dist| dist.barrier(InGroup::default()).map(nothing)),
        case("new_group_before_init", |dist| {
            dist.new_group(Some(&[0]), &NewGroup::default()).map(nothing)
        }),
        case("destroy_before_init", |dist| dist.destroy_process_group(None).map(nothing)),
        case("send_before_init", |dist| {
            let x = tensor(dist, "x", 2);
            dist.send(&x, SendTo::dst(0)).map(nothing)
        }),
        case("init_twice", |dist| {
            gloo(dist)?;
            gloo(dist).map(nothing)
        }),
        case("all_reduce_after_destroy", |dist| {
            gloo(dist)?;
            dist.destroy_process_group(None)?;
            let x = tensor(dist, "x", 2);
            dist.all_reduce(&x, Reduction::default()).map(nothing)
        }),
        case("reinit_after_destroy", |dist| {
            gloo(dist)?;
            dist.destroy_process_group(None)?;
            gloo(dist)?;
            let mine = rank(dist) as i32 + 1;
            let x = ints(dist, "x", &[mine]);
            dist.all_reduce(&x, Reduction::default())?;
            Ok(Out::Tensor(x))
        }),
        case("use_group_after_destroy", |dist| {
            gloo(dist)?;
            let group = dist.new_group(Some(&[0, 1]), &NewGroup::default())?;
            dist.destroy_process_group(group)?;
            let x = floats(dist, "x", &[1.0]);
            dist.all_reduce(&x, in_group(group))?;
            Ok(Out::Tensor(x))
        }),
        case("get_rank_of_destroyed_group", |dist| {
            gloo(dist)?;
            let group = dist.new_group(Some(&[0, 1]), &NewGroup::default())?;
            dist.destroy_process_group(group)?;
            dist.get_rank(group).map(nothing)
        }),
        case("sub_group_destroy_then_world_ok", |dist| {
            gloo(dist)?;
            let group = dist.new_group(Some(&[0, 1]), &NewGroup::default())?;
            dist.destroy_process_group(group)?;
            let x = ints(dist, "x", &[1]);
            dist.all_reduce(&x, Reduction::default())?;
            Ok(Out::Tensor(x))
        }),
    ]
}

pub(super) fn init() -> Vec<Case> {
    fn tcp(rank: i64, world_size: i64, port: u16) -> InitProcessGroup {
        InitProcessGroup {
            init_method: Some(format!("tcp://127.0.0.1:{port}")),
            timeout_ms: Some(3000.into()),
            rank,
            world_size,
            ..InitProcessGroup::from("gloo")
        }
    }
    fn stored(rank: i64, world_size: i64) -> InitProcessGroup {
        InitProcessGroup { store: true, rank, world_size, ..InitProcessGroup::from("gloo") }
    }
    vec![
        case("init_mpi_not_built", |dist| {
            let options = InitProcessGroup { rank: 0, world_size: 1, .."mpi".into() };
            let raised = dist.init_process_group(options);
            assert_eq!(
                dist.warnings(),
                [
                    "For MPI backend, world_size (1) and rank (0) are ignored since they are assigned \
                  by the MPI runtime."
                ]
            );
            raised.map(nothing)
        }),
        case("init_nccl_without_gpu", |dist| dist.init_process_group("nccl").map(nothing)),
        with(
            "init_env_missing_rank",
            |job| {
                job.environment("RANK", None);
            },
            |dist| dist.init_process_group("gloo").map(nothing),
        ),
        with(
            "init_env_missing_master_addr",
            |job| {
                job.environment("MASTER_ADDR", None);
            },
            |dist| dist.init_process_group("gloo").map(nothing),
        ),
        with(
            "init_env_missing_master_port",
            |job| {
                job.environment("MASTER_PORT", None);
            },
            |dist| dist.init_process_group("gloo").map(nothing),
        ),
        case("init_tcp_missing_rank", |dist| {
            dist.init_process_group(tcp(-1, 1, 29500)).map(nothing)
        }),
        case("init_bad_scheme", |dist| {
            let init_method = Some("foo://bar".into());
            let options = InitProcessGroup { init_method, rank: 0, world_size: 1, ..tcp(0, 1, 1) };
            dist.init_process_group(options).map(nothing)
        }),
        case("init_rank_ge_world_size", |dist| {
            dist.init_process_group(tcp(5, 2, 29991)).map(nothing)
        }),
        // -1 means that it was not given, so a negative rank is another.
        case("init_negative_rank", |dist| dist.init_process_group(tcp(-2, 2, 29992)).map(nothing)),
        case("init_store_and_init_method", |dist| {
            let init_method = Some("env://".into());
            dist.init_process_group(InitProcessGroup { init_method, ..stored(0, 1) }).map(nothing)
        }),
        case("init_store_without_world_size", |dist| {
            dist.init_process_group(stored(0, -1)).map(nothing)
        }),
        case("init_bad_timeout_type", |dist| {
            let timeout_ms = Some(Arg::not("int", "5"));
            dist.init_process_group(InitProcessGroup { timeout_ms, ..stored(0, 1) }).map(nothing)
        }),
        case("init_peer_missing_rank1_alone", |dist| {
            dist.init_process_group(tcp(1, 2, 29995)).map(nothing)
        }),
    ]
}
