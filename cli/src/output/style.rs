//! Colour, where somebody sees it.

use std::env;
use std::io::IsTerminal;

/// Whether to colour. Colour never carries a fact that the words don't.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    colour: bool,
}

impl Style {
    /// Coloured on a terminal, unless `NO_COLOR` has a value.
    pub(crate) fn for_stream(stream: &impl IsTerminal) -> Self {
        let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { colour: stream.is_terminal() && !refused }
    }

    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self { colour: false }
    }

    pub(crate) fn is_coloured(self) -> bool {
        self.colour
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
