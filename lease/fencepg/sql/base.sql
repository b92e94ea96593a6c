-- Where the guards look, for functions only. Applications get no right on it.
CREATE SCHEMA IF NOT EXISTS @private;
CREATE SCHEMA IF NOT EXISTS @public;
REVOKE ALL ON SCHEMA @private FROM PUBLIC;
