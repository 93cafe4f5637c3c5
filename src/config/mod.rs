//! A limiter and its limits, as a TOML file describes them.
//!
//! * `file`: the whole of it. `fields`: what stands at its top. `shared`: the settings of shared stores. `limits`: its limits.
//! * `value`: one value, where it stands, and what is wrong with it. `variables`: what is taken from the environment.
//! * `apply`: another file while the limiter is in use.

mod apply;
mod fields;
mod file;
mod limits;
#[cfg(feature = "redis")]
mod shared;
#[cfg(test)]
mod tests;
mod value;
#[cfg(feature = "redis")]
mod variables;

pub use apply::Changes;
pub use file::Config;
