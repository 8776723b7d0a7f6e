-- What was found in a part of a conversation and had no room in a memory file yet.
ALTER TABLE flushes ADD COLUMN facts TEXT;
