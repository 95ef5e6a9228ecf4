//! Archives of files: tar, tar.gz, zip, and a single file under gzip.
//!
//! A stranger's archive may unpack to anything: file by file it is handed on, and refused past a size that is
//! given, whatever its own headers claim. Entries that are not plain files (links, devices) are left out, and
//! an archive within an archive stays one.

use flate2::read::MultiGzDecoder;
use std::io::{self, Cursor, Read, Write};

/// The zip of files, each a path and its bytes.
///
/// # Errors
/// When there are more files, or more bytes, than a zip holds.
pub fn zip_of(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> io::Result<Vec<u8>> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (path, bytes) in files {
        let options = zip::write::SimpleFileOptions::default().large_file(false);
        writer.start_file(path, options)?;
        writer.write_all(&bytes)?;
    }
    Ok(writer.finish()?.into_inner())
}

/// Past this many files an archive is refused.
const MAX_FILES: usize = 100_000;

/// Deflate packs 1,032 bytes into one at the very most, and recordings about twenty.
const MAX_RATIO: u64 = 500;

/// Less than this is no harm, however well it was packed.
const HARMLESS_BYTES: u64 = 16 << 20;

/// The bounds on the unpacked size of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
}

/// The reason that an archive cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// It unpacks to too much.
    #[error(
        "{archive} unpacks to more than {limit} bytes, which no set of recordings takes: is it \
         another archive? Unpack it yourself, and name the files"
    )]
    TooLarge {
        /// The archive's name.
        archive: String,
        /// The limit that is passed: of one file, or of all.
        limit: u64,
    },
    /// A file of a zip is too large; the others were handed on.
    #[error(
        "{file} in {archive} unpacks to more than {limit} bytes, and was left out. Unpack it yourself, and \
         name the files"
    )]
    FileTooLarge {
        /// The archive's name.
        archive: String,
        /// The first such file's path in there.
        file: String,
        /// The limit.
        limit: u64,
    },
    /// Its files lie over one another, or claim to hold more than compression can have packed: it was made to
    /// unpack without an end.
    #[error(
        "{archive} was made to fill a memory ({why}), and nothing of it was read; name the files that are recordings"
    )]
    Bomb {
        /// The archive's name.
        archive: String,
        /// The evidence.
        why: String,
    },
    /// It has too many files.
    #[error("{archive} holds more than {MAX_FILES} files; name those that are recordings")]
    TooMany {
        /// The archive's name.
        archive: String,
    },
    /// It is damaged, cut off or encrypted.
    #[error("{archive} cannot be unpacked ({why}); copy the whole file again")]
    Damaged {
        /// The archive's name.
        archive: String,
        /// The reader's message.
        why: String,
    },
}

/// The kind of archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Gzip,
    Tar,
    Zip,
}

fn kind(bytes: &[u8]) -> Option<Kind> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Some(Kind::Gzip);
    }
    // With files, and an empty one.
    if bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06") {
        return Some(Kind::Zip);
    }
    (bytes.get(257..262) == Some(b"ustar".as_slice())).then_some(Kind::Tar)
}

/// True if bytes begin like an archive.
pub fn is_archive(bytes: &[u8]) -> bool {
    kind(bytes).is_some()
}

/// Hands every file of an archive on, with its path in there, in the archive's order.
///
/// # Errors
/// The archive is damaged, or unpacks to more than the limits. The files that were handed on before are good.
pub fn for_each_file(
    archive: &str,
    bytes: &[u8],
    limits: Limits,
    take: &mut dyn FnMut(&str, &[u8]),
) -> Result<(), ArchiveError> {
    let left = limits.total_bytes;
    let mut unpacking = Unpacking { archive, limits, left, files: 0, passed_over: None, take };
    match kind(bytes) {
        Some(Kind::Tar) => unpacking.tar(Cursor::new(bytes)),
        Some(Kind::Zip) => unpacking.zip(bytes),
        Some(Kind::Gzip) => unpacking.gzip(bytes),
        None => Err(unpacking.damaged("it is no archive")),
    }?;
    unpacking.passed_over.map_or(Ok(()), Err)
}

/// Unpacks gzip, up to a ratio that compression can explain.
struct Bounded<'a> {
    decoder: MultiGzDecoder<&'a [u8]>,
    packed: usize,
    unpacked: u64,
}

impl<'a> Bounded<'a> {
    fn new(bytes: &'a [u8]) -> Bounded<'a> {
        Bounded { decoder: MultiGzDecoder::new(bytes), packed: bytes.len(), unpacked: 0 }
    }
}

impl Read for Bounded<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(into)?;
        self.unpacked += read as u64;
        let taken = (self.packed - self.decoder.get_ref().len()) as u64;
        if self.unpacked > HARMLESS_BYTES && self.unpacked / taken.max(1) > MAX_RATIO {
            let why = format!("{taken} bytes unpack to more than {}", self.unpacked);
            return Err(io::Error::other(why));
        }
        Ok(read)
    }
}

struct Unpacking<'a> {
    archive: &'a str,
    limits: Limits,
    left: u64,
    files: usize,
    /// The first file of a zip that is too large: the others are read none the less.
    passed_over: Option<ArchiveError>,
    take: &'a mut dyn FnMut(&str, &[u8]),
}

impl Unpacking<'_> {
    fn gzip(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        let mut start = Vec::new();
        let mut unpacked = Bounded::new(bytes);
        unpacked
            .by_ref()
            .take(512)
            .read_to_end(&mut start)
            .map_err(|error| self.damaged(&error.to_string()))?;
        let is_tar = kind(&start) == Some(Kind::Tar);
        let all = Cursor::new(start).chain(unpacked);
        if is_tar {
            // Names, links and padding count as well: they are unpacked too.
            let bound = self.limits.total_bytes.saturating_add(1 << 20);
            let mut all = all.take(bound);
            self.tar(&mut all)?;
            // The tar ends before the checksum does, which tells whether all of it was right.
            return match io::copy(&mut all, &mut io::sink()) {
                Ok(_) => Ok(()),
                Err(error) => Err(self.damaged(&error.to_string())),
            };
        }
        let name = self.archive.strip_suffix(".gz").unwrap_or(self.archive).to_owned();
        self.file(&name, all)
    }

    fn tar(&mut self, bytes: impl Read) -> Result<(), ArchiveError> {
        let mut archive = tar::Archive::new(bytes);
        let entries = archive.entries().map_err(|error| self.damaged(&error.to_string()))?;
        for entry in entries {
            let entry = entry.map_err(|error| self.damaged(&error.to_string()))?;
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            self.file(&path, entry)?;
        }
        Ok(())
    }

    fn zip(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        let opened = zip::ZipArchive::new(Cursor::new(bytes));
        let mut archive = opened.map_err(|error| self.damaged(&error.to_string()))?;
        self.check_zip(&mut archive)?;
        for at in 0..archive.len() {
            let file = archive.by_index(at).map_err(|error| self.damaged(&error.to_string()))?;
            if file.is_file() {
                let path = file.name().to_owned();
                match self.file(&path, file) {
                    // The next one can be had without the rest of this one.
                    Err(ArchiveError::TooLarge { archive, limit })
                        if limit == self.limits.file_bytes =>
                    {
                        let too_large = ArchiveError::FileTooLarge { archive, file: path, limit };
                        self.passed_over.get_or_insert(too_large);
                    }
                    other => other?,
                }
            }
        }
        Ok(())
    }

    /// Refuses a zip because of its directory, before anything is unpacked: files that share their bytes, and
    /// sizes that no compression explains.
    fn check_zip(&self, archive: &mut zip::ZipArchive<Cursor<&[u8]>>) -> Result<(), ArchiveError> {
        let bomb = |why| ArchiveError::Bomb { archive: self.archive.to_owned(), why };
        if archive.len() > MAX_FILES {
            return Err(ArchiveError::TooMany { archive: self.archive.to_owned() });
        }
        let mut places = Vec::with_capacity(archive.len());
        let (mut packed, mut unpacked) = (0u64, 0u64);
        for at in 0..archive.len() {
            let file =
                archive.by_index_raw(at).map_err(|error| self.damaged(&error.to_string()))?;
            let end = file.data_start().saturating_add(file.compressed_size());
            places.push((file.header_start(), end, file.name().to_owned()));
            packed = packed.saturating_add(file.compressed_size());
            unpacked = unpacked.saturating_add(file.size());
        }
        places.sort_unstable();
        for pair in places.windows(2) {
            if let [(_, end, first), (start, _, second)] = pair
                && start < end
            {
                return Err(bomb(format!("{first} and {second} lie over one another")));
            }
        }
        if unpacked > HARMLESS_BYTES && unpacked / packed.max(1) > MAX_RATIO {
            return Err(bomb(format!("{packed} bytes claim to unpack to {unpacked}")));
        }
        Ok(())
    }

    fn file(&mut self, path: &str, bytes: impl Read) -> Result<(), ArchiveError> {
        self.files += 1;
        if self.files > MAX_FILES {
            return Err(ArchiveError::TooMany { archive: self.archive.to_owned() });
        }
        let limit = self.limits.file_bytes.min(self.left);
        let mut unpacked = Vec::new();
        let read = bytes.take(limit.saturating_add(1)).read_to_end(&mut unpacked);
        read.map_err(|error: io::Error| self.damaged(&error.to_string()))?;
        if unpacked.len() as u64 > limit {
            // The bytes that it has cost count.
            self.left -= limit;
            return Err(ArchiveError::TooLarge {
                archive: self.archive.to_owned(),
                limit: match limit == self.limits.file_bytes {
                    true => limit,
                    false => self.limits.total_bytes,
                },
            });
        }
        self.left -= unpacked.len() as u64;
        (self.take)(path, &unpacked);
        Ok(())
    }

    fn damaged(&self, why: &str) -> ArchiveError {
        ArchiveError::Damaged { archive: self.archive.to_owned(), why: why.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    const LIMITS: Limits = Limits { file_bytes: 1000, total_bytes: 1500 };

    fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, path, *bytes).unwrap();
        }
        tar.into_inner().unwrap()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    }

    /// A tar ends before the checksum of its gzip: that is looked at all the same.
    #[test]
    fn a_wrong_checksum_is_damage() {
        let mut bytes = gzip(&tar(&[("rank_0", b"zero")]));
        let crc = bytes.len() - 8;
        bytes[crc] ^= 1;
        assert!(matches!(unpack("a.tar.gz", &bytes), Err(ArchiveError::Damaged { .. })));
    }

    fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (path, bytes) in files {
            zip.start_file(*path, zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn unpack(name: &str, bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, ArchiveError> {
        let mut files = Vec::new();
        let mut take = |path: &str, bytes: &[u8]| files.push((path.to_owned(), bytes.to_vec()));
        for_each_file(name, bytes, LIMITS, &mut take)?;
        Ok(files)
    }

    #[test]
    fn every_kind_unpacks_to_the_same() {
        let files: [(&str, &[u8]); 2] = [("dumps/rank_0", b"zero"), ("dumps/rank_1", b"one")];
        let wanted: Vec<_> = files.iter().map(|(p, b)| ((*p).to_owned(), b.to_vec())).collect();
        for bytes in [tar(&files), gzip(&tar(&files)), zip(&files)] {
            assert!(is_archive(&bytes));
            assert_eq!(unpack("job", &bytes).unwrap(), wanted);
        }
        let one = gzip(b"zero");
        assert_eq!(unpack("rank_0.gz", &one).unwrap(), [("rank_0".to_owned(), b"zero".to_vec())]);
        assert!(!is_archive(b"\x80\x02}.") && !is_archive(b""));
    }

    /// A zip whose directory names one file's bytes a thousand times is refused before it is unpacked, and so is
    /// one that was packed better than anything can be.
    #[test]
    fn bombs_are_refused_by_what_their_directory_says() {
        let large = Limits { file_bytes: 1 << 40, total_bytes: 1 << 40 };
        let refused = |bytes: &[u8]| {
            let mut taken = 0;
            let mut take = |_: &str, _: &[u8]| taken += 1;
            let error = for_each_file("z", bytes, large, &mut take).unwrap_err();
            assert_eq!(taken, 0, "{error}");
            error.to_string()
        };
        let mut overlapping = zip(&[("a", &[7; 600]), ("b", &[7; 600])]);
        // The directory's second entry points at the first file.
        let second = overlapping.windows(4).rposition(|it| it == b"PK\x01\x02").unwrap();
        overlapping[second + 42..second + 46].fill(0);
        let error = refused(&overlapping);
        assert!(error.contains("lie over one another"), "{error}");
        let zeros = vec![0; 32 << 20];
        let error = refused(&zip(&[("a", &zeros)]));
        assert!(error.contains("claim to unpack to 33554432"), "{error}");
        let error = refused(&gzip(&zeros));
        assert!(error.contains("bytes unpack to more than"), "{error}");
    }

    /// Kilobytes that unpack to a gigabyte stop at the limit.
    #[test]
    fn bombs_stop_at_the_limit() {
        let bomb = vec![0; 1 << 20];
        for bytes in [gzip(&bomb), gzip(&tar(&[("a", &bomb)])), tar(&[("a", &bomb)])] {
            let error = unpack("bomb", &bytes).unwrap_err();
            assert_eq!(error, ArchiveError::TooLarge { archive: "bomb".into(), limit: 1000 });
            assert!(error.to_string().contains("more than 1000 bytes"), "{error}");
        }
        // The other files of a zip are read.
        let mut read = Vec::new();
        let mut take = |path: &str, _: &[u8]| read.push(path.to_owned());
        let zipped = zip(&[("a", b"1"), ("big", &bomb), ("b", b"2")]);
        let error = for_each_file("z", &zipped, LIMITS, &mut take).unwrap_err().to_string();
        assert!(error.starts_with("big in z unpacks to more than 1000 bytes"), "{error}");
        assert_eq!(read, ["a", "b"]);
        // Many small files are as large.
        let many: Vec<(&str, &[u8])> = vec![("a", &bomb[..900]), ("b", &bomb[..900])];
        let error = unpack("bomb", &tar(&many)).unwrap_err();
        assert_eq!(error, ArchiveError::TooLarge { archive: "bomb".into(), limit: 1500 });
    }

    #[test]
    fn damage_is_said() {
        let files: [(&str, &[u8]); 1] = [("rank_0", &[7; 600])];
        for bytes in [gzip(&tar(&files)), zip(&files)] {
            for end in (3..bytes.len() - 8).step_by(5) {
                let _ = unpack("job", &bytes[..end]).map_err(|error| error.to_string());
            }
        }
        let error = unpack("job.zip", b"PK\x03\x04nothing").unwrap_err().to_string();
        assert!(error.starts_with("job.zip cannot be unpacked ("), "{error}");
        let error = unpack("x", b"text").unwrap_err().to_string();
        assert!(error.contains("it is no archive"), "{error}");
    }
}
