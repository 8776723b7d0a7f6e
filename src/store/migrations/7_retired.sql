-- Messages taken out of the log of which something is left to delete.
CREATE INDEX log_retired ON log_messages (id) WHERE whole = 2;
