//! The admissions of a run in a file: a line for each moment, with microseconds since 1970 and permits.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use shardlimit_check::Admission;

use crate::error::Failure;

pub(crate) fn write(path: &Path, admissions: &[Admission]) -> Result<(), Failure> {
    let put = || -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for Admission { at, permits } in admissions {
            writeln!(file, "{at} {permits}")?;
        }
        file.flush()
    };
    put().map_err(|error| Failure::system("record", &format!("{} can't be written", path.display()), &error))
}

pub(super) fn read(path: &Path) -> Result<Vec<Admission>, Failure> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| Failure::system("file", &format!("{shown} can't be read"), &error))?;
    let mut admissions = Vec::new();
    for (number, line) in (1..).zip(BufReader::new(file).lines()) {
        let line = line.map_err(|error| Failure::system("file", &format!("{shown} can't be read"), &error))?;
        let parsed = line
            .split_once(' ')
            .and_then(|(at, permits)| Some(Admission { at: at.parse().ok()?, permits: permits.parse().ok()? }));
        let wrong = || Failure::usage("file", format!("{shown}: line {number} is no moment and permits: {line:?}"));
        admissions.push(parsed.ok_or_else(wrong)?);
    }
    Ok(admissions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let path = std::env::temp_dir().join(format!("shardlimit-record-{}", std::process::id()));
        let admissions = [Admission { at: 1_700_000_000_000_000, permits: 3 }, Admission { at: 7, permits: 1 }];
        write(&path, &admissions).unwrap();
        assert_eq!(read(&path).unwrap(), admissions);
        std::fs::write(&path, "17 1\nx 2\n").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("line 2"));
        std::fs::remove_file(&path).unwrap();
        assert!(read(&path).is_err());
    }
}
