//! JSON bodies to any URL.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Status and body, as text.
pub async fn post_text(url: &str, headers: &[(&str, &str)], body: &Value) -> (u16, String) {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let mut request = Request::post(url).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = client.request(request.body(Full::new(body.to_string().into())).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), String::from_utf8(body.to_vec()).unwrap())
}

/// Status and body, as JSON.
pub async fn post(url: &str, headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
    let (status, text) = post_text(url, headers, body).await;
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}
