//! Works: the results of asynchronous calls.

use super::backends::ANY;
use super::entry::Entry;
use lockstep_core::plan::WorkQuery;
use lockstep_torch::c10d::{Device, Reduction};

pub(super) const CALLS: [Entry; 1] = [
    // Enough that the communication outlasts the computation beside it.
    call!(
        "async_op",
        "An asynchronous all_reduce with computation beside it, its work asked, waited for and \
         asked again.",
        ANY,
        1,
        "tensor = torch.arange({count}, dtype={dtype}{device}) + rank * {count}\n\
         work = dist.all_reduce(tensor, op={op}, async_op=True)\n\
         work.is_completed()\n\
         loss = model(batch)\n\
         work.wait()\n\
         update = optimizer(tensor)\n\
         {is_success}\
         work.exception(), work.get_future().done()\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let options = Reduction { async_op: true, ..s.options.op.into() };
            let Some(work) = s.on("all_reduce(").all_reduce(&tensor, options)? else {
                return Ok(());
            };
            s.on("is_completed(").query(work, WorkQuery::IsCompleted)?;
            s.on("model(").compute("model(batch)", 20_000);
            s.on("work.wait(").wait(work, None)?;
            s.on("optimizer(").compute("optimizer(tensor)", 10_000);
            if s.device() == Device::Cpu {
                s.on("is_success(").query(work, WorkQuery::IsSuccess)?;
            }
            for what in [WorkQuery::Exception, WorkQuery::FutureDone] {
                s.on("exception(").query(work, what)?;
            }
            Ok(())
        }
    )
    .of_elements(1 << 16),
];
