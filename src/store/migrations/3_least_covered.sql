-- Fewest bytes of a body to which a row may apply: what is smaller need not be read. Of rows that were there before it is
-- not known, so they may apply to any.
INSERT INTO meta (key, value)
SELECT 'least_covered',
    CASE WHEN EXISTS (SELECT 1 FROM evictions) OR EXISTS (SELECT 1 FROM checkpoints) THEN 0 ELSE 9223372036854775807 END;
