//! What is asked for, out of texts that were removed.

/// How many of the first hits count.
pub const FIRST: usize = 10;
/// How often a message is picked in vain before there is nothing more to ask for.
const PATIENCE: usize = 200_000;
/// Characters of a passage.
const PASSAGE: usize = 300;

/// A message that was logged.
pub struct Old {
    pub session: String,
    pub number: u32,
    pub text: String,
    flat: String,
    /// Passages of it that no longer went out.
    pub gone: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Two to four, as they follow one another.
    Words,
    /// One alone.
    Identifier,
    /// Two characters.
    Chinese,
}

pub const KINDS: [Kind; 3] = [Kind::Words, Kind::Identifier, Kind::Chinese];

/// A query, and the index of the message that it was taken from.
#[derive(Debug)]
pub struct Query {
    pub kind: Kind,
    pub text: String,
    pub at: usize,
}

impl Old {
    /// `seen`: what went out, [flat].
    pub fn new(session: String, number: u32, text: String, seen: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let passages = chars.chunks(PASSAGE).map(|passage| passage.iter().collect::<String>());
        let gone = passages.filter(|passage| passage.len() > PASSAGE / 3 && !seen.contains(&flat(passage))).collect();
        Self { session, number, flat: flat(&text), text, gone }
    }
}

/// In one case, and with single blanks.
pub fn flat(text: &str) -> String {
    text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Always the same numbers.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }

    pub fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.below(of.len())]
    }
}

/// Queries of all kinds, as far as the texts have such words. What stands in more messages than count names none of them.
pub fn queries(old: &[Old], most: usize) -> Vec<Query> {
    let gone: Vec<(usize, &String)> =
        old.iter().enumerate().flat_map(|(at, old)| old.gone.iter().map(move |passage| (at, passage))).collect();
    let mut dice = Dice(7);
    let mut queries: Vec<Query> = Vec::new();
    for attempt in 0..PATIENCE {
        if queries.len() >= most || gone.is_empty() {
            break;
        }
        let (at, passage) = *dice.pick(&gone);
        // Every third of each kind, as long as there are any.
        let kind = KINDS[if attempt % 50 == 0 { dice.below(3) } else { queries.len() % 3 }];
        let Some(text) = taken(passage, kind, &mut dice) else { continue };
        let asked = flat(&text);
        let told = queries.iter().any(|query| query.text == text);
        if !told && old.iter().filter(|other| other.flat.contains(&asked)).take(FIRST + 1).count() <= FIRST {
            queries.push(Query { kind, text, at });
        }
    }
    queries
}

fn taken(passage: &str, kind: Kind, dice: &mut Dice) -> Option<String> {
    match kind {
        Kind::Words => {
            let all: Vec<&str> = passage.split_whitespace().collect();
            let (at, count) = (dice.below(all.len()), 2 + dice.below(3));
            // The first and the last may be cut.
            let some = all.get(at..at + count).filter(|_| at > 0 && at + count < all.len())?;
            let says = |word: &&str| word.chars().filter(|c| c.is_alphanumeric()).count() >= 3 && word.len() <= 60;
            some.iter().all(says).then(|| some.join(" "))
        }
        Kind::Identifier => {
            let marks = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
            let all: Vec<&str> = passage.split(marks).collect();
            let at = dice.below(all.len());
            let name = all.get(at).filter(|_| at > 0 && at + 1 < all.len())?;
            is_identifier(name).then(|| (*name).to_owned())
        }
        Kind::Chinese => {
            let chars: Vec<char> = passage.chars().collect();
            let at = dice.below(chars.len());
            let pair = chars.get(at..at + 2)?;
            pair.iter().all(|c| ('\u{4e00}'..='\u{9fff}').contains(c)).then(|| pair.iter().collect())
        }
    }
}

/// Several words in one: `parse_config`, `parseConfig`, `HttpError2`.
fn is_identifier(name: &str) -> bool {
    let letters: Vec<char> = name.chars().collect();
    let humps = letters.windows(2).any(|pair| pair[0].is_lowercase() && pair[1].is_uppercase());
    let joined = name.trim_matches('_').contains('_');
    (6..=60).contains(&letters.len()) && letters[0].is_alphabetic() && (humps || joined)
}
