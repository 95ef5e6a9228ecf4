//! The purposes of a device mesh's dimensions.

/// The traffic along a dimension of a mesh, by the name that people give it.
pub(crate) fn parallelism(name: &str) -> &'static str {
    match name {
        "tp" | "tensor" | "mp" => {
            "Tensor parallel: all_reduce of activations, twice a layer in each direction and always waited for. It belongs inside a node."
        }
        "dp" | "data" | "ddp" | "replicate" | "dp_replicate" => {
            "Data parallel: all_reduce of gradients once a step, hidden behind the backward pass. It may go across."
        }
        "fsdp" | "shard" | "dp_shard" => {
            "Sharded data parallel: all_gather of parameters before each layer, reduce_scatter of gradients after it."
        }
        "pp" | "pipe" | "stage" => {
            "Pipeline: activations sent to the next stage, once a micro-batch. Little data: it goes across first."
        }
        "cp" | "context" => "Context parallel: keys and values passed around a ring in attention.",
        "ep" | "expert" => "Expert parallel: all_to_all of tokens, twice a layer.",
        "sp" | "sequence" => {
            "Sequence parallel: all_gather and reduce_scatter in place of tensor parallel's all_reduce."
        }
        _ => "",
    }
}
