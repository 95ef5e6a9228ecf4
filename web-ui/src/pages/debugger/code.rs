//! A program's text in an address: deflated, in base64 for addresses.

use data_encoding::BASE64URL_NOPAD;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use std::io::{Read, Write};

/// Texts past this are not read from an address: what inflates to more is no program.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// The text as an address carries it.
pub(in crate::pages) fn write(text: &str) -> String {
    let mut deflated = DeflateEncoder::new(Vec::new(), Compression::best());
    // Writing to memory cannot fail.
    let _ = deflated.write_all(text.as_bytes());
    BASE64URL_NOPAD.encode(&deflated.finish().unwrap_or_default())
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
    let mut text = String::new();
    DeflateDecoder::new(deflated.as_slice())
        .take(MAX_TEXT_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|_| refused("is not complete"))?;
    match text.len() as u64 > MAX_TEXT_BYTES {
        true => Err(refused("is larger than 1 MiB")),
        false => Ok(text),
    }
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
