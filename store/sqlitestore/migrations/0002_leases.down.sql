ALTER TABLE principals DROP COLUMN lease;
DROP TRIGGER leases_rise;
DROP TRIGGER leases_stay;
DROP TABLE leases;
