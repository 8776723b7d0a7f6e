-- The session log: every message once, and an index of its words beside it.
CREATE TABLE logs (
    id INTEGER PRIMARY KEY,
    tenant BLOB NOT NULL,
    session BLOB NOT NULL,
    agent TEXT NOT NULL,
    title TEXT NOT NULL,
    first_used INTEGER NOT NULL,
    last_used INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    UNIQUE (tenant, session)
);
CREATE INDEX logs_by_use ON logs (last_used);

-- Who wrote in a session, beside its first agent.
CREATE TABLE log_agents (
    log INTEGER NOT NULL,
    agent TEXT NOT NULL,
    PRIMARY KEY (log, agent)
) WITHOUT ROWID;

-- after: of an answer that its client has not sent back yet, the digest of the message that it follows.
-- passages: how many rows of the index it has: id * 4096 and those that follow. whole: 0 while it is being written.
CREATE TABLE log_messages (
    id INTEGER PRIMARY KEY,
    log INTEGER NOT NULL,
    digest BLOB NOT NULL,
    parent BLOB,
    after BLOB,
    number INTEGER NOT NULL,
    role INTEGER NOT NULL,
    agent TEXT NOT NULL,
    dialect INTEGER NOT NULL,
    time INTEGER NOT NULL,
    tokens INTEGER,
    length INTEGER NOT NULL,
    passages INTEGER NOT NULL,
    whole INTEGER NOT NULL,
    UNIQUE (log, digest)
);
CREATE INDEX log_answers ON log_messages (log, after) WHERE after IS NOT NULL;

-- The messages' JSON in pieces of at most 60,000 bytes, each compressed by itself.
CREATE TABLE log_bodies (
    message INTEGER NOT NULL,
    number INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (message, number)
) WITHOUT ROWID;

-- Tokens are made by the program: lower-case, separated by blanks. Each begins with its tenant's mark, so that no
-- search so much as reads what it would find of another's.
CREATE VIRTUAL TABLE log_index USING fts5 (
    scope, words, parts,
    content = '', contentless_delete = 1,
    tokenize = "ascii tokenchars '_'"
);
