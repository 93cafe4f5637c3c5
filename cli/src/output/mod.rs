//! How answers look: one JSON object, or text for people.
//!
//! * `report`: the trait that a command's answer has, the exit codes, and [`Output`], which prints either form.
//! * `escape`: raw bytes as `\xNN`.
//! * `number`: counts, rates and times, for people and as JSON numbers.
//! * `style`: colour, on a terminal only.
//! * `table`: aligned text.

mod escape;
mod number;
mod report;
mod style;
mod table;

pub(crate) use escape::{escape, visible, visible_json};
pub(crate) use number::{count, decimals, human_time, micros, millis_up, seconds};
pub(crate) use report::{Exit, Output, Report, note};
pub(crate) use style::Style;
pub(crate) use table::{Align, facts, grid};
