-- What follows a message, and what an agent wrote last: a page of a long history is found without reading all of it.
CREATE INDEX log_children ON log_messages (log, parent);
CREATE INDEX log_latest ON log_messages (log, agent);
