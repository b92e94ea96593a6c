DROP TABLE @lease_requests;
ALTER TABLE @leases DROP COLUMN sealed;
