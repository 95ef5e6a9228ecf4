//! Calls on objects: the pickled size travels first.

#![allow(clippy::too_many_arguments, reason = "PyTorch's arguments")]

use super::super::arguments as take;
use super::super::process::{process, refused};
use super::collectives::{from_rank, to_rank};
use crate::c10d::{RecvFrom, SendTo};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;

#[starlark_module]
pub(super) fn functions(builder: &mut GlobalsBuilder) {
    fn all_gather_object<'v>(
        object_list: Value<'v>,
        obj: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let (length, object) = (
            take::items(object_list)
                .ok_or_else(|| take::type_error("object_list is no list"))?
                .len(),
            take::object(obj),
        );
        let group = take::group(group)?;
        process(eval)?.dist()?.all_gather_object(length, &object, group).map_err(refused)?;
        Ok(NoneType)
    }

    fn gather_object<'v>(
        obj: Value<'v>,
        #[starlark(default = NoneType)] object_gather_list: Value<'v>,
        #[starlark(default = NoneType)] dst: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = NoneType)] group_dst: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let options = to_rank(dst, group, false, group_dst)?;
        let length = take::items(object_gather_list).map(|list| list.len());
        let object = take::object(obj);
        process(eval)?.dist()?.gather_object(&object, length, options).map_err(refused)?;
        Ok(NoneType)
    }

    fn broadcast_object_list<'v>(
        object_list: Value<'v>,
        #[starlark(default = NoneType)] src: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(default = NoneType)] group_src: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let _ = device;
        let options = from_rank(src, group, false, group_src)?;
        let objects = take::objects(object_list, "object_list")?;
        process(eval)?.dist()?.broadcast_object_list(&objects, options).map_err(refused)?;
        Ok(NoneType)
    }

    fn scatter_object_list<'v>(
        scatter_object_output_list: Value<'v>,
        #[starlark(default = NoneType)] scatter_object_input_list: Value<'v>,
        #[starlark(default = NoneType)] src: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = NoneType)] group_src: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let options = from_rank(src, group, false, group_src)?;
        let length = take::items(scatter_object_output_list)
            .ok_or_else(|| take::type_error("scatter_object_output_list is no list"))?
            .len();
        let objects = match scatter_object_input_list {
            none if none.is_none() => None,
            list => Some(take::objects(list, "scatter_object_input_list")?),
        };
        let dist = process(eval)?.dist()?;
        dist.scatter_object_list(length, objects.as_deref(), options).map_err(refused)?;
        Ok(NoneType)
    }

    fn send_object_list<'v>(
        object_list: Value<'v>,
        #[starlark(default = NoneType)] dst: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(default = NoneType)] group_dst: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let _ = device;
        let tag = 0;
        let to = SendTo {
            dst: take::whole_or_none(dst, "dst")?,
            group_dst: take::whole_or_none(group_dst, "group_dst")?,
            group: take::group(group)?,
            tag,
        };
        let objects = take::objects(object_list, "object_list")?;
        process(eval)?.dist()?.send_object_list(&objects, to).map_err(refused)?;
        Ok(NoneType)
    }

    fn recv_object_list<'v>(
        object_list: Value<'v>,
        #[starlark(default = NoneType)] src: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(default = NoneType)] group_src: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = device;
        let tag = 0;
        let from = RecvFrom {
            src: take::whole_or_none(src, "src")?,
            group_src: take::whole_or_none(group_src, "group_src")?,
            group: take::group(group)?,
            tag,
        };
        let length = take::items(object_list)
            .ok_or_else(|| take::type_error("object_list is no list"))?
            .len();
        let source = process(eval)?.dist()?.recv_object_list(length, from).map_err(refused)?;
        super::p2p::received(source, eval)
    }
}
