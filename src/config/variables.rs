//! What is taken from the environment: `${NAME}` inside a URL.

use super::value::Value;
use crate::error::Error;

/// A URL with its variables put in. Before the `@` they stand for user and password, which may have any characters: there they are
/// written as a URL has to have them. Elsewhere, and as a whole URL, they are taken as they are.
pub(super) fn url(value: &Value<'_>) -> Result<String, Error> {
    let text = value.text()?;
    let log_in = text.rfind('@').unwrap_or(0);
    let (mut url, mut rest) = (String::new(), text);
    while let Some(begin) = rest.find("${") {
        url.push_str(&rest[..begin]);
        let is_log_in = text.len() - rest.len() + begin < log_in;
        let Some((name, behind)) = rest[begin + 2..].split_once('}') else {
            return Err(value.wrong("has a ${ without the } behind it"));
        };
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if name.is_empty() || !is_name(name) {
            return Err(value.wrong("has something else than letters, digits and _ between ${ and }"));
        }
        match (value.source.variable)(name) {
            Some(found) if found.is_empty() => {
                return Err(value.wrong(format!("takes {name} from the environment, and that is empty")));
            }
            Some(found) if is_log_in => url.push_str(&encoded(&found)),
            Some(found) => url.push_str(&found),
            None => {
                let message = format!("takes {name} from the environment, where it is not set, or is no text");
                return Err(value.wrong(message));
            }
        }
        rest = behind;
    }
    url.push_str(rest);
    Ok(url)
}

fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
