-- What was removed, rewritten and forwarded, by tenant. A session is all that shares a first item.
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;
-- Counts the transactions that added rows.
INSERT INTO meta (key, value) VALUES ('changes', 0);

CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    tenant BLOB NOT NULL,
    root BLOB NOT NULL,
    last_used INTEGER NOT NULL,
    UNIQUE (tenant, root)
);
CREATE INDEX sessions_by_use ON sessions (last_used);

CREATE TABLE texts (
    id BLOB PRIMARY KEY,
    length INTEGER NOT NULL,
    body BLOB NOT NULL,
    last_used INTEGER NOT NULL
);

CREATE TABLE session_texts (
    session INTEGER NOT NULL,
    text BLOB NOT NULL,
    PRIMARY KEY (session, text)
) WITHOUT ROWID;
CREATE INDEX session_texts_by_text ON session_texts (text);

CREATE TABLE evictions (
    tenant BLOB NOT NULL,
    digest BLOB NOT NULL,
    session INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (tenant, digest)
);
CREATE INDEX evictions_by_session ON evictions (session);

-- level: 0 trim, 1 summary, 2 fold. state: 0 prepared, 1 activated, 2 quarantined.
CREATE TABLE checkpoints (
    tenant BLOB NOT NULL,
    digest BLOB NOT NULL,
    level INTEGER NOT NULL,
    session INTEGER NOT NULL,
    state INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (tenant, digest, level)
);
CREATE INDEX checkpoints_by_session ON checkpoints (session);

CREATE TABLE forwarded (
    tenant BLOB NOT NULL,
    digest BLOB NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (tenant, digest)
) WITHOUT ROWID;
CREATE INDEX forwarded_by_session ON forwarded (session);
