//! A program's text in an address: deflated, in base64 for addresses.

use data_encoding::BASE64URL_NOPAD;
use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::{TINFLStatus, decompress_to_vec_with_limit};

/// Texts past this are not read from an address: what inflates to more is no program.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// Deflate's smallest.
const BEST: u8 = 9;

/// The text as an address carries it.
pub(in crate::pages) fn write(text: &str) -> String {
    BASE64URL_NOPAD.encode(&compress_to_vec(text.as_bytes(), BEST))
}

/// The text of an address.
///
/// # Errors
/// In a sentence: when it was cut off, or never was a program.
pub(in crate::pages) fn read(code: &str) -> Result<String, String> {
    let refused = |what: &str| {
        format!(
            "The program in this address {what}. An address that was copied in part, or broken \
             into lines by a mail, cannot be opened: ask for the whole of it, or for the file."
        )
    };
    let deflated = BASE64URL_NOPAD
        .decode(code.as_bytes())
        .map_err(|_| refused("has characters that Lockstep does not write"))?;
    let inflated = decompress_to_vec_with_limit(&deflated, MAX_TEXT_BYTES);
    let inflated = inflated.map_err(|error| match error.status {
        TINFLStatus::HasMoreOutput => refused("is larger than 1 MiB"),
        _ => refused("is not complete"),
    })?;
    String::from_utf8(inflated).map_err(|_| refused("is not complete"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_survives_the_way_through_an_address() {
        let text = "def main():\n    dist.barrier()  # größer\n\nrun(main, world_size = 4)\n";
        let code = write(text);
        assert!(code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
        assert_eq!(read(&code).unwrap(), text);
        for wrong in [&code[..code.len() / 2], "%%%", "AAAA"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let bomb = write(&"a".repeat(4 << 20));
        assert!(bomb.len() < 10_000);
        assert!(read(&bomb).unwrap_err().contains("1 MiB"));
    }
}
