//! The folder of a cluster. Its record is made before anything else, so two can't be started in one folder.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{self, PathBuf};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::error::Failure;
use crate::options::FolderOptions;
use crate::output::escape;

const RECORD: &str = "cluster.json";

/// What `down` must know. Empty while the servers are being started.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Record {
    pub nodes: Vec<Recorded>,
}

/// One server. A pid alone may be another process by now, and so may a port: the run id is the server's own.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Recorded {
    pub pid: u32,
    pub port: u16,
    pub bus_port: u16,
    pub run_id: String,
}

#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(options: &FolderOptions) -> Self {
        let dir = options.dir.clone().unwrap_or_else(|| std::env::temp_dir().join("shardlimit-cluster"));
        // What is printed must hold from everywhere.
        Self(path::absolute(&dir).unwrap_or(dir))
    }

    pub(super) fn text(&self) -> String {
        escape(self.0.as_os_str().as_encoded_bytes())
    }

    /// Makes the folder ours: there from now on, private, with nothing in it but an empty record.
    pub(super) fn claim(&self) -> Result<Claim, Failure> {
        match DirBuilder::new().mode(0o700).create(&self.0) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => self.check()?,
            Err(error) => return Err(self.failure("can't be made", &error)),
        }
        // Not made anew where it is there already: only one can do so.
        match OpenOptions::new().write(true).create_new(true).open(self.0.join(RECORD)) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(self.taken()),
            Err(error) => return Err(self.failure("can't be written to", &error)),
        }
        let claim = Claim { folder: self.clone(), kept: false };
        self.write(&Record::default())?;
        Ok(claim)
    }

    /// The default's name can be guessed: somebody else's folder, or a link to one, is not used.
    fn check(&self) -> Result<(), Failure> {
        let found = fs::symlink_metadata(&self.0).map_err(|error| self.failure("can't be read", &error))?;
        if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
            let message = "must be a folder of your own that nobody else can write to; give another with --dir";
            return Err(Failure::usage("dir", format!("{} {message}", self.text())));
        }
        if self.0.join(RECORD).exists() {
            return Err(self.taken());
        }
        let mut entries = fs::read_dir(&self.0).map_err(|error| self.failure("can't be read", &error))?;
        if entries.next().is_some() {
            return Err(Failure::usage("dir", format!("{} must be new or empty", self.text())));
        }
        Ok(())
    }

    fn taken(&self) -> Failure {
        let state = match self.read() {
            Ok(Some(record)) if record.nodes.iter().any(|node| node.find().is_ours()) => "a cluster is up",
            Ok(Some(record)) if record.nodes.is_empty() => "a cluster is being started",
            _ => "what is left of a cluster is",
        };
        let text = self.text();
        let advice = format!("stop it with `shardlimit cluster down --dir {text}`, or give another folder with --dir");
        let message = format!("cluster: {state} in {text}; {advice}");
        Failure { kind: "already_up".into(), field: "cluster".into(), message }
    }

    /// The record, if there is one.
    pub(super) fn read(&self) -> Result<Option<Record>, Failure> {
        match fs::read(self.0.join(RECORD)) {
            // Only claimed as yet.
            Ok(bytes) if bytes.is_empty() => Ok(Some(Record::default())),
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| self.failure("has a record that can't be read", &error.into())),
            Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => Ok(None),
            Err(error) => Err(self.failure("can't be read", &error)),
        }
    }

    /// In one step: whoever reads it finds the old one or the new one.
    pub(super) fn write(&self, record: &Record) -> Result<(), Failure> {
        let text = serde_json::to_vec(record).expect("a record has text keys");
        let new = self.0.join("cluster.json.new");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, self.0.join(RECORD)))
            .map_err(|error| self.failure("can't be written to", &error))
    }

    /// A folder for one server.
    pub(super) fn of_server(&self, port: u16) -> Result<PathBuf, Failure> {
        let path = self.0.join(format!("server-{port}"));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| self.failure("can't be written to", &error))?;
        Ok(path)
    }

    /// Removes what we made, and the folder unless something else is in it; says whether it is gone.
    pub(super) fn remove(&self) -> Result<bool, Failure> {
        let failure = |error: io::Error| self.failure("can't be removed", &error);
        for entry in fs::read_dir(&self.0).map_err(failure)? {
            let entry = entry.map_err(failure)?;
            let name = entry.file_name();
            let port = name.to_str().and_then(|name| name.strip_prefix("server-"));
            if port.is_some_and(|port| port.parse::<u16>().is_ok()) {
                fs::remove_dir_all(entry.path()).map_err(failure)?;
            }
        }
        let _ = fs::remove_file(self.0.join("cluster.json.new"));
        // Last: without its record nobody would know whose the rest is.
        fs::remove_file(self.0.join(RECORD)).map_err(failure)?;
        Ok(fs::remove_dir(&self.0).is_ok())
    }

    fn failure(&self, message: &str, cause: &io::Error) -> Failure {
        Failure::system("dir", &format!("{} {message}", self.text()), cause)
    }
}

/// A folder that goes away again unless the cluster in it came to be.
pub(super) struct Claim {
    folder: Folder,
    kept: bool,
}

impl Claim {
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.kept {
            // What went wrong before is the answer.
            let _ = self.folder.remove();
        }
    }
}
