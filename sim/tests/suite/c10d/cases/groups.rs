//! Process groups.

use super::*;

pub(super) fn groups() -> Vec<Case> {
    [made(), called_through(), subgroups()].into_iter().flatten().collect()
}

/// Groups that `new_group` makes, and refuses to make.
fn made() -> Vec<Case> {
    let new = |name, script| case(name, script);
    vec![
        new("new_group_rank_negative", |dist| {
            gloo(dist)?;
            dist.new_group(Some(&[-1, 0]), &NewGroup::default()).map(nothing)
        }),
        new("new_group_too_many_ranks", |dist| {
            gloo(dist)?;
            dist.new_group(Some(&[0, 1, 2, 3]), &NewGroup::default()).map(nothing)
        }),
        Case {
            expect: Expect::WeRefuse {
                why: "a group that lists a rank twice can never be connected; PyTorch hangs",
            },
            ..case("new_group_duplicate_ranks", |dist| {
                gloo(dist)?;
                dist.new_group(Some(&[0, 0, 1]), &NewGroup::default()).map(nothing)
            })
        },
        new("new_group_unsorted", |dist| {
            gloo(dist)?;
            let group = dist.new_group(Some(&[2, 0]), &NewGroup::default())?.unwrap();
            let me = dist.get_rank(Some(group))?;
            let ranks = dist.get_process_group_ranks(group)?;
            let ranks: Vec<u32> = ranks.iter().map(|rank| rank.0).collect();
            json(match group {
                Group::Member(_) => json!([me, ranks]),
                Group::NonMember => json!([me, null]),
            })
        }),
        new("new_group_none_is_world", |dist| {
            gloo(dist)?;
            let group = dist.new_group(None, &NewGroup::default())?;
            let ranks = dist.get_process_group_ranks(group.unwrap())?;
            let ranks: Vec<u32> = ranks.iter().map(|rank| rank.0).collect();
            json(json!([dist.get_rank(group)?, dist.get_world_size(group)?, ranks]))
        }),
        new("new_group_bad_backend", |dist| {
            gloo(dist)?;
            let options = NewGroup { backend: Some("foo".into()), ..NewGroup::default() };
            let made = dist.new_group(Some(&[0, 1]), &options);
            let warned = dist.warnings().iter().any(|warning| {
                warning
                    == "Device capability of foo unknown, assuming `cpu` and `cuda`. You can \
                        specify it in `device:backend` format in `init_process_group` call."
            });
            assert_eq!(warned, rank(dist) != 2);
            made.map(nothing)
        }),
        new("new_group_local_sync", |dist| {
            gloo(dist)?;
            if rank(dist) == 2 {
                return Ok(Out::Nothing);
            }
            let options = NewGroup { use_local_synchronization: true, ..NewGroup::default() };
            let group = dist.new_group(Some(&[0, 1]), &options)?;
            json(json!([dist.get_world_size(group)?]))
        }),
        new("new_group_different_ranks_arguments", |dist| {
            gloo(dist)?;
            // Every rank names itself and the next.
            let me = i64::from(rank(dist));
            dist.new_group(Some(&[me, (me + 1) % 3]), &NewGroup::default()).map(nothing)
        }),
        differs(
            "new_group_order_swapped",
            &[0, 1, 2, 3],
            "the swapped groups have one name and other members, so nobody connects; in the \
             recording two of the ranks found each other by chance",
            |dist| {
                gloo(dist)?;
                let pairs = [[0, 1], [2, 3]];
                let order = if rank(dist) == 0 || rank(dist) == 2 { [0, 1] } else { [1, 0] };
                let mut mine = None;
                for index in order {
                    let made = dist.new_group(Some(&pairs[index]), &NewGroup::default())?;
                    mine = mine.or(made.filter(|group| *group != Group::NonMember));
                }
                let x = tensor(dist, "x", 1);
                dist.all_reduce(&x, in_group(mine)).map(nothing)
            },
        ),
    ]
}

/// Calls of a group's members and of others, and questions about its ranks.
fn called_through() -> Vec<Case> {
    let new = |name, script| case(name, script);
    vec![
        new("non_member_all_reduce", |dist| {
            let group = pair(dist)?;
            let x = ints(dist, "x", &[1]);
            let work = dist.all_reduce(&x, in_group(group))?;
            assert_eq!(work, None);
            let warned = "Running all_reduce on global rank 2 which does not belong to the given \
                          group.";
            assert_eq!(dist.warnings().contains(&warned.to_owned()), rank(dist) == 2);
            let x = match rank(dist) {
                2 => Out::Json(json!([1])), // no call of its own has used it
                _ => Out::Tensor(x),
            };
            Ok(Out::List(vec![x, Out::Json("None".into())]))
        }),
        new("non_member_all_reduce_async", |dist| {
            let group = pair(dist)?;
            let x = tensor(dist, "x", 1);
            let options = Reduction { async_op: true, ..in_group(group) };
            json(match dist.all_reduce(&x, options)? {
                Some(work) => {
                    dist.wait(work, None)?;
                    "ok"
                }
                None => "None",
            })
        }),
        new("non_member_get_process_group_ranks", |dist| {
            let group = pair(dist)?.unwrap();
            let ranks = dist.get_process_group_ranks(group)?;
            json(ranks.iter().map(|rank| rank.0).collect::<Vec<u32>>())
        }),
        new("broadcast_group_src", |dist| {
            gloo(dist)?;
            let group = dist.new_group(Some(&[1, 2]), &NewGroup::default())?;
            if rank(dist) == 0 {
                return Ok(Out::Nothing);
            }
            let mine = 10 * rank(dist) as i32;
            let x = ints(dist, "x", &[mine]);
            let from = FromRank { group_src: Some(1), group, ..FromRank::default() };
            dist.broadcast(&x, from)?;
            Ok(Out::Tensor(x))
        }),
        new("broadcast_src_and_group_src", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 1);
            let from = FromRank { group_src: Some(0), ..FromRank::src(0) };
            dist.broadcast(&x, from).map(nothing)
        }),
        new("reduce_dst_not_in_group", |dist| {
            let group = pair(dist)?;
            let x = tensor(dist, "x", 1);
            if rank(dist) == 2 {
                return Ok(Out::Nothing);
            }
            dist.reduce(&x, ToRank { group, ..ToRank::dst(2) }, ReduceOp::Sum).map(nothing)
        }),
        new("get_group_rank_not_member", |dist| {
            let group = pair(dist)?.unwrap();
            if rank(dist) == 2 {
                return Ok(Out::Nothing);
            }
            dist.get_group_rank(group, 2).map(nothing)
        }),
        new("get_global_rank_bad", |dist| {
            let group = pair(dist)?.unwrap();
            if rank(dist) == 2 {
                return Ok(Out::Nothing);
            }
            dist.get_global_rank(group, 5).map(nothing)
        }),
        // What the recording passed instead of a group is not written down; a group that is not in
        // PyTorch's table is asked the same way.
        new("group_is_not_a_process_group", |dist| {
            gloo(dist)?;
            let group = dist.new_group(None, &NewGroup::default())?;
            dist.destroy_process_group(group)?;
            dist.get_backend(group).map(nothing)
        }),
    ]
}

/// `new_subgroups`, `split_group`, and the names of groups.
fn subgroups() -> Vec<Case> {
    let new = |name, script| case(name, script);
    vec![
        new("new_subgroups_ok", |dist| {
            gloo(dist)?;
            let (mine, all) = dist.new_subgroups(Some(2), &NewGroup::default())?;
            let own = rank(dist) as i32;
            let x = ints(dist, "x", &[own]);
            dist.all_reduce(&x, in_group(mine))?;
            Ok(Out::List(vec![Out::Tensor(x), Out::Json(all.len().into())]))
        }),
        new("new_subgroups_not_divisible", |dist| {
            gloo(dist)?;
            dist.new_subgroups(Some(3), &NewGroup::default()).map(nothing)
        }),
        new("new_subgroups_zero", |dist| {
            gloo(dist)?;
            dist.new_subgroups(Some(0), &NewGroup::default()).map(nothing)
        }),
        new("new_subgroups_by_enumeration_duplicate", |dist| {
            gloo(dist)?;
            let lists = [vec![0, 1], vec![1, 2]];
            dist.new_subgroups_by_enumeration(&lists, &NewGroup::default()).map(nothing)
        }),
        new("new_subgroups_by_enumeration_empty", |dist| {
            gloo(dist)?;
            dist.new_subgroups_by_enumeration(&[], &NewGroup::default()).map(nothing)
        }),
        new("split_group_on_gloo", |dist| {
            gloo(dist)?;
            dist.split_group(None, Some(&[vec![0], vec![1]]), None, None).map(nothing)
        }),
        new("group_names", |dist| {
            gloo(dist)?;
            let first = dist.new_group(None, &NewGroup::default())?;
            let desc = Some("x".to_owned());
            let options = NewGroup { group_desc: desc, ..NewGroup::default() };
            let second = dist.new_group(None, &options)?;
            json(json!([
                dist.group_name(None)?,
                dist.group_name(first)?,
                dist.group_name(second)?,
                dist.group_desc(second)?,
                dist.get_backend(second)?,
            ]))
        }),
    ]
}
