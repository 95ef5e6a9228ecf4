//! Point-to-point calls.

use super::*;

pub(super) fn p2p() -> Vec<Case> {
    vec![
        case("send_to_self", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 2);
            dist.send(&x, SendTo::dst(i64::from(rank(dist)))).map(nothing)
        }),
        case("isend_to_self", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 2);
            dist.isend(&x, SendTo::dst(i64::from(rank(dist)))).map(nothing)
        }),
        case("recv_from_self", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 2);
            dist.recv(&x, RecvFrom::src(i64::from(rank(dist)))).map(nothing)
        }),
        case("send_to_negative", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 2);
            dist.send(&x, SendTo::dst(-1)).map(nothing)
        }),
        case("recv_from_too_large", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 2);
            dist.recv(&x, RecvFrom::src(7)).map(nothing)
        }),
        case("send_non_contiguous", |dist| {
            gloo(dist)?;
            let x = dist.tensor("x", Float32, [2, 2], Fill::Rank);
            match rank(dist) {
                0 => dist.send(x.non_contiguous(), SendTo::dst(1)).map(nothing),
                _ => dist.recv(&x, RecvFrom::src(0)).map(nothing),
            }
        }),
        case("batch_isend_irecv_empty", |dist| {
            gloo(dist)?;
            dist.batch_isend_irecv(Vec::<P2POp>::new()).map(nothing)
        }),
        case("batch_isend_irecv_not_p2pop", |dist| {
            gloo(dist)?;
            dist.batch_isend_irecv([Arg::<P2POp>::not("int", "1")]).map(nothing)
        }),
        case("p2pop_bad_op", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 2);
            let op = Arg::<P2pKind>::not("function", "<function all_reduce>");
            dist.p2p_op(op, &x, Some(1), None, 0, None).map(nothing)
        }),
        case("p2pop_no_peer", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 2);
            dist.p2p_op(P2pKind::Isend, &x, None, None, 0, None).map(nothing)
        }),
        case("recv_tag_mismatch", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 2);
            match rank(dist) {
                0 => dist.send(&x, SendTo { tag: 1, ..SendTo::dst(1) }).map(nothing),
                _ => dist.recv(&x, RecvFrom { tag: 2, ..RecvFrom::src(0) }).map(nothing),
            }
        }),
        case("send_never_received_small", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 1);
            if rank(dist) == 0 {
                dist.send(&x, SendTo::dst(1))?;
            }
            Ok(Out::Nothing)
        }),
        case("send_never_received_large", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 100_000);
            if rank(dist) == 0 {
                dist.send(&x, SendTo::dst(1))?;
            }
            Ok(Out::Nothing)
        }),
        case("both_send_first_large", |dist| {
            gloo(dist)?;
            let peer = i64::from(1 - rank(dist));
            let (mine, theirs) = (tensor(dist, "mine", 1 << 16), tensor(dist, "theirs", 1 << 16));
            dist.send(&mine, SendTo::dst(peer))?;
            dist.recv(&theirs, RecvFrom::src(peer)).map(nothing)
        }),
        case("recv_into_wrong_shape_same_numel", |dist| {
            gloo(dist)?;
            let x = dist.tensor("x", Float32, 6, Fill::Iota);
            if rank(dist) == 0 {
                dist.send(&x, SendTo::dst(1))?;
                return Ok(Out::Nothing);
            }
            let into = dist.tensor("into", Float32, [2, 3], Fill::Zeros);
            dist.recv(&into, RecvFrom::src(0))?;
            Ok(Out::Tensor(into))
        }),
        case("messages_same_tag_keep_order", |dist| {
            gloo(dist)?;
            let from = dist.tensor("from", Float32, 5, Fill::Iota);
            let into = dist.tensor("into", Float32, 5, Fill::Zeros);
            for i in 0..5 {
                match rank(dist) {
                    0 => dist.send(from.narrow(i, 1), SendTo::dst(1))?,
                    _ => {
                        dist.recv(into.narrow(i, 1), RecvFrom::src(0))?;
                    }
                }
            }
            Ok(if rank(dist) == 1 { Out::Tensor(into) } else { Out::Nothing })
        }),
        case("recv_any_source_in_group_returns_global_rank", |dist| {
            gloo(dist)?;
            let group = dist.new_group(Some(&[1, 2]), &NewGroup::default())?;
            let x = tensor(dist, "x", 1);
            match rank(dist) {
                2 => dist.send(&x, SendTo { group, ..SendTo::dst(1) })?,
                1 => {
                    let source = dist.recv(&x, RecvFrom { group, ..RecvFrom::default() })?;
                    assert_eq!(source, Source::Rank(2), "there is nobody else in it");
                }
                _ => {}
            }
            Ok(Out::Nothing)
        }),
    ]
}
