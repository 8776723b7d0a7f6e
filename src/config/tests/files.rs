//! Certificates and keys: what serving would refuse is refused when the file is read.

use super::*;

/// A folder with `cert.pem`, `key.pem` and `empty.pem`.
fn folder() -> tempfile::TempDir {
    let made = rcgen::generate_simple_self_signed(["localhost".into()]).expect("certificate");
    let folder = tempfile::tempdir().expect("folder");
    let files =
        [("cert.pem", made.cert.pem()), ("key.pem", made.signing_key.serialize_pem()), ("empty.pem", String::new())];
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("file");
    }
    folder
}

#[test]
fn files_must_hold_what_their_key_says() {
    let folder = folder();
    let tls = |files: &str| format!("[server]\ntls = {{ {files} }}");
    let ca = |file: &str| format!("[[upstream]]\nname = \"a\"\nbase_url = \"https://h\"\nca_file = {file}");
    let refused = [
        (tls("cert = CERT"), 2, "server.tls.key", "missing"),
        (tls("cert = CERT, key = KEY, ca = \"x\""), 2, "server.tls.ca", "not known"),
        (tls("cert = CERT, key = GONE"), 2, "server.tls.key", "cannot be read"),
        (tls("cert = CERT, key = CERT"), 2, "server.tls.key", "PEM"),
        (tls("cert = KEY, key = KEY"), 2, "server.tls.cert", "PEM"),
        (tls("cert = EMPTY, key = KEY"), 2, "server.tls.cert", "PEM"),
        (ca("EMPTY"), 4, "upstream.ca_file", "PEM"),
        (ca("\"Cargo.toml\""), 4, "upstream.ca_file", "PEM"),
    ];
    for (text, line, key, words) in refused {
        let found = problems(&filled(&text, folder.path()));
        let all: Vec<_> = found.iter().map(|problem| (problem.line, problem.key.as_str())).collect();
        assert_eq!(all, [(Some(line), key)], "{text}\n{found}");
        assert!(found.to_string().contains(words), "{text}\n{found}");
    }
    for text in [tls("cert = CERT, key = KEY"), ca("CERT")] {
        parse(&filled(&text, folder.path()));
    }
}

fn filled(text: &str, folder: &std::path::Path) -> String {
    let quoted = |name: &str| format!("{:?}", folder.join(name));
    let files = [("CERT", "cert.pem"), ("KEY", "key.pem"), ("EMPTY", "empty.pem"), ("GONE", "gone.pem")];
    files.iter().fold(text.to_owned(), |text, (word, name)| text.replace(word, &quoted(name)))
}
