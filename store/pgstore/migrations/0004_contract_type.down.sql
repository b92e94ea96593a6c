ALTER TABLE @contracts DROP COLUMN type;
