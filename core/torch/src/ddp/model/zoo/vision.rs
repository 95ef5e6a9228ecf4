//! torchvision's ResNets, VGG-16 and ViT-B/16, for images of 224 x 224.

use super::super::Model;
use super::super::architecture::Architecture;
use lockstep_core::dtype::Dtype;

/// A ResNet's block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    /// Two 3 x 3 convolutions.
    Basic,
    /// 1 x 1, 3 x 3, 1 x 1 with four times the channels.
    Bottleneck,
}

/// `torchvision.models.resnet*` (`resnet.py`).
pub(super) fn resnet(name: &str, block: Block, blocks: [u64; 4]) -> Model {
    let mut model = Architecture::new(name, Dtype::Float32);
    conv_and_norm(&mut model, ["conv1", "bn1"], [3, 64, 7], 112, 2);
    let mut channels = 64;
    for (stage, &count) in blocks.iter().enumerate() {
        let planes = 64 << stage;
        for index in 0..count {
            let stride = if stage > 0 && index == 0 { 2 } else { 1 };
            let name = format!("layer{}.{index}", stage + 1);
            let side = 56 >> stage;
            channels = residual(&mut model, &name, block, [channels, planes], side, stride);
        }
    }
    let head = model.linear("fc", [channels, 1000], true, 1);
    model.run(head);
    model.finish()
}

fn residual(
    model: &mut Architecture,
    name: &str,
    block: Block,
    [input, planes]: [u64; 2],
    side: u64,
    stride: u64,
) -> u64 {
    let output = if block == Block::Basic { planes } else { 4 * planes };
    // (input, output, kernel, stride, side of its output)
    let convolutions = match block {
        Block::Basic => {
            vec![([input, planes, 3], stride, side), ([planes, planes, 3], 1, side)]
        }
        // torchvision strides in the 3 x 3 (ResNet v1.5).
        Block::Bottleneck => vec![
            ([input, planes, 1], 1, side * stride),
            ([planes, planes, 3], stride, side),
            ([planes, output, 1], 1, side),
        ],
    };
    for (index, (sizes, stride, side)) in convolutions.into_iter().enumerate() {
        let names = [format!("{name}.conv{}", index + 1), format!("{name}.bn{}", index + 1)];
        conv_and_norm(model, [&names[0], &names[1]], sizes, side, stride);
    }
    if stride != 1 || input != output {
        let names = [format!("{name}.downsample.0"), format!("{name}.downsample.1")];
        conv_and_norm(model, [&names[0], &names[1]], [input, output, 1], side, stride);
    }
    output
}

fn conv_and_norm(
    model: &mut Architecture,
    [conv, norm]: [&str; 2],
    sizes: [u64; 3],
    side: u64,
    stride: u64,
) {
    let layer = model.conv(conv, sizes, side, stride, false);
    model.run(layer);
    let layer = model.batch_norm(norm, sizes[1], side);
    model.run(layer);
}

/// `torchvision.models.vgg16` (`vgg.py`, configuration D).
pub(super) fn vgg16() -> Model {
    let mut model = Architecture::new("vgg16", Dtype::Float32);
    let (mut index, mut channels, mut side) = (0, 3, 224);
    for (width, convolutions) in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)] {
        for _ in 0..convolutions {
            let name = format!("features.{index}");
            let layer = model.conv(&name, [channels, width, 3], side, 1, true);
            model.run(layer);
            channels = width;
            // The convolution and its ReLU.
            index += 2;
        }
        // The pooling.
        index += 1;
        side /= 2;
    }
    for (index, sizes) in [(0, [25088, 4096]), (3, [4096, 4096]), (6, [4096, 1000])] {
        let layer = model.linear(&format!("classifier.{index}"), sizes, true, 1);
        model.run(layer);
    }
    model.finish()
}

/// `torchvision.models.vit_b_16` (`vision_transformer.py`).
pub(super) fn vit_b_16() -> Model {
    let (width, patches) = (768, 14);
    let tokens = patches * patches + 1;
    let mut model = Architecture::new("vit_b_16", Dtype::Float32);
    let class = model.param("class_token".into(), &[1, 1, width]);
    let conv = model.conv("conv_proj", [3, width, 16], patches, 16, true);
    model.run(conv);
    let class = model.free("class_token", class, width);
    model.run(class);
    let position = model.param("encoder.pos_embedding".into(), &[1, tokens, width]);
    let position = model.free("encoder.pos_embedding", position, 2 * tokens * width);
    model.run(position);
    for index in 0..12 {
        let name = format!("encoder.layers.encoder_layer_{index}");
        let attention = format!("{name}.self_attention");
        let norm = model.norm(&format!("{name}.ln_1"), width, tokens * width);
        model.run(norm);
        let projection =
            model.packed_linear(&format!("{attention}.in_proj"), [width, 3 * width], tokens);
        model.run(projection);
        let product = model.attention(&attention, tokens, width);
        model.run(product);
        let out = model.linear(&format!("{attention}.out_proj"), [width, width], true, tokens);
        model.run(out);
        let norm = model.norm(&format!("{name}.ln_2"), width, tokens * width);
        model.run(norm);
        for (part, sizes) in [(0, [width, 4 * width]), (3, [4 * width, width])] {
            let layer = model.linear(&format!("{name}.mlp.{part}"), sizes, true, tokens);
            model.run(layer);
        }
    }
    let norm = model.norm("encoder.ln", width, tokens * width);
    model.run(norm);
    let head = model.linear("heads.head", [width, 1000], true, 1);
    model.run(head);
    model.finish()
}
