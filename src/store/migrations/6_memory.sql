-- Memory files of a tenant's agents. They belong to no session and do not expire.
-- version: counts a file's changes. merged: bytes of a day's file that MEMORY.md has taken in.
CREATE TABLE memory_files (
    tenant BLOB NOT NULL,
    agent TEXT NOT NULL,
    path TEXT NOT NULL,
    version INTEGER NOT NULL,
    merged INTEGER NOT NULL,
    length INTEGER NOT NULL,
    body BLOB NOT NULL,
    previous_length INTEGER,
    previous_body BLOB,
    updated INTEGER NOT NULL,
    PRIMARY KEY (tenant, agent, path)
) WITHOUT ROWID;

-- What user and model said before a summary took its place, waiting to be read for facts.
CREATE TABLE flushes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant BLOB NOT NULL,
    agent TEXT NOT NULL,
    session INTEGER NOT NULL,
    length INTEGER NOT NULL,
    body BLOB NOT NULL,
    attempts INTEGER NOT NULL,
    due INTEGER NOT NULL
);
CREATE INDEX flushes_by_owner ON flushes (tenant, agent, due);
CREATE INDEX flushes_by_session ON flushes (session);

-- Messages that were read for facts, or wait in flushes.
CREATE TABLE flushed (
    tenant BLOB NOT NULL,
    agent TEXT NOT NULL,
    digest BLOB NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (tenant, agent, digest)
);
CREATE INDEX flushed_by_session ON flushed (session);
