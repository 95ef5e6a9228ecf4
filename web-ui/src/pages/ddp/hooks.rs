//! Communication hooks and their wrappers, by the words that addresses, PyTorch and the command line
//! have for them.

use crate::route::Route;

/// Communication hooks: the word in the address, and what it is.
pub(super) const HOOKS: [(&str, &str); 10] = [
    ("none", "none"),
    ("allreduce", "allreduce_hook"),
    ("fp16", "fp16_compress_hook"),
    ("bf16", "bf16_compress_hook"),
    ("powersgd", "powerSGD_hook"),
    ("batched", "batched_powerSGD_hook"),
    ("pertensor", "quantization_pertensor_hook"),
    ("perchannel", "quantization_perchannel_hook"),
    ("localsgd", "post_localSGD_hook"),
    ("noop", "noop_hook"),
];

/// The names of `lockstep ddp --comm-hook`, where an address has another word.
const ON_THE_COMMAND_LINE: [(&str, &str); 7] = [
    ("fp16", "fp16-compress"),
    ("bf16", "bf16-compress"),
    ("powersgd", "power-sgd"),
    ("batched", "batched-power-sgd"),
    ("pertensor", "quantization-pertensor"),
    ("perchannel", "quantization-perchannel"),
    ("localsgd", "post-local-sgd"),
];

/// Wrappers that cast a hook's buckets first: the word in the address, and what it is.
pub(super) const WRAPPERS: [(&str, &str); 3] =
    [("no", "no"), ("float16", "fp16_compress_wrapper"), ("bfloat16", "bf16_compress_wrapper")];

/// The address with the hook by the word that addresses have for it, where it says it in PyTorch's
/// name or the command line's.
pub(super) fn by_its_word(route: &Route) -> Route {
    let said = route.get("hook").unwrap_or_default();
    let word = HOOKS.iter().chain(&ON_THE_COMMAND_LINE).find(|(_, name)| *name == said);
    word.map_or_else(|| route.clone(), |(word, _)| route.clone().with("hook", word))
}
