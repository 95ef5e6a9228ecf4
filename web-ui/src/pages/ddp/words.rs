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

/// The last words of a parameter's name that fit into `room` letters, `…mlp.up`; empty if not even the last word fits. Nearly
/// all names end with `.weight`, which goes first. Words are never cut.
pub(super) fn ending(name: &str, room: usize) -> String {
    let fits = |name: &str| name.chars().count() <= room;
    if fits(name) {
        return name.to_owned();
    }
    let name = name.strip_suffix(".weight").unwrap_or(name);
    if fits(name) {
        return name.to_owned();
    }
    let mut ends = name.match_indices('.').map(|(dot, _)| format!("…{}", &name[dot + 1..]));
    ends.find(|end| fits(end)).unwrap_or_default()
}

/// `weight` of 255 parts of a bucket's colour on the ground.
pub(super) fn tint(bucket: u32, weight: u16, dark: bool) -> String {
    let ground: [u8; 3] = if dark { [22, 28, 36] } else { [255, 255, 255] };
    let over = piece_rgb(bucket_piece(bucket));
    let mix =
        |at: usize| (u16::from(ground[at]) * (255 - weight) + u16::from(over[at]) * weight) / 255;
    format!("rgb({} {} {})", mix(0), mix(1), mix(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captions_hold_whole_words() {
        let name = "layers.3.mlp.up_proj.weight";
        for (room, caption) in [
            (27, name),
            (26, "layers.3.mlp.up_proj"),
            (19, "…3.mlp.up_proj"),
            (13, "…mlp.up_proj"),
            (8, "…up_proj"),
            (7, ""),
        ] {
            assert_eq!(ending(name, room), caption, "{room}");
        }
        assert_eq!(ending("fc.bias", 5), "…bias");
        assert_eq!(ending("größe", 5), "größe");
    }
}
