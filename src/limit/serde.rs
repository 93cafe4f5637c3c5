//! A limit in a configuration file is its text form.

use std::fmt;

use serde_core::de::{Deserialize, Deserializer, Visitor};
use serde_core::ser::{Serialize, Serializer};

use super::Limit;

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Limit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a limit such as \"token-bucket 500000/s burst 50000\"")
            }

            fn visit_str<E: serde_core::de::Error>(self, text: &str) -> Result<Limit, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}
