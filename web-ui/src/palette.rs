//! Colours with meaning. Chosen to be told apart with any colour vision (after Okabe and Ito
//! 2008); nothing is said by colour alone.

/// The colours of ranks and of the chunks that began with them: fill and the ink upon it.
const RANKS: [(&str, &str); 8] = [
    ("#2f6fbf", "#ffffff"),
    ("#e69f00", "#1a1a1a"),
    ("#0a8f6c", "#ffffff"),
    ("#c75b9b", "#ffffff"),
    ("#56b4e9", "#10202c"),
    ("#d0561c", "#ffffff"),
    ("#c9b51e", "#1a1a1a"),
    ("#7b62b8", "#ffffff"),
];

/// The fills once more, for pixels.
const RANK_RGB: [[u8; 3]; RANKS.len()] = [
    [0x2f, 0x6f, 0xbf],
    [0xe6, 0x9f, 0x00],
    [0x0a, 0x8f, 0x6c],
    [0xc7, 0x5b, 0x9b],
    [0x56, 0xb4, 0xe9],
    [0xd0, 0x56, 0x1c],
    [0xc9, 0xb5, 0x1e],
    [0x7b, 0x62, 0xb8],
];

/// True when what the timeline paints for a byte is dark enough for light ink on either ground.
pub(crate) fn is_solid(class: u8) -> bool {
    class & (64 | 128) == 0 && (8..40).contains(&(class & 63))
}

/// The ink on a span of the timeline that is a message.
pub(crate) fn message_ink(class: u8) -> Option<&'static str> {
    let chunk = (class & 63).checked_sub(40).filter(|chunk| *chunk < 8 && class & 64 == 0)?;
    Some(rank_ink(chunk.into()))
}

/// How many colours there are before they begin again.
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

/// Collectives and point-to-point calls that have a colour of their own, by the beginning of
/// their name; c10d's recordings have `_allgather_base`, `ALLREDUCE` and their like.
const KINDS: [(&str, &str); 12] = [
    ("allreduce", "all_reduce"),
    ("reducescatter", "reduce_scatter"),
    ("allgather", "all_gather"),
    ("broadcast", "broadcast"),
    ("alltoall", "all_to_all"),
    ("reduce", "reduce"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("barrier", "barrier"),
    ("send", "send"),
    ("recv", "recv"),
    ("", "other"),
];

/// How many kinds of call are told apart.
pub(crate) const OP_KINDS: u8 = KINDS.len() as u8;

/// The kind of a call by its name, below [`OP_KINDS`].
pub(crate) fn op_kind(op: &str) -> u8 {
    let letters: String = op
        .chars()
        .filter(char::is_ascii_alphabetic)
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    let letters = letters.strip_prefix("nccl").unwrap_or(&letters);
    let letters = letters.strip_prefix("coalesced").unwrap_or(letters);
    // isend and irecv are send and recv.
    let letters = match letters {
        "isend" => "send",
        "irecv" => "recv",
        letters => letters,
    };
    let found = KINDS.iter().position(|(stem, _)| letters.starts_with(stem));
    found.unwrap_or(KINDS.len() - 1) as u8
}

/// The name of a kind.
pub(crate) fn op_kind_name(kind: u8) -> &'static str {
    KINDS.get(kind as usize).map_or("other", |(_, name)| name)
}

/// Red, green, blue of each kind, the same on light and dark ground.
const KIND_RGB: [[u8; 3]; KINDS.len()] = [
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

/// What the timeline's bytes look like (`worker/raster.rs` makes them): the pixel at `column`.
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
                (true, _) if stripe => mix(ground, [214, 64, 42], 190),
                (true, _) => mix(ground, [214, 64, 42], 80),
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

    #[test]
    fn calls_are_known_under_all_their_names() {
        for (name, kind) in [
            ("all_reduce", "all_reduce"),
            ("nccl:all_reduce", "all_reduce"),
            ("nccl:_reduce_scatter_base", "reduce_scatter"),
            ("_allgather_base", "all_gather"),
            ("reduce", "reduce"),
            ("isend", "send"),
            ("irecv", "recv"),
            ("ALLREDUCE", "all_reduce"),
        ] {
            assert_eq!(op_kind_name(op_kind(name)), kind, "{name}");
        }
    }
}
