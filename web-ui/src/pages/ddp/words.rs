//! Numbers, names and tints as all drawings of the lab write them.

use crate::palette::{bucket_piece, piece_rgb};

/// `28,852,224`.
pub(super) fn commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// As much of the end of a name as there is room for: the end tells names apart, but for what
/// nearly all end with.
pub(super) fn ending(name: &str, room: usize) -> String {
    let long = |name: &str| name.chars().count();
    if long(name) <= room {
        return name.to_owned();
    }
    let name = name.strip_suffix(".weight").unwrap_or(name);
    match long(name) {
        short if short <= room => name.to_owned(),
        long => {
            "…".chars().chain(name.chars().skip((long + 1).saturating_sub(room.max(1)))).collect()
        }
    }
}

/// `weight` of 255 parts of a bucket's colour on the ground.
pub(super) fn tint(bucket: u32, weight: u16, dark: bool) -> String {
    let ground: [u8; 3] = if dark { [22, 28, 36] } else { [255, 255, 255] };
    let over = piece_rgb(bucket_piece(bucket));
    let mix =
        |at: usize| (u16::from(ground[at]) * (255 - weight) + u16::from(over[at]) * weight) / 255;
    format!("rgb({} {} {})", mix(0), mix(1), mix(2))
}
