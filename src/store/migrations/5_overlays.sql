-- What the proxy adds to a conversation, by the chain digest of the client's own history.
-- kind: 0 offer, 1 aside. variant: of several under one digest, a hash; empty where the first stays.
CREATE TABLE overlays (
    tenant BLOB NOT NULL,
    digest BLOB NOT NULL,
    kind INTEGER NOT NULL,
    variant BLOB NOT NULL,
    session INTEGER NOT NULL,
    body BLOB NOT NULL,
    -- When it was last noted that an aside is in use; 0: never.
    used INTEGER NOT NULL,
    PRIMARY KEY (tenant, digest, kind, variant)
);
CREATE INDEX overlays_by_session ON overlays (session);
