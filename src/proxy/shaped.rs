//! Bodies for paths that name no dialect: whether one is a model call, and of which API, is told by what it says.
//! It is taken in only as long as its first bytes do not show that it is something else.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, EXPECT};
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;

use super::intake::{self, Look, Taken};
use super::origin::INLINE_BYTES;
use super::outcome::Record;
use super::reply::{Fault, ReplyBody};
use super::{Exchange, route};
use crate::wire::Dialect;
use crate::wire::shape::{self, BEGINNING, Begun};

impl Exchange<'_> {
    /// The dialects in which a request for `path`, at the upstream, may be although the path names none. Only a plain
    /// body of a known length that nobody waits with is worth the look.
    pub(super) fn spoken(&self, request: &Request<Incoming>, path: &str) -> &'static [Dialect] {
        let headers = request.headers();
        let plain = !headers.contains_key(CONTENT_ENCODING) && !headers.contains_key(EXPECT);
        let known = request.body().size_hint().exact().is_some();
        match self.shard.proxy.compactor.is_some() && plain && known {
            true => route::unnamed(self.route.upstream.api, request.method(), path, headers),
            false => &[],
        }
    }

    /// A request whose body may be in one of `spoken`.
    pub(super) async fn shaped(
        &self,
        request: Request<Incoming>,
        spoken: &'static [Dialect],
        mut record: Record,
    ) -> Result<Response<ReplyBody>, (Fault, Record)> {
        let proxy = &self.shard.proxy;
        let look = intake::permits(request.headers(), request.uri().query(), proxy.config.server.max_body_bytes);
        if look == Look::Away {
            return self.stream(request, record).await;
        }
        let (parts, body) = request.into_parts();
        let taken = intake::take_while(proxy, body, self.route.upstream.idle_timeout, promising()).await;
        let taken = match taken {
            Ok(taken) => taken,
            Err(fault) => return Err((fault, record)),
        };
        let dialect = match &taken {
            Taken::Whole(intake) => self.shape(&intake.body, spoken).await,
            Taken::Passing(_) => None,
        };
        let look = if dialect.is_some() { look } else { Look::Away };
        let exchange = Exchange { dialect: dialect.or(self.dialect), ..*self };
        record.asked(exchange.dialect, self.index);
        match exchange.taken(parts, taken, look, &mut record).await {
            Ok((held, additions)) => Ok(exchange.relay(held, additions, record)),
            Err(fault) => Err((fault, record)),
        }
    }

    /// The dialect of a whole body; a long one is read where it delays nobody.
    async fn shape(&self, body: &Bytes, spoken: &'static [Dialect]) -> Option<Dialect> {
        if body.len() <= INLINE_BYTES {
            return shape::dialect(body, spoken);
        }
        let (compactor, body) = (self.shard.proxy.compactor.as_ref()?, body.clone());
        compactor.workers.run(move || shape::dialect(&body, spoken)).await?
    }
}

/// Whether what has come of a body may be the beginning of a conversation. It is looked at again each time it has
/// doubled, so that a body in many pieces costs no more than twice its bytes.
fn promising() -> impl FnMut(&[u8]) -> bool {
    let mut due = 0;
    move |bytes| {
        if bytes.len() < due {
            return true;
        }
        due = bytes.len() * 2;
        match shape::begun(bytes) {
            Begun::Conversation => {
                due = usize::MAX;
                true
            }
            Begun::Other => false,
            Begun::Open => bytes.len() < BEGINNING,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_without_a_conversation_is_given_up() {
        let tools = |bytes: usize| format!(r#"{{"tools":["{}"#, "x".repeat(bytes)).into_bytes();
        let mut wanted = promising();
        assert!(wanted(&tools(BEGINNING / 2)));
        assert!(wanted(&tools(BEGINNING - 20)), "looked at when it has doubled");
        assert!(!wanted(&tools(BEGINNING + BEGINNING / 8)));
        let mut wanted = promising();
        assert!(wanted(br#"{"messages":[{"#));
        assert!(wanted(&vec![b'x'; 2 * BEGINNING]), "what has begun is taken in whole");
        assert!(!promising()(br#"{"input":["a","b""#));
    }
}
