//! Colours with meaning. Chosen to be told apart with any colour vision (after Okabe and Ito
//! 2008); nothing is said by colour alone.

use lockstep_web_protocol::call_kinds::OP_KINDS;

/// The colours of ranks and of the chunks that began with them: fill and the ink upon it.
const RANKS: [(&str, &str); 8] = [
    ("#2f6fbf", "#ffffff"),
    ("#e69f00", "#1a1a1a"),
    ("#098060", "#ffffff"),
    ("#b4478a", "#ffffff"),
    ("#56b4e9", "#10202c"),
    ("#c24e18", "#ffffff"),
    ("#c9b51e", "#1a1a1a"),
    ("#7b62b8", "#ffffff"),
];

/// The fills once more, for pixels.
const RANK_RGB: [[u8; 3]; RANKS.len()] = [
    [0x2f, 0x6f, 0xbf],
    [0xe6, 0x9f, 0x00],
    [0x09, 0x80, 0x60],
    [0xb4, 0x47, 0x8a],
    [0x56, 0xb4, 0xe9],
    [0xc2, 0x4e, 0x18],
    [0xc9, 0xb5, 0x1e],
    [0x7b, 0x62, 0xb8],
];

/// The ink that can be read on a span of the timeline that is a call or a message; `None` where the
/// ground shines through and the page's own ink is the right one.
pub(crate) fn span_ink(class: u8, dark: bool) -> Option<&'static str> {
    let solid = class & (64 | 128) == 0 && (8..48).contains(&(class & 63));
    // Stripes are only in what is not solid: any pixel is like all others.
    let [r, g, b, _] = timeline_rgb(class, 0, 0, dark);
    solid.then(|| ink_on([r, g, b]))
}

/// Black or white, whichever stands out more: one of them has 4.5:1 on any fill.
fn ink_on(fill: [u8; 3]) -> &'static str {
    match contrast(fill, [255; 3]) >= contrast(fill, [0; 3]) {
        true => "#ffffff",
        false => "#000000",
    }
}

/// The contrast of two colours as WCAG 2.2 defines it, 1 to 21.
fn contrast(a: [u8; 3], b: [u8; 3]) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

/// Relative luminance (WCAG 2.2).
fn luminance(rgb: [u8; 3]) -> f64 {
    let [r, g, b] = rgb.map(|part| match f64::from(part) / 255.0 {
        low if low <= 0.04045 => low / 12.92,
        high => ((high + 0.055) / 1.055).powf(2.4),
    });
    0.2126 * r + 0.7152 * g + 0.0722 * b
}

/// The number of colours before they begin again.
pub(crate) const RANK_COLOURS: usize = RANKS.len();

/// The colour of rank or chunk `index`.
pub(crate) fn rank_fill(index: u32) -> &'static str {
    RANKS[index as usize % RANKS.len()].0
}

/// The same as red, green, blue.
pub(crate) fn rank_rgb(index: u32) -> [u8; 3] {
    RANK_RGB[index as usize % RANK_RGB.len()]
}

/// The ink that can be read on [`rank_fill`].
pub(crate) fn rank_ink(index: u32) -> &'static str {
    RANKS[index as usize % RANKS.len()].1
}

/// Red, green, blue of each kind, the same on light and dark ground.
const KIND_RGB: [[u8; 3]; OP_KINDS as usize] = [
    [47, 111, 191],
    [123, 98, 184],
    [10, 143, 108],
    [214, 145, 0],
    [64, 160, 214],
    [199, 91, 155],
    [176, 158, 20],
    [140, 120, 70],
    [112, 124, 138],
    [190, 100, 50],
    [160, 82, 45],
    [98, 110, 125],
];

/// The colour of the timeline's bytes (`worker/raster.rs` makes them): the pixel at `column`.
pub(crate) fn timeline_rgb(class: u8, column: u32, y: u32, dark: bool) -> [u8; 4] {
    let ground = if dark { [22, 28, 36] } else { [255, 255, 255] };
    let solid = |[r, g, b]: [u8; 3]| [r, g, b, 255];
    let (stuck, queued, class) = (class & 128 != 0, class & 64 != 0, class & 63);
    let stripe = (column + y) % 12 < 4;
    let rgb = match class {
        0 => return [0, 0, 0, 0],
        1 => mix(ground, [125, 138, 152], 110),
        2 => mix(ground, [125, 138, 152], if stripe { 40 } else { 70 }),
        3 if stuck => mix(ground, [214, 64, 42], if stripe { 70 } else { 110 }),
        3 => mix(ground, [125, 138, 152], 34),
        // Slanted: the device stands, the process does not.
        4 if stuck => mix(ground, [214, 64, 42], if stripe { 40 } else { 90 }),
        4 => mix(ground, [47, 111, 191], if stripe { 30 } else { 80 }),
        // Free: what it enqueued goes on without it.
        5 => mix(ground, [10, 143, 108], 44),
        40..48 if queued => {
            mix(ground, RANK_RGB[class as usize - 40], if stripe { 60 } else { 90 })
        }
        40..48 => mix(ground, RANK_RGB[class as usize - 40], 225),
        call => {
            let kind = call.saturating_sub(8) / 2;
            let odd = call % 2 == 1;
            let colour = KIND_RGB[(kind as usize).min(KIND_RGB.len() - 1)];
            match (stuck, queued) {
                // A call that never ended keeps the colour of its kind under red lines.
                (true, _) if (column + y) % 12 < 3 => mix(ground, [214, 64, 42], 230),
                (true, _) => mix(ground, colour, 120),
                (false, true) => mix(ground, colour, 90),
                (false, false) if odd => mix(ground, colour, 205),
                (false, false) => colour,
            }
        }
    };
    solid(rgb)
}

/// The colour of a kind as CSS writes it.
pub(crate) fn kind_css(kind: u8) -> String {
    let [r, g, b] = KIND_RGB[(kind as usize).min(KIND_RGB.len() - 1)];
    format!("rgb({r} {g} {b})")
}

/// `weight` of 255 parts of `over` on `ground`.
fn mix(ground: [u8; 3], over: [u8; 3], weight: u16) -> [u8; 3] {
    let blend =
        |a: u8, b: u8| ((u16::from(a) * (255 - weight) + u16::from(b) * weight) / 255) as u8;
    [blend(ground[0], over[0]), blend(ground[1], over[1]), blend(ground[2], over[2])]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rgb_of(css: &str) -> [u8; 3] {
        [1, 3, 5].map(|at| u8::from_str_radix(&css[at..at + 2], 16).unwrap())
    }

    #[test]
    fn every_text_on_a_colour_can_be_read() {
        assert_eq!(contrast([255; 3], [0; 3]), 21.0);
        for (index, (fill, ink)) in RANKS.into_iter().enumerate() {
            assert_eq!(rgb_of(fill), RANK_RGB[index]);
            let stands_out = contrast(rgb_of(fill), rgb_of(ink));
            assert!(stands_out >= 4.5, "{ink} on {fill}: {stands_out:.2}");
        }
        for (class, dark) in (0..=255).flat_map(|class| [(class, false), (class, true)]) {
            let [r, g, b, _] = timeline_rgb(class, 0, 0, dark);
            if let Some(ink) = span_ink(class, dark) {
                let stands_out = contrast([r, g, b], rgb_of(ink));
                assert!(stands_out >= 4.5, "{ink} on class {class}: {stands_out:.2}");
            }
        }
    }
}
