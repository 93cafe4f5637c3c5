//! Stands in for the crate `rocksdb`, so that benches can measure limitador without half an hour of building a database.
//!
//! limitador 0.14's Redis stores do not compile without its disk store: one module writes the keys of both, and it is only there
//! with the feature `disk_storage`. So the disk store is compiled, and it names what is below. It is never used, and could not
//! be: [`DBWithThreadMode`] has no values, and opening one is an error. limitador itself is the crate as it was published.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::path::Path;
use std::{error, fmt};

/// What every attempt to open a database ends with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(());

impl Error {
    /// None of those that limitador would try again after.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::NotSupported
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no RocksDB in this build, only a stand-in for its types")
    }
}

impl error::Error for Error {}

/// Kinds of errors, as far as limitador asks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The only one that there is.
    NotSupported,
    /// Never.
    TimedOut,
    /// Never.
    TryAgain,
}

/// The mode of a database that threads share.
#[derive(Clone, Copy, Debug)]
pub enum MultiThreaded {}

/// A database: there is none.
#[derive(Debug)]
pub struct DBWithThreadMode<T> {
    none: Infallible,
    mode: PhantomData<T>,
}

/// As the feature `multi-threaded-cf` has it.
pub type DB = DBWithThreadMode<MultiThreaded>;

/// A key and its value.
pub type Entry = Result<(Box<[u8]>, Box<[u8]>), Error>;

/// Entries of a database.
pub type Entries = std::iter::Empty<Entry>;

impl<T> DBWithThreadMode<T> {
    /// Opens nothing.
    ///
    /// # Errors
    /// Always.
    pub fn open<P: AsRef<Path>>(_: &Options, _: P) -> Result<Self, Error> {
        Err(Error(()))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Nobody can call this.
    pub fn get<K: AsRef<[u8]>>(&self, _: K) -> Result<Option<Vec<u8>>, Error> {
        match self.none {}
    }

    /// Merges a value into that of a key.
    ///
    /// # Errors
    /// Nobody can call this.
    pub fn merge<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, _: K, _: V) -> Result<(), Error> {
        match self.none {}
    }

    /// Removes a key.
    ///
    /// # Errors
    /// Nobody can call this.
    pub fn delete<K: AsRef<[u8]>>(&self, _: K) -> Result<(), Error> {
        match self.none {}
    }

    /// All entries.
    pub fn iterator(&self, _: IteratorMode) -> Entries {
        match self.none {}
    }

    /// The entries whose keys begin like this.
    pub fn prefix_iterator<P: AsRef<[u8]>>(&self, _: P) -> Entries {
        match self.none {}
    }
}

/// Where to begin.
#[derive(Clone, Copy, Debug)]
pub enum IteratorMode {
    /// At the first key.
    Start,
}

/// What becomes of an entry.
#[derive(Clone, Copy, Debug)]
pub enum CompactionDecision {
    /// It stays.
    Keep,
    /// It goes.
    Remove,
}

/// How entries are compressed.
#[derive(Clone, Copy, Debug)]
pub enum DBCompressionType {
    /// Not at all.
    None,
    /// By bzip2.
    Bz2,
}

/// Values that wait to be merged: there are none.
#[derive(Clone, Copy, Debug)]
pub struct MergeOperands(Infallible);

impl MergeOperands {
    /// One after the other.
    pub fn iter(&self) -> std::iter::Empty<&[u8]> {
        match self.0 {}
    }
}

impl<'a> IntoIterator for &'a MergeOperands {
    type Item = &'a [u8];
    type IntoIter = std::iter::Empty<&'a [u8]>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Settings, which nothing reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options(());

impl Options {
    /// Changes nothing.
    pub fn create_if_missing(&mut self, _: bool) {}

    /// Changes nothing.
    pub fn set_compression_type(&mut self, _: DBCompressionType) {}

    /// Changes nothing.
    pub fn set_compaction_filter<F>(&mut self, _: &str, _: F)
    where
        F: FnMut(u32, &[u8], &[u8]) -> CompactionDecision + Send + 'static,
    {
    }

    /// Changes nothing.
    pub fn set_merge_operator_associative<F>(&mut self, _: &str, _: F)
    where
        F: Fn(&[u8], Option<&[u8]>, &MergeOperands) -> Option<Vec<u8>> + Clone + 'static,
    {
    }
}
