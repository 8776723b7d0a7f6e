-- Numbers learned from answers. id: a hash of what they were learned for, tenant included.
CREATE TABLE learned (
    id BLOB PRIMARY KEY,
    factor REAL,
    input INTEGER,
    total INTEGER,
    learned_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX learned_by_age ON learned (learned_at);
