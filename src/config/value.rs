//! One value of a file: where it stands, what it should be, and what is wrong with it.

use std::path::Path;
#[cfg(feature = "redis")]
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Error, ErrorKind};
#[cfg(feature = "redis")]
use crate::limit::duration;

/// What is read.
pub(super) struct Source<'a> {
    pub text: &'a str,
    /// Where it came from, if it came from a file.
    pub path: Option<&'a Path>,
    /// What the environment has to say.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only URLs are made of variables"))]
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Source<'_> {
    /// The same error, with the place.
    pub(super) fn note(&self, error: Error, path: &str, at: usize) -> Error {
        let line = 1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count();
        let of = self.path.map(|path| format!(" of {}", path.display())).unwrap_or_default();
        let path = if path.is_empty() { String::new() } else { format!("{path}, ") };
        error.noting(format_args!("{path}line {line}{of}"))
    }
}

/// A value, and the way to it.
#[derive(Clone)]
pub(super) struct Value<'a> {
    found: &'a Spanned<DeValue<'a>>,
    pub source: &'a Source<'a>,
    /// The name of the setting, as errors have it.
    pub field: &'static str,
    pub path: String,
}

/// A table, and the way to it.
pub(super) struct Table<'a> {
    entries: &'a DeTable<'a>,
    source: &'a Source<'a>,
    path: String,
}

impl<'a> Table<'a> {
    pub(super) fn whole(entries: &'a DeTable<'a>, source: &'a Source<'a>) -> Self {
        Self { entries, source, path: String::new() }
    }

    /// Its values, of which each has one of these names.
    pub(super) fn fields(&self, known: &[&'static str]) -> Result<Vec<Value<'a>>, Error> {
        let field = |(name, found): (&'a Spanned<_>, &'a Spanned<DeValue<'a>>)| {
            let name: &str = AsRef::<str>::as_ref(name.get_ref());
            if let Some(field) = known.iter().find(|known| **known == name) {
                return Ok(self.value(field, name, found));
            }
            let message = format!("{:?} is not known here; known are {}", shown(name), known.join(", "));
            let error = Error::new(ErrorKind::InvalidSetting, "config", message);
            Err(self.source.note(error, &self.below(name), found.span().start))
        };
        self.entries.iter().map(field).collect()
    }

    /// Its values, under whatever names.
    pub(super) fn named(&self, field: &'static str) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        self.entries.iter().map(move |(name, found)| {
            let name: &str = name.get_ref();
            (name, self.value(field, name, found))
        })
    }

    fn value(&self, field: &'static str, name: &str, found: &'a Spanned<DeValue<'a>>) -> Value<'a> {
        Value { found, source: self.source, field, path: self.below(name) }
    }

    fn below(&self, name: &str) -> String {
        let name = shown(name).escape_debug();
        if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) }
    }
}

impl<'a> Value<'a> {
    /// Where it begins.
    pub(super) fn at(&self) -> usize {
        self.found.span().start
    }

    pub(super) fn text(&self) -> Result<&'a str, Error> {
        self.found.get_ref().as_str().ok_or_else(|| self.is_no("text in quotes"))
    }

    /// A whole number that is not negative.
    pub(super) fn number<N: TryFrom<u64>>(&self) -> Result<N, Error> {
        let wanted = "a whole number that is not negative, and not too large";
        let number = self.found.get_ref().as_integer().ok_or_else(|| self.is_no(wanted))?;
        let number = u64::from_str_radix(number.as_str().trim_start_matches('+'), number.radix()).ok();
        number.and_then(|number| N::try_from(number).ok()).ok_or_else(|| self.wrong(format!("must be {wanted}")))
    }

    pub(super) fn flag(&self) -> Result<bool, Error> {
        self.found.get_ref().as_bool().ok_or_else(|| self.is_no("true or false"))
    }

    /// A text of its own, and no URL.
    pub(super) fn word(&self) -> Result<&'a str, Error> {
        let text = self.text()?;
        if shown(text) == text { Ok(text) } else { Err(self.wrong(NO_URL)) }
    }

    /// What can be read from a text.
    pub(super) fn parsed<T: std::str::FromStr<Err = Error>>(&self) -> Result<T, Error> {
        self.word()?.parse().map_err(|error| self.note(error))
    }

    pub(super) fn table(&self) -> Result<Table<'a>, Error> {
        let entries = self.found.get_ref().as_table();
        let entries = entries.ok_or_else(|| self.is_no(&format!("a table, [{}]", self.path)))?;
        Ok(Table { entries, source: self.source, path: self.path.clone() })
    }

    /// The same value always has the same text, wherever it stands. It may hold a password.
    pub(super) fn canonical(&self) -> String {
        canonical(self.found.get_ref())
    }

    /// What is there is never shown: it may be a password in the wrong place.
    fn is_no(&self, wanted: &str) -> Error {
        self.wrong(format!(
            "must be {wanted}; there is {}",
            match self.found.get_ref() {
                DeValue::String(_) => "a text",
                DeValue::Integer(_) => "a whole number",
                DeValue::Float(_) => "a number with a point",
                DeValue::Boolean(_) => "true or false",
                DeValue::Datetime(_) => "a date",
                DeValue::Array(_) => "a list",
                DeValue::Table(_) => "a table",
            }
        ))
    }

    pub(super) fn wrong(&self, message: impl Into<Box<str>>) -> Error {
        self.note(Error::new(ErrorKind::InvalidSetting, self.field, message))
    }

    pub(super) fn note(&self, error: Error) -> Error {
        self.source.note(error, &self.path, self.at())
    }
}

/// What only settings of shared stores are.
#[cfg(feature = "redis")]
impl Value<'_> {
    pub(super) fn is_whole(&self) -> bool {
        self.found.get_ref().as_integer().is_some()
    }

    pub(super) fn ratio(&self) -> Result<f64, Error> {
        let number = match self.found.get_ref() {
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
            // In another base it is whole. One that is larger is too large for all that ask.
            DeValue::Integer(_) => self.number().map(|number: u32| number.into()).ok(),
            _ => None,
        };
        number.ok_or_else(|| self.is_no("a number such as 0.5"))
    }

    /// As in the text of a limit.
    pub(super) fn time(&self) -> Result<Duration, Error> {
        const FORM: &str = "a number and a unit of us, ms, s, min, h, day or week, in quotes, such as \"50ms\"";
        let text = self.found.get_ref().as_str().ok_or_else(|| self.is_no(FORM))?;
        duration(text).map_err(|_| self.wrong(format!("must be {FORM}, got {:?}", shown(text))))
    }

    pub(super) fn list(&self) -> Result<Vec<Self>, Error> {
        let list = self.found.get_ref().as_array().ok_or_else(|| self.is_no("a list, in brackets"))?;
        let value = |(index, found)| Self { found, path: format!("{}[{index}]", self.path), ..self.clone() };
        Ok(list.iter().enumerate().map(value).collect())
    }
}

/// A text as an error may show it: not if it could hold a password.
pub(super) fn shown(text: &str) -> &str {
    if text.contains('@') || text.contains("://") { "…" } else { text }
}

const NO_URL: &str = "looks like a URL, and there is no place for one here";

fn canonical(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => format!("{}:{}", number.radix(), number.as_str()),
        DeValue::Float(number) => number.as_str().into(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Array(list) => {
            format!("[{}]", list.iter().map(|value| canonical(value.get_ref())).collect::<Vec<_>>().join(","))
        }
        DeValue::Table(table) => {
            let entry = |(name, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let name: &str = AsRef::<str>::as_ref(name.get_ref());
                format!("{name:?}={}", canonical(value.get_ref()))
            };
            format!("{{{}}}", table.iter().map(entry).collect::<Vec<_>>().join(","))
        }
    }
}
