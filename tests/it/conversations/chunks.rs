//! However a body arrives, what goes out is the same.

use bytes::Bytes;
use compactproxy::demo::provider::Origin;
use compactproxy::demo::window::Limit;

use super::bytes::not_spliced_as;
use super::document::Document;
use super::form::Form;
use super::stage::{Stage, is_relayed, shipped};
use super::walk::window;
use crate::support::wire::{connect, values};

/// Numbers that depend on nothing but the seed.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    /// `body` in pieces of random lengths, short ones and long ones.
    fn pieces<'b>(&mut self, body: &'b [u8]) -> Vec<&'b [u8]> {
        let (mut pieces, mut rest) = (Vec::new(), body);
        while !rest.is_empty() {
            let most = [3, 500, 40_000][self.below(3)];
            let (piece, after) = rest.split_at((1 + self.below(most)).min(rest.len()));
            // Few tiny ones: each is a segment of its own.
            pieces.push(piece);
            rest = after;
            if pieces.len() > 200 {
                pieces.push(rest);
                break;
            }
        }
        pieces
    }
}

/// How a body's end is told.
#[derive(Clone, Copy, PartialEq)]
enum Framed {
    Length,
    Chunks,
}

async fn send_in_pieces(stage: &Stage, body: &Bytes, framed: Framed, numbers: &mut Sequence) -> Bytes {
    let mut client = connect(stage.addr()).await;
    client.stream.set_nodelay(true).unwrap();
    let length = match framed {
        Framed::Length => format!("content-length: {}", body.len()),
        Framed::Chunks => "transfer-encoding: chunked".to_owned(),
    };
    let from = stage.provider.completions().len();
    let line = format!("POST {} HTTP/1.1\r\nhost: p\r\nauthorization: Bearer sk-one", stage.form.path());
    let fields = "anthropic-version: 2023-06-01\r\ncontent-type: application/json\r\nconnection: close";
    client.send(format!("{line}\r\n{fields}\r\n{length}\r\n\r\n")).await;
    for piece in numbers.pieces(body).into_iter().filter(|piece| !piece.is_empty()) {
        match framed {
            Framed::Length => client.send(piece).await,
            Framed::Chunks => {
                client.send(format!("{:x}\r\n", piece.len())).await;
                client.send(piece).await;
                client.send("\r\n").await;
            }
        }
    }
    if framed == Framed::Chunks {
        client.send("0\r\n\r\n").await;
    }
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let (answer, _) = client.chunked().await;
    assert!(stage.form.complete(&answer), "{head}");
    let exchanges = stage.provider.completions();
    let arrived = exchanges.iter().skip(from).rev().find(|exchange| exchange.origin == Origin::Agent);
    let rewritten = !values(&head, "x-compactproxy-action").is_empty();
    assert!(is_relayed(stage.form, arrived.unwrap(), &answer), "{head}");
    let arrived = arrived.unwrap().body.clone();
    assert_eq!(rewritten, arrived != body, "{head}");
    arrived
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_make_no_difference() {
    let mut numbers = Sequence(7);
    let documents = [Form::Chat, Form::Responses, Form::Messages].map(Document::fixtures);
    for document in documents.into_iter().flatten() {
        let window = window(&document);
        // Everything on, nothing on, and on with nothing to do.
        let settings = [shipped(window), String::new(), shipped(10_000_000)];
        let turns = document.turns();
        let body = document.body(turns[turns.len() * 2 / 3]);
        for (kind, toml) in settings.iter().enumerate() {
            let limit = if kind == 0 { Limit::of(window) } else { Limit::default() };
            let stage = Stage::with(window, limit, toml).await.speaking(document.form);
            let settled = stage.settled(&body).await;
            for framed in [Framed::Length, Framed::Chunks] {
                let arrived = send_in_pieces(&stage, &body, framed, &mut numbers).await;
                assert_eq!(&arrived, settled.sent(), "{} {kind}", document.name);
                assert_eq!(not_spliced_as(document.form, &body, &arrived), Ok(()), "{} {kind}", document.name);
                assert!(kind != 1 || arrived == body);
            }
        }
    }
}
