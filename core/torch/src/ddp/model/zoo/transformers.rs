//! transformers' BERT and GPT-2.

use super::super::Model;
use super::super::architecture::Architecture;
use lockstep_core::dtype::Dtype;

/// `BertModel` (`modeling_bert.py`) with its pooler, for sequences of 512 tokens.
pub(super) fn bert(name: &str, layers: u64, width: u64) -> Model {
    let tokens = 512;
    let mut model = Architecture::new(name, Dtype::Float32);
    let word = model.embedding("embeddings.word_embeddings", [30522, width], tokens);
    let position = model.embedding("embeddings.position_embeddings", [512, width], tokens);
    let kind = model.embedding("embeddings.token_type_embeddings", [2, width], tokens);
    model.buffer("embeddings.position_ids".into(), &[1, 512], Dtype::Int64);
    model.buffer("embeddings.token_type_ids".into(), &[1, 512], Dtype::Int64);
    // The forward pass adds the token types to the words, then the positions.
    for layer in [word, kind, position] {
        model.run(layer);
    }
    let norm = model.norm("embeddings.LayerNorm", width, tokens * width);
    model.run(norm);
    for index in 0..layers {
        let name = format!("encoder.layer.{index}");
        for part in ["query", "key", "value"] {
            let name = format!("{name}.attention.self.{part}");
            let layer = model.linear(&name, [width, width], true, tokens);
            model.run(layer);
        }
        let product = model.attention(&format!("{name}.attention.self"), tokens, width);
        model.run(product);
        for (part, sizes, normed) in [
            ("attention.output", [width, width], true),
            ("intermediate", [width, 4 * width], false),
            ("output", [4 * width, width], true),
        ] {
            let layer = model.linear(&format!("{name}.{part}.dense"), sizes, true, tokens);
            model.run(layer);
            if normed {
                let name = format!("{name}.{part}.LayerNorm");
                let norm = model.norm(&name, width, tokens * width);
                model.run(norm);
            }
        }
    }
    let pooler = model.linear("pooler.dense", [width, width], true, 1);
    model.run(pooler);
    model.finish()
}

/// `GPT2LMHeadModel` (`modeling_gpt2.py`), for sequences of 1,024 tokens.
pub(super) fn gpt2(name: &str, layers: u64, width: u64) -> Model {
    let (tokens, vocabulary) = (1024, 50257);
    let mut model = Architecture::new(name, Dtype::Float32);
    let words = model.embedding("transformer.wte", [vocabulary, width], tokens);
    let shared = words.params[0];
    model.run(words);
    let positions = model.embedding("transformer.wpe", [tokens, width], tokens);
    model.run(positions);
    for index in 0..layers {
        let name = format!("transformer.h.{index}");
        let norm = model.norm(&format!("{name}.ln_1"), width, tokens * width);
        model.run(norm);
        let packed = model.conv1d(&format!("{name}.attn.c_attn"), [width, 3 * width], tokens);
        model.run(packed);
        let product = model.attention(&format!("{name}.attn"), tokens, width);
        model.run(product);
        model.buffer(format!("{name}.attn.bias"), &[1, 1, tokens, tokens], Dtype::Bool);
        model.buffer(format!("{name}.attn.masked_bias"), &[], Dtype::Float32);
        let out = model.conv1d(&format!("{name}.attn.c_proj"), [width, width], tokens);
        model.run(out);
        let norm = model.norm(&format!("{name}.ln_2"), width, tokens * width);
        model.run(norm);
        for (part, sizes) in [("c_fc", [width, 4 * width]), ("c_proj", [4 * width, width])] {
            let layer = model.conv1d(&format!("{name}.mlp.{part}"), sizes, tokens);
            model.run(layer);
        }
    }
    let norm = model.norm("transformer.ln_f", width, tokens * width);
    model.run(norm);
    model.tie("lm_head.weight", "transformer.wte.weight");
    let head = model.linear_of("lm_head", shared, [width, vocabulary], false, tokens);
    model.run(head);
    model.finish()
}
