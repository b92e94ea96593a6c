DROP TABLE registry_references;
DROP TABLE registry_versions;
DROP TABLE registry_schemas;
