//! The event that says that an answer has failed.

use bytes::Bytes;

use super::super::object::{edited, utf8};
use super::{Object, Splicer};
use crate::wire::writing::quoted;

impl Splicer {
    /// The error of a later round as the last event of an answer that has begun.
    pub(in super::super) fn error(&self, error: &[u8]) -> Bytes {
        let told = Object::read(error, 0);
        let told = told.as_ref().and_then(|object| {
            let failed = || object.object("response")?.object("error");
            object.object("error").or_else(failed)
        });
        let code = told.as_ref().map(|error| error.string("code")).filter(|code| !code.is_empty());
        let message = told.as_ref().map(|error| error.string("message").into_owned());
        let message = message.unwrap_or_else(|| String::from_utf8_lossy(error).into_owned());
        let (code, message) = (quoted(code.as_deref().unwrap_or("server_error")), quoted(&message));
        let error = format!(r#"{{"code":{code},"message":{message}}}"#);
        let number = self.next.0;
        let begun = Object::read(&self.begun, 0).map(|response| {
            let set = [("status", "\"failed\"".to_owned()), ("error", error.clone())];
            let edits = set.into_iter().filter_map(|(key, value)| response.set(key, value)).collect();
            utf8(&edited(&self.begun, edits))
        });
        let (name, rest) = match begun {
            Some(response) => ("response.failed", format!(r#""response":{response}"#)),
            None => ("error", format!(r#""error":{error},"code":{code},"message":{message},"param":null"#)),
        };
        let data = format!(r#"{{"type":"{name}","sequence_number":{number},{rest}}}"#);
        format!("event: {name}\ndata: {}\n\n", data.replace(['\n', '\r'], " ")).into()
    }
}
