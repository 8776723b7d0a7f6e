-- Whether a model takes tools: 1 or 0. In rows of their own, beside those of factors and windows.
ALTER TABLE learned ADD COLUMN takes_tools INTEGER;
