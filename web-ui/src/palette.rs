//! Colours with meaning: one meaning a hue, everywhere.
//!
//! | hue | meaning |
//! | --- | --- |
//! | violet, light to dark | pieces: chunks by their origin, buckets, groups |
//! | blue, cyan, orange, yellow, pink, brown, slate, grey | kinds of collectives |
//! | green | done |
//! | red | trouble |
//!
//! Ranks have no colour of their own: they are badges with their number. The tests hold the colours apart
//! under each kind of colour blindness, and nothing is said by colour alone.

use lockstep_web_protocol::call_kinds::OP_KINDS;

/// Pieces from the lightest to the darkest: fill and the ink upon it.
const PIECES: [(&str, &str); 8] = [
    ("#ddcffa", "#000000"),
    ("#cab4f3", "#000000"),
    ("#b699eb", "#000000"),
    ("#a47de3", "#000000"),
    ("#9163d5", "#000000"),
    ("#7e4ac2", "#ffffff"),
    ("#6635a3", "#ffffff"),
    ("#4e2281", "#ffffff"),
];

/// The fills once more, for pixels.
const PIECE_RGB: [[u8; 3]; PIECES.len()] = [
    [0xdd, 0xcf, 0xfa],
    [0xca, 0xb4, 0xf3],
    [0xb6, 0x99, 0xeb],
    [0xa4, 0x7d, 0xe3],
    [0x91, 0x63, 0xd5],
    [0x7e, 0x4a, 0xc2],
    [0x66, 0x35, 0xa3],
    [0x4e, 0x22, 0x81],
];

/// The ink that can be read on a span of the timeline that is a call or a message; `None` where the
/// ground shines through and the page's own ink is the right one.
pub(crate) fn span_ink(class: u8, dark: bool) -> Option<&'static str> {
    let solid = (class & 64 == 0 || class & STUCK != 0) && (8..48).contains(&(class & 63));
    // Stripes are only in what is not solid: any pixel is like all others.
    let [r, g, b, _] = timeline_rgb(class, (0, 0), false, dark);
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

/// The colour of piece `index`: a chunk by its origin, a bucket, a group. They begin again after eight.
pub(crate) fn piece_fill(index: u32) -> &'static str {
    PIECES[index as usize % PIECES.len()].0
}

/// The same as red, green, blue.
pub(crate) fn piece_rgb(index: u32) -> [u8; 3] {
    PIECE_RGB[index as usize % PIECE_RGB.len()]
}

/// The ink that can be read on [`piece_fill`].
pub(crate) fn piece_ink(index: u32) -> &'static str {
    PIECES[index as usize % PIECES.len()].1
}

/// The piece whose colour a bucket has: neighbours are far apart, since a job has few buckets and their
/// tints tell more.
pub(crate) fn bucket_piece(bucket: u32) -> u32 {
    const ORDER: [u32; PIECES.len()] = [4, 2, 6, 3, 5, 1, 7, 0];
    ORDER[bucket as usize % ORDER.len()]
}

/// The ink of a curve that is the one asked about; `assets/style.css` calls it the accent.
pub(crate) fn chosen_rgb(dark: bool) -> [u8; 3] {
    if dark { [0x6e, 0xa8, 0xfe] } else { [0x1d, 0x4e, 0xd8] }
}

/// Red, green, blue of each kind. Rooted collectives share one, and so do sends and receives.
const KIND_RGB: [[u8; 3]; OP_KINDS as usize] = [
    [0x46, 0x79, 0xcf],
    [0x39, 0xaa, 0xe2],
    [0xe3, 0x88, 0x04],
    [0xe1, 0xd4, 0x37],
    [0xb8, 0x73, 0x9e],
    ROOTED,
    ROOTED,
    ROOTED,
    [0x2f, 0x2f, 0x30],
    SENT,
    SENT,
    [0xad, 0xae, 0xb0],
];

const ROOTED: [u8; 3] = [0x5a, 0x42, 0x2e];
const SENT: [u8; 3] = [0x49, 0x54, 0x6b];

/// The number of the barrier among the kinds, which is as dark as the dark ground.
const BARRIER: usize = 8;

/// The colour of a kind on light or dark ground.
fn kind_rgb(kind: u8, dark: bool) -> [u8; 3] {
    match (kind as usize).min(KIND_RGB.len() - 1) {
        BARRIER if dark => [0xec, 0xee, 0xf0],
        kind => KIND_RGB[kind],
    }
}

/// Trouble, on pixels.
const TROUBLE: [u8; 3] = [214, 64, 42];

/// The bit of a timeline's byte for what never ended.
const STUCK: u8 = 128;

/// The red edge of a call that never ended is so many pixels wide.
const EDGE: usize = 4;

/// True if a pixel of a row of the timeline is an edge of a call that never ended, or the first that is in sight of it.
pub(crate) fn is_edge(row: &[u8], column: usize) -> bool {
    let Some(class) = row.get(column).filter(|class| **class & STUCK != 0) else { return false };
    let before = row.get(column.saturating_sub(EDGE)..column).unwrap_or_default();
    let behind = row.get(column + 1..row.len().min(column + 1 + EDGE)).unwrap_or_default();
    let other = |near: &u8| near & STUCK == 0 || near / 2 != class / 2;
    column < EDGE || before.iter().any(other) || behind.len() < EDGE || behind.iter().any(other)
}

/// The column behind the last call of a row that never ended, if its end is in sight.
pub(crate) fn cut_at(row: &[u8]) -> Option<usize> {
    let last = row.iter().rposition(|class| class & STUCK != 0)?;
    (last + 1 < row.len()).then_some(last + 1)
}

/// The colour of the timeline's bytes (`worker/raster.rs` makes them): the pixel at `column`, which may be the
/// edge of a call that never ended.
pub(crate) fn timeline_rgb(class: u8, (column, y): (u32, u32), edge: bool, dark: bool) -> [u8; 4] {
    let ground = if dark { [22, 28, 36] } else { [255, 255, 255] };
    let solid = |[r, g, b]: [u8; 3]| [r, g, b, 255];
    let (stuck, queued, class) = (class & STUCK != 0, class & 64 != 0, class & 63);
    let stripe = (column + y) % 12 < 4;
    let rgb = match class {
        0 => return [0, 0, 0, 0],
        1 => mix(ground, [125, 138, 152], 110),
        2 => mix(ground, [125, 138, 152], if stripe { 40 } else { 70 }),
        3 if stuck => mix(ground, TROUBLE, if stripe { 70 } else { 110 }),
        3 => mix(ground, [125, 138, 152], 34),
        // Slanted: the device stands, the process does not.
        4 if stuck => mix(ground, TROUBLE, if stripe { 40 } else { 90 }),
        4 => mix(ground, [125, 138, 152], if stripe { 20 } else { 60 }),
        // Free: what it enqueued goes on without it.
        5 => mix(ground, [125, 138, 152], 20),
        40..48 if queued => {
            mix(ground, PIECE_RGB[class as usize - 40], if stripe { 60 } else { 90 })
        }
        40..48 => mix(ground, PIECE_RGB[class as usize - 40], 225),
        call => {
            let kind = call.saturating_sub(8) / 2;
            let odd = call % 2 == 1;
            let colour = kind_rgb(kind, dark);
            match (stuck, queued) {
                // A call that never ended keeps the colour of its kind between red edges.
                (true, _) if edge => mix(ground, TROUBLE, 230),
                (true, _) => mix(ground, colour, 150),
                (false, true) => mix(ground, colour, 90),
                (false, false) if odd => mix(ground, colour, 205),
                (false, false) => colour,
            }
        }
    };
    solid(rgb)
}

/// The colour of a kind as CSS writes it.
pub(crate) fn kind_css(kind: u8, dark: bool) -> String {
    let [r, g, b] = kind_rgb(kind, dark);
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
        for (index, (fill, ink)) in PIECES.into_iter().enumerate() {
            assert_eq!(rgb_of(fill), PIECE_RGB[index]);
            let stands_out = contrast(rgb_of(fill), rgb_of(ink));
            assert!(stands_out >= 4.5, "{ink} on {fill}: {stands_out:.2}");
        }
        for (class, dark) in (0..=255).flat_map(|class| [(class, false), (class, true)]) {
            let [r, g, b, _] = timeline_rgb(class, (0, 0), false, dark);
            if let Some(ink) = span_ink(class, dark) {
                let stands_out = contrast([r, g, b], rgb_of(ink));
                assert!(stands_out >= 4.5, "{ink} on class {class}: {stands_out:.2}");
            }
        }
    }

    /// Linear red, green and blue as eyes with a kind of colour blindness see them (Machado, Oliveira and
    /// Fernandes 2009, severity 1).
    const EYES: [(&str, [[f64; 3]; 3]); 4] = [
        ("all cones", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        (
            "protanopia",
            [
                [0.152286, 1.052583, -0.204868],
                [0.114503, 0.786281, 0.099216],
                [-0.003882, -0.048116, 1.051998],
            ],
        ),
        (
            "deuteranopia",
            [
                [0.367322, 0.860646, -0.227968],
                [0.280085, 0.672501, 0.047413],
                [-0.011820, 0.042940, 0.968881],
            ],
        ),
        (
            "tritanopia",
            [
                [1.255528, -0.076749, -0.178779],
                [-0.078411, 0.930809, 0.147602],
                [0.004733, 0.691367, 0.303900],
            ],
        ),
    ];

    /// A colour in Oklab (Ottosson 2020), as such eyes see it.
    fn seen(rgb: [u8; 3], eyes: &[[f64; 3]; 3]) -> [f64; 3] {
        let linear = rgb.map(|part| match f64::from(part) / 255.0 {
            low if low <= 0.04045 => low / 12.92,
            high => ((high + 0.055) / 1.055).powf(2.4),
        });
        let times = |m: &[[f64; 3]; 3], v: [f64; 3]| {
            [0, 1, 2].map(|row: usize| (0..3).map(|at| m[row][at] * v[at]).sum::<f64>())
        };
        let cones = [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ];
        let lab = [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ];
        let shown = times(eyes, linear).map(|part| part.clamp(0.0, 1.0));
        times(&lab, times(&cones, shown).map(f64::cbrt))
    }

    /// The difference of two colours, in hundredths of Oklab: 2 is just seen, 6 is clear.
    fn apart(a: [u8; 3], b: [u8; 3], eyes: &[[f64; 3]; 3]) -> f64 {
        let (a, b) = (seen(a, eyes), seen(b, eyes));
        100.0 * (0..3).map(|at| (a[at] - b[at]).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn what_never_ended_has_edges_at_its_begin_and_at_its_end() {
        let row = [vec![9; 10], vec![9 | STUCK; 20], vec![0; 10]].concat();
        let edges: Vec<usize> = (0..40).filter(|at| is_edge(&row, *at)).collect();
        assert_eq!(edges, [10, 11, 12, 13, 26, 27, 28, 29]);
        // In the middle of it, the first and the last pixels that are in sight.
        let middle: Vec<usize> = (0..20).filter(|at| is_edge(&[9 | STUCK; 20], *at)).collect();
        assert_eq!(middle, [0, 1, 2, 3, 16, 17, 18, 19]);
        assert!(!is_edge(&[9; 20], 0));
    }

    #[test]
    fn an_end_that_is_cut_is_found_where_it_is_in_sight() {
        assert_eq!(cut_at(&[9, 9 | STUCK, 9 | STUCK, 0, 0]), Some(3));
        assert_eq!(cut_at(&[0, 9 | STUCK, 9 | STUCK]), None);
        assert_eq!(cut_at(&[9, 0]), None);
    }

    #[test]
    fn colours_are_told_apart_with_any_eyes() {
        const CLEAR: f64 = 6.5;
        for (eyes, matrix) in &EYES {
            for dark in [false, true] {
                let (done, trouble) = match dark {
                    false => ("#0b7a5b", "#c2361a"),
                    true => ("#46c99d", "#ff7a5c"),
                };
                let ground = if dark { [22, 28, 36] } else { [255, 255, 255] };
                let mut kinds: Vec<[u8; 3]> =
                    (0..OP_KINDS).map(|kind| kind_rgb(kind, dark)).collect();
                kinds.sort_unstable();
                kinds.dedup();
                assert_eq!(kinds.len(), 9);
                for (at, kind) in kinds.iter().enumerate() {
                    for other in &kinds[at + 1..] {
                        let apart = apart(*kind, *other, matrix);
                        assert!(apart >= CLEAR, "{kind:?} and {other:?}: {apart:.1}, {eyes}");
                    }
                    let stands_out = contrast(*kind, ground);
                    assert!(stands_out >= 1.4, "{kind:?} on {ground:?}: {stands_out:.2}");
                }
                for pair in PIECE_RGB.windows(2) {
                    let apart = apart(pair[0], pair[1], matrix);
                    assert!(apart >= CLEAR, "{pair:?}: {apart:.1}, {eyes}");
                }
                for kept in [done, trouble] {
                    for other in PIECE_RGB {
                        let apart = apart(rgb_of(kept), other, matrix);
                        assert!(apart >= CLEAR, "{kept} and {other:?}: {apart:.1}, {eyes}");
                    }
                }
                let apart = apart(rgb_of(done), rgb_of(trouble), matrix);
                assert!(apart >= CLEAR, "done and trouble: {apart:.1}, {eyes}");
            }
        }
        // The pieces are a ramp: each is darker than the one before.
        for pair in PIECE_RGB.windows(2) {
            assert!(luminance(pair[0]) > luminance(pair[1]));
        }
    }
}
