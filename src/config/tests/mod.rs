mod bad;
#[cfg(feature = "redis")]
mod settings;

use super::Config;
use super::value::Source;
use crate::error::Error;

/// Reads it in an environment of its own.
fn read(text: &str) -> Result<Config, Error> {
    let variable = |name: &str| match name {
        "REDIS_PASSWORD" => Some("p@ss/w:rd?%".into()),
        "REDIS_URL" => Some("redis://u:hunter2@10.0.0.7:1".into()),
        "HOST" => Some("10.0.0.9".into()),
        "NOTHING" => Some(String::new()),
        _ => None,
    };
    Config::of(&Source { text, path: None, variable: &variable })
}
