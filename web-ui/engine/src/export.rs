//! A trace as a file: in our own forms, and in those of other tools. Forms with a file a rank are a zip.

use lockstep_core::trace::{CallLog, Trace};
use lockstep_formats::archive::zip_of;
use lockstep_formats::chakra::ChakraWriter;
use lockstep_formats::flight_recorder::dumps_of;
use lockstep_formats::kineto::KinetoWriter;
use lockstep_formats::perfetto;
use lockstep_web_protocol::Form;
use std::io;

/// A trace in one of its forms.
///
/// # Errors
/// When it has more files or bytes than a zip holds.
pub(super) fn written(trace: &Trace, form: Form) -> Result<Vec<u8>, String> {
    let files = match form {
        Form::Binary => return Ok(trace.to_bytes()),
        Form::Json => return Ok(trace.to_json().into_bytes()),
        Form::Perfetto => return perfetto_trace(trace).map_err(words),
        Form::Kineto => profiles(trace),
        Form::Chakra => execution_traces(trace),
        Form::FlightRecorder => Ok(dumps(trace)),
    };
    files.and_then(zip_of).map_err(words)
}

fn words(error: io::Error) -> String {
    format!("this cannot be written: {error}")
}

/// Files, each a path and its bytes.
type Files = Vec<(String, Vec<u8>)>;

fn perfetto_trace(trace: &Trace) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    perfetto::write(trace, &mut bytes)?;
    Ok(bytes)
}

fn profiles(trace: &Trace) -> io::Result<Files> {
    let writer = KinetoWriter::new(trace);
    let file = |rank| {
        let mut bytes = Vec::new();
        writer.write(rank, &mut bytes)?;
        Ok((KinetoWriter::file_name(rank), bytes))
    };
    writer.ranks().map(file).collect()
}

fn execution_traces(trace: &Trace) -> io::Result<Files> {
    let writer = ChakraWriter::new(trace);
    let file = |rank| {
        let mut bytes = Vec::new();
        writer.write(rank, &mut bytes)?;
        Ok((ChakraWriter::file_name(rank), bytes))
    };
    // Apart from the traces, as the command line writes it: whoever reads the folder reads what is in it.
    let groups = ("astra-sim/comm_group.json".to_owned(), writer.comm_groups().into_bytes());
    writer.ranks().map(file).chain([Ok(groups)]).collect()
}

fn dumps(trace: &Trace) -> Files {
    let dumps = dumps_of(&CallLog::of(trace), trace.header.epoch_ns);
    dumps.into_iter().map(|dump| (dump.file_name.clone(), dump.to_pickle())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::tests::held;
    use lockstep_formats::archive::{Limits, for_each_file};

    #[test]
    fn every_form_is_written_with_a_file_a_rank() {
        let held = held();
        let perfetto = held.export(Form::Perfetto).unwrap();
        assert!(!perfetto.is_empty());
        for (form, wanted) in [(Form::Kineto, 4), (Form::Chakra, 5), (Form::FlightRecorder, 4)] {
            let zip = held.export(form).unwrap();
            let limits = Limits { file_bytes: 1 << 20, total_bytes: 8 << 20 };
            let mut files = 0;
            let mut take = |_: &str, bytes: &[u8]| files += usize::from(!bytes.is_empty());
            for_each_file("it.zip", &zip, limits, &mut take).unwrap();
            assert_eq!(files, wanted, "{form:?}");
        }
    }
}
