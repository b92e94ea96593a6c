ALTER TABLE @principals DROP COLUMN lease;
DROP TABLE @leases;
DROP FUNCTION @leases_stay();
DROP FUNCTION @leases_rise();
