//! transformers' Llama (`modeling_llama.py`), in bfloat16, for sequences of 2,048 tokens.

use super::super::Model;
use super::super::architecture::Architecture;
use lockstep_core::dtype::Dtype;

const TOKENS: u64 = 2048;
const VOCABULARY: u64 = 128_256;

struct Sizes {
    layers: u64,
    width: u64,
    heads: u64,
    key_value_heads: u64,
    intermediate: u64,
    tied: bool,
}

/// Llama 3.2 1B.
pub(super) fn llama_1b() -> Model {
    let (layers, width, heads, intermediate) = (16, 2048, 32, 8192);
    llama(
        "llama3.2-1b",
        Sizes { layers, width, heads, key_value_heads: 8, intermediate, tied: true },
    )
}

/// Llama 3 8B.
pub(super) fn llama_8b() -> Model {
    let (layers, width, heads, intermediate) = (32, 4096, 32, 14336);
    llama(
        "llama3-8b",
        Sizes { layers, width, heads, key_value_heads: 8, intermediate, tied: false },
    )
}

fn llama(name: &str, sizes: Sizes) -> Model {
    let Sizes { width, intermediate, .. } = sizes;
    let head_width = width / sizes.heads;
    let shared_width = head_width * sizes.key_value_heads;
    let mut model = Architecture::new(name, Dtype::Bfloat16);
    let words = model.embedding("model.embed_tokens", [VOCABULARY, width], TOKENS);
    let table = words.params[0];
    model.run(words);
    for index in 0..sizes.layers {
        let name = format!("model.layers.{index}");
        let mut linear =
            |part: &str, sizes| model.linear(&format!("{name}.{part}"), sizes, false, TOKENS);
        let query = linear("self_attn.q_proj", [width, width]);
        let key = linear("self_attn.k_proj", [width, shared_width]);
        let value = linear("self_attn.v_proj", [width, shared_width]);
        let out = linear("self_attn.o_proj", [width, width]);
        let gate = linear("mlp.gate_proj", [width, intermediate]);
        let up = linear("mlp.up_proj", [width, intermediate]);
        let down = linear("mlp.down_proj", [intermediate, width]);
        let before = model.rms_norm(&format!("{name}.input_layernorm"), width, TOKENS);
        let after = model.rms_norm(&format!("{name}.post_attention_layernorm"), width, TOKENS);
        let product = model.attention(&format!("{name}.self_attn"), TOKENS, width);
        // Registered one way, run another.
        for layer in [before, query, key, value, product, out, after, gate, up, down] {
            model.run(layer);
        }
    }
    let norm = model.rms_norm("model.norm", width, TOKENS);
    model.run(norm);
    model.buffer("model.rotary_emb.inv_freq".into(), &[head_width / 2], Dtype::Float32);
    let head = match sizes.tied {
        true => {
            model.tie("lm_head.weight", "model.embed_tokens.weight");
            model.linear_of("lm_head", table, [width, VOCABULARY], false, TOKENS)
        }
        false => model.linear("lm_head", [width, VOCABULARY], false, TOKENS),
    };
    model.run(head);
    model.finish()
}
